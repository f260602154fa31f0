//! `PUT /v1/pressure`: how loaded the upstream is, told by those who run no gateway.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tollgate::adaptive::Load;
use tollgate_policy::LoadSource;

use super::json;
use super::problem::Problem;
use super::{Answer, reply, require_admin};
use crate::service::Service;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pressure {
    load: f64,
}

/// Above this part of what it can bear, the upstream counts as overloaded; below the other, as recovered.
const HIGH: f64 = 0.8;
const LOW: f64 = 0.6;

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    require_admin(&service, &request)?;
    let body = json::body(request).await?;
    let Pressure { load } = json::parse(&body)?;
    if !(0.0..=1.0).contains(&load) {
        let detail =
            format!("a load of {load}: it is a number from 0.0 (idle) to 1.0 (as much as it can bear)");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
    }
    let load = match load {
        load if load > HIGH => Load::High,
        load if load < LOW => Load::Low,
        _ => Load::Between,
    };
    let Some(pace) = service.engine.press(LoadSource::Api, load, service.engine.clock().now()) else {
        let detail = "the policy has no `adaptive_rates`, so nothing follows the load";
        return Err(Problem::new(StatusCode::CONFLICT, detail));
    };
    Ok(reply(&json!({ "multiplier": pace.as_f64() })))
}
