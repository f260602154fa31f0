//! What all rules have in common.

use std::fmt;

use crate::{Decision, Outcome, RuleError, Status, Timestamp};

/// A rule: how to decide a request from a key's state, a cost and the time.
///
/// `test` and `spend` are apart so that several limits can all be asked before any is charged
/// ([`crate::decide_all`]). A denied request changes nothing because `test` cannot.
///
/// `State::default()` is an unused key. A state that [`is_unused`](Self::is_unused) may be thrown
/// away at any time: the default decides the same.
///
/// ```
/// use tollgate_core::{Algorithm, LeakyBucket, Rate, Timestamp, TokenBucket};
///
/// /// How many requests of cost 1 pass at once.
/// fn passes<A: Algorithm>(rule: &A) -> usize {
///     let (mut key, now) = (A::State::default(), Timestamp::from_nanos(0));
///     (0..100).filter(|_| rule.decide(&mut key, 1, now).is_allowed()).count()
/// }
/// assert_eq!(passes(&TokenBucket::new(Rate::per_second(5)?, 10)?), 10);
/// assert_eq!(passes(&LeakyBucket::new(Rate::per_second(5)?, 3)?), 3);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
pub trait Algorithm {
    /// What is remembered of a key.
    ///
    /// It belongs to the rule that wrote it. Under a rule with other numbers it means something else, and
    /// may deny for years: [`convert`](Self::convert) it first, which takes the rule that wrote it.
    type State: Clone + Default + PartialEq + fmt::Debug;

    /// The most that can pass at once: the burst, the places in the queue, the limit of the window.
    /// Never 0.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, BurstCredits, Rate};
    ///
    /// let rule = BurstCredits::new(Rate::per_second(10)?, Rate::per_second(50)?, 1000)?;
    /// assert_eq!(rule.capacity(), 50); // the peak's burst, which is less than the credits
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn capacity(&self) -> u64;

    /// Whether a request of `cost` may pass at `now`. Cost 0 always may; a cost above
    /// [`capacity`](Self::capacity) never may. A `now` before one the key was charged at gives no more than
    /// that one did; [`Retry::After`](crate::Retry::After) then tells the wait from the earlier time.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Nanos, Outcome, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(1)?, 10)?;
    /// let (mut key, at) = (Tat::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
    /// rule.spend(&mut key, 10, at(5));
    /// assert_eq!(rule.test(&key, 0, at(5)), Outcome::ALLOW);
    /// assert_eq!(rule.test(&key, 11, at(5)), Outcome::NEVER);
    /// let waits = [4, 5, 6].map(|s| rule.test(&key, 1, at(s)).retry_after().map(Nanos::as_secs_ceil));
    /// assert_eq!(waits, [Some(2), Some(1), None]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn test(&self, state: &Self::State, cost: u64, now: Timestamp) -> Outcome;

    /// Charges a request that `test` has just allowed for the same state, cost and time. Cost 0
    /// changes nothing. It does not ask again: for a request that was denied the limit would not hold, and a
    /// cost above the capacity might panic.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
    /// if rule.test(&key, 3, now).is_allowed() {
    ///     rule.spend(&mut key, 3, now);
    /// }
    /// assert_eq!(rule.status(&key, now).remaining, 7);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn spend(&self, state: &mut Self::State, cost: u64, now: Timestamp);

    /// Whether a request whose whole cost is charged in any case ([`spend_in_full`](Self::spend_in_full)) stays within the
    /// limit. As [`test`](Self::test), except for cost 0. A request of cost 0 is denied while the key is above its limit. At
    /// exactly the limit it passes.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Outcome, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(1)?, 10)?;
    /// let (mut key, at) = (Tat::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
    /// rule.spend_in_full(&mut key, 10, at(0));
    /// assert_eq!(rule.test_in_full(&key, 0, at(0)), Outcome::ALLOW);
    /// rule.spend_in_full(&mut key, 3, at(0));
    /// let waits = [0, 1, 3].map(|s| rule.test_in_full(&key, 0, at(s)).retry_after().map(|wait| wait.as_secs_ceil()));
    /// assert_eq!(waits, [Some(3), Some(2), None]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn test_in_full(&self, state: &Self::State, cost: u64, now: Timestamp) -> Outcome;

    /// Charges a request even if `test` denies it, also beyond the limit. Use it for work that has been done and whose cost is
    /// known only afterwards. Cost 0 changes nothing.
    ///
    /// A bucket owes at most one burst, and a log at most its limit, so that a key recovers in a bounded time and memory. A
    /// window counts everything until it ends.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Nanos, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(1)?, 10)?;
    /// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
    /// rule.spend_in_full(&mut key, 13, now);
    /// assert_eq!(rule.test(&key, 1, now).retry_after().map(Nanos::as_secs_ceil), Some(4));
    /// rule.spend_in_full(&mut key, 1_000_000, now);
    /// assert_eq!(rule.test(&key, 1, now).retry_after().map(Nanos::as_secs_ceil), Some(11)); // one burst is owed
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn spend_in_full(&self, state: &mut Self::State, cost: u64, now: Timestamp);

    /// Gives back what a request of `cost` was charged at `charged`, as far as it still counts: for one that
    /// failed, or that took less than was thought. Returns how many units were given back; of a bucket that is now full
    /// the last of them may have come back in part by itself.
    ///
    /// The caller promises that the key was charged so, at a `now` of `charged`, and gives a charge back once
    /// only; a part of it may be given back alone. The core cannot check this. Whatever is asked, a key never
    /// has more than an unused one. A charge that no longer counts, because time has made good for it, gives
    /// 0 and changes no bit; so does cost 0. A leaky bucket gives nothing back at all.
    ///
    /// A `charged` later than `now`, by a clock that stepped back, is no error.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// let (mut key, at) = (Tat::default(), |ms: u64| Timestamp::from_nanos(ms * 1_000_000));
    /// assert_eq!(rule.decide(&mut key, 8, at(0)).status.remaining, 2);
    /// assert_eq!(rule.refund(&mut key, 3, at(0), at(100)), 3); // it took 5 of the 8
    /// assert_eq!(rule.status(&key, at(100)).remaining, 5); // and half a token that came since
    /// assert_eq!(rule.refund(&mut key, 5, at(0), at(2000)), 0); // by now the bucket has refilled
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn refund(&self, state: &mut Self::State, cost: u64, charged: Timestamp, now: Timestamp) -> u64;

    /// What remains and when the key is as new. By a clock that stepped back, nothing more remains and the
    /// wait is longer by the step.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// let (mut key, at) = (Tat::default(), |ms: u64| Timestamp::from_nanos(ms * 1_000_000));
    /// rule.spend(&mut key, 10, at(1000));
    /// let remaining = [900, 1000, 1100, 1200, 9000].map(|ms| rule.status(&key, at(ms)).remaining);
    /// assert_eq!(remaining, [0, 0, 0, 1, 10]); // half a token is none
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn status(&self, state: &Self::State, now: Timestamp) -> Status;

    /// Carries a key over from an older version of this rule, whose numbers differed.
    ///
    /// A bucket keeps its tokens, a window or queue its count, so that a change of numbers hands out
    /// nothing. An unused key stays unused.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let (old, new) = (TokenBucket::new(Rate::per_second(7)?, 10)?, TokenBucket::new(Rate::per_second(5)?, 20)?);
    /// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
    /// assert_eq!(old.decide(&mut key, 4, now).status.remaining, 6);
    /// new.convert(&old, &mut key, now);
    /// assert_eq!(new.status(&key, now).remaining, 6); // of 20, which it now fills up to at 5/s
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn convert(&self, old: &Self, state: &mut Self::State, now: Timestamp);

    /// Whether the state has run out, so that an absent key would be decided alike.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// let (mut key, at) = (Tat::default(), |ms: u64| Timestamp::from_nanos(ms * 1_000_000));
    /// assert!(rule.is_unused(&key, at(0)));
    /// rule.spend(&mut key, 1, at(0));
    /// assert_eq!([199, 200].map(|ms| rule.is_unused(&key, at(ms))), [false, true]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    fn is_unused(&self, state: &Self::State, now: Timestamp) -> bool {
        self.status(state, now).reset_after.is_zero()
    }

    /// Tests and, if it passes, charges one request. One that is denied changes nothing. Cost 0 is a look: it
    /// passes, is charged nothing and tells the status.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
    /// assert_eq!(rule.decide(&mut key, 8, now).status.remaining, 2);
    /// assert!(!rule.decide(&mut key, 3, now).is_allowed());
    /// assert_eq!(rule.decide(&mut key, 0, now).status.remaining, 2);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    fn decide(&self, state: &mut Self::State, cost: u64, now: Timestamp) -> Decision {
        let outcome = self.test(state, cost, now);
        if outcome.is_allowed() || self.counts_denied() {
            self.spend(state, cost, now);
        }
        Decision { outcome, status: self.status(state, now) }
    }

    /// Whether a denied request is charged like one that passes: only a
    /// [`FixedWindow`](crate::FixedWindow::counting_denied) that says so.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, TokenBucket};
    ///
    /// assert!(!TokenBucket::new(Rate::per_second(5)?, 10)?.counts_denied());
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    fn counts_denied(&self) -> bool {
        false
    }

    /// Refuses a cost that could never pass, for those who know costs when they build rules.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, Rate, RuleError, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
    /// assert_eq!([0, 10].map(|cost| rule.require(cost)), [Ok(()), Ok(())]);
    /// assert_eq!(rule.require(11), Err(RuleError::Unreachable { cost: 11, capacity: 10 }));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn require(&self, cost: u64) -> Result<(), RuleError> {
        RuleError::require(cost, self.capacity())
    }
}
