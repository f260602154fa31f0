//! Where the time comes from.

mod sleep;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_core::{Nanos, Rule, Timestamp};

pub use self::sleep::Sleep;
use self::sleep::Sleepers;
use crate::sync::{AtomicU64, Ordering};

/// A monotonic clock, or one that is moved by hand. Clones tell the same time.
///
/// It also knows what time of day it was at its start, once and for all: windows that begin on the minute, the hour,
/// the day go by that, and do not jump when the system's clock is set.
///
/// ```
/// use tollgate::Clock;
///
/// let clock = Clock::new();
/// let earlier = clock.now();
/// assert!(clock.now() >= earlier);
/// ```
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// The processor's counter, calibrated: half of what reading the system's clock takes.
    Counter {
        clock: quanta::Clock,
        start: u64,
        started: Duration, // since the Unix epoch
    },
    /// A function of the caller.
    Function {
        read: fn() -> Nanos,
        start: Nanos,
        started: Duration, // since the Unix epoch
    },
    Hand(Arc<Hand>),
}

/// A time that is moved, and who sleeps until it is moved far enough.
#[derive(Debug, Default)]
pub(crate) struct Hand {
    now: AtomicU64,
    started: Option<Duration>, // since the Unix epoch
    sleepers: Sleepers,
}

impl Hand {
    /// Moves the time on, at most to its end, and tells it.
    fn advance(&self, span: Nanos) -> Timestamp {
        let mut now = self.now.load(Ordering::Relaxed);
        loop {
            let later = Timestamp::from_nanos(now).after(span);
            match self.now.compare_exchange(now, later.as_nanos(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return later,
                Err(other) => now = other,
            }
        }
    }
}

impl Clock {
    /// A clock that starts now.
    ///
    /// ```
    /// use tollgate::{Clock, Nanos, Timestamp};
    ///
    /// let clock = Clock::new();
    /// assert!(clock.now().since(Timestamp::from_nanos(0)) < Nanos::new(60_000_000_000));
    /// ```
    #[expect(clippy::disallowed_methods, reason = "read once, to know when minutes begin")]
    pub fn new() -> Self {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        // A clock set before 1970 is as good as any other.
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Source::Counter { clock, start, started })
    }

    /// A clock that reads the time from a function: nanoseconds since any moment, which never step back. It starts now.
    ///
    /// Use it where [`new`](Self::new) is not enough, for example for a clock that counts the time in which the machine was suspended.
    ///
    /// ```
    /// use tollgate::{Clock, Nanos, Timestamp};
    ///
    /// let clock = Clock::from_fn(|| Nanos::new(5_000_000_000));
    /// assert_eq!(clock.now(), Timestamp::from_nanos(0));
    /// ```
    #[expect(clippy::disallowed_methods, reason = "read once, to know when minutes begin")]
    pub fn from_fn(read: fn() -> Nanos) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Source::Function { read, start: read(), started })
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

    /// A manual clock whose start is a time since the Unix epoch, for tests of windows that begin on the minute, the
    /// hour, the day. ([`manual`](Self::manual) leaves such windows as they are.)
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Align, Clock, FixedWindow, Limiter};
    ///
    /// let clock = Clock::manual_from(Duration::from_secs(1_000_000_015)); // 55 seconds into a minute
    /// let rule = FixedWindow::new(10, Duration::from_secs(60), Align::Epoch)?;
    /// let decision = Limiter::with_clock(rule, clock).check();
    /// assert_eq!(decision.status.reset_after, Duration::from_secs(5));
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn manual_from(since_epoch: Duration) -> Self {
        Self(Source::Hand(Arc::new(Hand { started: Some(since_epoch), ..Hand::default() })))
    }

    /// What time it was at its start, since the Unix epoch. None of a clock that does not know.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Clock;
    ///
    /// assert_eq!(Clock::manual().started(), None);
    /// assert_eq!(Clock::manual_from(Duration::from_secs(60)).started(), Some(Duration::from_secs(60)));
    /// ```
    pub fn started(&self) -> Option<Duration> {
        match &self.0 {
            Source::Counter { started, .. } | Source::Function { started, .. } => Some(*started),
            Source::Hand(hand) => hand.started,
        }
    }

    /// A rule as it is by this clock: windows that begin on the minute do so by the time of day.
    pub(crate) fn align(&self, rule: Rule) -> Rule {
        self.started().map_or(rule, |since_epoch| rule.started_at(since_epoch))
    }

    /// The time since the clock's start.
    ///
    /// ```
    /// use tollgate::{Clock, Timestamp};
    ///
    /// assert_eq!(Clock::manual().now(), Timestamp::from_nanos(0));
    /// ```
    #[inline]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Counter { clock, start, .. } => {
                Timestamp::from_nanos(clock.delta_as_nanos(*start, clock.raw()))
            }
            Source::Function { read, start, .. } => {
                Timestamp::from_nanos(read().get().saturating_sub(start.get()))
            }
            Source::Hand(hand) => Timestamp::from_nanos(hand.now.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock on, by a `Duration` or by `Nanos`, and wakes whoever slept until then. It stops at the end of
    /// time, after 584 years.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Clock, Nanos, Timestamp};
    ///
    /// let clock = Clock::manual();
    /// clock.advance(Duration::from_secs(1));
    /// clock.advance(Nanos::new(5));
    /// assert_eq!(clock.now(), Timestamp::from_nanos(1_000_000_005));
    /// ```
    ///
    /// # Panics
    ///
    /// When the clock is not a manual one.
    pub fn advance(&self, span: impl Into<Duration>) {
        let span = Nanos::saturating_from(span.into());
        match &self.0 {
            Source::Hand(hand) => {
                hand.sleepers.wake(hand.advance(span));
            }
            Source::Counter { .. } | Source::Function { .. } => panic!("only a manual clock can be moved"),
        }
    }

    /// Waits until the clock tells `time`, on any runtime or none: never less long, and some ten microseconds
    /// longer at best. Ready at once if it does already. On a manual clock it waits for
    /// [`advance`](Self::advance).
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{Clock, Nanos};
    ///
    /// let clock = Clock::new();
    /// let time = clock.now().after(Nanos::new(1_000_000));
    /// clock.sleep_until(time).await;
    /// assert!(clock.now() >= time);
    /// # });
    /// ```
    pub fn sleep_until(&self, time: Timestamp) -> Sleep {
        Sleep::new(self.clone(), time)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
