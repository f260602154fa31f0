//! Rules and states as plain numbers, for stores that decide in another process.
//!
//! A rule knows more than it was told: intervals are reduced, rates that do not fit are slower. Whoever decides
//! elsewhere takes the numbers from here, so that both decide by the same ones.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use std::collections::VecDeque;
use std::time::Duration;

use crate::bucket::Bucket;
use crate::{
    Align, BurstCredits, Concurrency, Credits, FixedWindow, LeakyBucket, Log, MaxWait, Mode, Nanos, Rule,
    RuleError, SlidingCounter, SlidingLog, Tat, Timestamp, TokenBucket, Waiting, Window,
};

/// A rule as plain numbers.
///
/// ```
/// use tollgate_core::{BucketParts, Rate, Rule, RuleParts, TokenBucket};
///
/// let rule = Rule::from(TokenBucket::new(Rate::per_second(3)?, 10)?);
/// let RuleParts::TokenBucket { bucket, .. } = rule.parts() else { panic!("of another kind") };
/// assert_eq!(bucket, BucketParts { interval: 1_000_000_000, per_nano: 3, capacity: 10 }); // thirds of a nanosecond
/// assert_eq!(Rule::from_parts(&rule.parts()), Ok(rule));
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the numbers are those of the rule of the same name")]
pub enum RuleParts {
    /// See [`TokenBucket`], and [`TokenBucket::keeping_arrival_time`].
    TokenBucket { bucket: BucketParts, keeps_arrival_time: bool, waits: Option<WaitParts> },
    /// See [`LeakyBucket`].
    LeakyBucket { bucket: BucketParts, waits: Option<WaitParts> },
    /// See [`FixedWindow`].
    FixedWindow { limit: u64, window: Nanos, align: Align, counts_denied: bool },
    /// See [`SlidingLog`].
    SlidingLog { limit: u64, window: Nanos },
    /// See [`SlidingCounter`].
    SlidingCounter { limit: u64, window: Nanos, buckets: u32, mode: Mode },
    /// See [`BurstCredits`].
    BurstCredits { base: BucketParts, peak: BucketParts },
    /// See [`Concurrency`].
    Concurrency { limit: u64, lease: Option<Nanos> },
}

/// The numbers of a bucket. [`RuleParts`] has an example.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketParts {
    /// The time between two tokens, in pieces of a nanosecond.
    pub interval: u64,
    /// How many pieces make a nanosecond.
    pub per_nano: u64,
    /// How many intervals the schedule may reach ahead.
    pub capacity: u64,
}

/// How long, and how many, a bucket lets wait: see [`MaxWait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the numbers are those of MaxWait")]
pub struct WaitParts {
    pub max_wait: Nanos,
    pub max_waiting: u32,
}

impl Rule {
    /// The rule as plain numbers. [`RuleParts`] has an example.
    pub fn parts(&self) -> RuleParts {
        let token = |rule: &TokenBucket, waits| RuleParts::TokenBucket {
            bucket: rule.bucket().parts(),
            keeps_arrival_time: rule.keeps_arrival_time(),
            waits,
        };
        let leaky =
            |rule: &LeakyBucket, waits| RuleParts::LeakyBucket { bucket: rule.bucket().parts(), waits };
        match self {
            Self::TokenBucket(rule) => token(rule, None),
            Self::TokenBucketMaxWait(rule) => token(rule.bucket(), Some(rule.wait_parts())),
            Self::LeakyBucket(rule) => leaky(rule, None),
            Self::LeakyBucketMaxWait(rule) => leaky(rule.bucket(), Some(rule.wait_parts())),
            Self::FixedWindow(rule) => rule.parts(),
            Self::SlidingLog(rule) => rule.parts(),
            Self::SlidingCounter(rule) => rule.parts(),
            Self::BurstCredits(rule) => rule.parts(),
            Self::Concurrency(rule) => RuleParts::Concurrency { limit: rule.capacity(), lease: rule.lease() },
        }
    }

    /// The rule of these numbers, for a clock whose zero is the epoch. [`RuleParts`] has an example.
    ///
    /// # Errors
    ///
    /// When no rule has them.
    pub fn from_parts(parts: &RuleParts) -> Result<Self, RuleError> {
        fn waiting<B>(bucket: B, waits: Option<WaitParts>) -> Result<Rule, RuleError>
        where
            B: crate::Holds + Into<Rule>,
            MaxWait<B>: Into<Rule>,
        {
            let Some(WaitParts { max_wait, max_waiting }) = waits else { return Ok(bucket.into()) };
            Ok(MaxWait::new(bucket, max_wait.into(), max_waiting)?.into())
        }
        Ok(match *parts {
            RuleParts::TokenBucket { bucket, keeps_arrival_time, waits } => {
                let rule = TokenBucket::from(Bucket::from_parts(bucket, "burst")?);
                waiting(if keeps_arrival_time { rule.keeping_arrival_time() } else { rule }, waits)?
            }
            RuleParts::LeakyBucket { bucket, waits } => {
                waiting(LeakyBucket::from(Bucket::from_parts(bucket, "capacity of the queue")?), waits)?
            }
            RuleParts::FixedWindow { limit, window, align, counts_denied } => {
                let rule = FixedWindow::new(limit, window.into(), align)?;
                if counts_denied { rule.counting_denied().into() } else { rule.into() }
            }
            RuleParts::SlidingLog { limit, window } => SlidingLog::new(limit, window.into())?.into(),
            RuleParts::SlidingCounter { limit, window, buckets, mode } => {
                SlidingCounter::new(limit, window.into(), buckets, mode)?.into()
            }
            RuleParts::BurstCredits { base, peak } => BurstCredits::of(
                Bucket::from_parts(base, "number of credits")?.into(),
                Bucket::from_parts(peak, "peak burst")?.into(),
            )
            .into(),
            RuleParts::Concurrency { limit, lease } => {
                Concurrency::new(limit, lease.map(Duration::from))?.into()
            }
        })
    }
}

impl Credits {
    /// The state of two schedules: that of the credits, and that of the peak.
    ///
    /// ```
    /// use tollgate_core::{BurstCredits, Credits, Rate, Rule, State, Tat, Timestamp};
    ///
    /// let (rate, peak) = (Rate::per_second(10)?, Rate::per_second(50)?);
    /// let rule = Rule::from(BurstCredits::with_peak_burst(rate, peak, 100, 50)?);
    /// let credits = Credits::new(Tat::from_bits(1_000_000_000), Tat::default()); // ten credits are spent
    /// assert_eq!(rule.status(&State::Credits(credits), Timestamp::from_nanos(0)).remaining, 50);
    /// assert_eq!(credits.schedules(), [Tat::from_bits(1_000_000_000), Tat::default()]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub const fn new(base: Tat, peak: Tat) -> Self {
        Self { base, peak }
    }

    /// The schedules of the credits and of the peak. [`new`](Self::new) has an example.
    pub const fn schedules(&self) -> [Tat; 2] {
        [self.base, self.peak]
    }
}

impl Window {
    /// A window that ends at `end`, with so much used of it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Align, FixedWindow, Rule, State, Timestamp, Window};
    ///
    /// let rule = Rule::from(FixedWindow::new(10, Duration::from_secs(60), Align::Epoch)?);
    /// let window = Window::new(Timestamp::from_nanos(60_000_000_000), 7);
    /// assert_eq!((window.end().as_nanos(), window.spent()), (60_000_000_000, 7));
    /// assert_eq!(rule.status(&State::Window(window), Timestamp::from_nanos(0)).remaining, 3);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(end: Timestamp, used: u64) -> Self {
        Self { end, used, carried: Timestamp::default() }
    }

    /// When it ends. [`new`](Self::new) has an example.
    pub const fn end(&self) -> Timestamp {
        self.end
    }

    /// What is used of it, until it ends. [`new`](Self::new) has an example.
    pub const fn spent(&self) -> u64 {
        self.used
    }
}

impl Log {
    /// A log of units that came at these times, the oldest first.
    ///
    /// ```
    /// use tollgate_core::{Log, Timestamp};
    ///
    /// let log = Log::of_times([1, 5].map(Timestamp::from_nanos));
    /// assert_eq!(log.times().map(Timestamp::as_nanos).collect::<Vec<_>>(), [1, 5]);
    /// ```
    pub fn of_times(times: impl IntoIterator<Item = Timestamp>) -> Self {
        let times: VecDeque<Timestamp> = times.into_iter().collect();
        debug_assert!(times.iter().is_sorted(), "the oldest first");
        Self { times }
    }

    /// When its units came. [`of_times`](Self::of_times) has an example.
    pub fn times(&self) -> impl ExactSizeIterator<Item = Timestamp> {
        self.times.iter().copied()
    }
}

impl Waiting {
    /// The state of a schedule, with the turns of those who may still wait, the earliest first.
    ///
    /// ```
    /// use tollgate_core::{Tat, Timestamp, Waiting};
    ///
    /// let waiting = Waiting::new(Tat::from_bits(9), [4, 7].map(Timestamp::from_nanos));
    /// assert_eq!(waiting.schedule(), Tat::from_bits(9));
    /// assert_eq!(waiting.turns().map(Timestamp::as_nanos).collect::<Vec<_>>(), [4, 7]);
    /// ```
    pub fn new(schedule: Tat, turns: impl IntoIterator<Item = Timestamp>) -> Self {
        Self { tat: schedule, releases: turns.into_iter().collect() }
    }

    /// The schedule. [`new`](Self::new) has an example.
    pub const fn schedule(&self) -> Tat {
        self.tat
    }

    /// The turns of those who may still wait. [`new`](Self::new) has an example.
    pub fn turns(&self) -> impl ExactSizeIterator<Item = Timestamp> {
        self.releases.iter().copied()
    }
}

#[cfg(test)]
mod tests;
