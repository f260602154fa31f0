//! The verdict of a call, built once from its plan and the decisions of a back end.

use std::fmt;

use smallvec::SmallVec;
use tollgate::{Action, Decision, Group, Nanos, Outcome, Retry, Rule, Timestamp, Turn};

use super::Hits;
use super::backend::Decided;
use super::permits::Permits;
use super::plan::{Denial, Found, Plan, PlannedAsk};
use super::throttle::Throttled;
use crate::compiled::{CompiledLimit, NumbersId};
use crate::policy::{Descriptor, Limit};
use crate::store::{KeyState, LimitDecision, LimitDecisions, Source};

/// The values that make a key, part by part.
pub type Key<'a> = SmallVec<[&'a str; 2]>;

/// The answer to a call: to one request, or to the descriptors of an Envoy call.
#[must_use = "a denied request must not go ahead"]
pub struct Verdict<'a> {
    plan: Plan<'a>,
    each: LimitDecisions, // one per ask
    outcome: Outcome,
    reported: Option<usize>, // an ask
    source: Source,
    now: Timestamp,
    permits: Option<Box<Permits>>,
}

/// Why a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It came too soon.
    Rate,
    /// It costs more than the limit can ever hold.
    CostExceedsLimit,
    /// All slots are taken.
    InFlight,
    /// The store gave no answer, and the policy denies then.
    Unavailable,
    /// It lacks an attribute of the key, and the limit denies then.
    MissingAttribute,
}

impl Reason {
    /// The reason of a denial. With a reduced window, the wait is unknown, because nobody knows when the full limit is back.
    pub(super) const fn of(retry: Retry, is_concurrency: bool, is_reduced: bool) -> Self {
        match retry {
            Retry::Never => Self::CostExceedsLimit,
            Retry::After(_) | Retry::Unknown if is_concurrency => Self::InFlight,
            Retry::After(_) => Self::Rate,
            Retry::Unknown if is_reduced => Self::Rate,
            Retry::Unknown => Self::Unavailable, // the table is full
        }
    }

    /// The name in replies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::CostExceedsLimit => "cost_exceeds_limit",
            Self::InFlight => "in_flight",
            Self::Unavailable => "unavailable",
            Self::MissingAttribute => "missing_attribute",
        }
    }
}

impl<'a> Verdict<'a> {
    #[inline]
    pub(super) fn new(plan: Plan<'a>, decided: Decided, now: Timestamp) -> Self {
        let Decided { source, mut each, permits } = decided;
        for (ask, each) in plan.asks.iter().zip(&mut each) {
            if ask.denial == Some(Denial::Blocked) {
                each.decision.status.remaining = 0; // whatever the rule says, which stands for a limit of 0
            }
        }
        let (outcome, reported) = match (&plan.asks[..], &each[..]) {
            ([PlannedAsk { group: Group::All, .. }], [only]) => (only.decision.outcome, Some(0)),
            (asks, each) => {
                // Beside a quota that only watches, no quota denies.
                let is_passed = asks.last().is_some_and(PlannedAsk::is_passed_quota);
                let with_groups = asks.iter().zip(each).filter(|(ask, _)| !ask.is_passed_quota());
                let verdict = tollgate::Verdict::of(with_groups.map(|(ask, each)| match ask.group {
                    Group::AnyOf if is_passed && !each.decision.is_allowed() => {
                        (Group::Independent, each.decision)
                    }
                    group => (group, each.decision),
                }));
                let is_policys = |place: &usize| asks[*place].policy_limit().is_some();
                let reported = verdict.reported.filter(is_policys);
                (verdict.outcome, reported.or_else(|| Self::report(asks, each, verdict.outcome)))
            }
        };
        Self { plan, each, outcome, reported, source, now, permits }
    }

    /// The limit of the policy to report if a limit that was sent has decided, or all limits are independent. A denial is reported
    /// only by a limit that denies for as long.
    fn report(asks: &[PlannedAsk<'_>], each: &[LimitDecision], outcome: Outcome) -> Option<usize> {
        let reports = |ask: &PlannedAsk<'_>| ask.policy_limit().is_some() && !ask.is_shadow();
        let places = || (0..asks.len()).filter(|&place| reports(&asks[place]));
        let verdict = tollgate::Verdict::of(places().map(|place| (Group::All, each[place].decision)));
        let is_reason = outcome.is_allowed() || verdict.outcome == outcome;
        verdict.reported.filter(|_| is_reason).and_then(|reported| places().nth(reported))
    }

    /// Whether the request may pass, now or after its delay.
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    /// Whether it may pass, and when.
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// How long a denied request should wait, if that is known.
    pub const fn retry_after(&self) -> Option<Nanos> {
        self.outcome.retry_after()
    }

    /// How long to delay it before it goes on.
    pub const fn delay(&self) -> Nanos {
        self.outcome.delay()
    }

    /// The turn of a delayed request in the queue of the limit with the longest delay. Give the turn up if the client leaves
    /// before it comes. None if the request is not delayed. Also None if a store keeps the queue, because other processes use it,
    /// too.
    pub fn turn(&self) -> Option<Turn> {
        if self.delay().is_zero() {
            return None;
        }
        let decided =
            self.plan.asks.iter().zip(&self.each).filter(|(ask, _)| ask.group != Group::Independent);
        let (ask, each) = decided.max_by_key(|(_, each)| each.decision.outcome.delay())?;
        (each.key_state == KeyState::Local).then(|| self.plan.table_request(ask).turn())
    }

    /// Why the request is denied. None if it is allowed, or if a limit that was sent with the call denies it.
    pub fn reason(&self) -> Option<Reason> {
        if self.is_allowed() { None } else { self.reported().and_then(|limit| limit.reason()) }
    }

    /// The cost of the request, which was charged or would have been. That of an Envoy call is that of its first descriptor.
    pub fn cost(&self) -> u64 {
        self.plan.requests.first().map_or(0, |request| request.cost)
    }

    /// When it was decided.
    pub const fn decided_at(&self) -> Timestamp {
        self.now
    }

    /// Whether rates were reduced at the time, because the upstream is overloaded.
    pub const fn is_reduced(&self) -> bool {
        self.plan.is_reduced
    }

    /// Where the decisions come from.
    pub const fn source(&self) -> Source {
        self.source
    }

    /// The limit to report: the one that denies for longest, or, if all allow, the one with the least remaining. None if only
    /// shadow limits applied, or if the limit to report was sent with the call.
    pub fn reported(&self) -> Option<LimitVerdict<'_, 'a>> {
        self.reported.and_then(|ask| self.limit(ask))
    }

    /// The decisions of the limits that applied, except shadow limits: descriptor by descriptor, and for each in the policy's
    /// order.
    pub fn limits(&self) -> impl Iterator<Item = LimitVerdict<'_, 'a>> + Clone {
        self.policy_limits().filter(|limit| !limit.ask.is_shadow())
    }

    /// The decisions of shadow limits, in the same order.
    pub fn shadow(&self) -> impl Iterator<Item = LimitVerdict<'_, 'a>> + Clone {
        self.policy_limits().filter(|limit| limit.ask.is_shadow() && !limit.ask.is_passed_quota())
    }

    /// The verdicts of an Envoy call's descriptors, in order. A check of one request has one.
    pub fn descriptors(&self) -> impl ExactSizeIterator<Item = DescriptorVerdict<'_, 'a>> {
        (0..self.plan.requests.len()).map(|number| DescriptorVerdict { verdict: self, number })
    }

    /// Takes the permits that the request holds. Dropping the verdict releases those that are left in it.
    pub fn take_permits(&mut self) -> Permits {
        self.permits.take().map_or_else(Permits::default, |permits| *permits)
    }

    /// The decision by a rule that came with the call: that of its only ask.
    pub(super) fn into_throttled(self) -> Throttled {
        let LimitDecision { decision, key_state } = self.each[0];
        let rule = *self.plan.rule(&self.plan.asks[0]);
        Throttled { decision, rule, source: self.source, is_known: key_state != KeyState::Unknown }
    }

    /// The decisions, one per ask of the plan.
    pub(super) fn into_decisions(self) -> LimitDecisions {
        self.each
    }

    fn policy_limits(&self) -> impl Iterator<Item = LimitVerdict<'_, 'a>> + Clone {
        (0..self.each.len()).filter_map(|ask| self.limit(ask))
    }

    fn limit(&self, ask: usize) -> Option<LimitVerdict<'_, 'a>> {
        let (ask, decided) = (&self.plan.asks[ask], &self.each[ask]);
        let (limit, numbers) = ask.policy_limit()?;
        Some(LimitVerdict { limit, numbers, ask, decided, verdict: self })
    }
}

impl fmt::Debug for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("outcome", &self.outcome)
            .field("limits", &self.limits().map(|limit| limit.name()).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The verdict of one descriptor of an Envoy call.
#[derive(Clone, Copy)]
pub struct DescriptorVerdict<'v, 'a> {
    verdict: &'v Verdict<'a>,
    number: usize,
}

impl<'v, 'a> DescriptorVerdict<'v, 'a> {
    /// The attributes: `domain` first, then the entries of the descriptor, in order.
    pub fn attributes(&self) -> &'v [(&'a str, &'a str)] {
        self.verdict.plan.requests[self.number].values.all()
    }

    /// What was to be done.
    pub fn hits(&self) -> Hits {
        self.verdict.plan.requests[self.number].hits
    }

    /// The cost that was charged, or would have been. That of a refund is 0.
    pub fn cost(&self) -> u64 {
        match self.hits() {
            Hits::Refund(_) => 0,
            _ => self.verdict.plan.requests[self.number].cost,
        }
    }

    /// The policy's entry for the descriptor. None if there is no entry, or if another descriptor replaces it.
    pub fn descriptor(&self) -> Option<&'a Descriptor> {
        self.verdict.plan.requests[self.number].found.and_then(Found::descriptor)
    }

    /// Whether the policy does not limit it.
    pub fn is_unlimited(&self) -> bool {
        let found = self.verdict.plan.requests[self.number].found;
        matches!(found, Some(Found::Uncounted(uncounted)) if uncounted.unlimited)
    }

    /// Whether it is within its limits.
    pub fn is_allowed(&self) -> bool {
        self.outcome().is_allowed() && self.sent().is_none_or(|sent| sent.decision.is_allowed())
    }

    /// The outcome of the policy's limits for this descriptor, without other descriptors and without a limit that was sent.
    pub fn outcome(&self) -> Outcome {
        self.own().outcome
    }

    /// The limit to report.
    pub fn reported(&self) -> Option<LimitVerdict<'v, 'a>> {
        self.own().reported.and_then(|place| self.limits().nth(place))
    }

    /// The decisions of the limits of the policy that apply to it.
    pub fn limits(&self) -> impl Iterator<Item = LimitVerdict<'v, 'a>> + Clone {
        let number = self.number;
        self.verdict.limits().filter(move |limit| limit.ask.request() == number)
    }

    /// The decisions of limits that only watch.
    pub fn shadow(&self) -> impl Iterator<Item = LimitVerdict<'v, 'a>> + Clone {
        let number = self.number;
        self.verdict.shadow().filter(move |limit| limit.ask.request() == number)
    }

    /// The decision of the limit that was sent with it in place of the policy's, and that limit. 0 denies every request.
    pub fn sent(&self) -> Option<SentLimitVerdict> {
        let Verdict { plan, each, source, .. } = self.verdict;
        let is_sent = |ask: &PlannedAsk<'_>| ask.policy_limit().is_none() && ask.request() == self.number;
        let place = plan.asks.iter().position(is_sent)?;
        let (ask, LimitDecision { decision, key_state }) = (&plan.asks[place], each[place]);
        let (rule, limit) = (*plan.rule(ask), plan.capacity(ask));
        let is_known = key_state != KeyState::Unknown;
        Some(SentLimitVerdict { decision, limit, rule, source: *source, is_known })
    }

    fn own(&self) -> tollgate::Verdict {
        tollgate::Verdict::of(self.limits().map(|limit| (Group::All, limit.decided.decision)))
    }
}

impl fmt::Debug for DescriptorVerdict<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DescriptorVerdict").field("attributes", &self.attributes()).finish_non_exhaustive()
    }
}

/// The decision of a limit that was sent with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SentLimitVerdict {
    /// The outcome, and the status of the key after it.
    pub decision: Decision,
    /// The limit.
    pub limit: u64,
    /// The rule.
    pub rule: Rule,
    /// Where the decision comes from.
    pub source: Source,
    /// Whether the state of the key is known.
    pub is_known: bool,
}

/// The decision of one limit of the policy.
#[derive(Clone, Copy)]
pub struct LimitVerdict<'v, 'a> {
    limit: &'a CompiledLimit,
    numbers: NumbersId,
    ask: &'v PlannedAsk<'a>,
    decided: &'v LimitDecision,
    verdict: &'v Verdict<'a>,
}

impl<'v, 'a> LimitVerdict<'v, 'a> {
    /// The limit's name.
    pub fn name(&self) -> &'a str {
        &self.limit.policy.name
    }

    /// The limit as the policy has it.
    pub fn limit(&self) -> &'a Limit {
        &self.limit.policy
    }

    /// The cost that was charged, or would have been. That of a refund is 0.
    pub fn cost(&self) -> u64 {
        if self.ask.action == Action::Refund { 0 } else { self.ask.cost }
    }

    /// Whether rates were reduced at the time.
    pub const fn is_reduced(&self) -> bool {
        self.verdict.plan.is_reduced
    }

    /// The number of the limit. A name has the same number as long as the engine lives.
    pub fn number(&self) -> usize {
        self.limit.number
    }

    /// The rule it decided by.
    pub fn rule(&self) -> &'a Rule {
        &self.limit.numbers(self.numbers).rule
    }

    /// The most that can pass at once.
    pub fn capacity(&self) -> u64 {
        self.limit.capacity(self.numbers)
    }

    /// Whether every request is denied, because the limit is 0 or the descriptor is blocked.
    pub fn is_blocked(&self) -> bool {
        self.limit.is_blocked(self.numbers)
    }

    /// The outcome, and the status of the key after it.
    pub const fn decision(&self) -> Decision {
        self.decided.decision
    }

    /// Whether this limit allows the request.
    pub fn is_allowed(&self) -> bool {
        self.decided.decision.is_allowed()
    }

    /// Whether it was charged.
    pub fn is_charged(&self) -> bool {
        let PlannedAsk { action, group, cost, .. } = *self.ask;
        // The share of a process is a bucket, which does not count denied requests.
        let counts_denied = self.rule().counts_denied() && self.verdict.source != Source::Fallback;
        let (allows, passes) = (self.is_allowed(), self.verdict.is_allowed());
        let is_charge = cost > 0 && action != Action::Refund;
        is_charge && self.is_known() && action.is_done(group, allows, passes, counts_denied)
    }

    /// Why it denies.
    pub fn reason(&self) -> Option<Reason> {
        let Outcome::Deny { retry } = self.decided.decision.outcome else { return None };
        if self.ask.denial == Some(Denial::MissingAttribute) {
            return Some(Reason::MissingAttribute);
        }
        if !self.is_known() {
            return Some(Reason::Unavailable);
        }
        Some(Reason::of(retry, self.limit.is_concurrency, self.is_reduced()))
    }

    /// Whether the state of the key is known. It is not if `on_error: allow` or `on_error: deny` decided, and not if another
    /// limit denied the request before the store was asked about this one.
    pub fn is_known(&self) -> bool {
        self.decided.key_state != KeyState::Unknown
    }

    /// The values of its key, part by part.
    pub fn key(&self) -> Key<'a> {
        self.verdict.plan.key(self.ask)
    }

    /// The hash of its key, in this limit and no other.
    pub const fn key_hash(&self) -> u64 {
        self.ask.hash
    }

    /// The time until more than `remaining` can pass, if it is known: `t` of a `RateLimit` header.
    pub fn more_after(&self) -> Option<Nanos> {
        let Decision { outcome, status } = self.decided.decision;
        if let Some(retry) = outcome.retry_after() {
            return Some(retry);
        }
        if status.remaining >= self.capacity() {
            return None; // there is no more
        }
        if let KeyState::Stored { more_after } = self.decided.key_state {
            return more_after;
        }
        let request = self.limit.table_request(self.numbers, self.ask.hash);
        request.cost(status.remaining.saturating_add(1)).preview_at(self.verdict.now).retry_after()
    }
}

impl fmt::Debug for LimitVerdict<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitVerdict")
            .field("name", &self.name())
            .field("decision", &self.decision())
            .finish()
    }
}
