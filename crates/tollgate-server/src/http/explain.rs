//! `POST /v1/explain`: every limit, whether it applies and why, and what it would decide. Charges nothing.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use serde_json::{Map, Value, json};
use tollgate_policy::{EnvironmentValues, Explained, Limit, Policy, Request as Asked, Seconds};

use super::json::{self, Check};
use super::{Answer, reply};
use crate::service::Service;

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let body = json::body(request).await?;
    let check: Check<'_> = json::parse(&body)?;
    let attributes = check.attributes.pairs();
    let policy = service.engine.policy();
    let asked = Asked { attributes: &attributes, cost: check.cost };
    let explanation = policy.explain(&asked, service.engine.clock().now()).wait().await?;
    let tenant = attributes.iter().find(|(name, _)| *name == "tenant").map(|(_, tenant)| *tenant);
    let limits: Vec<Value> = explanation
        .limits
        .iter()
        .map(|limit| {
            let mut shown = explained(limit, &policy.environment_values);
            if limit.applies {
                let (numbers, of) = numbers_in_force(&policy, limit.limit, explanation.tier, tenant);
                (shown["numbers"], shown["numbers_of"]) = (numbers.into(), of.into());
            }
            shown
        })
        .collect();
    Ok(reply(&json!({ "tier": explanation.tier, "cost": explanation.cost, "limits": limits })))
}

/// The numbers of a limit that decide a request, as the policy writes them, and whose numbers these are.
fn numbers_in_force(
    policy: &Policy,
    limit: &Limit,
    tier: Option<&str>,
    tenant: Option<&str>,
) -> (Map<String, Value>, &'static str) {
    let own = tenant.and_then(|tenant| policy.tenants.get(tenant)).map(|tenant| tenant.numbers(&limit.name));
    let own = own.unwrap_or_default();
    let of = match tier.is_some_and(|tier| limit.tiers.contains_key(tier)) {
        _ if !own.is_empty() => "tenant",
        true => "tier",
        false => "limit",
    };
    let all = limit.numbers(tier).into_iter().chain(own);
    (all.map(|(name, value)| (name.to_owned(), value.into())).collect(), of)
}

fn explained(limit: &Explained<'_>, environment_values: &EnvironmentValues) -> Value {
    let Explained { limit: policy, applies, why, key, capacity, decision, .. } = limit;
    let mut told = json!({
        "name": environment_values.as_written(&policy.name),
        "applies": applies,
        "why": why,
        "key": key,
        "shadow": policy.shadow,
        "algorithm": policy.algorithm_name(),
        "algorithm_in_use": policy.algorithm_in_use(limit.rule),
    });
    if !applies {
        return told; // what it would say is of no interest
    }
    told["allowed"] = json!(decision.is_allowed());
    told["limit"] = json!(capacity);
    told["remaining"] = json!(decision.status.remaining);
    told["retry_after"] = json!(decision.retry_after().map(Seconds));
    told["reset_after"] = json!(Seconds(decision.status.reset_after));
    if let Some(reason) = limit.reason() {
        told["reason"] = json!(reason);
    }
    told
}
