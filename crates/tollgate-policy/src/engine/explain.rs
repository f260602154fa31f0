//! Which limits apply to a request, why, and what would be decided.

use tollgate::{Action, Decision, Group, Outcome, Rule, Timestamp};

use super::answer::Answer;
use super::plan::Plan;
use super::{Engine, Hits, Reason, Request};
use crate::compiled::{CompiledLimit, CompiledPolicy};
use crate::policy::{Limit, WhenMissing};
use crate::store::Unavailable;

/// For every limit of a policy, whether and why it applies to a request, and what it would decide.
#[derive(Clone, Debug)]
pub struct Explanation<'a> {
    /// The tier of the tenant.
    pub tier: Option<&'a str>,
    /// What the request costs.
    pub cost: u64,
    /// The limits, in the policy's order.
    pub limits: Vec<Explained<'a>>,
}

/// How one limit looks at a request.
#[derive(Clone, Debug)]
pub struct Explained<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// Whether it applies.
    pub applies: bool,
    /// Why it does, or does not.
    pub why: String,
    /// The values of its key, part by part.
    pub key: Vec<&'a str>,
    /// The rule that it decides this request by: that of the tenant, else of its tier, else of the limit.
    pub rule: &'a Rule,
    /// The most that can pass at once.
    pub capacity: u64,
    /// What it would decide, and the status of the key, if it applies. Nothing was charged.
    pub decision: Decision,
    is_missing: bool, // an attribute of its key, without which it denies
    is_reduced: bool, // rates, at the moment
}

impl Explained<'_> {
    /// Why it would deny.
    pub fn reason(&self) -> Option<Reason> {
        let Outcome::Deny { retry } = self.decision.outcome else { return None };
        if self.is_missing {
            return Some(Reason::MissingAttribute);
        }
        Some(Reason::of(retry, matches!(self.limit.rule, Rule::Concurrency(_)), self.is_reduced))
    }
}

impl<'a> Explanation<'a> {
    /// Explains a request by a plan of peeks.
    pub(super) fn of(
        engine: &'a Engine,
        compiled: &'a CompiledPolicy,
        request: &Request<'a>,
        now: Timestamp,
    ) -> Answer<'a, Result<Self, Unavailable>> {
        let mut plan = Plan::new(engine);
        let hits = request.cost.map_or(Hits::Usual, Hits::Charge);
        let standing = plan.add_request(engine, compiled, request.attributes, hits, None);
        let mut limits = Vec::with_capacity(compiled.limits.len());
        for limit in &compiled.limits {
            let numbers = compiled.numbers_of(limit, &standing);
            let mut explained = Explained::new(compiled, limit, &plan);
            (explained.rule, explained.capacity) = (&limit.numbers(numbers).rule, limit.capacity(numbers));
            if explained.applies {
                plan.add(limit, numbers, explained.is_missing, Group::Independent);
            }
            limits.push(explained);
        }
        plan.asks.iter_mut().for_each(|ask| ask.action = Action::Peek);
        let explanation =
            Self { tier: compiled.tier_name(standing.tier), cost: plan.requests[0].cost, limits };
        engine.look(plan, now).map(|verdict| Ok(explanation.with_decisions(verdict?)))
    }

    fn with_decisions(mut self, verdict: super::Verdict<'_>) -> Self {
        let applying = self.limits.iter_mut().filter(|explained| explained.applies);
        for (explained, each) in applying.zip(verdict.into_decisions()) {
            explained.decision = each.decision;
        }
        self
    }
}

impl<'a> Explained<'a> {
    /// Whether a limit applies to the request of a plan, and why. It is not decided yet.
    fn new(compiled: &'a CompiledPolicy, limit: &'a CompiledLimit, plan: &Plan<'a>) -> Self {
        let (values, cost) = (&plan.requests[0].values, plan.requests[0].cost);
        let environment_values = &compiled.policy.environment_values;
        let (broken, denies) = (limit.conditions.broken(values), limit.applies(values));
        let is_described = limit.policy.descriptor.is_some();
        let applies = !is_described && broken.is_none() && denies.is_some();
        let missing = limit.missing(values).map(|part| limit.policy.key[part].to_string());
        let missing = missing.as_deref().map(|part| environment_values.as_written(part));
        let why = match (broken, missing) {
            _ if is_described => "it applies to an Envoy descriptor, which only Envoy sends".to_owned(),
            (Some(condition), _) => condition.why(&compiled.names, values, environment_values),
            (None, Some(part)) => match limit.policy.when_missing {
                WhenMissing::Skip => {
                    format!("the request has no `{part}`, and the limit says `when_missing: skip`")
                }
                WhenMissing::Deny => {
                    format!("the request has no `{part}`, and the limit says `when_missing: deny`")
                }
                WhenMissing::Share => {
                    format!("the request has no `{part}`: all requests without it share one key")
                }
            },
            (None, None) if limit.policy.applies_to.conditions().is_empty() => {
                "the limit has no `match`: it applies to every request".to_owned()
            }
            (None, None) => "everything in its `match` holds".to_owned(),
        };
        let why = match limit.is_concurrency {
            true if applies => format!("{why}; acts only where a permit can be held, such as acquire"),
            _ => why,
        };
        Self {
            limit: &limit.policy,
            applies,
            why,
            key: limit.shared_key(values).to_vec(),
            rule: &limit.policy.rule,
            capacity: 0,
            decision: Decision::default(),
            is_missing: denies == Some(true) && cost > 0,
            is_reduced: plan.is_reduced,
        }
    }
}
