//! Burst credits: a base rate, and a faster one for as long as saved-up credits last.

use std::time::Duration;

use crate::bucket::Bucket;
use crate::rate::MAX_SPAN;
use crate::{Algorithm, Holds, Outcome, Rate, RuleError, RuleParts, Status, Tat, Timestamp, TokenBucket};

/// A base rate with credits that may be spent at a peak rate. A new key has full credits.
///
/// - Promise: in every span of length d, admitted cost is at most `credits + d * rate`, and at most
///   `peak burst + d * peak`.
/// - Formula: two token buckets, both or neither: one fills at the base rate and holds the credits, one
///   fills at the peak rate and holds the peak burst.
/// - Memory: 16 bytes a key.
/// - Overshoot: none.
/// - Choose another: where bursts need no upper pace, one [`TokenBucket`] does.
///
/// A cost above the credits or above the peak burst never passes:
///
/// ```
/// use tollgate_core::{Algorithm, BurstCredits, Credits, Outcome, Rate, Timestamp};
///
/// let rule = BurstCredits::new(Rate::per_second(10)?, Rate::per_second(50)?, 100)?;
/// let (mut key, at) = (Credits::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
/// let mut passed = |s| (0..99).filter(|_| rule.decide(&mut key, 1, at(s)).is_allowed()).count();
/// assert_eq!([0, 1, 2, 3].map(&mut passed), [50, 50, 20, 10]); // the peak, until the credits are spent
/// assert_eq!(rule.test(&key, 51, at(9)), Outcome::NEVER);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BurstCredits {
    base: TokenBucket,
    peak: TokenBucket,
}

/// Where both schedules of a key stand.
///
/// ```
/// use tollgate_core::{Algorithm, BurstCredits, Credits, Rate, Timestamp};
///
/// let rule = BurstCredits::new(Rate::per_second(10)?, Rate::per_second(50)?, 100)?;
/// let key = Credits::default(); // full credits
/// assert_eq!(rule.status(&key, Timestamp::from_nanos(0)).remaining, 50); // of which the peak lets 50 pass
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Credits {
    pub(crate) base: Tat,
    pub(crate) peak: Tat,
}

impl BurstCredits {
    /// Credits fill at `rate` up to `credits` and are spent at up to `peak`; as many may come at once
    /// as `peak` gives in one of its periods.
    ///
    /// Refuses a peak that is not above the rate, and what the buckets refuse.
    ///
    /// ```
    /// use tollgate_core::{BurstCredits, Rate, RuleError};
    ///
    /// let (base, peak) = (Rate::per_second(10)?, Rate::per_second(50)?);
    /// assert_eq!(BurstCredits::new(base, base, 100), Err(RuleError::PeakNotAboveBase { base, peak: base }));
    /// let none = RuleError::ZeroCapacity { what: "number of credits" };
    /// assert_eq!(BurstCredits::new(base, peak, 0), Err(none));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(rate: Rate, peak: Rate, credits: u64) -> Result<Self, RuleError> {
        Self::with_peak_burst(rate, peak, credits, peak.tokens())
    }

    /// As [`new`](Self::new), with full credits lasting `burst_for` at the peak: `(peak - rate) * burst_for` of
    /// them, rounded down, since the base rate goes on meanwhile.
    ///
    /// Refuses a `burst_for` that comes to no credits, as zero does, and one above 146 years.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{BurstCredits, Rate};
    ///
    /// let (rate, peak) = (Rate::per_second(10)?, Rate::per_second(50)?);
    /// let rule = BurstCredits::lasting(rate, peak, Duration::from_secs(5))?;
    /// assert_eq!(rule, BurstCredits::new(rate, peak, 200)?); // 250 come, and 50 of them from the base rate
    /// assert!(BurstCredits::lasting(rate, peak, Duration::ZERO).is_err());
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn lasting(rate: Rate, peak: Rate, burst_for: Duration) -> Result<Self, RuleError> {
        if burst_for > MAX_SPAN {
            return Err(RuleError::TooLong { what: "burst_for", span: burst_for, most: MAX_SPAN });
        }
        let credits = gained_beyond(rate, peak, burst_for);
        Self::new(rate, peak, u64::try_from(credits).unwrap_or(u64::MAX))
    }

    /// As [`new`](Self::new), with at most `peak_burst` at once. Refuses a `peak_burst` of 0.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, BurstCredits, Rate};
    ///
    /// let (rate, peak) = (Rate::per_second(10)?, Rate::per_second(50)?);
    /// assert_eq!(BurstCredits::with_peak_burst(rate, peak, 100, 5)?.capacity(), 5);
    /// assert!(BurstCredits::with_peak_burst(rate, peak, 100, 0).is_err());
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn with_peak_burst(rate: Rate, peak: Rate, credits: u64, peak_burst: u64) -> Result<Self, RuleError> {
        if !peak.is_above(rate) {
            return Err(RuleError::PeakNotAboveBase { base: rate, peak });
        }
        Ok(Self {
            base: TokenBucket::named(rate, credits, "number of credits")?,
            peak: TokenBucket::named(peak, peak_burst, "peak burst")?,
        })
    }
}

impl BurstCredits {
    /// Of two buckets that are known to go together.
    pub(crate) const fn of(base: TokenBucket, peak: TokenBucket) -> Self {
        Self { base, peak }
    }

    /// The bucket of the base rate, then that of the peak rate.
    pub(crate) const fn buckets(&self) -> [&Bucket; 2] {
        [self.base.bucket(), self.peak.bucket()]
    }

    pub(crate) const fn parts(&self) -> RuleParts {
        RuleParts::BurstCredits { base: self.base.bucket().parts(), peak: self.peak.bucket().parts() }
    }

    /// Carries a key over from `old`, the same rule at another rate.
    pub(crate) fn change_rate(&self, old: &Self, state: &mut Credits, now: Timestamp) {
        self.base.bucket().change_rate(old.base.bucket(), &mut state.base, now);
        self.peak.bucket().change_rate(old.peak.bucket(), &mut state.peak, now);
    }

    /// Moves both schedules by as much as lies between two times.
    pub(crate) fn carry(&self, state: &mut Credits, from: Timestamp, to: Timestamp) {
        self.base.carry(&mut state.base, from, to);
        self.peak.carry(&mut state.peak, from, to);
    }
}

/// What `peak` gives in `span` beyond what `rate` does, rounded down once; 0 if that is less.
///
/// As one fraction the numerator could take 188 bits. So whole tokens and parts of one are subtracted apart,
/// none of which takes more than 126; the parts borrow a token where the rate has the larger.
fn gained_beyond(rate: Rate, peak: Rate, span: Duration) -> u128 {
    let gained = |rate: Rate| {
        let (tokens, period) = (u128::from(rate.tokens()) * span.as_nanos(), rate.period().as_nanos());
        (tokens / period, tokens % period, period)
    };
    let (whole, part, period) = gained(rate);
    let (peak_whole, peak_part, peak_period) = gained(peak);
    let borrowed = part * peak_period > peak_part * period;
    peak_whole.saturating_sub(whole + u128::from(borrowed))
}

/// The outcome of two buckets that must both allow.
#[inline]
fn both(base: Outcome, peak: Outcome) -> Outcome {
    match (base, peak) {
        (Outcome::Deny { retry: base }, Outcome::Deny { retry: peak }) => {
            Outcome::Deny { retry: base.max(peak) }
        }
        (denied @ Outcome::Deny { .. }, _) | (_, denied) => denied,
    }
}

impl Algorithm for BurstCredits {
    type State = Credits;

    #[inline]
    fn capacity(&self) -> u64 {
        self.base.capacity().min(self.peak.capacity())
    }

    #[inline]
    fn test(&self, state: &Credits, cost: u64, now: Timestamp) -> Outcome {
        both(self.base.test(&state.base, cost, now), self.peak.test(&state.peak, cost, now))
    }

    #[inline]
    fn spend(&self, state: &mut Credits, cost: u64, now: Timestamp) {
        self.base.spend(&mut state.base, cost, now);
        self.peak.spend(&mut state.peak, cost, now);
    }

    fn test_in_full(&self, state: &Credits, cost: u64, now: Timestamp) -> Outcome {
        both(self.base.test_in_full(&state.base, cost, now), self.peak.test_in_full(&state.peak, cost, now))
    }

    fn spend_in_full(&self, state: &mut Credits, cost: u64, now: Timestamp) {
        self.base.spend_in_full(&mut state.base, cost, now);
        self.peak.spend_in_full(&mut state.peak, cost, now);
    }

    /// Each bucket gets back what it still knows of the charge, as a [`TokenBucket`] does: neither is then
    /// above what it holds when unused, and each keeps its own promise. Returned is the smaller of the two.
    ///
    /// The bucket that refills sooner, mostly the peak's, forgets the charge first. From then on 0 is
    /// returned, but the other bucket, mostly the credits, still gets back what it lacks.
    fn refund(&self, state: &mut Credits, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        if cost > self.capacity() {
            return 0;
        }
        let base = self.base.refund(&mut state.base, cost, charged, now);
        base.min(self.peak.refund(&mut state.peak, cost, charged, now))
    }

    #[inline]
    fn status(&self, state: &Credits, now: Timestamp) -> Status {
        let (base, peak) = (self.base.status(&state.base, now), self.peak.status(&state.peak, now));
        Status {
            remaining: base.remaining.min(peak.remaining),
            reset_after: base.reset_after.max(peak.reset_after),
        }
    }

    /// Both buckets keep their tokens, also one that is full, unless the key is unused.
    fn convert(&self, old: &Self, state: &mut Credits, now: Timestamp) {
        if old.is_unused(state, now) {
            *state = Credits::default();
        } else {
            self.base.keep_tokens(&old.base, &mut state.base, now, 0, 0);
            self.peak.keep_tokens(&old.peak, &mut state.peak, now, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests;
