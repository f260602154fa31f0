//! Evaluates a playground request from standard input: `cargo run --release --example playground < request.json`.
//!
//! Standard output gets the reply, standard error the time that reading, evaluating and writing took.

use std::error::Error;
use std::io::{Read as _, Write as _};

use tollgate_lab::playground::{PlaygroundRequest, play};

#[expect(clippy::disallowed_methods, reason = "it measures how long the evaluation takes")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut body = Vec::new();
    std::io::stdin().read_to_end(&mut body)?;
    let begun = std::time::Instant::now();
    let request: PlaygroundRequest = serde_json::from_slice(&body)?;
    let read = begun.elapsed();
    let reply = play(&request, &mut || true)?;
    let played = begun.elapsed();
    let text = serde_json::to_vec(&reply)?;
    let written = begun.elapsed();
    eprintln!(
        "read {read:?}, played {:?}, written {:?}: {} bytes",
        played - read,
        written - played,
        text.len()
    );
    std::io::stdout().write_all(&text)?;
    Ok(())
}
