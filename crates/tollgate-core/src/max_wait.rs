//! A bucket that lets a request wait for its turn, if the turn comes soon and few are waiting.

use std::collections::VecDeque;
use std::time::Duration;

use crate::adaptive::Pace;
use crate::bucket::Bucket;
use crate::rule::growth_of;
use crate::{Algorithm, Holds, Nanos, Outcome, Retry, RuleError, Status, Tat, Timestamp, WaitParts};

/// A token or leaky bucket with a bound on how long, and how many, requests may wait.
///
/// - Promise: nobody waits longer than `max_wait`, and never more than `max_waiting` wait at once.
/// - Formula: the bucket's, with its limit moved by `max_wait`; a request that must wait is also denied
///   while `max_waiting` earlier ones have not been released.
/// - Memory: 40 bytes a key, and 8 for each request that waited, at most `max_waiting`.
/// - Overshoot: none; waiting requests are charged when they are admitted.
/// - Choose another: the bare bucket where callers would rather hear "no" at once.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Algorithm, MaxWait, Nanos, Outcome, Rate, Retry, Timestamp, TokenBucket, Waiting};
///
/// let bucket = TokenBucket::new(Rate::per_second(10)?, 1)?;
/// let rule = MaxWait::new(bucket, Duration::from_millis(150), 5)?;
/// let (mut key, now) = (Waiting::default(), Timestamp::from_nanos(0));
/// let ms = |ms: u64| Nanos::new(ms * 1_000_000);
/// assert_eq!(rule.decide(&mut key, 1, now).outcome, Outcome::ALLOW);
/// assert_eq!(rule.decide(&mut key, 1, now).outcome, Outcome::Allow { delay: ms(100) });
/// assert_eq!(rule.test(&key, 1, now), Outcome::Deny { retry: Retry::After(ms(50)) }); // 200 is too long
/// assert_eq!(rule.test(&key, 2, now), Outcome::NEVER); // the bucket holds 1, however long the wait
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MaxWait<B> {
    bucket: B,
    max_wait: Nanos,    // never zero but at a pace
    max_waiting: usize, // never zero
}

/// The bucket's state, and when each request that had to wait is released, in order. Nobody
/// waits by default.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Algorithm, LeakyBucket, MaxWait, Rate, Timestamp, Waiting};
///
/// let rule = MaxWait::new(LeakyBucket::new(Rate::per_second(10)?, 9)?, Duration::from_secs(1), 1)?;
/// let (mut key, now) = (Waiting::default(), Timestamp::from_nanos(0));
/// let passed = [1; 3].map(|cost| rule.decide(&mut key, cost, now).is_allowed());
/// assert_eq!(passed, [true, true, false]); // one goes at once and one may wait
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub(crate) tat: Tat,
    pub(crate) releases: VecDeque<Timestamp>, // the newest `max_waiting`; some may be past, but a clock may step back
}

impl Waiting {
    /// Carries the key over from `old`, the same bucket at another rate. The requests that wait go as many units from now as
    /// before.
    pub(crate) fn change_rate(&mut self, new: &Bucket, old: &Bucket, now: Timestamp) {
        new.change_rate(old, &mut self.tat, now);
        if self.tat == Tat::default() {
            // All have left. A clock that steps back must not find them waiting for an unused key.
            return *self = Self::default();
        }
        for turn in self.releases.iter_mut().filter(|turn| **turn > now) {
            *turn = now.after(new.same_turn(turn.since(now), old));
        }
    }

    /// How many still wait.
    #[inline]
    fn waiting(&self, now: Timestamp) -> usize {
        self.releases.len() - self.releases.partition_point(|&release| release <= now)
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.releases.capacity() * size_of::<Timestamp>()
    }

    /// Bytes that one more waiting request may add to them.
    pub(crate) fn heap_growth(&self) -> usize {
        growth_of(&self.releases)
    }
}

impl<B: Holds> MaxWait<B> {
    /// Lets up to `max_waiting` requests wait, each at most `max_wait`.
    ///
    /// Refuses zero for either, and a wait too long for the bucket's state.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{MaxWait, Rate, RuleError, TokenBucket};
    ///
    /// let (bucket, second) = (TokenBucket::new(Rate::per_second(10)?, 1)?, Duration::from_secs(1));
    /// assert_eq!(MaxWait::new(bucket, Duration::ZERO, 5), Err(RuleError::ZeroSpan { what: "max_wait" }));
    /// assert_eq!(MaxWait::new(bucket, second, 0), Err(RuleError::ZeroWaiting));
    /// assert!(MaxWait::new(bucket, Duration::MAX, 5).is_err());
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(bucket: B, max_wait: Duration, max_waiting: u32) -> Result<Self, RuleError> {
        if max_wait.is_zero() {
            return Err(RuleError::ZeroSpan { what: "max_wait" });
        }
        if max_waiting == 0 {
            return Err(RuleError::ZeroWaiting);
        }
        let max_wait = Nanos::saturating_from(max_wait);
        bucket.require_wait(max_wait)?;
        Ok(Self { bucket, max_wait, max_waiting: max_waiting as usize })
    }

    /// The bucket underneath.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{MaxWait, Rate, TokenBucket};
    ///
    /// let bucket = TokenBucket::new(Rate::per_second(10)?, 1)?;
    /// assert_eq!(MaxWait::new(bucket, Duration::from_secs(1), 5)?.bucket(), &bucket);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub const fn bucket(&self) -> &B {
        &self.bucket
    }

    /// The state of a key whose bucket was given this `max_wait`. Whoever already waits counts.
    pub(crate) fn begin(&self, old: &B, tat: Tat, now: Timestamp) -> Waiting {
        let releases = old.turns(&tat, now, self.max_waiting);
        let mut state = Waiting { tat, releases };
        let last_turn = state.releases.back().copied().unwrap_or_default();
        let max_waits = [Nanos::ZERO, self.max_wait];
        self.bucket.convert_waiting(old, &mut state.tat, now, max_waits, last_turn);
        state
    }

    /// The state of a key whose bucket, now `new`, lost this `max_wait`.
    pub(crate) fn end(&self, new: &B, state: &Waiting, now: Timestamp) -> Tat {
        let mut tat = state.tat;
        let last_turn = state.releases.back().copied().unwrap_or_default();
        let max_waits = [self.max_wait, self.max_wait];
        new.convert_waiting(&self.bucket, &mut tat, now, max_waits, last_turn);
        tat
    }

    pub(crate) fn wait_parts(&self) -> WaitParts {
        let max_waiting = u32::try_from(self.max_waiting).expect("it was made of one");
        WaitParts { max_wait: self.max_wait, max_waiting }
    }

    /// The rule for a clock that goes at this pace. By the real clock, its `max_wait` is as long as before. It is zero where
    /// less than a nanosecond is left.
    pub(crate) fn at_pace(self, pace: Pace) -> Self {
        Self { max_wait: pace.of_span(self.max_wait), ..self }
    }

    /// Moves the schedule, and the turns of those who wait, by as much as lies between two times.
    pub(crate) fn carry(&self, state: &mut Waiting, from: Timestamp, to: Timestamp) {
        self.bucket.carry(&mut state.tat, from, to);
        for release in &mut state.releases {
            *release = if *release >= from {
                to.after(release.since(from))
            } else {
                Timestamp::from_nanos(to.as_nanos().saturating_sub(from.since(*release).get()))
            };
        }
    }

    /// Gives up the place of somebody whose turn has not come. With all behind it moved forward, the last turn is free.
    pub(crate) fn withdraw(&self, state: &mut Waiting, cost: u64, now: Timestamp) -> Nanos {
        if state.waiting(now) > 0 {
            state.releases.pop_back();
        }
        self.bucket.withdraw(&mut state.tat, cost, now)
    }

    /// All who wait go later by this, the last of them then.
    pub(crate) fn postpone(&self, state: &mut Waiting, by: Nanos, last_turn: Timestamp, now: Timestamp) {
        for release in &mut state.releases {
            // One that should have gone, and is held still, waits.
            if release.after(by) > now {
                *release = release.after(by);
            }
        }
        self.bucket.keep_behind(&mut state.tat, last_turn, now);
    }

    /// As [`Algorithm::test`], for a caller that would wait `max_wait` at most. With zero only what may go at
    /// once is allowed; more than the rule's own wait is taken as that.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Algorithm, MaxWait, Nanos, Rate, Timestamp, TokenBucket, Waiting};
    ///
    /// let bucket = TokenBucket::new(Rate::per_second(10)?, 1)?;
    /// let rule = MaxWait::new(bucket, Duration::from_millis(150), 5)?;
    /// let (mut key, now) = (Waiting::default(), Timestamp::from_nanos(0));
    /// rule.spend(&mut key, 1, now);
    /// let within = |ms: u64| rule.test_within(&key, 1, now, Nanos::new(ms * 1_000_000)).is_allowed();
    /// assert_eq!([0, 99, 100, 900].map(within), [false, false, true, true]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn test_within(&self, state: &Waiting, cost: u64, now: Timestamp, max_wait: Nanos) -> Outcome {
        let outcome = self.bucket.test_within(&state.tat, cost, now, max_wait.min(self.max_wait));
        let Some(crowded) = self.crowded_until(state, now) else {
            return outcome;
        };
        // While somebody still waits, every newcomer would have to: turns come in order.
        match outcome {
            Outcome::Allow { .. } if cost == 0 => outcome,
            Outcome::Allow { .. } => Outcome::deny_for(crowded),
            Outcome::Deny { retry } => Outcome::Deny { retry: retry.max(Retry::After(crowded)) },
        }
    }

    /// How long `max_waiting` requests will still be waiting, if they are.
    #[inline]
    fn crowded_until(&self, state: &Waiting, now: Timestamp) -> Option<Nanos> {
        let makes_room = state.releases.len().checked_sub(self.max_waiting)?;
        let release = state.releases[makes_room];
        (release > now).then(|| release.since(now))
    }
}

impl<B: Holds> Algorithm for MaxWait<B> {
    type State = Waiting;

    #[inline]
    fn capacity(&self) -> u64 {
        self.bucket.capacity()
    }

    #[inline]
    fn test(&self, state: &Waiting, cost: u64, now: Timestamp) -> Outcome {
        self.test_within(state, cost, now, self.max_wait)
    }

    #[inline]
    fn spend(&self, state: &mut Waiting, cost: u64, now: Timestamp) {
        let outcome = self.bucket.test_within(&state.tat, cost, now, self.max_wait);
        self.bucket.spend(&mut state.tat, cost, now);
        if let Outcome::Allow { delay } = outcome
            && !delay.is_zero()
        {
            while state.releases.len() >= self.max_waiting {
                state.releases.pop_front();
            }
            state.releases.push_back(now.after(delay));
        }
    }

    fn test_in_full(&self, state: &Waiting, cost: u64, now: Timestamp) -> Outcome {
        match self.bucket.in_debt_for(&state.tat, now, self.max_wait) {
            Some(debt) if cost == 0 => Outcome::deny_for(debt),
            _ => self.test(state, cost, now),
        }
    }

    /// Nobody waits for a request that is charged in full: it has been served.
    fn spend_in_full(&self, state: &mut Waiting, cost: u64, now: Timestamp) {
        self.bucket.spend_in_full(&mut state.tat, cost, now);
    }

    /// As the bucket, while nobody waits; around a leaky bucket that is nothing. Nothing also while somebody
    /// does: a turn once promised is not moved, and whoever came next would go before it.
    fn refund(&self, state: &mut Waiting, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        if state.releases.back().is_some_and(|&last| last > now) {
            return 0;
        }
        let before = state.tat;
        let given = self.bucket.refund(&mut state.tat, cost, charged, now);
        if state.tat != before {
            // All have left. A clock that steps back must not find them waiting behind somebody who goes at
            // once, on what was given back.
            state.releases = VecDeque::new();
        }
        given
    }

    /// Of a token bucket, the tokens there are remain: none while anybody waits. Of a leaky bucket, as many as
    /// would still be let in, to go at once or to wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Algorithm, LeakyBucket, MaxWait, Rate, Timestamp, Waiting};
    ///
    /// let queue = LeakyBucket::new(Rate::per_second(10)?, 9)?;
    /// let rule = MaxWait::new(queue, Duration::from_millis(300), 2)?;
    /// let (mut key, now) = (Waiting::default(), Timestamp::from_nanos(0));
    /// assert_eq!(rule.status(&key, now).remaining, 3); // one to go at once, and two to wait
    /// assert_eq!(rule.decide(&mut key, 3, now).status.remaining, 1); // whose turn is in 300 ms
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    fn status(&self, state: &Waiting, now: Timestamp) -> Status {
        let places = || self.max_waiting.saturating_sub(state.waiting(now)) as u64;
        self.bucket.status_within(&state.tat, now, self.max_wait, places)
    }

    /// Converts the bucket. Those who wait keep the time they were given, and nobody new leaves before them.
    fn convert(&self, old: &Self, state: &mut Waiting, now: Timestamp) {
        let last_turn = state.releases.back().copied().unwrap_or_default();
        let max_waits = [old.max_wait, self.max_wait];
        self.bucket.convert_waiting(&old.bucket, &mut state.tat, now, max_waits, last_turn);
        if state.tat == Tat::default() {
            // All have left. A clock that steps back must not find them waiting for an unused key.
            return *state = Waiting::default();
        }
        let surplus = state.releases.len().saturating_sub(self.max_waiting);
        state.releases.drain(..surplus);
        state.releases.shrink_to(self.max_waiting);
    }
}

#[cfg(test)]
mod tests;
