//! How fast the lab is, on one core: `taskset -c 0 cargo bench -p tollgate-bench --bench lab`.
//!
//! A simulation of 1 M clients by a token bucket, and a replay of a combined log of 10 M lines, which is made first (1.2 GB in the folder
//! for temporary files) and removed after. The peer of the replay is `wc -l`, which only reads the file; of the simulation, its own
//! traffic without a decision.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs::File;
use std::hint::black_box;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tollgate_lab::scenario::built_in;
use tollgate_lab::{Limit, LogOptions, Logs, Name, replay, simulate};
use tollgate_testkit::Random;

const ROUNDS: usize = 3;
const LINES: u64 = 10_000_000;

fn main() {
    for _ in 0..ROUNDS {
        simulation();
    }
    let log = Log::new();
    for _ in 0..ROUNDS {
        reading(&log.0);
        replaying(&log.0);
    }
}

fn told(what: &str, count: u64, began: Instant) {
    let each = began.elapsed().as_nanos() as f64 / count as f64;
    println!("{what:<60} {:>6.1} M/s  {each:>7.1} ns", 1000.0 / each);
}

/// A million clients, half a minute of which each asks 54 times a minute.
fn simulation() {
    let mut scenario = built_in("steady").unwrap();
    scenario.groups[0].count = 1_000_000;
    scenario.groups[0].until = 60_000_000_000;
    scenario.duration = 60_000_000_000;
    let began = Instant::now();
    let made = scenario.events().map(|event| u64::from(black_box(event).client > 0)).sum::<u64>();
    told("simulate: traffic of 1 M clients, nothing decided", made, began);
    for name in [Name::TokenBucket, Name::FixedWindow, Name::SlidingCounter] {
        let began = Instant::now();
        let simulated = simulate(&scenario, &[name], &mut |_| {}).unwrap();
        told(&format!("simulate: {name}, 1 M keys"), simulated.requests, began);
    }
}

struct Log(PathBuf);

impl Log {
    /// Lines of 100 000 clients, some hundred of them in a second, as a busy site writes them.
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-bench-{}.log", std::process::id()));
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&path).unwrap());
        let mut random = Random::new(1);
        for number in 0..LINES {
            let second = number / 300;
            let (client, page) = (random.below(100_000), random.below(5000));
            writeln!(
                file,
                "10.{}.{}.{} - - [{:02}/May/2015:{:02}:{:02}:{:02} +0000] \"GET /articles/{page}.html HTTP/1.1\" 200 {} \
                 \"https://example.com/\" \"Mozilla/5.0 (X11; Linux x86_64)\"",
                client >> 16,
                client >> 8 & 255,
                client & 255,
                second / 86_400 + 1,
                second / 3600 % 24,
                second / 60 % 60,
                second % 60,
                page * 17
            )
            .unwrap();
        }
        file.flush().unwrap();
        Self(path)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn reading(log: &Path) {
    let began = Instant::now();
    let counted = std::process::Command::new("wc").arg("-l").arg(log).output().unwrap();
    assert!(counted.status.success());
    told("wc -l, 10 M lines", LINES, began);
}

fn replaying(log: &Path) {
    let logs = Logs { files: vec![log.to_owned()], options: LogOptions::default() };
    let limit = Limit { limit: 10, window: Duration::from_secs(60) };
    for algorithms in [&[Name::TokenBucket][..], &Name::ALL] {
        let began = Instant::now();
        let replayed = replay(&logs, limit, algorithms, &mut |_| {}, None).unwrap();
        assert_eq!((replayed.seen.counts.requests, replayed.seen.is_sorted), (LINES, false));
        let what = if algorithms.len() == 1 { "token bucket" } else { "all five algorithms" };
        told(&format!("replay: {what}, 10 M lines, 100 000 clients"), LINES, began);
    }
}
