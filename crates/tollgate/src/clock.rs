//! Where the time comes from.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Nanos, Timestamp};

/// A monotonic clock, or one that is moved by hand.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The processor's counter, calibrated: a third of what reading the system's clock takes.
    Counter {
        clock: quanta::Clock,
        start: u64,
    },
    Hand(Arc<AtomicU64>),
}

impl Clock {
    /// A clock that starts now.
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Self(Source::Counter { clock, start })
    }

    /// A clock that stands still until it is moved, for tests: clones share the time.
    ///
    /// ```
    /// use tollgate::{Clock, KeyedLimiter, Nanos, Rate, TokenBucket};
    ///
    /// let clock = Clock::manual();
    /// let limiter = KeyedLimiter::builder(TokenBucket::new(Rate::per_second(1)?, 1)?).clock(clock.clone()).build();
    /// assert!(limiter.check("alice").is_allowed());
    /// assert!(!limiter.check("alice").is_allowed());
    /// clock.advance(Nanos::new(1_000_000_000));
    /// assert!(limiter.check("alice").is_allowed());
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn manual() -> Self {
        Self(Source::Hand(Arc::default()))
    }

    /// The time since the clock's start.
    #[inline]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Counter { clock, start } => {
                Timestamp::from_nanos(clock.delta_as_nanos(*start, clock.raw()))
            }
            Source::Hand(now) => Timestamp::from_nanos(now.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock on.
    ///
    /// # Panics
    ///
    /// When the clock is not a manual one.
    pub fn advance(&self, span: Nanos) {
        match &self.0 {
            Source::Hand(now) => now.fetch_add(span.get(), Ordering::Relaxed),
            Source::Counter { .. } => panic!("only a manual clock can be moved"),
        };
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
