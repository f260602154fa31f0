//! The table of algorithms is the only place that has their names as strings.

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_core::AlgorithmKind;

/// The table itself.
const TABLE: &str = "tollgate-core/src/kind.rs";

/// Places where the same word is the key of something else: the `concurrency` of a gateway is not an algorithm.
const OTHER_MEANINGS: [(&str, &str); 2] = [
    ("tollgate-policy/src/keys.rs", "concurrency"),
    ("tollgate-policy/src/policy/gateway.rs", "concurrency"),
];

/// Crates of which nothing is shipped.
const NOT_SHIPPED: [&str; 2] = ["tollgate-bench", "tollgate-testkit"];

#[test]
fn names_of_algorithms_are_string_literals_only_in_the_table() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in fs::read_dir(crates).unwrap() {
        let entry = entry.unwrap();
        if !NOT_SHIPPED.iter().any(|name| entry.file_name() == *name) {
            add_sources(&entry.path().join("src"), &mut files);
        }
    }
    assert!(files.len() > 200, "only {} files in {}", files.len(), crates.display());
    let mut found = Vec::new();
    for file in files {
        let path = file.strip_prefix(crates).unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&file).unwrap();
        for (line, name) in literals(&text) {
            if path != TABLE && !OTHER_MEANINGS.contains(&(&path, name)) {
                found.push(format!("{path}:{line}: \"{name}\""));
            }
        }
    }
    assert!(found.is_empty(), "write AlgorithmKind::NAME.name() instead of:\n{}", found.join("\n"));
}

/// Adds the Rust files of a directory that are not tests.
fn add_sources(directory: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            add_sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
}

/// The string literals that are the name of an algorithm, each with its line. Longer texts that contain a name, comments, and
/// the tests at the end of a file do not count: they explain, and nothing is decided by them.
fn literals(source: &str) -> Vec<(usize, &'static str)> {
    let shipped = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = shipped.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    let in_line = |(number, line): (usize, &str)| {
        let names = AlgorithmKind::ALL.iter().map(|kind| kind.name());
        names
            .filter(|name| line.contains(&format!("\"{name}\"")))
            .map(|name| (number + 1, name))
            .collect::<Vec<_>>()
    };
    lines.flat_map(in_line).collect()
}

#[test]
fn a_name_in_code_is_found_and_one_in_a_text_or_a_test_is_not() {
    let source = "/// \"token_bucket\"\nlet a = \"leaky_bucket\";\nlet b = \"a sliding_log\";\nlet c = \"{\\\"fixed_window\\\": 1}\";
#[cfg(test)]\nmod tests {\n    let d = \"burst_credits\";\n}\n";
    assert_eq!(literals(source), [(2, "leaky_bucket")]);
}
