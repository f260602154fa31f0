//! The ready-made requests of the playground: `cargo run --example stories` writes them as JSON to standard output,
//! `cargo run --example stories -- docs/images` writes an animated SVG of each to that directory.

use std::error::Error;
use std::path::Path;

use tollgate_lab::playground::{animation, stories};

fn main() -> Result<(), Box<dyn Error>> {
    let Some(directory) = std::env::args_os().nth(1) else {
        println!("{}", serde_json::json!({"stories": serde_json::to_value(stories())?}));
        return Ok(());
    };
    for story in stories() {
        let file = Path::new(&directory).join(format!("playground-{}.svg", story.name));
        std::fs::write(file, animation(story))?;
    }
    Ok(())
}
