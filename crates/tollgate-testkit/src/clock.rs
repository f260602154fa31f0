//! A clock that stands still until it is told otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds that a test moves by hand. Clones share the time, also across threads.
#[derive(Clone, Debug, Default)]
pub struct FakeClock {
    now: Arc<AtomicU64>,
}

impl FakeClock {
    /// A clock at `now`.
    pub fn new(now: u64) -> Self {
        Self { now: Arc::new(AtomicU64::new(now)) }
    }

    /// The time it shows.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    /// Moves it on and returns the new time.
    pub fn advance(&self, nanos: u64) -> u64 {
        self.now.fetch_add(nanos, Ordering::SeqCst) + nanos
    }

    /// Moves it back, at most to 0, and returns the new time.
    pub fn step_back(&self, nanos: u64) -> u64 {
        let back = |now: u64| Some(now.saturating_sub(nanos));
        let before = self.now.fetch_update(Ordering::SeqCst, Ordering::SeqCst, back);
        before.expect("the update is never refused").saturating_sub(nanos)
    }

    /// Sets it.
    pub fn set(&self, now: u64) {
        self.now.store(now, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::FakeClock;

    #[test]
    fn clones_share_one_time() {
        let clock = FakeClock::new(5);
        let other = clock.clone();
        std::thread::spawn(move || other.advance(10)).join().unwrap();
        assert_eq!(clock.now(), 15);
        assert_eq!(clock.step_back(4), 11);
        assert_eq!(clock.step_back(100), 0);
        clock.set(3);
        assert_eq!(clock.now(), 3);
    }
}
