//! `POST /v1/explain`: every limit, whether it applies and why, and what it would decide. Charges nothing.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::Request;
use serde_json::{Value, json};
use tollgate_policy::{EnvironmentValues, Explained, Request as Asked, Seconds};

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
    let limits: Vec<Value> =
        explanation.limits.iter().map(|limit| explained(limit, &policy.environment_values)).collect();
    Ok(reply(&json!({ "tier": explanation.tier, "cost": explanation.cost, "limits": limits })))
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
