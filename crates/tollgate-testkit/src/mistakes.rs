//! Mistakes that are planted in a copy of the workspace, one at a time, and the tests that must catch them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mistake: where it would stand in the code, and the test that catches it.
#[derive(Clone, Copy, Debug)]
pub struct Mistake {
    /// The mistake in words.
    pub what: &'static str,
    /// The file, from the root of the workspace.
    pub file: &'static str,
    /// The right text. The file contains it once.
    pub right: &'static str,
    /// The text that replaces it.
    pub wrong: &'static str,
    /// The test that fails with the wrong text, by its full name.
    pub caught_by: &'static str,
}

/// A program of tests that is compiled in the copy.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The package of the program.
    pub package: &'static str,
    /// The program, as `cargo test` selects it: `--lib`, or `--test` and a name.
    pub target: &'static [&'static str],
    /// The modules that are compiled of `tests/main.rs`. The other modules are left out, because they take time.
    pub modules: &'static [&'static str],
}

/// The crates that are copied: those that decide, and what they are tested with.
const CRATES: [&str; 5] =
    ["tollgate", "tollgate-core", "tollgate-policy", "tollgate-redis", "tollgate-testkit"];

/// Requires that each right text stands in its file exactly once, so that a mistake can be planted there.
///
/// # Panics
///
/// At the first mistake that does not fit.
pub fn fit_the_code(mistakes: &[Mistake]) {
    for Mistake { what, file, right, wrong, .. } in mistakes {
        let source = fs::read_to_string(workspace().join(file)).unwrap_or_else(|error| {
            panic!("{what}: cannot read {file}: {error}");
        });
        let found = source.matches(right).count();
        assert_eq!(found, 1, "{what}: {right:?} stands {found} times in {file}");
        assert_ne!(right, wrong, "{what}: nothing is changed");
    }
}

/// Plants the first mistake of every `step`, and requires that its test fails. First, the tests of all mistakes must pass without a
/// mistake.
///
/// The copy is in `directory`, which is `CARGO_TARGET_TMPDIR` of the caller. All callers share it, one after another. It is kept
/// between runs, so that little is compiled again.
///
/// # Panics
///
/// When a test passes with its mistake, when a mistake does not compile, or when a test fails without a mistake.
pub fn are_caught(directory: &Path, program: &Program, mistakes: &[Mistake], step: usize) {
    fs::create_dir_all(directory).expect("the directory can be made");
    let lock = File::create(directory.join("mistakes.lock")).expect("the lock can be made");
    lock.lock().expect("the lock can be taken");
    let copy = Copy::new(directory.join("mistakes"), program);
    let mut names: Vec<&str> = mistakes.iter().map(|mistake| mistake.caught_by).collect();
    names.sort_unstable();
    names.dedup();
    let printed = copy.test(&names).unwrap_or_else(|printed| {
        panic!("without a mistake, every test must pass:\n{printed}");
    });
    let passed = printed.lines().filter(|line| line.starts_with("test ") && line.ends_with("ok")).count();
    assert_eq!(passed, names.len(), "not every test of the list exists:\n{printed}");
    let mut not_caught = Vec::new();
    for mistake in mistakes.iter().step_by(step) {
        let Mistake { what, caught_by, .. } = mistake;
        match copy.test_with(mistake) {
            Ok(_) => not_caught.push(format!("{caught_by} does not catch: {what}")),
            Err(printed) if !printed.contains("test result: FAILED") => {
                not_caught.push(format!("the program does not run with: {what}\n{printed}"));
            }
            Err(_) => println!("{caught_by} catches: {what}"),
        }
    }
    assert!(not_caught.is_empty(), "{}", not_caught.join("\n"));
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A copy of the workspace, for one program.
struct Copy<'p> {
    root: PathBuf,
    program: &'p Program,
}

impl<'p> Copy<'p> {
    fn new(root: PathBuf, program: &'p Program) -> Self {
        let original = workspace();
        write_if_changed(read(&original.join("Cargo.lock")).as_bytes(), &root.join("Cargo.lock"));
        // Other crates of the workspace are not copied, so they cannot be among the default members.
        let manifest = read(&original.join("Cargo.toml"));
        let lines: Vec<&str> = manifest.lines().filter(|line| !line.starts_with("default-members")).collect();
        write_if_changed(lines.join("\n").as_bytes(), &root.join("Cargo.toml"));
        let main = original.join("crates").join(program.package).join("tests/main.rs");
        let content = |path: &Path| {
            if path != main || program.modules.is_empty() {
                return fs::read(path);
            }
            let is_kept = |line: &&str| {
                let module = line.strip_prefix("mod ").and_then(|line| line.strip_suffix(';'));
                module.is_none_or(|module| program.modules.contains(&module))
            };
            Ok(read(path).lines().filter(is_kept).collect::<Vec<_>>().join("\n").into_bytes())
        };
        for name in CRATES {
            let folder = Path::new("crates").join(name);
            update_all(&original.join(&folder), &root.join(&folder), &content);
        }
        Self { root, program }
    }

    /// Runs the test of a mistake with the mistake in place.
    fn test_with(&self, mistake: &Mistake) -> Result<String, String> {
        let path = self.root.join(mistake.file);
        let right = read(&path);
        write(right.replacen(mistake.right, mistake.wrong, 1).as_bytes(), &path);
        let result = self.test(&[mistake.caught_by]);
        write(right.as_bytes(), &path);
        result
    }

    /// Runs the named tests. Returns what was printed, as an error if a test failed.
    fn test(&self, names: &[&str]) -> Result<String, String> {
        let output = Command::new(env!("CARGO"))
            .args(["test", "--offline", "--package", self.program.package])
            .args(self.program.target)
            .args(["--config", "profile.dev.package.\"*\".opt-level=0", "--", "--exact"])
            .args(names)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", self.root.join("target"))
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "0")
            .env_remove("RUSTFLAGS")
            .env_remove("TOLLGATE_LONG") // the short forms of the tests must catch the mistakes
            .output()
            .expect("cargo can be started");
        let printed = [output.stdout, output.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
        if output.status.success() { Ok(printed.concat()) } else { Err(printed.concat()) }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

fn write(content: &[u8], path: &Path) {
    fs::write(path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
}

/// Writes a file if its content differs. A newer date would make cargo compile it again.
fn write_if_changed(content: &[u8], to: &Path) {
    if fs::read(to).ok().as_deref() != Some(content) {
        fs::create_dir_all(to.parent().expect("a file is in a directory"))
            .expect("the directory can be made");
        write(content, to);
    }
}

/// Copies a folder, with the `content` of each file, and removes what the original no longer has.
fn update_all(from: &Path, to: &Path, content: &dyn Fn(&Path) -> io::Result<Vec<u8>>) {
    fs::create_dir_all(to).expect("the directory can be made");
    let entries = |folder: &Path| {
        let entries =
            fs::read_dir(folder).unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
        entries.map(|entry| entry.expect("an entry of the directory").path()).collect::<Vec<_>>()
    };
    for path in entries(from) {
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            update_all(&path, &target, content);
            continue;
        }
        let content =
            content(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        write_if_changed(&content, &target);
    }
    for path in entries(to) {
        if !from.join(path.file_name().expect("an entry has a name")).exists() {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.unwrap_or_else(|error| panic!("cannot remove {}: {error}", path.display()));
        }
    }
}
