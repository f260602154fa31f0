//! The answer to a request: of the policy, and of each limit in it.

use smallvec::SmallVec;
use std::fmt;
use tollgate::{Decision, Nanos, Outcome, Retry, Rule, Timestamp, Turn};

use super::attributes::Values;
use super::in_force::{InForce, LimitInForce, NumbersId};
use super::plan::USUAL_LIMITS;
use crate::policy::Limit;
use crate::store::Source;

/// The values that make a key, part by part.
pub type Key<'a> = SmallVec<[&'a str; 2]>;

/// The answer to a request.
#[must_use = "a denied request must not go ahead"]
pub struct Verdict<'a> {
    pub(super) in_force: &'a InForce,
    pub(super) now: Timestamp,
    pub(super) cost: u64,
    pub(super) in_full: bool, // the cost is charged in any case; cost 0 is denied above a limit
    pub(super) outcome: Outcome,
    pub(super) is_charged: bool, // by the limits that let it pass; in a plan of several, others may deny it
    pub(super) reported: Option<usize>,
    pub(super) reduced: bool,
    pub(super) source: Source,
    pub(super) values: Values<'a>,
    pub(super) limits: Entries<Entry>,
    pub(super) shadow: SmallVec<[Entry; 1]>,
}

/// The answers of as many limits as need no allocation, or of more.
pub(crate) type Entries<T> = SmallVec<[T; USUAL_LIMITS]>;

/// What one limit says. Its key is made of the request's values: a verdict is moved about, so what it holds is small.
pub(crate) struct Entry {
    pub(crate) limit: u32,
    pub(crate) numbers: NumbersId,
    pub(crate) hash: u64,        // of its key
    pub(crate) is_missing: bool, // an attribute of its key, without which it denies
    pub(crate) told: Told,
    pub(crate) decision: Decision,
}

/// Where a decision comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// The table of this process.
    Here,
    /// A store, which also told how long until more can be had than remains.
    Stored(Option<Nanos>),
    /// Nobody: the store gave no answer, and the policy says what then.
    Unknown,
}

/// Why a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It came too soon.
    Rate,
    /// It costs more than the limit can ever hold.
    CostExceedsLimit,
    /// As many as may be are in flight.
    InFlight,
    /// Nobody could decide, and the policy says to deny then.
    Unavailable,
    /// It lacks an attribute of the key, and the limit says to deny then.
    MissingAttribute,
}

impl Reason {
    /// [`of`](Self::of), while rates may be reduced: a window with a limit that is smaller for now cannot tell when it will
    /// be what it was.
    pub(super) const fn told(retry: Retry, is_concurrency: bool, reduced: bool) -> Self {
        match retry {
            Retry::Unknown if reduced && !is_concurrency => Self::Rate,
            retry => Self::of(retry, is_concurrency),
        }
    }

    pub(crate) const fn of(retry: Retry, is_concurrency: bool) -> Self {
        match retry {
            Retry::Never => Self::CostExceedsLimit,
            Retry::After(_) | Retry::Unknown if is_concurrency => Self::InFlight,
            Retry::After(_) => Self::Rate,
            Retry::Unknown => Self::Unavailable, // the table is full
        }
    }

    /// As answers tell it.
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
    /// Whether the request may pass, now or after its delay.
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    /// Whether it may pass, and when.
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// How long a denied request should wait, where that is known.
    pub const fn retry_after(&self) -> Option<Nanos> {
        self.outcome.retry_after()
    }

    /// How long to hold it before letting it go.
    pub const fn delay(&self) -> Nanos {
        self.outcome.delay()
    }

    /// The place in the queue that a request is held in for its [`delay`](Self::delay), to be given up should the caller leave
    /// before: that of the limit with the longest. None where it is not held, and where a store keeps the queue: others hold
    /// requests by it, too.
    pub fn turn(&self) -> Option<Turn> {
        if self.delay().is_zero() {
            return None;
        }
        let held = self.limits.iter().max_by_key(|entry| entry.decision.outcome.delay())?;
        (held.told == Told::Here).then(|| self.ask(held).turn())
    }

    /// Why it is denied.
    pub fn reason(&self) -> Option<Reason> {
        if self.is_allowed() { None } else { self.reported().and_then(|limit| limit.reason()) }
    }

    /// What it cost, or would have.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// When it was decided.
    pub const fn decided_at(&self) -> Timestamp {
        self.now
    }

    /// Whether rates were reduced at the time, because the upstream is overloaded.
    pub const fn is_reduced(&self) -> bool {
        self.reduced
    }

    /// Who decided.
    pub const fn source(&self) -> Source {
        self.source
    }

    /// The limit to tell the caller of: the one that denies for longest, or, when all allow, the one with least
    /// remaining. None where no limit applied.
    pub fn reported(&self) -> Option<LimitVerdict<'_, 'a>> {
        self.reported.map(|place| self.view(&self.limits[place]))
    }

    /// The answers of the limits that applied, in the policy's order.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = LimitVerdict<'_, 'a>> {
        self.limits.iter().map(|entry| self.view(entry))
    }

    /// The answers of limits that only watch, in the policy's order.
    pub fn shadow(&self) -> impl ExactSizeIterator<Item = LimitVerdict<'_, 'a>> {
        self.shadow.iter().map(|entry| self.view(entry))
    }

    fn view<'v>(&'v self, entry: &'v Entry) -> LimitVerdict<'v, 'a> {
        let in_force = self.in_force.limit(entry.limit);
        LimitVerdict { in_force, entry, verdict: self }
    }
}

/// What a client is told of a verdict, or of several that were decided together.
#[derive(Clone, Debug)]
pub struct Summary<'v, 'a> {
    /// Whether the request may pass, and when.
    pub outcome: Outcome,
    /// The limits that applied.
    pub limits: SmallVec<[LimitVerdict<'v, 'a>; 8]>,
    /// The one to tell of, where there is room for one only.
    pub reported: Option<LimitVerdict<'v, 'a>>,
}

impl<'v, 'a> From<&'v Verdict<'a>> for Summary<'v, 'a> {
    fn from(verdict: &'v Verdict<'a>) -> Self {
        Self { outcome: verdict.outcome, limits: verdict.limits().collect(), reported: verdict.reported() }
    }
}

impl Summary<'_, '_> {
    /// How long a denied request should wait, where that is known.
    pub const fn retry_after(&self) -> Option<Nanos> {
        self.outcome.retry_after()
    }

    /// Why it is denied.
    pub fn reason(&self) -> Option<Reason> {
        if self.outcome.is_allowed() { None } else { self.reported.and_then(|limit| limit.reason()) }
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

/// The answer of one limit.
#[derive(Clone, Copy)]
pub struct LimitVerdict<'v, 'a> {
    in_force: &'v LimitInForce,
    entry: &'v Entry,
    verdict: &'v Verdict<'a>,
}

impl<'v, 'a> LimitVerdict<'v, 'a> {
    /// The limit's name.
    pub fn name(&self) -> &'v str {
        &self.in_force.policy.name
    }

    /// The limit as the policy has it.
    pub fn limit(&self) -> &'v Limit {
        &self.in_force.policy
    }

    /// What the request cost, or would have.
    pub const fn cost(&self) -> u64 {
        self.verdict.cost
    }

    /// Whether rates were reduced at the time.
    pub const fn is_reduced(&self) -> bool {
        self.verdict.reduced
    }

    /// The number of the limit: as long as an engine lives, one for each name.
    pub fn number(&self) -> usize {
        self.in_force.number
    }

    /// The rule it decided by.
    pub fn rule(&self) -> &'v Rule {
        &self.in_force.numbers(self.entry.numbers).rule
    }

    /// The most that can pass at once.
    pub fn capacity(&self) -> u64 {
        self.in_force.capacity(self.entry.numbers)
    }

    /// Whether nothing passes, because the limit is 0 or the descriptor is blocked. The rule says nothing of it.
    pub fn is_blocked(&self) -> bool {
        self.in_force.is_blocked(self.entry.numbers)
    }

    /// The outcome, and how the key stands after it.
    pub fn decision(&self) -> Decision {
        let Decision { outcome, status } = self.entry.decision;
        Decision { outcome, status: self.in_force.status(self.entry.numbers, status) }
    }

    /// Whether this limit lets the request pass.
    pub fn is_allowed(&self) -> bool {
        self.entry.decision.is_allowed()
    }

    /// Whether it was charged.
    pub fn is_charged(&self) -> bool {
        let together = self.verdict.is_charged || self.in_force.policy.shadow;
        let in_any_case = self.rule().counts_denied() || self.verdict.in_full;
        self.is_known() && (self.is_allowed() && together || in_any_case)
    }

    /// Why it does not.
    pub fn reason(&self) -> Option<Reason> {
        let Outcome::Deny { retry } = self.entry.decision.outcome else { return None };
        if self.entry.is_missing {
            return Some(Reason::MissingAttribute);
        }
        if !self.is_known() {
            return Some(Reason::Unavailable);
        }
        Some(Reason::told(retry, self.in_force.is_concurrency, self.verdict.reduced))
    }

    /// Whether its numbers are true: not where the store gave no answer, and the policy says what is decided then.
    pub fn is_known(&self) -> bool {
        self.entry.told != Told::Unknown
    }

    /// The values of its key, part by part.
    pub fn key(&self) -> Key<'a> {
        self.in_force.shared_key(&self.verdict.values)
    }

    /// What its key is known by, in this limit and no other.
    pub fn key_hash(&self) -> u64 {
        self.entry.hash
    }

    /// How long until more can be had than remains, if that is known: what `t` of a `RateLimit` header says.
    pub fn more_after(&self) -> Option<Nanos> {
        let status = self.entry.decision.status;
        if let Some(retry) = self.entry.decision.retry_after() {
            return Some(retry);
        }
        if status.remaining >= self.capacity() {
            return None; // there is no more
        }
        if let Told::Stored(more_after) = self.entry.told {
            return more_after;
        }
        let ask = self.in_force.ask(self.entry.numbers, &self.key());
        ask.cost(status.remaining.saturating_add(1)).preview_at(self.verdict.now).retry_after()
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
