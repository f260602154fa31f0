//! Whether a place is well, by how requests fare there.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tollgate::Timestamp;

/// After so many failures in a row, a place is left alone.
const FAILURES: u32 = 3;

/// For so long at first; twice as long with each trial that fails, up to the longest.
const FIRST_NANOS: u64 = 1_000_000_000;
const LONGEST_NANOS: u64 = 30_000_000_000;

/// How requests have fared.
#[derive(Debug, Default)]
pub(super) struct Health {
    failures: AtomicU32,  // in a row, and of those that were there when it was left alone, none
    out_until: AtomicU64, // nanoseconds; 0 while it is well
}

impl Health {
    /// Since when a place is left alone, if it is. The smaller, the longer ago.
    pub(super) fn since_when_out(&self, now: Timestamp) -> Option<u64> {
        let until = self.out_until.load(Ordering::Relaxed);
        (until > now.as_nanos()).then_some(until)
    }

    /// A request goes there. The first that goes to a place after it was left alone is a trial: others wait for how it ends.
    pub(super) fn is_tried(&self, now: Timestamp) -> bool {
        let until = self.out_until.load(Ordering::Relaxed);
        if until == 0 || until > now.as_nanos() {
            return false;
        }
        let next = now.as_nanos().saturating_add(FIRST_NANOS);
        self.out_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Whether it was left alone until now.
    pub(super) fn succeeded(&self) -> bool {
        // Every request says so: to look first keeps the line shared between cores.
        if self.failures.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.failures.store(0, Ordering::Relaxed);
        self.out_until.swap(0, Ordering::Relaxed) > 0
    }

    /// For how long it is left alone from now on, if it is. Many requests that are there when a place dies fail at once: while it is left
    /// alone, only the trial says something new.
    pub(super) fn failed(&self, now: Timestamp, was_trial: bool) -> Option<Duration> {
        if self.since_when_out(now).is_some() && !was_trial {
            return None;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let doublings = failures.checked_sub(FAILURES)?.min(5);
        let time = (FIRST_NANOS << doublings).min(LONGEST_NANOS);
        self.out_until.store(now.as_nanos().saturating_add(time), Ordering::Relaxed);
        Some(Duration::from_nanos(time))
    }
}

#[cfg(test)]
mod tests;
