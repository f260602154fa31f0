//! A time of day for one Redis server that a test can set: machines' clocks differ, and step.
//!
//! libfaketime is no help here: Debian's redis-server hangs with it, since jemalloc asks for the time before the library
//! is ready.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("shifted_clock.c");

/// The file that says how far the clock is off.
#[derive(Debug)]
pub(super) struct ShiftedClock(PathBuf);

impl ShiftedClock {
    /// A clock that is right, in the directory of a server.
    pub(super) fn new(directory: &Path) -> Self {
        let clock = Self(directory.join("clock-shift"));
        clock.set(0);
        clock
    }

    /// What the command line of the server begins with.
    ///
    /// # Panics
    ///
    /// When there is no C compiler, without which Rust would not have made this test either.
    pub(super) fn prefix(&self) -> [String; 3] {
        let library = self.0.with_extension("so");
        let source = self.0.with_extension("c");
        fs::write(&source, SOURCE).unwrap_or_else(|error| panic!("{}: {error}", source.display()));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]);
        let output = compiler.output().unwrap_or_else(|error| panic!("{compiler:?}: {error}"));
        assert!(output.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&output.stderr));
        [
            "env".to_owned(),
            format!("LD_PRELOAD={}", library.display()),
            format!("TOLLGATE_CLOCK_SHIFT={}", self.0.display()),
        ]
    }

    /// Sets how far it is off, in microseconds.
    pub(super) fn set(&self, micros: i64) {
        // In place: the server has the file mapped.
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&self.0);
        let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, &micros.to_ne_bytes()));
        written.unwrap_or_else(|error| panic!("{}: {error}", self.0.display()));
    }
}
