//! Tests are named after the vectors of `docs/vectors.md`: `tb_3_costs` is about `TB-3`. Every such vector is on that page.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The prefixes of ids that test names use.
const SECTIONS: [&str; 11] = ["tb", "lq", "fw", "sl", "sc", "cc", "ad", "wf", "ml", "bc", "le"];

/// The vector that a test is named after.
fn vector(test: &str) -> Option<String> {
    let mut words = test.split('_');
    let (section, number) = (words.next()?, words.next()?);
    let is_vector = SECTIONS.contains(&section) && number.parse::<u32>().is_ok();
    is_vector.then(|| format!("{}-{number}", section.to_uppercase()))
}

/// The vectors that tests below a directory are named after.
fn vectors_of_tests(directory: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            vectors_of_tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            found.extend(source.split("fn ").skip(1).filter_map(|rest| vector(rest.split('(').next()?)));
        }
    }
}

#[test]
fn every_vector_that_a_test_is_named_after_is_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/vectors.md")).unwrap();
    let mut vectors = BTreeSet::new();
    vectors_of_tests(&root.join("crates"), &mut vectors);
    assert!(vectors.len() > 50, "{vectors:?}");
    // A row of a table, or a paragraph, begins with the id that it defines.
    let is_defined = |id: &&String| {
        let (row, paragraph) = (format!("| `{id}` |"), format!("`{id}`"));
        page.lines().any(|line| line.starts_with(&row) || line.starts_with(&paragraph))
    };
    let missing: Vec<_> = vectors.iter().filter(|id| !is_defined(id)).collect();
    assert!(missing.is_empty(), "not in docs/vectors.md: {missing:?}");
}
