//! The limits that apply to one request, each with its key and its numbers.

use smallvec::SmallVec;
use tollgate::{Decision, KeyedLimiter, Outcome, Permit, Timestamp};

use super::attributes::TENANT;
use super::in_force::InForce;
use super::verdict::{Entries, Entry, Verdict};
use super::{Engine, Request, TooManyLimits};

/// Whether whoever asks can hold a permit. Concurrency limits act only where one can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permits {
    Can,
    Cannot,
}

/// The limits that apply to a request, not yet decided.
pub(super) struct Plan<'a> {
    cost: u64,
    limits: Entries<'a>,
    shadow: SmallVec<[Entry<'a>; 2]>,
}

/// The most limits that can be decided together.
const MOST_LIMITS: usize = 32;

/// The tenant of a request.
pub(super) fn tenant<'a>(attributes: &[(&'a str, &'a str)]) -> Option<&'a str> {
    attributes.iter().find(|(name, _)| *name == TENANT).map(|(_, value)| *value)
}

impl<'a> Plan<'a> {
    /// Which limits apply to a request.
    pub(super) fn new(
        engine: &Engine,
        in_force: &'a InForce,
        request: &Request<'a>,
        permits: Permits,
    ) -> Result<Self, TooManyLimits> {
        let tenant = tenant(request.attributes);
        let tier = engine.tier_of(in_force, tenant);
        let values = in_force.names.values(request.attributes, in_force.tier_name(tier));
        let cost = request.cost.unwrap_or_else(|| in_force.cost(&values));
        let mut plan = Self { cost, limits: SmallVec::new(), shadow: SmallVec::new() };
        for (place, limit) in (0..).zip(&in_force.limits) {
            if (limit.is_concurrency && permits == Permits::Cannot) || !limit.conditions.hold(&values) {
                continue;
            }
            let Some((key, is_missing)) = limit.key(&values) else { continue };
            let numbers = in_force.numbers_of(place, tenant, tier);
            let entry = Entry { limit: place, numbers, key, is_missing, decision: Decision::default() };
            if limit.policy.shadow { plan.shadow.push(entry) } else { plan.limits.push(entry) }
        }
        if plan.limits.len() > MOST_LIMITS {
            let name = |entry: &Entry<'_>| in_force.limit(entry.limit).policy.name.clone();
            return Err(TooManyLimits { limits: plan.limits.iter().map(name).collect() });
        }
        Ok(plan)
    }

    /// Decides it, without permits.
    pub(super) fn check(mut self, in_force: &'a InForce, now: Timestamp, reduced: bool) -> Verdict<'a> {
        let asks = self.asks(in_force);
        let (outcome, reported) = match &asks[..] {
            _ if self.is_missing() => self.deny_missing(&asks, now),
            [] => (Outcome::ALLOW, None),
            // One limit needs none of what several need.
            [ask] => {
                self.limits[0].decision = ask.check_at(now);
                (self.limits[0].decision.outcome, Some(0))
            }
            asks => {
                let mut decisions = [Decision::default(); MOST_LIMITS];
                let decisions = &mut decisions[..asks.len()];
                let verdict = KeyedLimiter::check_all_at(asks, now, decisions);
                self.note(decisions);
                (verdict.outcome, verdict.reported)
            }
        };
        self.verdict(in_force, now, reduced, outcome, reported)
    }

    /// Decides it, with a permit for each concurrency limit.
    pub(super) fn acquire(
        mut self,
        in_force: &'a InForce,
        now: Timestamp,
        reduced: bool,
    ) -> (Verdict<'a>, Vec<Permit>) {
        let asks = self.asks(in_force);
        let (outcome, reported, permits) = if self.is_missing() {
            let (outcome, reported) = self.deny_missing(&asks, now);
            (outcome, reported, Vec::new())
        } else if asks.is_empty() {
            (Outcome::ALLOW, None, Vec::new())
        } else {
            let mut decisions = [Decision::default(); MOST_LIMITS];
            let decisions = &mut decisions[..asks.len()];
            let (verdict, permits) = KeyedLimiter::acquire_all_at(&asks, now, decisions);
            self.note(decisions);
            (verdict.outcome, verdict.reported, permits)
        };
        (self.verdict(in_force, now, reduced, outcome, reported), permits)
    }

    /// What is asked of the table.
    fn asks(&self, in_force: &'a InForce) -> SmallVec<[tollgate::Request<'a>; 8]> {
        let ask =
            |entry: &Entry<'_>| in_force.limit(entry.limit).ask(entry.numbers, &entry.key).cost(self.cost);
        self.limits.iter().map(ask).collect()
    }

    fn note(&mut self, decisions: &[Decision]) {
        self.limits.iter_mut().zip(decisions).for_each(|(entry, decision)| entry.decision = *decision);
    }

    fn is_missing(&self) -> bool {
        self.limits.iter().any(|entry| entry.is_missing) && self.cost > 0
    }

    /// Denied because an attribute is missing: nothing is charged, and no wait helps.
    fn deny_missing(&mut self, asks: &[tollgate::Request<'_>], now: Timestamp) -> (Outcome, Option<usize>) {
        for (entry, ask) in self.limits.iter_mut().zip(asks) {
            let preview = ask.preview_at(now);
            entry.decision =
                if entry.is_missing { Decision { outcome: Outcome::NEVER, ..preview } } else { preview };
        }
        (Outcome::NEVER, self.limits.iter().position(|entry| entry.is_missing))
    }

    /// The answer, once live limits have decided. Each shadow limit decides alone, whatever they said.
    fn verdict(
        mut self,
        in_force: &'a InForce,
        now: Timestamp,
        reduced: bool,
        outcome: Outcome,
        reported: Option<usize>,
    ) -> Verdict<'a> {
        for entry in &mut self.shadow {
            let ask = in_force.limit(entry.limit).ask(entry.numbers, &entry.key).cost(self.cost);
            entry.decision = if entry.is_missing && self.cost > 0 {
                Decision { outcome: Outcome::NEVER, ..ask.preview_at(now) }
            } else {
                ask.check_at(now)
            };
        }
        let Self { cost, limits, shadow } = self;
        Verdict { in_force, now, cost, outcome, reported, reduced, limits, shadow }
    }
}
