//! The tests of a crate are one program: `tests/main.rs` lists their files. A file that it does not list would not run.

use std::fs;
use std::path::Path;

#[test]
fn every_test_file_belongs_to_a_program() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = 0;
    for entry in fs::read_dir(crates).unwrap().map(Result::unwrap) {
        let (tests, manifest) = (entry.path().join("tests"), entry.path().join("Cargo.toml"));
        let Ok(main) = fs::read_to_string(tests.join("main.rs")) else { continue };
        let manifest = fs::read_to_string(manifest).unwrap();
        for file in fs::read_dir(&tests).unwrap().map(|file| file.unwrap().path()) {
            let name = file.file_stem().unwrap().to_str().unwrap();
            let is_source = file.extension().is_some_and(|extension| extension == "rs") || file.is_dir();
            if !is_source || name == "main" {
                continue;
            }
            files += 1;
            let is_module = main.lines().any(|line| line == format!("mod {name};"));
            let is_program = manifest.contains(&format!("path = \"tests/{name}.rs\""));
            assert!(is_module || is_program, "{} is part of no program", file.display());
        }
    }
    assert!(files > 30, "{files} files");
}
