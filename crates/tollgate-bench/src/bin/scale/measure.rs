//! Clocks: the processor time of this thread and of other processes, wall time, and the memory of a process.

use std::fs;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The processor time of this thread so far, in nanoseconds.
pub(crate) fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("time does not begin before 0")
}

/// The present moment, for threads that race each other.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Wall time since a moment, in nanoseconds.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds of processor time per call. Calls in batches until `budget` is used up.
pub(crate) fn cpu_per_call(budget: Duration, mut call: impl FnMut()) -> f64 {
    let budget = u64::try_from(budget.as_nanos()).unwrap_or(u64::MAX);
    let (start, mut calls, mut batch) = (thread_cpu(), 0_u64, 1_u64);
    loop {
        (0..batch).for_each(|_| call());
        calls += batch;
        let spent = thread_cpu() - start;
        if spent >= budget {
            return spent as f64 / calls as f64;
        }
        batch = (batch * 2).min(1 << 12);
    }
}

/// Nanoseconds of processor time that a function takes.
pub(crate) fn cpu_of<T>(function: impl FnOnce() -> T) -> (f64, T) {
    let start = thread_cpu();
    let result = function();
    ((thread_cpu() - start) as f64, result)
}

/// The ticks of `/proc/PID/stat` per second: 100 on every Linux of today.
const TICKS: f64 = 100.0;

/// Seconds of processor time in two fields of `/proc/PID/stat`, which are counted from 1.
fn stat_seconds(process: &str, fields: [usize; 2]) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("the process runs");
    // The name of the program is in brackets and may have spaces.
    let rest: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = fields.map(|field| rest.get(field - 3).and_then(|text| text.parse().ok()).unwrap_or(0.0));
    (ticks[0] + ticks[1]) / TICKS
}

/// Seconds of processor time of a process and all its threads, in steps of 10 ms.
pub(crate) fn process_seconds(process: u32) -> f64 {
    stat_seconds(&process.to_string(), [14, 15])
}

/// Seconds of processor time of all child processes that have ended, in steps of 10 ms.
pub(crate) fn children_seconds() -> f64 {
    stat_seconds("self", [16, 17])
}

/// Nanoseconds that the present threads of a process have run. The kernel updates it at every tick and every switch.
pub(crate) fn threads_nanos(process: u32) -> f64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let nanos = |thread: fs::DirEntry| {
        let times = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        times.split_whitespace().next()?.parse::<f64>().ok()
    };
    threads.flatten().filter_map(nanos).sum()
}

/// Nanoseconds that this thread has been ready to run and waited for a core. 0 on a system that does not count it.
pub(crate) fn thread_waits() -> u64 {
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    times.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok()).unwrap_or(0)
}

/// Keeps this thread on one core, because short rounds end before the system has moved threads apart. Where the system does not let
/// it, the thread runs anywhere.
pub(crate) fn stay_on_core(thread: usize) {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut set = CpuSet::new();
    set.set(thread % cores);
    let _ = sched_setaffinity(None, &set);
}

/// A line of `/proc/PID/status` in MB, such as `VmRSS` or `VmHWM`. None if the process has ended.
pub(crate) fn memory_mb(process: u32, name: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse::<f64>().ok().map(|kib| kib * 1024.0 / 1e6)
}
