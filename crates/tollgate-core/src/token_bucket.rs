//! Token bucket: at most `burst` at once and `rate` in the long run.

use std::collections::VecDeque;

use crate::bucket::Bucket;
use crate::{Algorithm, Decision, Holds, Nanos, Outcome, Rate, RuleError, Status, Tat, Timestamp};

/// A token bucket, full when unused.
///
/// The same mechanism is known as GCRA and as the leaky bucket used as a meter.
///
/// - Promise: in every span of length d, admitted cost is at most `burst + d * rate`.
/// - Formula: `new = max(tat, now) + cost * T`; allowed iff `new - now <= burst * T`; then `tat = new`.
/// - Memory: 8 bytes a key.
/// - Overshoot: none; the burst is the most that can come at once.
/// - Choose another: for an even pace downstream, [`LeakyBucket`](crate::LeakyBucket); for "n in any
///   minute" promised to a partner, [`SlidingLog`](crate::SlidingLog).
///
/// A clock that steps back by d leaves the bucket without tokens for up to d longer:
///
/// ```
/// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
/// let (mut key, at) = (Tat::default(), |ms: u64| Timestamp::from_nanos(ms * 1_000_000));
/// assert_eq!(rule.decide(&mut key, 10, at(5000)).status.remaining, 0);
/// assert_eq!(rule.status(&key, at(5200)).remaining, 1);
/// assert_eq!(rule.status(&key, at(9000)).remaining, 10); // full, and so it stays
/// let wait = rule.test(&key, 1, at(4000)).retry_after();
/// assert_eq!(wait.map(|wait| wait.to_string()), Some("1.2s".into()));
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    bucket: Bucket,
    keeps_time: bool, // rather than tokens, when a key comes from other numbers
}

impl TokenBucket {
    /// A bucket that holds `burst` tokens and gains them at `rate`.
    ///
    /// Refuses a burst of 0, and one that takes longer to refill than the state can reach ahead:
    /// 146 years at rates that divide a nanosecond, less by up to 64 at others.
    ///
    /// ```
    /// use tollgate_core::{Rate, RuleError, TokenBucket};
    ///
    /// let rate = Rate::per_second(1)?;
    /// assert_eq!(TokenBucket::new(rate, 0), Err(RuleError::ZeroCapacity { what: "burst" }));
    /// let most = 4_611_686_018; // 146 years of seconds
    /// assert!(TokenBucket::new(rate, most).is_ok());
    /// let found = most + 1;
    /// assert_eq!(TokenBucket::new(rate, found), Err(RuleError::TooLarge { what: "burst", found, most }));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(rate: Rate, burst: u64) -> Result<Self, RuleError> {
        Self::named(rate, burst, "burst")
    }

    /// [`new`](Self::new), with the burst called `what` in errors.
    pub(crate) fn named(rate: Rate, burst: u64, what: &'static str) -> Result<Self, RuleError> {
        Ok(Self { bucket: Bucket::new(rate, burst, what)?, keeps_time: false })
    }

    /// The same bucket, but a key that comes to it from other numbers ([`convert`](Algorithm::convert)) keeps its
    /// arrival time, the moment it is full again, instead of its tokens. That is what redis-cell does, whose callers
    /// send the numbers with every request.
    ///
    /// Where those who are asked under several numbers in turn should gain nothing by it, do not use this: under a
    /// larger burst, or a shorter interval, the same arrival time leaves more tokens.
    ///
    /// The time is rounded up to the pieces of a nanosecond in which this bucket counts. More of it than they reach,
    /// which is 3 years at the most awkward rates, is cut off.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let (second, now) = (Rate::per_second(1)?, Timestamp::from_nanos(0));
    /// let (small, large) = (TokenBucket::new(second, 5)?, TokenBucket::new(second, 50)?);
    /// let mut key = Tat::default();
    /// assert_eq!(small.decide(&mut key, 5, now).status.remaining, 0); // full again in 5 seconds
    /// let large = large.keeping_arrival_time();
    /// large.convert(&small, &mut key, now);
    /// assert_eq!(large.status(&key, now).remaining, 45); // which are 5 tokens of 50
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[must_use]
    pub const fn keeping_arrival_time(self) -> Self {
        Self { keeps_time: true, ..self }
    }

    pub(crate) const fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    pub(crate) const fn keeps_arrival_time(&self) -> bool {
        self.keeps_time
    }

    /// Gives the key as many tokens as it had under `old`, at most the burst. See [`Bucket::same_tokens`].
    pub(crate) fn keep_tokens(&self, old: &Self, tat: &mut Tat, now: Timestamp, old_owed: u64, owed: u64) {
        let ahead = old.bucket.ahead(*tat, now);
        self.bucket.reach(tat, self.bucket.same_tokens(ahead, &old.bucket, old_owed, owed), now);
    }

    /// Decides for a schedule that reaches `ahead`. Allowed if with the request it reaches at most `wait`
    /// ticks beyond the burst.
    #[inline]
    fn admit(&self, ahead: u64, cost: u64, wait: u64) -> Outcome {
        if cost > self.bucket.capacity() {
            return Outcome::NEVER;
        }
        let short = (ahead + self.bucket.span(cost)).saturating_sub(self.bucket.tolerance());
        if cost == 0 || short == 0 {
            return Outcome::ALLOW;
        }
        if short > wait {
            return Outcome::deny_for(self.bucket.nanos(short - wait));
        }
        Outcome::Allow { delay: self.bucket.nanos(short) }
    }
}

impl From<Bucket> for TokenBucket {
    fn from(bucket: Bucket) -> Self {
        Self { bucket, keeps_time: false }
    }
}

impl Algorithm for TokenBucket {
    type State = Tat;

    #[inline]
    fn capacity(&self) -> u64 {
        self.bucket.capacity()
    }

    #[inline]
    fn test(&self, tat: &Tat, cost: u64, now: Timestamp) -> Outcome {
        self.admit(self.bucket.ahead(*tat, now), cost, 0)
    }

    #[inline]
    fn spend(&self, tat: &mut Tat, cost: u64, now: Timestamp) {
        self.bucket.spend(tat, self.bucket.ahead(*tat, now), cost, now);
    }

    fn test_in_full(&self, tat: &Tat, cost: u64, now: Timestamp) -> Outcome {
        self.bucket.test_in_full(*tat, cost, now, 0, || self.test(tat, cost, now))
    }

    fn spend_in_full(&self, tat: &mut Tat, cost: u64, now: Timestamp) {
        self.bucket.spend_in_full(tat, cost, now);
    }

    /// The tokens are back at once, at most until the bucket is full; it is then unused. Nothing once a whole
    /// burst could have been refilled since `charged`, nor for a cost above the burst. Where only a part of a
    /// token was missing it is given back, but not told.
    fn refund(&self, tat: &mut Tat, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        self.bucket.refund(tat, cost, charged, now)
    }

    #[inline]
    fn status(&self, tat: &Tat, now: Timestamp) -> Status {
        self.bucket.status(self.bucket.ahead(*tat, now))
    }

    #[inline]
    fn decide(&self, tat: &mut Tat, cost: u64, now: Timestamp) -> Decision {
        self.bucket.decide(tat, cost, now, |ahead| self.admit(ahead, cost, 0))
    }

    /// The tokens stay, at most the new burst of them; or the arrival time does
    /// ([`keeping_arrival_time`](Self::keeping_arrival_time)).
    fn convert(&self, old: &Self, tat: &mut Tat, now: Timestamp) {
        if old.is_unused(tat, now) {
            *tat = Tat::default();
        } else if self.keeps_time {
            let ahead = old.bucket.ahead(*tat, now);
            self.bucket.reach(tat, self.bucket.same_reach(ahead, &old.bucket), now);
        } else {
            self.keep_tokens(old, tat, now, 0, 0);
        }
    }
}

impl Holds for TokenBucket {
    #[inline]
    fn test_within(&self, tat: &Tat, cost: u64, now: Timestamp, max_wait: Nanos) -> Outcome {
        self.admit(self.bucket.ahead(*tat, now), cost, self.bucket.wait(max_wait))
    }

    #[inline]
    fn status_within(&self, tat: &Tat, now: Timestamp, _: Nanos, _: impl FnOnce() -> u64) -> Status {
        self.status(tat, now)
    }

    fn require_wait(&self, max_wait: Nanos) -> Result<(), RuleError> {
        self.bucket.require_wait(max_wait)
    }

    fn convert_waiting(
        &self,
        old: &Self,
        tat: &mut Tat,
        now: Timestamp,
        max_waits: [Nanos; 2],
        last_turn: Timestamp,
    ) {
        if old.is_unused(tat, now) {
            return *tat = Tat::default();
        }
        let [old_owed, owed] = [old.bucket.wait(max_waits[0]), self.bucket.wait(max_waits[1])];
        self.keep_tokens(old, tat, now, old_owed, owed);
        self.keep_behind(tat, last_turn, now);
    }

    /// Nobody waits for a token bucket by itself.
    fn turns(&self, _tat: &Tat, _now: Timestamp, _most: usize) -> VecDeque<Timestamp> {
        VecDeque::new()
    }

    fn carry(&self, tat: &mut Tat, from: Timestamp, to: Timestamp) {
        self.bucket.carry(tat, from, to);
    }

    fn keep_behind(&self, tat: &mut Tat, last_turn: Timestamp, now: Timestamp) {
        if last_turn > now {
            let no_sooner = self.bucket.tolerance() + self.bucket.at_least(last_turn.since(now));
            self.bucket.reach(tat, self.bucket.ahead(*tat, now).max(no_sooner), now);
        }
    }

    fn in_debt_for(&self, tat: &Tat, now: Timestamp, max_wait: Nanos) -> Option<Nanos> {
        self.bucket.in_debt_for(*tat, now, self.bucket.wait(max_wait))
    }

    fn withdraw(&self, tat: &mut Tat, cost: u64, now: Timestamp) -> Nanos {
        self.bucket.withdraw(tat, cost, now)
    }
}

#[cfg(test)]
mod tests;
