//! Rules that are slowed under load.

use super::{Rule, State};
use crate::adaptive::Pace;
use crate::{Holds, Timestamp};

impl Rule {
    /// Whether it is slowed by slowing the time it is decided at ([`VirtualClock`](crate::adaptive::VirtualClock)):
    /// buckets and burst credits. Windows are decided at the time as it is, with a smaller limit; a concurrency limit
    /// is not slowed.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, Rate, Rule, TokenBucket};
    ///
    /// assert!(Rule::from(TokenBucket::new(Rate::per_second(5)?, 10)?).has_schedule());
    /// assert!(!Rule::from(Concurrency::new(3, None)?).has_schedule());
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub const fn has_schedule(&self) -> bool {
        match self {
            Self::TokenBucket(_)
            | Self::LeakyBucket(_)
            | Self::TokenBucketMaxWait(_)
            | Self::LeakyBucketMaxWait(_)
            | Self::BurstCredits(_) => true,
            Self::FixedWindow(_) | Self::SlidingLog(_) | Self::SlidingCounter(_) | Self::Concurrency(_) => {
                false
            }
        }
    }

    /// The rule as it is decided by where time goes at a pace: a window's limit is smaller, and a `max_wait` shorter
    /// by the clock that goes at this pace, so that nobody waits longer by the real one. States stay as they are: no
    /// conversion is needed between paces.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::adaptive::{Load, RateMultiplier};
    /// use tollgate_core::{Align, FixedWindow, Rate, Rule, TokenBucket};
    ///
    /// let mut multiplier = RateMultiplier::new(100)?;
    /// multiplier.observe(Load::High);
    /// let window = Rule::from(FixedWindow::new(50, Duration::from_secs(60), Align::Epoch)?);
    /// assert_eq!(window.at_pace(multiplier.pace()).capacity(), 40);
    /// let bucket = Rule::from(TokenBucket::new(Rate::per_second(5)?, 50)?);
    /// assert_eq!(bucket.at_pace(multiplier.pace()), bucket); // its time is slowed instead
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[must_use]
    pub fn at_pace(self, pace: Pace) -> Self {
        match self {
            Self::FixedWindow(rule) => rule.at_pace(pace).into(),
            Self::SlidingLog(rule) => rule.at_pace(pace).into(),
            Self::SlidingCounter(rule) => rule.at_pace(pace).into(),
            Self::TokenBucketMaxWait(rule) => rule.at_pace(pace).into(),
            Self::LeakyBucketMaxWait(rule) => rule.at_pace(pace).into(),
            rule => rule,
        }
    }

    /// Carries a key over from a clock that shows `from` to one that shows `to` at the same moment. A schedule
    /// reaches as far ahead as before: the tokens stay, and nothing is handed out. States without a schedule go by
    /// the real clock, and stay as they are.
    ///
    /// ```
    /// use tollgate_core::{PermitId, Rate, Rule, State, Timestamp, TokenBucket};
    ///
    /// let rule = Rule::from(TokenBucket::new(Rate::per_second(5)?, 10)?);
    /// let (mut key, at) = (State::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
    /// rule.spend(&mut key, PermitId(0), 7, at(50));
    /// rule.carry(&mut key, at(50), at(20)); // to a clock that is half a minute behind
    /// assert_eq!(rule.status(&key, at(20)).remaining, 3);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn carry(&self, state: &mut State, from: Timestamp, to: Timestamp) {
        match (self, state) {
            (Self::TokenBucket(rule), State::Bucket(tat)) => rule.carry(tat, from, to),
            (Self::LeakyBucket(rule), State::Bucket(tat)) => rule.carry(tat, from, to),
            (Self::TokenBucketMaxWait(rule), State::Waiting(waiting)) => rule.carry(waiting, from, to),
            (Self::LeakyBucketMaxWait(rule), State::Waiting(waiting)) => rule.carry(waiting, from, to),
            (Self::BurstCredits(rule), State::Credits(credits)) => rule.carry(credits, from, to),
            _ => {}
        }
    }
}
