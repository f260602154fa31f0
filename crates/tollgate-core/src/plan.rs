//! Several limits on one request: which of them decide, and which are charged.

use crate::{Decision, Nanos, Outcome, PermitId, Retry, Rule, State, Status, Timestamp};

/// What a request does to a limit.
///
/// ```
/// use tollgate_core::Action;
///
/// assert_eq!(Action::default(), Action::Charge);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Charges the cost if the request passes, or in any case if the rule counts denied requests. Cost 0 peeks. Default.
    #[default]
    Charge,
    /// Charges the whole cost, even beyond the limit and even if the request is denied. For usage that is reported after the work
    /// was done. Cost 0 charges nothing, and is denied while the key is above its limit.
    ChargeInFull,
    /// Takes a slot of a concurrency limit if the request passes.
    Hold,
    /// Gives back a cost that was charged earlier, if this request passes.
    Refund,
    /// Tests the cost and changes nothing.
    Peek,
}

/// Which limits of a request decide together.
///
/// ```
/// use tollgate_core::Group;
///
/// assert_eq!(Group::default(), Group::All);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// All of these must allow the request. This is the default.
    #[default]
    All,
    /// One of these must allow the request. Only those that allow it are charged.
    AnyOf,
    /// The limit does not affect whether the request passes. It is charged if it allows the request by itself. Refunds are done
    /// and slots are taken only if the request passes.
    Independent,
}

impl Action {
    /// Whether the action takes effect.
    ///
    /// `allows`: whether this limit allows the request. `passes`: whether the request as a whole passes. `counts_denied`: whether
    /// the rule of this limit counts denied requests.
    ///
    /// ```
    /// use tollgate_core::{Action, Group};
    ///
    /// // The limit allows, and another one denies the request.
    /// let is_done = |action: Action, group| action.is_done(group, true, false, false);
    /// assert!(!is_done(Action::Charge, Group::All));
    /// assert!(is_done(Action::Charge, Group::Independent));
    /// assert!(!is_done(Action::Hold, Group::Independent)); // no caller would give the slot back
    /// assert!(is_done(Action::ChargeInFull, Group::All));
    /// ```
    #[inline]
    pub const fn is_done(self, group: Group, allows: bool, passes: bool, counts_denied: bool) -> bool {
        match self {
            Self::Charge => (allows && (passes || matches!(group, Group::Independent))) || counts_denied,
            Self::ChargeInFull => true,
            Self::Hold => allows && passes,
            Self::Refund => passes,
            Self::Peek => false,
        }
    }

    /// The outcome of a limit that denies every request without asking its rule: the limit is 0, or the request lacks an
    /// attribute of the key. Cost 0 and refunds pass. A charge in full of cost 0 is denied until the key is fully refilled.
    ///
    /// ```
    /// use tollgate_core::{Action, Outcome, Status};
    ///
    /// assert_eq!(Action::Charge.test_denied(1, Status::default()), Outcome::NEVER);
    /// assert_eq!(Action::Charge.test_denied(0, Status::default()), Outcome::ALLOW);
    /// ```
    pub const fn test_denied(self, cost: u64, status: Status) -> Outcome {
        match self {
            Self::Refund => Outcome::ALLOW,
            Self::ChargeInFull if cost == 0 && !status.reset_after.is_zero() => {
                Outcome::Deny { retry: Retry::After(status.reset_after) }
            }
            _ if cost == 0 => Outcome::ALLOW,
            _ => Outcome::NEVER,
        }
    }
}

/// The limits that apply to one request, each with the state of its key, its cost and its action.
///
/// Limits are addressed by index, so that a store can keep states of any kind behind any lock. If two limits have the same key,
/// `test` of the second must add the cost of the first, because both are tested before either is charged.
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

    /// Whether limit `i` allows the request. Changes nothing. May panic, as `spend` and `status` may, if there is no limit `i`.
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

    /// Does the [action](Self::action) of limit `i`.
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

    /// The status of limit `i`, whatever the request costs.
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

    /// Whether the rule of limit `i` counts denied requests: [`Rule::counts_denied`].
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

    /// What the request does to limit `i`. Default: [`Action::Charge`].
    ///
    /// ```
    /// use tollgate_core::{Action, Charge, Plan};
    ///
    /// assert_eq!(<[Charge<'_>; 0]>::action(&[], 0), Action::Charge);
    /// ```
    fn action(&self, _i: usize) -> Action {
        Action::Charge
    }

    /// Called when limit `i` has been decided, with its action done and its status read. A store may unlock it.
    ///
    /// ```
    /// use tollgate_core::{Charge, Plan};
    ///
    /// <[Charge<'_>]>::finished(&mut [], 0); // by default, nothing is done
    /// ```
    fn finished(&mut self, _i: usize) {}

    /// The group that limit `i` decides in. Default: [`Group::All`].
    ///
    /// ```
    /// use tollgate_core::{Charge, Group, Plan};
    ///
    /// assert_eq!(<[Charge<'_>; 0]>::group(&[], 0), Group::All);
    /// ```
    fn group(&self, _i: usize) -> Group {
        Group::All
    }
}

/// One limit of a plan, with a reference to its state. A slice or an array of charges is a [`Plan`].
///
/// Cost 0 reads the status and charges nothing. A cost above the capacity of the rule denies the whole plan.
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
    /// The ID of the permit that will hold the slot. Used only if the rule is a concurrency limit.
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
    /// The worst outcome of all limits that count: a denial before an allowance, then the longest delay or wait. Independent
    /// limits do not count. Any-of limits that deny count only if none allows, and then only those with the shortest wait.
    pub outcome: Outcome,
    /// The smallest remaining of the limits that count for `outcome`. None if no limit counts.
    pub remaining: Option<u64>,
    /// The index of the limit to report: the one that denies for longest, or, if all allow, the one with the least remaining.
    /// None if no limit counts for `outcome`.
    pub reported: Option<usize>,
}

impl Verdict {
    /// Combines the decisions of one request, each with the group of its limit, into a verdict.
    ///
    /// ```
    /// use tollgate_core::{Decision, Group, Outcome, Verdict};
    ///
    /// let [allowed, denied] =
    ///     [Outcome::ALLOW, Outcome::NEVER].map(|outcome| Decision { outcome, ..Decision::default() });
    /// let verdict = |other| Verdict::of([(Group::All, allowed), (other, denied)].into_iter());
    /// assert_eq!((verdict(Group::All).outcome, verdict(Group::All).reported), (denied.outcome, Some(1)));
    /// assert!(verdict(Group::Independent).is_allowed());
    /// ```
    pub fn of(decisions: impl Iterator<Item = (Group, Decision)> + Clone) -> Self {
        let any_of = decisions.clone().filter(|(group, _)| *group == Group::AnyOf);
        let best = any_of.map(|(_, decision)| decision.outcome).reduce(better);
        // Among any-of limits that deny, only those with the shortest wait count.
        let with_say = decisions.enumerate().filter(|(_, (group, decision))| match group {
            Group::All => true,
            Group::AnyOf => decision.is_allowed() || best == Some(decision.outcome),
            Group::Independent => false,
        });
        let with_say = with_say.map(|(i, (_, decision))| (i, decision));
        let outcome =
            with_say.clone().fold(Outcome::ALLOW, |outcome, (_, decision)| worse(outcome, decision.outcome));
        let remaining = with_say.clone().map(|(_, decision)| decision.status.remaining).min();
        let reported = if outcome.is_allowed() {
            tightest(with_say)
        } else {
            tightest(with_say.filter(|(_, decision)| decision.outcome == outcome))
        };
        Self { outcome, remaining, reported }
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

/// Decides a plan at one instant.
///
/// 1. The limits of [`Group::All`] and [`Group::AnyOf`] are tested. Nothing is charged yet.
/// 2. If the request passes, the actions of those that allow it are done. Charges of rules that
///    [count denied requests](Plan::counts_denied) and charges [in full](Action::ChargeInFull) are done in any case.
/// 3. Each limit of [`Group::Independent`] is tested, and its action is done as [`Action::is_done`] defines.
///
/// A plan without limits is allowed. The decision of each limit, with the status after its action, is written to `decisions`.
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
    decide_each(plan, now, decisions);
    Verdict::of(decisions.iter().enumerate().map(|(i, decision)| (plan.group(i), *decision)))
}

/// [`decide_all`] without the verdict. Returns whether the request passes.
///
/// # Panics
///
/// When `decisions` is not as long as the plan.
#[inline]
pub fn decide_each<P: Plan + ?Sized>(plan: &mut P, now: Timestamp, decisions: &mut [Decision]) -> bool {
    assert_eq!(plan.len(), decisions.len(), "one decision for each limit of the plan");
    let (mut all_allow, mut any_of, mut one_allows, mut has_independent) = (true, false, false, false);
    for (i, decision) in decisions.iter_mut().enumerate() {
        let group = plan.group(i);
        if group == Group::Independent {
            has_independent = true;
            continue;
        }
        decision.outcome = plan.test(i, now);
        if group == Group::All {
            all_allow &= decision.is_allowed();
        } else {
            (any_of, one_allows) = (true, one_allows | decision.is_allowed());
        }
    }
    let passes = all_allow && (one_allows || !any_of);
    for (i, decision) in decisions.iter_mut().enumerate() {
        if plan.group(i) != Group::Independent {
            finish(plan, i, decision, passes, now);
        }
    }
    if has_independent {
        for (i, decision) in decisions.iter_mut().enumerate() {
            if plan.group(i) == Group::Independent {
                decision.outcome = plan.test(i, now);
                finish(plan, i, decision, passes, now);
            }
        }
    }
    passes
}

/// Does the action of limit `i`, and reads the status after it.
#[inline]
fn finish<P: Plan + ?Sized>(plan: &mut P, i: usize, decision: &mut Decision, passes: bool, now: Timestamp) {
    if plan.action(i).is_done(plan.group(i), decision.is_allowed(), passes, plan.counts_denied(i)) {
        plan.spend(i, now);
    }
    decision.status = plan.status(i, now);
    plan.finished(i);
}

/// An allowance before a denial, then the shorter wait.
#[inline]
fn better(a: Outcome, b: Outcome) -> Outcome {
    if worse(a, b) == a { b } else { a }
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
fn tightest(decisions: impl Iterator<Item = (usize, Decision)>) -> Option<usize> {
    let key =
        |decision: &Decision| (decision.status.remaining, std::cmp::Reverse(decision.status.reset_after));
    decisions.min_by_key(|(_, decision)| key(decision)).map(|(i, _)| i)
}

#[cfg(test)]
mod tests;
