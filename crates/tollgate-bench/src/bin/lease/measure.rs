//! The clock and the memory of this process.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time in microseconds: the clock of a Redis on the same machine.
pub(crate) fn unix_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
    u64::try_from(since.as_micros()).expect("a time of this era")
}

/// The resident memory of this process.
pub(crate) fn rss_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).expect("a number")
}
