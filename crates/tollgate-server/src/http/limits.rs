//! `GET /v1/limits`: the policy in force.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};
use tollgate_policy::{Limit, Policy};

use super::reply;
use crate::service::Service;

pub(super) async fn handle(State(service): State<Arc<Service>>) -> Response {
    let policy = service.engine.policy();
    let limits: Vec<Value> = policy.limits.iter().map(limit).collect();
    reply(&json!({ "limits": limits, "tiers": tiers(&policy), "default_tier": policy.default_tier }))
}

fn limit(limit: &Limit) -> Value {
    let tiers: Map<String, Value> =
        limit.tiers.keys().map(|tier| (tier.clone(), numbers(limit, Some(tier)))).collect();
    let matches: Map<String, Value> = limit
        .applies_to
        .patterns()
        .map(|(attribute, patterns)| (attribute.to_owned(), patterns.collect::<Vec<_>>().into()))
        .collect();
    json!({
        "name": limit.name,
        "algorithm": limit.algorithm_name(),
        "numbers": numbers(limit, None),
        "capacity": limit.rule.capacity(),
        "key": limit.key.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "match": matches,
        "descriptor": limit.descriptor.as_ref().map(ToString::to_string),
        "shadow": limit.shadow,
        "tiers": tiers,
    })
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
        (name.clone(), json!({ "weight": tier.weight.get(), "shed": tier.shed }))
    };
    policy.tiers.iter().map(tier).collect::<Map<_, _>>().into()
}
