//! A Redis server that has redis-cell loaded, and whose clock moves only when a test moves it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use tollgate_testkit::{RedisServer, skip};

use crate::service::{Directory, repository};

/// The time at the start, in nanoseconds since 1970.
const START: i64 = 1_800_000_000_000_000_000;

/// The server. It stops when this is dropped.
pub(super) struct RedisCell {
    pub(super) server: RedisServer,
    now: i64,
    clock: PathBuf,
    _directory: Directory,
}

impl RedisCell {
    /// Starts the server. None, and the test is skipped, without the module.
    pub(super) fn start() -> Option<Self> {
        let module = repository("target/redis-cell/release/libredis_cell.so");
        if !module.is_file() {
            let is_installed = std::env::var_os("TOLLGATE_VENV").is_some();
            assert!(!is_installed, "{module:?} is missing, and ./test should have built it");
            skip("redis-cell is not built; ./test builds it");
            return None;
        }
        let directory = Directory::new();
        let (clock, library) = (directory.path("clock"), directory.path("frozen_clock.so"));
        set_clock(&clock, START);
        let source = directory.write("frozen_clock.c", include_str!("frozen_clock.c"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]);
        let output = compiler.output().unwrap();
        assert!(output.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&output.stderr));
        let environment = [
            format!("LD_PRELOAD={}", library.display()),
            format!("TOLLGATE_FROZEN_CLOCK={}", clock.display()),
        ];
        let module = fs::canonicalize(module).unwrap();
        let server = RedisServer::under(
            &["env", &environment[0], &environment[1]],
            &["--loadmodule", module.to_str().unwrap()],
        );
        Some(Self { server, now: START, clock, _directory: directory })
    }

    /// The time, in nanoseconds since 1970.
    pub(super) fn now(&self) -> i64 {
        self.now
    }

    /// Moves the clock.
    pub(super) fn advance(&mut self, nanos: i64) {
        self.now += nanos;
        set_clock(&self.clock, self.now);
    }
}

/// Writes the time in place, because the server has the file mapped.
fn set_clock(clock: &PathBuf, nanos: i64) {
    let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(clock).unwrap();
    file.write_all(&nanos.to_ne_bytes()).unwrap();
}
