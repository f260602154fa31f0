//! A wrong core is caught.
//!
//! Each classic mistake of the field is planted in a copy of this crate, one line at a time, and the test
//! that guards against it must then fail. A short run plants every twelfth mistake, `./test --long` all of them.

mod list;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use list::{MISTAKES, Mistake};
use tollgate_testkit::is_long;

#[test]
fn planted_mistakes_are_caught() {
    let copy = Copy::of_the_workspace();
    let guards: Vec<&str> = MISTAKES.iter().map(|mistake| mistake.caught_by).collect();
    copy.test(&guards).expect("without a mistake, every test must pass");
    for mistake in MISTAKES.iter().step_by(if is_long() { 1 } else { 12 }) {
        let output = copy.test_with(mistake).expect_err(mistake.what);
        assert!(output.contains("test result: FAILED"), "{} did not even run:\n{output}", mistake.what);
        println!("caught by {}: {}", mistake.caught_by, mistake.what);
    }
}

#[test]
fn the_list_fits_the_code() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for mistake in MISTAKES {
        let source = fs::read_to_string(sources.join(mistake.file)).unwrap();
        let found = source.matches(mistake.right).count();
        assert_eq!(
            found, 1,
            "{}: {:?} stands {found} times in {}",
            mistake.what, mistake.right, mistake.file
        );
    }
    assert!(MISTAKES.len() >= 12);
}

/// A copy of the crate and what it is tested with, kept between runs so that little is compiled again.
struct Copy {
    root: PathBuf,
}

impl Copy {
    fn of_the_workspace() -> Self {
        let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes");
        update(&original.join("Cargo.lock"), &root.join("Cargo.lock"));
        // Other crates of the workspace are not copied, so they cannot be its default.
        let manifest = fs::read_to_string(original.join("Cargo.toml")).unwrap();
        let lines = manifest.lines().filter(|line| !line.starts_with("default-members"));
        write_if_new(lines.collect::<Vec<_>>().join("\n").as_bytes(), &root.join("Cargo.toml"));
        for folder in ["crates/tollgate-core", "crates/tollgate-testkit"] {
            update_all(&original.join(folder), &root.join(folder));
        }
        Self { root }
    }

    /// Runs the test that guards against a mistake with the mistake in place.
    fn test_with(&self, mistake: &Mistake) -> Result<String, String> {
        let path = self.root.join("crates/tollgate-core/src").join(mistake.file);
        let right = fs::read_to_string(&path).unwrap();
        fs::write(&path, right.replacen(mistake.right, mistake.wrong, 1)).unwrap();
        let result = self.test(&[mistake.caught_by]);
        fs::write(&path, right).unwrap();
        result
    }

    /// Runs the named unit tests; what was printed, as an error if one failed.
    fn test(&self, names: &[&str]) -> Result<String, String> {
        let output = Command::new(env!("CARGO"))
            .args(["test", "--offline", "--package", "tollgate-core", "--lib"])
            .args(["--config", "profile.dev.package.\"*\".opt-level=0", "--", "--exact"])
            .args(names)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", self.root.join("target"))
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env_remove("RUSTFLAGS")
            .output()
            .unwrap();
        let printed =
            [output.stdout, output.stderr].map(|out| String::from_utf8_lossy(&out).into_owned()).concat();
        if output.status.success() {
            let ran =
                printed.lines().filter(|line| line.starts_with("test ") && line.ends_with("ok")).count();
            let mut distinct = names.to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(ran, distinct.len(), "not every test of the list exists:\n{printed}");
            Ok(printed)
        } else {
            Err(printed)
        }
    }
}

fn update(from: &Path, to: &Path) {
    write_if_new(&fs::read(from).unwrap(), to);
}

/// Writes a file unless it is the same already: a newer date would have it compiled again.
fn write_if_new(content: &[u8], to: &Path) {
    if fs::read(to).ok().as_deref() != Some(content) {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(to, content).unwrap();
    }
}

/// Copies a folder, and removes from the copy what is no longer there.
fn update_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            update_all(&entry.path(), &target);
        } else {
            update(&entry.path(), &target);
        }
    }
    for entry in fs::read_dir(to).unwrap().map(Result::unwrap) {
        if !from.join(entry.file_name()).exists() {
            let path = entry.path();
            if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
        }
    }
}
