//! The run of tests that the present test belongs to: how long it may take, and which tests could not run.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

/// Whether the long forms of the tests run (`./test --long`). Otherwise a test that has two forms runs the short one.
pub fn is_long() -> bool {
    std::env::var_os("TOLLGATE_LONG").is_some()
}

/// Ten times the usual number of random steps in a long run, else the usual number.
pub fn effort() -> u64 {
    if is_long() { 10 } else { 1 }
}

/// Reports that the present test cannot run on this machine, and why. The test returns right after.
///
/// `./test` lists these tests with their reasons below its summary. It names a file for them in `TOLLGATE_SKIPPED`.
///
/// # Panics
///
/// When that file cannot be written.
pub fn skip(reason: impl Display) {
    let reason = reason.to_string().replace('\n', " ");
    eprintln!("skipped: {reason}");
    let Some(path) = std::env::var_os("TOLLGATE_SKIPPED") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // One write per line: tests of other processes append to the same file.
    let line = format!("{}: {reason}\n", test_name());
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("a file that can be appended to");
}

/// Where a program is that the present test needs. `./test` installs all of them, those from PyPI into the directory that
/// `TOLLGATE_VENV` names. Without `./test`, a test whose program is missing is [skipped](skip).
///
/// # Panics
///
/// When the program is missing although `./test` runs the tests.
pub fn program(name: &str) -> Option<PathBuf> {
    let venv = std::env::var_os("TOLLGATE_VENV").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = venv.iter().map(|venv| venv.join("bin")).collect();
    directories.extend(std::env::split_paths(&path));
    directories.push("/usr/sbin".into()); // where Debian has servers
    let found = directories.into_iter().map(|directory| directory.join(name)).find(|file| file.is_file());
    if found.is_none() {
        assert!(venv.is_none(), "{name} is missing, and ./test should have installed it");
        skip(format_args!("{name} is not installed; ./test installs it"));
    }
    found
}

/// The directory in which `./test` has installed packages of another language, by the environment variable that names it.
/// Without `./test`, the present test is [skipped](skip).
pub fn packages(variable: &str) -> Option<PathBuf> {
    let directory = std::env::var_os(variable).map(PathBuf::from);
    if directory.is_none() {
        skip(format_args!("{variable} is not set; ./test sets it"));
    }
    directory
}

/// The present test. cargo-nextest names it in the environment, `cargo test` names its thread after it.
fn test_name() -> String {
    let by_nextest = std::env::var("NEXTEST_TEST_NAME").ok();
    by_nextest.or_else(|| std::thread::current().name().map(str::to_owned)).unwrap_or_default()
}
