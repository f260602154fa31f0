//! Instructions of one function call, for benches: a shared machine makes times noise.

use std::process::Command;

/// Runs this program again for one case (`--case NAME`) under callgrind, which counts only inside functions named `measured`.
///
/// # Panics
///
/// When valgrind is missing, or callgrind counted nothing.
pub fn instructions(case: &str) -> u64 {
    let program = std::env::current_exe().expect("this program has a path");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"])
        .arg("--toggle-collect=*measured*")
        .arg(program)
        .args(["--case", case])
        .output()
        .expect("valgrind runs (Debian: apt-get install valgrind)");
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) = collected.unwrap_or_else(|| panic!("callgrind counted nothing:\n{report}"));
    count.trim().parse().expect("a number of instructions")
}
