//! Leaky bucket as a queue: requests leave one interval apart, whatever the arrivals.

use std::collections::VecDeque;

use crate::bucket::Bucket;
use crate::{Algorithm, Decision, Holds, Nanos, Outcome, Rate, RuleError, Status, Tat, Timestamp};

/// A queue with `capacity` places, drained at a rate, empty when unused.
///
/// - Promise: releases k apart are never closer than `floor(k * T)`; at most `capacity` places are taken.
/// - Formula: `delay = max(tat, now) - now`; allowed iff `delay + cost * T <= capacity * T`; then
///   `tat = now + delay + cost * T`. A request keeps its place until `T` after its release.
/// - Memory: 8 bytes a key. The requests themselves wait wherever the caller holds them.
/// - Overshoot: none; the pace is exact.
/// - Choose another: where callers cannot be made to wait, [`TokenBucket`](crate::TokenBucket).
///
/// An allowed request must be held for the `delay` of its outcome; `is_allowed` alone paces nothing. Whoever
/// gives up while it is held keeps its place. The request just let go still has its place for `T`:
///
/// ```
/// use tollgate_core::{Algorithm, LeakyBucket, Nanos, Outcome, Rate, Tat, Timestamp};
///
/// let queue = LeakyBucket::new(Rate::per_second(10)?, 3)?;
/// let (mut state, now) = (Tat::default(), Timestamp::from_nanos(0));
/// for held in [0, 100_000_000, 200_000_000] {
///     let outcome = queue.decide(&mut state, 1, now).outcome;
///     assert_eq!(outcome, Outcome::Allow { delay: Nanos::new(held) });
/// }
/// assert!(!queue.decide(&mut state, 1, now).is_allowed());
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    bucket: Bucket,
}

impl LeakyBucket {
    /// A queue of `capacity` places that lets requests go at `rate`.
    ///
    /// Refuses a capacity of 0, and one that takes longer to drain than the state can reach ahead. With a
    /// capacity of 1 nobody waits: a request goes at once or is denied.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, LeakyBucket, Nanos, Outcome, Rate, Tat, Timestamp};
    ///
    /// assert!(LeakyBucket::new(Rate::per_second(10)?, 0).is_err());
    /// let rule = LeakyBucket::new(Rate::per_second(10)?, 1)?;
    /// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
    /// assert_eq!(rule.decide(&mut key, 1, now).outcome, Outcome::ALLOW);
    /// assert_eq!(rule.test(&key, 1, now).retry_after(), Some(Nanos::new(100_000_000)));
    /// assert_eq!(rule.test(&key, 2, now), Outcome::NEVER);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(rate: Rate, capacity: u64) -> Result<Self, RuleError> {
        Ok(Self { bucket: Bucket::new(rate, capacity, "capacity of the queue")? })
    }

    pub(crate) const fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Decides for a schedule that reaches `ahead`, which is how long the request would wait. Allowed if
    /// there is room, and its turn comes within `wait` ticks where that is given.
    #[inline]
    fn admit(&self, ahead: u64, cost: u64, wait: Option<u64>) -> Outcome {
        if cost > self.bucket.capacity() {
            return Outcome::NEVER;
        }
        if cost == 0 {
            return Outcome::ALLOW;
        }
        let full = (ahead + self.bucket.span(cost)).saturating_sub(self.bucket.tolerance());
        let late = wait.map_or(0, |wait| ahead.saturating_sub(wait));
        match full.max(late) {
            0 => Outcome::Allow { delay: self.bucket.nanos(ahead) },
            short => Outcome::deny_for(self.bucket.nanos(short)),
        }
    }
}

impl From<Bucket> for LeakyBucket {
    fn from(bucket: Bucket) -> Self {
        Self { bucket }
    }
}

impl Algorithm for LeakyBucket {
    type State = Tat;

    #[inline]
    fn capacity(&self) -> u64 {
        self.bucket.capacity()
    }

    #[inline]
    fn test(&self, tat: &Tat, cost: u64, now: Timestamp) -> Outcome {
        self.admit(self.bucket.ahead(*tat, now), cost, None)
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

    /// Nothing, ever. A place in the queue is a time to go at, and those behind it have been told theirs. With
    /// the end of the queue moved forward, the next would get a time that somebody already has: two would go
    /// at once.
    fn refund(&self, _tat: &mut Tat, _cost: u64, _charged: Timestamp, _now: Timestamp) -> u64 {
        0
    }

    #[inline]
    fn status(&self, tat: &Tat, now: Timestamp) -> Status {
        self.bucket.status(self.bucket.ahead(*tat, now))
    }

    #[inline]
    fn decide(&self, tat: &mut Tat, cost: u64, now: Timestamp) -> Decision {
        self.bucket.decide(tat, cost, now, |ahead| self.admit(ahead, cost, None))
    }

    /// The places taken stay taken, and nobody new leaves before those who already have their time.
    fn convert(&self, old: &Self, tat: &mut Tat, now: Timestamp) {
        let ahead = old.bucket.ahead(*tat, now);
        self.bucket.reach(tat, self.bucket.same_count(ahead, &old.bucket), now);
    }
}

impl Holds for LeakyBucket {
    #[inline]
    fn test_within(&self, tat: &Tat, cost: u64, now: Timestamp, max_wait: Nanos) -> Outcome {
        self.admit(self.bucket.ahead(*tat, now), cost, Some(self.bucket.wait(max_wait)))
    }

    #[inline]
    fn status_within(
        &self,
        tat: &Tat,
        now: Timestamp,
        max_wait: Nanos,
        places: impl FnOnce() -> u64,
    ) -> Status {
        let ahead = self.bucket.ahead(*tat, now);
        let status = self.bucket.status(ahead);
        let in_time = self.bucket.turns_within(ahead, self.bucket.wait(max_wait));
        // Whoever goes at once needs no place among the waiting.
        let places = places().saturating_add(u64::from(ahead == 0));
        Status { remaining: status.remaining.min(in_time).min(places), ..status }
    }

    /// Any wait will do: the queue's capacity bounds it.
    fn require_wait(&self, _max_wait: Nanos) -> Result<(), RuleError> {
        Ok(())
    }

    fn convert_waiting(
        &self,
        old: &Self,
        tat: &mut Tat,
        now: Timestamp,
        _: [Nanos; 2],
        last_turn: Timestamp,
    ) {
        self.convert(old, tat, now);
        self.keep_behind(tat, last_turn, now);
    }

    fn turns(&self, tat: &Tat, now: Timestamp, most: usize) -> VecDeque<Timestamp> {
        self.bucket.turns(self.bucket.ahead(*tat, now), now, most)
    }

    fn carry(&self, tat: &mut Tat, from: Timestamp, to: Timestamp) {
        self.bucket.carry(tat, from, to);
    }

    fn keep_behind(&self, tat: &mut Tat, last_turn: Timestamp, now: Timestamp) {
        if last_turn > now {
            let no_sooner = self.bucket.at_least(last_turn.since(now)) + self.bucket.span(1);
            self.bucket.reach(tat, self.bucket.ahead(*tat, now).max(no_sooner), now);
        }
    }

    fn in_debt_for(&self, tat: &Tat, now: Timestamp, _max_wait: Nanos) -> Option<Nanos> {
        self.bucket.in_debt_for(*tat, now, 0)
    }

    fn withdraw(&self, tat: &mut Tat, cost: u64, now: Timestamp) -> Nanos {
        self.bucket.withdraw(tat, cost, now)
    }
}

#[cfg(test)]
mod tests;
