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

    /// Waits longer after each attempt. Two threads that want nothing but this lock then take turns of many
    /// requests, instead of passing its cache line to and fro with each.
    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        let mut pauses = 1;
        while pauses <= MOST_PAUSES {
            for _ in 0..pauses {
                std::hint::spin_loop();
            }
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            pauses *= 2;
        }
        // Whoever is so unlucky stops being polite: it looks as often as it can, so that others who take the lock
        // again and again, for longer than a pause, cannot keep it from its turn.
        loop {
            for _ in 0..MOST_PAUSES {
                std::hint::spin_loop();
                if let Some(guard) = self.try_lock() {
                    return guard;
                }
            }
            std::thread::yield_now();
        }
    }

    /// Looks before it tries: a look leaves the cache line where it is.
    fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.0.is_locked() { None } else { self.0.try_lock() }
    }
}
