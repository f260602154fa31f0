//! Rules that are slowed under load.

use super::{Rule, State};
use crate::adaptive::Pace;
use crate::{Holds, Nanos, RuleParts, Timestamp};

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
            Self::TokenBucket(_) | Self::LeakyBucket(_) | Self::BurstCredits(_) | Self::Concurrency(_) => {
                self
            }
        }
    }

    /// The rule at a pace, for a store that decides by a clock that it cannot slow. Buckets and burst credits have a lower rate.
    /// Their bursts and a `max_wait` stay. Windows have a smaller limit, as with [`at_pace`](Self::at_pace).
    ///
    /// The time between two tokens is rounded up by less than 1/64 ns, as that of a [`Rate`](crate::Rate) is. A state that was
    /// written at another pace must be carried over by [`change_rate`](Self::change_rate).
    ///
    /// ```
    /// use tollgate_core::adaptive::{Load, RateMultiplier};
    /// use tollgate_core::{Nanos, Outcome, PermitId, Rate, Retry, Rule, State, Timestamp, TokenBucket};
    ///
    /// let mut multiplier = RateMultiplier::new(100)?;
    /// (0..3).for_each(|_| multiplier.observe(Load::High)); // 0.512
    /// let rule = Rule::from(TokenBucket::new(Rate::per_second(100)?, 10)?).at_reduced_rate(multiplier.pace());
    /// let (mut key, now) = (State::default(), Timestamp::from_nanos(0));
    /// rule.spend(&mut key, PermitId(0), 10, now); // the whole burst
    /// let retry = Retry::After(Nanos::new(19_531_250));
    /// assert_eq!(rule.test(&key, 1, now), Outcome::Deny { retry });
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[must_use]
    pub fn at_reduced_rate(self, pace: Pace) -> Self {
        if pace == Pace::FULL {
            return self;
        }
        let parts = match self.parts() {
            RuleParts::TokenBucket { bucket, keeps_arrival_time, waits } => {
                let bucket = bucket.at_pace(pace, waits.map_or(Nanos::ZERO, |waits| waits.max_wait));
                RuleParts::TokenBucket { bucket, keeps_arrival_time, waits }
            }
            // The capacity of a queue bounds how far its schedule reaches, whatever its `max_wait` is.
            RuleParts::LeakyBucket { bucket, waits } => {
                RuleParts::LeakyBucket { bucket: bucket.at_pace(pace, Nanos::ZERO), waits }
            }
            RuleParts::BurstCredits { base, peak } => RuleParts::BurstCredits {
                base: base.at_pace(pace, Nanos::ZERO),
                peak: peak.at_pace(pace, Nanos::ZERO),
            },
            RuleParts::FixedWindow { .. }
            | RuleParts::SlidingLog { .. }
            | RuleParts::SlidingCounter { .. }
            | RuleParts::Concurrency { .. } => return self.at_pace(pace),
        };
        Self::from_parts(&parts).unwrap_or(self)
    }

    /// Carries a key over from `old`: the same rule at another pace ([`at_reduced_rate`](Self::at_reduced_rate)). The key keeps
    /// its tokens, and a debt stays the same number of tokens. Requests that wait go as many tokens from now as before. States
    /// of windows and permits stay as they are. For rules that differ in more than the rate, use [`convert`](Self::convert).
    ///
    /// ```
    /// use tollgate_core::adaptive::{Load, RateMultiplier};
    /// use tollgate_core::{PermitId, Rate, Rule, State, Timestamp, TokenBucket};
    ///
    /// let mut multiplier = RateMultiplier::new(100)?;
    /// multiplier.observe(Load::High);
    /// let full = Rule::from(TokenBucket::new(Rate::per_second(100)?, 10)?);
    /// let reduced = full.at_reduced_rate(multiplier.pace());
    /// let (mut key, now) = (State::default(), Timestamp::from_nanos(0));
    /// full.spend(&mut key, PermitId(0), 7, now);
    /// reduced.change_rate(&full, &mut key, now);
    /// assert_eq!(reduced.status(&key, now).remaining, 3);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn change_rate(&self, old: &Self, state: &mut State, now: Timestamp) {
        match (self, old, state) {
            (Self::TokenBucket(new), Self::TokenBucket(old), State::Bucket(tat)) => {
                new.bucket().change_rate(old.bucket(), tat, now);
            }
            (Self::LeakyBucket(new), Self::LeakyBucket(old), State::Bucket(tat)) => {
                new.bucket().change_rate(old.bucket(), tat, now);
            }
            (Self::TokenBucketMaxWait(new), Self::TokenBucketMaxWait(old), State::Waiting(waiting)) => {
                waiting.change_rate(new.bucket().bucket(), old.bucket().bucket(), now);
            }
            (Self::LeakyBucketMaxWait(new), Self::LeakyBucketMaxWait(old), State::Waiting(waiting)) => {
                waiting.change_rate(new.bucket().bucket(), old.bucket().bucket(), now);
            }
            (Self::BurstCredits(new), Self::BurstCredits(old), State::Credits(credits)) => {
                new.change_rate(old, credits, now);
            }
            // The state of an unused key, or that of another algorithm.
            (
                Self::TokenBucket(_)
                | Self::LeakyBucket(_)
                | Self::TokenBucketMaxWait(_)
                | Self::LeakyBucketMaxWait(_)
                | Self::BurstCredits(_),
                _,
                _,
            ) => {}
            // These have no schedule.
            (
                Self::FixedWindow(_) | Self::SlidingLog(_) | Self::SlidingCounter(_) | Self::Concurrency(_),
                _,
                _,
            ) => {}
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
            // The state of an unused key, or that of another algorithm.
            (
                Self::TokenBucket(_)
                | Self::LeakyBucket(_)
                | Self::TokenBucketMaxWait(_)
                | Self::LeakyBucketMaxWait(_)
                | Self::BurstCredits(_),
                _,
            ) => {}
            // These have no schedule.
            (
                Self::FixedWindow(_) | Self::SlidingLog(_) | Self::SlidingCounter(_) | Self::Concurrency(_),
                _,
            ) => {}
        }
    }
}

#[cfg(test)]
mod tests;
