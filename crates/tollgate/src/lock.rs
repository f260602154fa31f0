//! The lock around a shard of the table, and around the one state of a limiter without keys.
//!
//! It is held for some ten nanoseconds, thousands of times for each time that somebody else wants it. So
//! what counts is taking and leaving it: leaving it is a plain store here, where a lock that puts threads
//! to sleep must look for sleepers with a second atomic exchange. Nothing of the caller's runs under it.

use spin::mutex::{SpinMutex, SpinMutexGuard};

/// A value that one thread at a time can reach.
#[derive(Debug)]
pub(crate) struct Lock<T>(SpinMutex<T>);

pub(crate) type Guard<'a, T> = SpinMutexGuard<'a, T>;

/// Pauses before a thread that waits lets others run: some ten microseconds. Whoever holds the lock so long
/// has most likely lost the processor, which spinning would keep from it.
const MOST_PAUSES: u32 = 256;

/// How often a waiting thread lets others run before it sleeps, and for how long it sleeps.
const MOST_YIELDS: u32 = 4;
const SLEEP: std::time::Duration = std::time::Duration::from_micros(50);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    /// [`lock`](Self::lock), and whether it had to wait.
    #[inline]
    pub(crate) fn lock_noting_wait(&self) -> (Guard<'_, T>, bool) {
        match self.0.try_lock() {
            Some(guard) => (guard, false),
            None => (self.wait(), true),
        }
    }

    /// [`lock_noting_wait`](Self::lock_noting_wait) that gives up after some microseconds.
    #[inline]
    pub(crate) fn lock_soon(&self) -> Option<(Guard<'_, T>, bool)> {
        match self.0.try_lock() {
            Some(guard) => Some((guard, false)),
            None => self.wait_briefly().map(|guard| (guard, true)),
        }
    }

    /// Waits longer after each attempt. Two threads that want nothing but this lock then take turns of many
    /// requests, instead of passing its cache line to and fro with each.
    #[cold]
    fn wait_briefly(&self) -> Option<Guard<'_, T>> {
        let mut pauses = 1;
        while pauses <= MOST_PAUSES {
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            pauses *= 2;
        }
        None
    }

    #[cold]
    #[expect(clippy::disallowed_methods, reason = "the thread that holds the lock has lost its processor")]
    fn wait(&self) -> Guard<'_, T> {
        if let Some(guard) = self.wait_briefly() {
            return guard;
        }
        // The thread that holds the lock has most likely lost its processor. This thread first yields a few times, so
        // that the other one can run. Then it sleeps between attempts, so that waiting takes almost no processor
        // time.
        for _ in 0..MOST_YIELDS {
            // This thread tries as often as it can. Otherwise threads that take the lock again and again could starve
            // it.
            for _ in 0..MOST_PAUSES {
                std::hint::spin_loop();
                if let Some(guard) = self.try_lock() {
                    return guard;
                }
            }
            std::thread::yield_now();
        }
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            std::thread::sleep(SLEEP);
        }
    }

    /// Looks before it tries: a look leaves the cache line where it is.
    fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.0.is_locked() { None } else { self.0.try_lock() }
    }
}
