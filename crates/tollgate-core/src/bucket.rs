//! The one state machine behind the token bucket, the leaky bucket and burst credits.
//!
//! All amounts here are ticks, pieces of a nanosecond of which the interval says how many make one
//! (`rate.rs`), unless they are `Nanos`.
//!
//! A key is remembered as one moment, its theoretical arrival time (TAT): when its schedule is empty
//! again. Each unit of cost takes up one interval of the schedule, and the schedule may reach ahead of
//! `now` by `capacity` intervals. That is GCRA, and it is a token bucket: the tokens are
//! `capacity - (tat - now) / interval`, refilled by the passing of time alone, with no second word for
//! "last refill" that a clock stepping back could corrupt.

use std::collections::VecDeque;

use crate::adaptive::Pace;
use crate::rate::{FINEST, Interval, MAX_SPAN, gcd};
use crate::{Algorithm, BucketParts, Decision, Nanos, Outcome, Rate, RuleError, Status, Timestamp};

/// The state of a bucket: its theoretical arrival time, or nothing for an unused key.
///
/// It belongs to the rule that wrote it: another rule may count in other pieces. See
/// [`Algorithm::convert`].
///
/// The word counts pieces of a nanosecond modulo 2^64 and is compared by distance, as TCP compares
/// sequence numbers. So any clock will do, whatever its zero, for as long as it likes; only a key left
/// alone for more than 2^63 pieces (4.6 years for the most awkward rates, 292 years for the common
/// ones) would be mistaken for one still in debt, and a clock that steps back by as much for one that
/// went on.
///
/// ```
/// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
/// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
/// rule.spend(&mut key, 1, now);
/// assert_ne!(key, Tat::default());
/// assert_eq!(size_of_val(&key), 8);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tat(u64); // 0: unused

impl Tat {
    /// The word, for stores that keep nothing else. 0 is the default, an unused key; a charge never gives 0.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let mut key = Tat::default();
    /// assert_eq!(key.to_bits(), 0);
    /// TokenBucket::new(Rate::per_second(5)?, 10)?.spend(&mut key, 1, Timestamp::from_nanos(7));
    /// assert_eq!(key.to_bits(), 200_000_007); // at 5 a second the pieces are whole nanoseconds
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The state whose word this is. Any word is a state, 0 that of an unused key.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let (rule, now) = (TokenBucket::new(Rate::per_second(5)?, 10)?, Timestamp::from_nanos(0));
    /// assert_eq!(rule.status(&Tat::from_bits(400_000_000), now).remaining, 8);
    /// assert_eq!(Tat::from_bits(0), Tat::default());
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    fn at(ticks: u64) -> Self {
        // The one tick that means "unused" is taken by its neighbour: late, never early.
        Self(if ticks == 0 { 1 } else { ticks })
    }
}

/// A bucket that can say how long a request would have to wait for its turn.
///
/// ```
/// use tollgate_core::{Holds, LeakyBucket, Nanos, Rate, Tat, Timestamp, TokenBucket};
///
/// /// Whether a second request could wait for its turn for 50 ms.
/// fn waits(bucket: &impl Holds) -> bool {
///     let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
///     bucket.spend(&mut key, 1, now);
///     bucket.test_within(&key, 1, now, Nanos::new(50_000_000)).is_allowed()
/// }
/// assert!(waits(&TokenBucket::new(Rate::per_second(20)?, 1)?));
/// assert!(!waits(&LeakyBucket::new(Rate::per_second(10)?, 5)?)); // the turn comes after 100 ms
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
pub trait Holds: Algorithm<State = Tat> {
    /// As [`Algorithm::test`], but allows a request whose turn comes within `max_wait`, with its delay.
    /// With no wait at all, only one that may go at once. A turn exactly `max_wait` away is within it.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Holds, Nanos, Outcome, Rate, Retry, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(10)?, 1)?;
    /// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
    /// let ms = |ms: u64| Nanos::new(ms * 1_000_000);
    /// rule.spend(&mut key, 1, now);
    /// assert_eq!(rule.test_within(&key, 1, now, ms(100)), Outcome::Allow { delay: ms(100) });
    /// assert_eq!(rule.test_within(&key, 1, now, ms(60)), Outcome::Deny { retry: Retry::After(ms(40)) });
    /// assert_eq!(rule.test_within(&key, 2, now, ms(900)), Outcome::NEVER); // the bucket holds 1
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn test_within(&self, tat: &Tat, cost: u64, now: Timestamp, max_wait: Nanos) -> Outcome;

    /// As [`Algorithm::status`], where nobody waits longer than `max_wait` and only `places` more may wait, which
    /// is asked for if it matters.
    ///
    /// Of a queue only those remain who would still be let in under these bounds: the one that goes at once, if
    /// nobody is before it, and those who wait. Of a token bucket what remains are its tokens, as without the
    /// bounds: none while it is in debt, though more may still be let in to wait.
    ///
    /// ```
    /// use tollgate_core::{Holds, LeakyBucket, Nanos, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let (rate, key, now) = (Rate::per_second(10)?, Tat::default(), Timestamp::from_nanos(0));
    /// let (queue, tokens) = (LeakyBucket::new(rate, 9)?, TokenBucket::new(rate, 9)?);
    /// let wait = Nanos::new(250_000_000);
    /// assert_eq!(queue.status_within(&key, now, wait, || 5).remaining, 3); // turns at 0, 100 and 200 ms
    /// assert_eq!(queue.status_within(&key, now, wait, || 1).remaining, 2);
    /// assert_eq!(tokens.status_within(&key, now, wait, || 1).remaining, 9);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn status_within(
        &self,
        tat: &Tat,
        now: Timestamp,
        max_wait: Nanos,
        places: impl FnOnce() -> u64,
    ) -> Status;

    /// Refuses a wait so long that the schedule could not reach it.
    ///
    /// ```
    /// use tollgate_core::{Holds, LeakyBucket, Nanos, Rate, TokenBucket};
    ///
    /// let (rate, ages) = (Rate::per_second(1)?, Nanos::new(u64::MAX));
    /// assert!(TokenBucket::new(rate, 1)?.require_wait(ages).is_err());
    /// assert!(LeakyBucket::new(rate, 1)?.require_wait(ages).is_ok()); // its capacity bounds the wait
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn require_wait(&self, max_wait: Nanos) -> Result<(), RuleError>;

    /// [`Algorithm::convert`], where requests may wait, or might, for the first of `max_waits` under `old` and
    /// for the second from now on. The last of those who do leaves at `last_turn`: no turn comes before it.
    /// One that is not after `now` has left, and holds nobody up.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Holds, Nanos, Outcome, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let old = TokenBucket::new(Rate::per_second(1)?, 1)?;
    /// let new = TokenBucket::new(Rate::per_second(10)?, 1)?;
    /// let (mut key, now, second) = (Tat::default(), Timestamp::from_nanos(0), Nanos::new(1_000_000_000));
    /// old.spend(&mut key, 1, now);
    /// old.spend(&mut key, 1, now); // waits for a second
    /// new.convert_waiting(&old, &mut key, now, [second, second], now.after(second));
    /// let delay = Nanos::new(1_100_000_000); // the next goes 100 ms after it
    /// assert_eq!(new.test_within(&key, 1, now, delay), Outcome::Allow { delay });
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn convert_waiting(
        &self,
        old: &Self,
        tat: &mut Tat,
        now: Timestamp,
        max_waits: [Nanos; 2],
        last_turn: Timestamp,
    );

    /// The turns of the newest requests that still wait, as far as the schedule tells: at most `most`.
    /// None for a key that is unused, nor for a bucket for which nobody waits by itself.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Holds, LeakyBucket, Rate, Tat, Timestamp};
    ///
    /// let queue = LeakyBucket::new(Rate::per_second(10)?, 3)?;
    /// let (mut key, at) = (Tat::default(), |ms: u64| Timestamp::from_nanos(ms * 1_000_000));
    /// assert!(queue.turns(&key, at(0), 9).is_empty());
    /// queue.spend(&mut key, 3, at(0)); // the first goes at once
    /// assert_eq!(queue.turns(&key, at(0), 9), [at(100), at(200)]);
    /// assert_eq!(queue.turns(&key, at(0), 1), [at(200)]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn turns(&self, tat: &Tat, now: Timestamp, most: usize) -> VecDeque<Timestamp>;

    /// Carries a key over from a clock that shows `from` to one that shows `to` at the same moment: the schedule
    /// reaches as far ahead as before.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Holds, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// let (mut key, at) = (Tat::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
    /// rule.spend(&mut key, 7, at(20));
    /// rule.carry(&mut key, at(20), at(50));
    /// assert_eq!(rule.status(&key, at(50)).remaining, 3);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn carry(&self, tat: &mut Tat, from: Timestamp, to: Timestamp);

    /// No turn comes before that of the last who waits. One that is not after `now` has left, and holds nobody up.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Holds, LeakyBucket, Rate, Tat, Timestamp};
    ///
    /// let (rule, at) = (LeakyBucket::new(Rate::per_second(10)?, 9)?, |ms: u64| Timestamp::from_nanos(ms * 1_000_000));
    /// let mut key = Tat::default();
    /// rule.spend(&mut key, 2, at(0));
    /// rule.keep_behind(&mut key, at(500), at(0));
    /// assert_eq!(rule.test(&key, 1, at(0)).delay().get(), 600_000_000);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn keep_behind(&self, tat: &mut Tat, last_turn: Timestamp, now: Timestamp);

    /// How long the key stays above its limit, where requests may wait for `max_wait`. None if it is not above. A token bucket
    /// lets requests wait beyond its burst. The requests that wait in a queue are within its capacity.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Holds, LeakyBucket, Nanos, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let (rate, now, second) = (Rate::per_second(1)?, Timestamp::from_nanos(0), Nanos::new(1_000_000_000));
    /// let (tokens, queue) = (TokenBucket::new(rate, 10)?, LeakyBucket::new(rate, 10)?);
    /// let mut key = Tat::default();
    /// tokens.spend_in_full(&mut key, 12, now);
    /// assert_eq!(tokens.in_debt_for(&key, now, second), Some(second));
    /// assert_eq!(queue.in_debt_for(&key, now, second), Some(Nanos::new(2_000_000_000)));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn in_debt_for(&self, tat: &Tat, now: Timestamp, max_wait: Nanos) -> Option<Nanos>;

    /// Gives up the place of somebody whose turn has not come: [`Rule::withdraw`](crate::Rule::withdraw).
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Holds, LeakyBucket, Rate, Tat, Timestamp};
    ///
    /// let (rule, now) = (LeakyBucket::new(Rate::per_second(10)?, 9)?, Timestamp::from_nanos(0));
    /// let mut key = Tat::default();
    /// rule.spend(&mut key, 3, now);
    /// assert_eq!(rule.withdraw(&mut key, 1, now).get(), 100_000_000);
    /// assert_eq!(rule.status(&key, now).remaining, 7);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn withdraw(&self, tat: &mut Tat, cost: u64, now: Timestamp) -> Nanos;
}

/// How far ahead of `now` a schedule may reach, in ticks: half of what the word can tell from the
/// past, so that the other half is left for clocks that step back.
const MAX_REACH: u64 = 1 << 62;

/// Interval and capacity, with the arithmetic of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bucket {
    interval: Interval,
    capacity: u64,  // never zero
    tolerance: u64, // capacity * interval: how far ahead the schedule may reach
}

impl Bucket {
    /// `what` names the capacity in errors.
    pub(crate) fn new(rate: Rate, capacity: u64, what: &'static str) -> Result<Self, RuleError> {
        Self::every(rate.interval()?, capacity, what)
    }

    fn every(interval: Interval, capacity: u64, what: &'static str) -> Result<Self, RuleError> {
        if capacity == 0 {
            return Err(RuleError::ZeroCapacity { what });
        }
        let most = MAX_REACH / interval.ticks.get();
        if capacity > most {
            return Err(RuleError::TooLarge { what, found: capacity, most });
        }
        Ok(Self { interval, capacity, tolerance: capacity * interval.ticks.get() })
    }

    /// As plain numbers.
    pub(crate) const fn parts(&self) -> BucketParts {
        let Interval { ticks, per_nano } = self.interval;
        BucketParts { interval: ticks.get(), per_nano: per_nano.get(), capacity: self.capacity }
    }

    /// Of plain numbers. `what` names the capacity in errors.
    pub(crate) fn from_parts(parts: BucketParts, what: &'static str) -> Result<Self, RuleError> {
        let interval = Interval::of(parts.interval, parts.per_nano)?;
        Self::every(interval, parts.capacity, what)
    }

    #[inline]
    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity
    }

    #[inline]
    pub(crate) const fn tolerance(&self) -> u64 {
        self.tolerance
    }

    /// How far the schedule reaches ahead of `now`: what has been spent and not yet refilled. Below 2^63,
    /// so that a span, at most 2^62, can be added.
    #[inline]
    pub(crate) fn ahead(&self, tat: Tat, now: Timestamp) -> u64 {
        if tat.0 == 0 {
            return 0;
        }
        tat.0.wrapping_sub(self.ticks(now)).cast_signed().max(0).cast_unsigned()
    }

    /// The schedule time `cost` takes up; only for costs up to the capacity, so that it fits.
    #[inline]
    pub(crate) const fn span(&self, cost: u64) -> u64 {
        cost * self.interval.ticks.get()
    }

    /// Sets the schedule to reach `ahead` of `now`; zero leaves the key unused.
    #[inline]
    pub(crate) fn reach(&self, tat: &mut Tat, ahead: u64, now: Timestamp) {
        *tat = if ahead == 0 { Tat::default() } else { Tat::at(self.ticks(now).wrapping_add(ahead)) };
    }

    /// Moves the schedule by as much as lies between two times.
    pub(crate) fn carry(&self, tat: &mut Tat, from: Timestamp, to: Timestamp) {
        if tat.0 != 0 {
            *tat = Tat::at(tat.0.wrapping_sub(self.ticks(from)).wrapping_add(self.ticks(to)));
        }
    }

    /// What a schedule that reaches `ahead` leaves.
    #[inline]
    pub(crate) fn status(&self, ahead: u64) -> Status {
        Status {
            remaining: self.interval.ticks.floor(self.tolerance.saturating_sub(ahead)),
            reset_after: self.nanos(ahead),
        }
    }

    /// Puts a request at the end of a schedule that reaches `ahead`, and returns how far it reaches then.
    #[inline]
    pub(crate) fn spend(&self, tat: &mut Tat, ahead: u64, cost: u64, now: Timestamp) -> u64 {
        if cost == 0 {
            return ahead;
        }
        let ahead = ahead + self.span(cost);
        self.reach(tat, ahead, now);
        ahead
    }

    /// Puts a request at the end of a schedule, however far that reaches, up to a debt of one capacity. A schedule that
    /// reaches further already, by a clock that stepped back, stays as it is.
    pub(crate) fn spend_in_full(&self, tat: &mut Tat, cost: u64, now: Timestamp) {
        let ahead = self.ahead(*tat, now);
        let most = (2 * self.tolerance).min(MAX_REACH + MAX_REACH / 2);
        if cost > 0 && ahead < most {
            let span = cost.saturating_mul(self.interval.ticks.get());
            self.reach(tat, ahead.saturating_add(span).min(most), now);
        }
    }

    /// How long the schedule still reaches beyond the tolerance and `wait` ticks. None if it does not.
    pub(crate) fn in_debt_for(&self, tat: Tat, now: Timestamp, wait: u64) -> Option<Nanos> {
        let debt = self.ahead(tat, now).saturating_sub(self.tolerance + wait);
        (debt > 0).then(|| self.nanos(debt))
    }

    /// [`Algorithm::test_in_full`], by what [`Algorithm::test`] says of costs above 0. `wait` is as for
    /// [`in_debt_for`](Self::in_debt_for).
    pub(crate) fn test_in_full(
        &self,
        tat: Tat,
        cost: u64,
        now: Timestamp,
        wait: u64,
        test: impl FnOnce() -> Outcome,
    ) -> Outcome {
        match self.in_debt_for(tat, now, wait) {
            Some(debt) if cost == 0 => Outcome::deny_for(debt),
            _ => test(),
        }
    }

    /// Moves the schedule back by what `cost` takes up, but not behind `now`, and returns how many units that is,
    /// one begun counted as one: it was given what it lacked.
    ///
    /// After the time in which a whole burst is refilled, a charge has been made good for, whatever came after
    /// it; given back then, it would make room in a schedule that it has no part in.
    pub(crate) fn refund(&self, tat: &mut Tat, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        let ahead = self.ahead(*tat, now);
        let age = now.since(charged).get().saturating_mul(self.interval.per_nano.get());
        if cost == 0 || cost > self.capacity || ahead == 0 || age >= self.tolerance {
            return 0;
        }
        let given = self.span(cost).min(ahead);
        self.reach(tat, ahead - given, now);
        self.interval.ticks.ceil(given)
    }

    /// Moves the schedule back by what `cost` takes up, but not behind `now`, and returns by how much, rounded down: whoever is
    /// moved forward by it leaves late, never early.
    pub(crate) fn withdraw(&self, tat: &mut Tat, cost: u64, now: Timestamp) -> Nanos {
        let ahead = self.ahead(*tat, now);
        if cost > self.capacity {
            return Nanos::ZERO; // which was never let in
        }
        let given = self.span(cost).min(ahead);
        self.reach(tat, ahead - given, now);
        Nanos::new(self.interval.per_nano.floor(given))
    }

    /// [`Algorithm::decide`], with the distance to `now` taken once.
    #[inline]
    pub(crate) fn decide(
        &self,
        tat: &mut Tat,
        cost: u64,
        now: Timestamp,
        admit: impl FnOnce(u64) -> Outcome,
    ) -> Decision {
        let mut ahead = self.ahead(*tat, now);
        let outcome = admit(ahead);
        if outcome.is_allowed() {
            ahead = self.spend(tat, ahead, cost, now);
        }
        Decision { outcome, status: self.status(ahead) }
    }

    /// Ticks as whole nanoseconds, rounded up: a wait may be long, never short.
    #[inline]
    pub(crate) const fn nanos(&self, ticks: u64) -> Nanos {
        Nanos::new(self.interval.per_nano.ceil(ticks))
    }

    /// A wait in ticks, cut off where the word could not tell it from the past.
    #[inline]
    pub(crate) fn wait(&self, max_wait: Nanos) -> u64 {
        max_wait.get().saturating_mul(self.interval.per_nano.get()).min(MAX_REACH - 1)
    }

    /// The turns, one interval apart, of whoever is still to leave a queue that reaches `ahead`: oldest first,
    /// at most the `most` newest.
    pub(crate) fn turns(&self, ahead: u64, now: Timestamp, most: usize) -> VecDeque<Timestamp> {
        let mut turns = VecDeque::new();
        let mut turn = ahead.saturating_sub(self.interval.ticks.get());
        while turn > 0 && turns.len() < most {
            turns.push_front(now.after(self.nanos(turn)));
            turn = turn.saturating_sub(self.interval.ticks.get());
        }
        turns
    }

    /// How many more turns come within `wait` ticks in a queue that reaches `ahead`, the next of them there.
    #[inline]
    pub(crate) fn turns_within(&self, ahead: u64, wait: u64) -> u64 {
        wait.checked_sub(ahead).map_or(0, |left| 1 + self.interval.ticks.floor(left))
    }

    /// The shortest wait in ticks that is told as `wait`.
    pub(crate) fn at_least(&self, wait: Nanos) -> u64 {
        self.wait(wait).saturating_sub(self.interval.per_nano.get() - 1)
    }

    /// Refuses a wait that with the tolerance would pass the reach of the word.
    pub(crate) fn require_wait(&self, max_wait: Nanos) -> Result<(), RuleError> {
        let most = Nanos::new((MAX_REACH - self.tolerance) / self.interval.per_nano.get());
        if max_wait > most {
            return Err(RuleError::TooLong { what: "max_wait", span: max_wait.into(), most: most.into() });
        }
        Ok(())
    }

    /// How far ahead this bucket must reach to hold as many tokens as `old` did reaching `ahead`. Up to
    /// `old_owed` ticks may have been owed, and up to `owed` may be from now on. What lies beyond was not spent
    /// but is the distance of a clock that stepped back, which stays as long as it is.
    pub(crate) fn same_tokens(&self, ahead: u64, old: &Self, old_owed: u64, owed: u64) -> u64 {
        let spent = ahead.min(old.tolerance + old_owed);
        let left = i128::from(old.tolerance) - i128::from(spent);
        let (new_ticks, old_ticks) = (self.interval.ticks.get(), old.interval.ticks.get());
        let left = (left * i128::from(new_ticks)).div_euclid(old_ticks.into());
        let spends = (i128::from(self.tolerance) - left).clamp(0, i128::from(self.tolerance + owed));
        clamp(spends + self.same_time(ahead - spent, old))
    }

    /// How far ahead this bucket must reach to have as many places taken as `old` did reaching `ahead`, at most
    /// all of them, and to let nobody go before those who already have their time.
    pub(crate) fn same_count(&self, ahead: u64, old: &Self) -> u64 {
        let taken = scale_up(ahead, self.interval.ticks.get(), old.interval.ticks.get());
        clamp(taken.min(self.tolerance.into()).max(self.same_time(ahead, old)))
    }

    /// How far ahead this bucket must reach to have as many units spent as `old` has, which reaches `ahead`. For two buckets
    /// of one capacity, which differ only in their rates: the tokens stay, also where the key is in debt.
    fn same_units(&self, ahead: u64, old: &Self) -> u64 {
        clamp(scale_up(ahead, self.interval.ticks.get(), old.interval.ticks.get()))
    }

    /// Carries a key over from `old`, the same bucket at another rate. Every unit that is spent stays spent.
    pub(crate) fn change_rate(&self, old: &Self, tat: &mut Tat, now: Timestamp) {
        self.reach(tat, self.same_units(old.ahead(*tat, now), old), now);
    }

    /// The wait for as many units as come within `wait` in `old`, the same bucket at another rate. Rounded up.
    pub(crate) fn same_turn(&self, wait: Nanos, old: &Self) -> Nanos {
        self.nanos(self.same_units(old.wait(wait), old))
    }

    /// How far ahead this bucket must reach to be empty when `old`, reaching `ahead`, would have been: no sooner.
    pub(crate) fn same_reach(&self, ahead: u64, old: &Self) -> u64 {
        clamp(self.same_time(ahead, old))
    }

    /// As much time as `ticks` of `old`, rounded up.
    fn same_time(&self, ticks: u64, old: &Self) -> i128 {
        scale_up(ticks, self.interval.per_nano.get(), old.interval.per_nano.get())
    }

    #[inline]
    fn ticks(&self, now: Timestamp) -> u64 {
        now.as_nanos().wrapping_mul(self.interval.per_nano.get())
    }
}

impl BucketParts {
    /// The bucket with a rate of `pace` times its own and the same capacity. Requests may wait for `max_wait`.
    ///
    /// The interval is rounded up to the finest pieces in which the schedule still fits, so the rate is never too fast. A
    /// bucket that would take more than 146 years to fill is only slowed as far as that.
    pub(crate) fn at_pace(self, pace: Pace, max_wait: Nanos) -> Self {
        let Self { interval, per_nano, capacity } = self;
        let (capacity, max_wait) = (u128::from(capacity), u128::from(max_wait.get()));
        // First a multiple of the pieces there are: an interval that is exact in them stays exact at a simple pace.
        let finest = FINEST - FINEST % per_nano;
        let slower = std::iter::successors(Some(finest), |pieces| (*pieces > 1).then(|| pieces / 2))
            .find_map(|pieces| {
                let ticks = u128::from(interval) * u128::from(pieces) * u128::from(Pace::FULL.billionths());
                let ticks = ticks.div_ceil(u128::from(per_nano) * u128::from(pace.billionths()));
                let reach = ticks.checked_mul(capacity)?.checked_add(max_wait * u128::from(pieces))?;
                (reach <= u128::from(MAX_REACH)).then_some((ticks as u64, pieces)) // at most the reach
            })
            .map(|(ticks, pieces)| (ticks / gcd(ticks, pieces), pieces / gcd(ticks, pieces)));
        let (interval, per_nano) = slower.unwrap_or_else(|| {
            // The rule fits at full pace, so this is at least its interval.
            let longest = u128::from(MAX_REACH).saturating_sub(max_wait) / capacity;
            (u64::try_from(longest).unwrap_or(MAX_REACH).max(1), 1)
        });
        Self { interval, per_nano, ..self }
    }
}

fn scale_up(amount: u64, numerator: u64, denominator: u64) -> i128 {
    let product = i128::from(amount) * i128::from(numerator);
    (product + i128::from(denominator) - 1).div_euclid(denominator.into())
}

/// A reach well within what the word can tell from the past.
fn clamp(ahead: i128) -> u64 {
    let most = i128::from(MAX_REACH + MAX_REACH / 2);
    u64::try_from(ahead.min(most)).expect("not below 0, and below 2^63")
}

const _: () = assert!(MAX_SPAN.as_nanos() == MAX_REACH as u128, "an interval must fit the schedule's reach");
