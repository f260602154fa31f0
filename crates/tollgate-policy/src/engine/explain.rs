//! Which limits apply to a request, why, and what would be decided.

use smallvec::SmallVec;
use tollgate::{Decision, Outcome, Rule, Timestamp};

use super::in_force::{InForce, LimitInForce, Standing};
use super::shared::Asks;
use super::{Engine, Reason, Request};
use crate::policy::{Limit, WhenMissing};
use crate::store::{Ask, Does, Store, Unavailable};

/// Every limit of a policy, as it looks at one request.
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
    /// What it would decide, and how the key stands: nothing was charged.
    pub decision: Decision,
    is_missing: bool, // an attribute of its key, without which it denies
    reduced: bool,    // rates, for the time being
}

impl Explained<'_> {
    /// Why it would deny.
    pub fn reason(&self) -> Option<Reason> {
        let Outcome::Deny { retry } = self.decision.outcome else { return None };
        if self.is_missing {
            return Some(Reason::MissingAttribute);
        }
        Some(Reason::told(retry, matches!(self.limit.rule, Rule::Concurrency(_)), self.reduced))
    }
}

impl<'a> Explanation<'a> {
    /// Lets the store say how the limits that apply stand, and what they would decide.
    pub(super) async fn ask_store(
        &mut self,
        engine: &Engine,
        in_force: &'a InForce,
        request: &Request<'a>,
        store: &dyn Store,
    ) -> Result<(), Unavailable> {
        let standing = engine.standing(in_force, super::plan::tenant(request.attributes));
        let mut asks: Asks<'_> = SmallVec::new();
        for (place, (explained, limit)) in (0..).zip(self.limits.iter().zip(&in_force.limits)) {
            let numbers = in_force.numbers_of(place, &standing);
            let key = explained.key.iter().copied().collect();
            let pace = engine.pace_of(in_force, limit, numbers);
            if explained.applies {
                asks.push(Ask {
                    pace,
                    is_blocked: limit.is_blocked(numbers),
                    ..limit.stored_ask(limit.numbers(numbers).rule, &key, self.cost, Does::Preview)
                });
            }
        }
        if asks.is_empty() {
            return Ok(());
        }
        let decided = store.decide(&asks, false).await?;
        let applying = self.limits.iter_mut().filter(|explained| explained.applies);
        for (explained, seen) in applying.zip(&decided.each) {
            explained.decision = seen.decision;
            if explained.capacity == 0 {
                explained.decision.status.remaining = 0;
            }
            if explained.is_missing {
                explained.decision.outcome = Outcome::NEVER;
            }
        }
        Ok(())
    }

    pub(super) fn new(
        in_force: &'a InForce,
        request: &Request<'a>,
        standing: &Standing<'_>,
        now: Timestamp,
        reduced: bool,
    ) -> Self {
        let tier_name = in_force.tier_name(standing.tier);
        let values = in_force.names.values(request.attributes, tier_name);
        let cost = request.cost.unwrap_or_else(|| in_force.cost(&values));
        let environment_values = &in_force.policy.environment_values;
        let explain = |(place, limit): (u32, &'a LimitInForce)| {
            let (broken, denies) = (limit.conditions.broken(&values), limit.applies(&values));
            let is_described = limit.policy.descriptor.is_some();
            let applies = !is_described && broken.is_none() && denies.is_some();
            let missing = limit.missing(&values).map(|part| limit.policy.key[part].to_string());
            let missing = missing.as_deref().map(|part| environment_values.as_written(part));
            let why = match (broken, missing) {
                _ if is_described => "it applies to an Envoy descriptor, which only Envoy sends".to_owned(),
                (Some(condition), _) => condition.why(&in_force.names, &values, environment_values),
                (None, Some(part)) => match limit.policy.when_missing {
                    WhenMissing::Skip => {
                        format!("`{part}` of its key is missing, and it says `when_missing: skip`")
                    }
                    WhenMissing::Deny => {
                        format!("`{part}` of its key is missing, and it says `when_missing: deny`")
                    }
                    WhenMissing::Share => {
                        format!("`{part}` of its key is missing: it shares one key with all that lack it")
                    }
                },
                (None, None) if limit.policy.applies_to.conditions().is_empty() => {
                    "it has no `match`, so it applies to every request".to_owned()
                }
                (None, None) => "everything in its `match` holds".to_owned(),
            };
            let why = match limit.is_concurrency {
                true if applies => format!("{why}; acts only where a permit can be held, such as acquire"),
                _ => why,
            };
            let numbers = in_force.numbers_of(place, standing);
            let key = limit.shared_key(&values);
            let mut decision = limit.ask(numbers, &key).cost(cost).preview_at(now);
            decision.status = limit.status(numbers, decision.status);
            let is_missing = denies == Some(true) && cost > 0;
            if is_missing {
                decision.outcome = Outcome::NEVER;
            }
            Explained {
                limit: &limit.policy,
                applies,
                why,
                rule: &limit.numbers(numbers).rule,
                capacity: limit.capacity(numbers),
                decision,
                is_missing,
                reduced,
                key: key.to_vec(),
            }
        };
        Self { tier: tier_name, cost, limits: (0..).zip(&in_force.limits).map(explain).collect() }
    }
}
