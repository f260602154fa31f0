//! Compresses the files of `web/`, and lists them for `src/http/pages.rs`.
//!
//! The list is `web.rs` in the output directory: `HASH` of all contents, `PAGES` and `FILES`, each with its name and its gzip. In
//! pages, `{files}` stands for the path below which the files are served.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=web");
    let web = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("web");
    let mut names = Vec::new();
    list(&web, "", &mut names)?;
    names.sort();
    let (pages, files): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| name.ends_with(".html"));

    let mut hasher = DefaultHasher::new();
    for name in &files {
        hasher.write(name.as_bytes());
        hasher.write(&fs::read(web.join(name))?);
    }
    let hash = format!("{:016x}", hasher.finish());

    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let mut code = format!("const HASH: &str = \"{hash}\";\n");
    for (constant, names) in [("PAGES", &pages), ("FILES", &files)] {
        writeln!(code, "static {constant}: &[File] = &[")?;
        for name in names {
            let mut content = fs::read(web.join(name))?;
            if name.ends_with(".html") {
                content = String::from_utf8(content)?.replace("{files}", &format!("/assets/{hash}")).into();
            }
            let target = out.join(format!("{}.gz", name.replace('/', "-")));
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            gzip.write_all(&content)?;
            fs::write(&target, gzip.finish()?)?;
            writeln!(code, "    File {{ name: {name:?}, gzip: include_bytes!({target:?}) }},")?;
        }
        writeln!(code, "];")?;
    }
    fs::write(out.join("web.rs"), code)?;
    Ok(())
}

/// Adds the names of all files below a directory.
fn list(directory: &Path, prefix: &str, names: &mut Vec<String>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_str().ok_or("a name that is not UTF-8")?);
        match entry.file_type()?.is_dir() {
            true => list(&entry.path(), &format!("{name}/"), names)?,
            false => names.push(name),
        }
    }
    Ok(())
}
