//! Several limits on one request: all are charged, or none.

use crate::{Decision, Nanos, Outcome, PermitId, Rule, State, Status, Timestamp};

/// The limits that apply to one request, each with its key's state and its cost.
///
/// They are reached by number, so that a store can keep states of any kind behind any lock. No two may
/// stand for the same state: a plan that names one twice is merged first, its costs added.
///
/// ```
/// use tollgate_core::{Decision, Outcome, Plan, Status, Timestamp, decide_all};
///
/// struct Gates { open: [bool; 2], passed: [u64; 2] }
/// impl Plan for Gates {
///     fn len(&self) -> usize { 2 }
///     fn test(&self, i: usize, _: Timestamp) -> Outcome {
///         if self.open[i] { Outcome::ALLOW } else { Outcome::NEVER }
///     }
///     fn spend(&mut self, i: usize, _: Timestamp) { self.passed[i] += 1; }
///     fn status(&self, _: usize, _: Timestamp) -> Status { Status::default() }
/// }
/// let mut gates = Gates { open: [true, false], passed: [0, 0] };
/// let verdict = decide_all(&mut gates, Timestamp::from_nanos(0), &mut [Decision::default(); 2]);
/// assert_eq!(verdict.outcome, Outcome::NEVER);
/// assert_eq!(gates.passed, [0, 0]); // not even where it was open
/// ```
pub trait Plan {
    /// How many limits apply. With none, every request passes.
    ///
    /// ```
    /// use tollgate_core::{Charge, Plan, Timestamp, decide_all};
    ///
    /// let mut none: [Charge<'_>; 0] = [];
    /// assert_eq!(Plan::len(&none), 0);
    /// let verdict = decide_all(&mut none, Timestamp::from_nanos(0), &mut []);
    /// assert!(verdict.is_allowed() && verdict.remaining.is_none());
    /// ```
    fn len(&self) -> usize;

    /// Whether none applies.
    ///
    /// ```
    /// use tollgate_core::{Charge, Plan};
    ///
    /// let none: [Charge<'_>; 0] = [];
    /// assert!(Plan::is_empty(&none));
    /// ```
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether limit `i` would let the request pass. Changes nothing. May panic, as `spend` and `status`
    /// may, if there is no limit `i`.
    ///
    /// ```
    /// use tollgate_core::{Charge, Outcome, PermitId, Plan, Rate, Rule, State, Timestamp, TokenBucket};
    ///
    /// let rule = Rule::from(TokenBucket::new(Rate::per_second(1)?, 5)?);
    /// let (mut key, now) = (State::default(), Timestamp::from_nanos(0));
    /// let plan = [Charge { rule: &rule, state: &mut key, cost: 6, permit: PermitId(0) }];
    /// assert_eq!(plan.test(0, now), Outcome::NEVER);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn test(&self, i: usize, now: Timestamp) -> Outcome;

    /// Charges the request to limit `i`, which has let it pass.
    ///
    /// ```
    /// use tollgate_core::{Charge, PermitId, Plan, Rate, Rule, State, Timestamp, TokenBucket};
    ///
    /// let rule = Rule::from(TokenBucket::new(Rate::per_second(1)?, 5)?);
    /// let (mut key, now) = (State::default(), Timestamp::from_nanos(0));
    /// let mut plan = [Charge { rule: &rule, state: &mut key, cost: 2, permit: PermitId(0) }];
    /// plan.spend(0, now);
    /// assert_eq!(plan.status(0, now).remaining, 3);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn spend(&mut self, i: usize, now: Timestamp);

    /// How limit `i` stands, whatever the request costs.
    ///
    /// ```
    /// use tollgate_core::{Charge, PermitId, Plan, Rate, Rule, State, Timestamp, TokenBucket};
    ///
    /// let rule = Rule::from(TokenBucket::new(Rate::per_second(1)?, 5)?);
    /// let mut key = State::default();
    /// let plan = [Charge { rule: &rule, state: &mut key, cost: 2, permit: PermitId(0) }];
    /// assert_eq!(plan.status(0, Timestamp::from_nanos(0)).remaining, 5);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn status(&self, i: usize, now: Timestamp) -> Status;

    /// Whether limit `i` is charged for a request that is denied, too, by itself or by another:
    /// [`Rule::counts_denied`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Align, Charge, FixedWindow, PermitId, Plan, Rule, State};
    ///
    /// let rule = FixedWindow::new(5, Duration::from_secs(1), Align::Epoch)?.counting_denied();
    /// let (rule, mut key) = (Rule::from(rule), State::default());
    /// assert!([Charge { rule: &rule, state: &mut key, cost: 1, permit: PermitId(0) }].counts_denied(0));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn counts_denied(&self, _i: usize) -> bool {
        false
    }

    /// Whether limit `i` is one of several, any of which is enough: of those that say so, one has to let the request
    /// pass, and only those that do are charged. Limits that do not say so must all let it pass.
    ///
    /// ```
    /// use tollgate_core::{Charge, Plan};
    ///
    /// assert!(!<[Charge<'_>; 0]>::is_one_of(&[], 0)); // no charge says so
    /// ```
    fn is_one_of(&self, _i: usize) -> bool {
        false
    }
}

/// One limit of a plan whose states are at hand: a slice or an array of charges is a [`Plan`].
///
/// A cost of 0 asks how the limit stands; a cost it can never let pass denies the whole plan.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Charge, Concurrency, Decision, PermitId, Rule, State, Timestamp, decide_all};
///
/// let (rule, mut key) = (Rule::from(Concurrency::new(2, Some(Duration::from_secs(30)))?), State::default());
/// let mut plan = [Charge { rule: &rule, state: &mut key, cost: 1, permit: PermitId(7) }];
/// let verdict = decide_all(&mut plan, Timestamp::from_nanos(0), &mut [Decision::default()]);
/// assert_eq!(verdict.remaining, Some(1)); // permit 7 is out
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Debug)]
pub struct Charge<'a> {
    /// The limit's rule.
    pub rule: &'a Rule,
    /// The state of the key it counts by.
    pub state: &'a mut State,
    /// What the request costs it.
    pub cost: u64,
    /// The permit it is given where the rule is a concurrency limit.
    pub permit: PermitId,
}

impl Plan for [Charge<'_>] {
    fn len(&self) -> usize {
        <[_]>::len(self)
    }

    fn test(&self, i: usize, now: Timestamp) -> Outcome {
        self[i].rule.test(self[i].state, self[i].cost, now)
    }

    fn spend(&mut self, i: usize, now: Timestamp) {
        let Charge { rule, state, cost, permit } = &mut self[i];
        rule.spend(state, *permit, *cost, now);
    }

    fn status(&self, i: usize, now: Timestamp) -> Status {
        self[i].rule.status(self[i].state, now)
    }

    fn counts_denied(&self, i: usize) -> bool {
        self[i].rule.counts_denied()
    }
}

impl<const N: usize> Plan for [Charge<'_>; N] {
    fn len(&self) -> usize {
        N
    }

    fn test(&self, i: usize, now: Timestamp) -> Outcome {
        self.as_slice().test(i, now)
    }

    fn spend(&mut self, i: usize, now: Timestamp) {
        self.as_mut_slice().spend(i, now);
    }

    fn status(&self, i: usize, now: Timestamp) -> Status {
        self.as_slice().status(i, now)
    }

    fn counts_denied(&self, i: usize) -> bool {
        self.as_slice().counts_denied(i)
    }
}

/// The answer to a plan.
///
/// ```
/// use tollgate_core::{Charge, Decision, PermitId, Rate, Rule, State, Timestamp, TokenBucket, decide_all};
///
/// let rate = Rate::per_second(1)?;
/// let (three, five) = (Rule::from(TokenBucket::new(rate, 3)?), Rule::from(TokenBucket::new(rate, 5)?));
/// let (mut one, mut other, permit) = (State::default(), State::default(), PermitId(0));
/// let mut plan = [
///     Charge { rule: &three, state: &mut one, cost: 1, permit },
///     Charge { rule: &five, state: &mut other, cost: 4, permit },
/// ];
/// let verdict = decide_all(&mut plan, Timestamp::from_nanos(0), &mut [Decision::default(); 2]);
/// assert_eq!((verdict.remaining, verdict.reported), (Some(1), Some(1))); // 2 remain of three, 1 of five
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not go ahead"]
pub struct Verdict {
    /// Allowed after the longest delay, or denied for the longest wait, of all limits.
    pub outcome: Outcome,
    /// The smallest of all that remains. None where no limit applies.
    pub remaining: Option<u64>,
    /// The limit to tell the caller of: the one that denies for longest, or, when all allow, the one
    /// with least remaining. None where no limit applies.
    pub reported: Option<usize>,
}

impl Verdict {
    /// What the answers of limits come to that must all let a request pass.
    ///
    /// ```
    /// use tollgate_core::{Decision, Outcome, Verdict};
    ///
    /// let denied = Decision { outcome: Outcome::NEVER, ..Decision::default() };
    /// let verdict = Verdict::of(&[Decision::default(), denied]);
    /// assert_eq!((verdict.outcome, verdict.reported), (denied.outcome, Some(1)));
    /// ```
    pub fn of(decisions: &[Decision]) -> Self {
        summarise(decisions, |_, _| true)
    }

    /// Whether the request may pass, now or after its delay.
    ///
    /// ```
    /// use tollgate_core::{Outcome, Verdict};
    ///
    /// let verdict = Verdict { outcome: Outcome::NEVER, remaining: Some(3), reported: Some(0) };
    /// assert!(!verdict.is_allowed()); // 3 remain, but the cost is more than the limit can hold
    /// ```
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    /// [`Outcome::retry_after`].
    #[inline]
    pub const fn retry_after(&self) -> Option<Nanos> {
        self.outcome.retry_after()
    }

    /// [`Outcome::delay`].
    #[inline]
    pub const fn delay(&self) -> Nanos {
        self.outcome.delay()
    }
}

/// Decides a plan at one instant: every limit is asked, then all are charged or none is, but for those that count
/// [what is denied](Plan::counts_denied), too. Of those that are [one of several](Plan::is_one_of), the ones that let
/// the request pass are charged with the others.
///
/// A plan without limits is allowed. The answer of each limit is written to `decisions`, which must be as
/// long as the plan. Where the request is denied they tell of states that have not changed, also for limits
/// that would have allowed it.
///
/// # Panics
///
/// When `decisions` is not as long as the plan.
///
/// ```
/// use tollgate_core::{Charge, Decision, PermitId, Rate, Rule, State, Timestamp, TokenBucket, decide_all};
///
/// let user = Rule::TokenBucket(TokenBucket::new(Rate::per_second(1)?, 1)?);
/// let tenant = Rule::TokenBucket(TokenBucket::new(Rate::per_second(10)?, 10)?);
/// let (mut alice, mut acme) = (State::default(), State::default()); // where you keep states by key
///
/// let mut decisions = [Decision::default(); 2];
/// for allowed in [true, false] {
///     let permit = PermitId(0); // of no use to rates
///     let mut plan = [
///         Charge { rule: &user, state: &mut alice, cost: 1, permit },
///         Charge { rule: &tenant, state: &mut acme, cost: 1, permit },
///     ];
///     let verdict = decide_all(&mut plan, Timestamp::from_nanos(0), &mut decisions);
///     assert_eq!(verdict.is_allowed(), allowed);
/// }
/// // The second request was refused by the user's limit, and the tenant paid for the first one only.
/// assert_eq!(decisions[1].status.remaining, 9);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[inline]
pub fn decide_all<P: Plan + ?Sized>(plan: &mut P, now: Timestamp, decisions: &mut [Decision]) -> Verdict {
    assert_eq!(plan.len(), decisions.len(), "one decision for each limit of the plan");
    for (i, decision) in decisions.iter_mut().enumerate() {
        decision.outcome = plan.test(i, now);
    }
    let best = best_of_several(plan, decisions);
    let allowed = decisions.iter().enumerate().all(|(i, d)| d.is_allowed() || !counts(plan, best, i, d));
    for (i, decision) in decisions.iter_mut().enumerate() {
        if (allowed && decision.is_allowed()) || plan.counts_denied(i) {
            plan.spend(i, now);
        }
        decision.status = plan.status(i, now);
    }
    summarise(decisions, |i, decision| counts(plan, best, i, decision))
}

/// Whether the word of limit `i` counts: where one of several is enough, only that of the best of them.
#[inline]
fn counts<P: Plan + ?Sized>(plan: &P, best: Option<Outcome>, i: usize, decision: &Decision) -> bool {
    decision.is_allowed() || best.is_none_or(|best| !plan.is_one_of(i) || decision.outcome == best)
}

/// What the limits come to of which one is enough: the outcome of the one that denies for the shortest time, or of any
/// that allows.
#[inline]
fn best_of_several<P: Plan + ?Sized>(plan: &P, decisions: &[Decision]) -> Option<Outcome> {
    let outcomes = decisions.iter().enumerate().filter(|(i, _)| plan.is_one_of(*i)).map(|(_, d)| d.outcome);
    outcomes.reduce(|a, b| if worse(a, b) == a { b } else { a })
}

/// One answer for all that count: the worst outcome, the least remaining, and the limit they are due to.
#[inline]
fn summarise(decisions: &[Decision], counts: impl Fn(usize, &Decision) -> bool) -> Verdict {
    let counting = || decisions.iter().enumerate().filter(|(i, decision)| counts(*i, decision));
    let outcome = counting().fold(Outcome::ALLOW, |outcome, (_, decision)| worse(outcome, decision.outcome));
    let reported = if outcome.is_allowed() {
        tightest(counting())
    } else {
        tightest(counting().filter(|(_, decision)| decision.outcome == outcome))
    };
    Verdict { outcome, remaining: counting().map(|(_, decision)| decision.status.remaining).min(), reported }
}

/// A denial before an allowance, then the longer wait.
#[inline]
fn worse(a: Outcome, b: Outcome) -> Outcome {
    match (a, b) {
        (Outcome::Allow { delay: a }, Outcome::Allow { delay: b }) => Outcome::Allow { delay: a.max(b) },
        (Outcome::Deny { retry: a }, Outcome::Deny { retry: b }) => Outcome::Deny { retry: a.max(b) },
        (denied @ Outcome::Deny { .. }, _) | (_, denied) => denied,
    }
}

/// The limit with least remaining; on a tie the longer reset, then the first.
#[inline]
fn tightest<'d>(decisions: impl Iterator<Item = (usize, &'d Decision)>) -> Option<usize> {
    let key =
        |decision: &Decision| (decision.status.remaining, std::cmp::Reverse(decision.status.reset_after));
    decisions.min_by_key(|(_, decision)| key(decision)).map(|(i, _)| i)
}

#[cfg(test)]
mod tests;
