//! `GET /v1/limits`: the policy in force.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use tollgate_policy::{Limit, Policy};

use super::reply;
use crate::service::Service;

pub(super) async fn handle(State(service): State<Arc<Service>>) -> Response {
    reply(&policy_json(&service.engine.policy()))
}

/// The limits, the tiers and the default tier of a policy.
pub(crate) fn policy_json(policy: &Policy) -> Value {
    let limits: Vec<Value> = policy.limits.iter().map(|limit| shown_limit(limit, policy)).collect();
    let default_tier = policy.default_tier.as_deref().map(|tier| policy.environment_values.as_written(tier));
    json!({ "limits": limits, "tiers": tiers(policy), "default_tier": default_tier })
}

fn shown_limit(limit: &Limit, policy: &Policy) -> Value {
    let environment_values = &policy.environment_values;
    let shown = |value: &str| environment_values.as_written(value).to_owned();
    let tiers: Map<String, Value> =
        limit.tiers.keys().map(|tier| (tier.clone(), numbers(limit, Some(tier)))).collect();
    let in_use = |(tier, rule)| (String::clone(tier), limit.algorithm_in_use(rule).into());
    let tier_algorithms: Map<String, Value> = limit.tiers.iter().map(in_use).collect();
    let matches: Map<String, Value> = limit
        .applies_to
        .patterns()
        .map(|(attribute, patterns)| (attribute.to_owned(), patterns.map(shown).collect::<Vec<_>>().into()))
        .collect();
    json!({
        "name": shown(&limit.name),
        "algorithm": limit.algorithm_name(),
        "algorithm_in_use": limit.algorithm_in_use(&limit.rule),
        "numbers": numbers(limit, None),
        "capacity": capacity(limit),
        "key": limit.key.iter().map(|part| shown(&part.to_string())).collect::<Vec<_>>(),
        "match": matches,
        "ignore_case": limit.applies_to.ignores_case(),
        "trailing_slash": if limit.applies_to.ignores_trailing_slash() { "any" } else { "exact" },
        "descriptor": limit.descriptor.as_ref().map(|of| environment_values.hide(&of.to_string()).into_owned()),
        "shadow": limit.shadow,
        "tiers": tiers,
        "tier_algorithms": tier_algorithms,
        "tenants_with_own_numbers": policy.tenants.with_numbers_of(&limit.name).len(),
    })
}

/// The most that can pass at once. None where a number came from the environment, which is not shown.
fn capacity(limit: &Limit) -> Option<u64> {
    let capacity = if limit.is_blocked(None) { 0 } else { limit.rule.capacity() };
    (!limit.has_numbers_from_environment()).then_some(capacity)
}

fn numbers(limit: &Limit, tier: Option<&str>) -> Value {
    limit
        .numbers(tier)
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect::<Map<_, _>>()
        .into()
}

fn tiers(policy: &Policy) -> Value {
    let tier = |(name, tier): (&String, &tollgate_policy::Tier)| {
        let written = |key: &str| policy.environment_values.number(&format!("tiers.{name}.{key}"));
        let weight = written("weight").map_or_else(|| json!(tier.weight.get()), |written| json!(written));
        let shed = written("shed").map_or_else(|| json!(tier.shed), |written| json!(written));
        (name.clone(), json!({ "weight": weight, "shed": shed }))
    };
    policy.tiers.iter().map(tier).collect::<Map<_, _>>().into()
}
