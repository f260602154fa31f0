//! `POST /v1/acquire` and `POST /v1/release`: places in concurrency limits, held over HTTP.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tollgate::Timestamp;
use tollgate_policy::{Permits, Request as Asked, Verdict, write_reply};

use super::json::{self, Check, Text};
use super::problem::Problem;
use super::{Answer, counted, json_body, reply};
use crate::held::TooManyHeld;
use crate::metrics::Protocol;
use crate::service::Service;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Release<'b> {
    #[serde(borrow)]
    permit: Text<'b>,
}

/// The answer, and the permits that are held if it is allowed, with the time until which they are.
type Acquired = (Vec<u8>, Option<(Permits, Option<Timestamp>)>);

pub(super) async fn acquire(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let (mut body, permits) = counted(&service, Protocol::http, acquired(&service, request).await)?;
    if let Some((permits, until)) = permits {
        let permit = service.held.keep(permits, until)?;
        let closing = body.pop();
        body.extend_from_slice(format!(",\"permit\":\"{permit}\"").as_bytes());
        body.extend(closing);
    }
    Ok(json_body(body))
}

async fn acquired(service: &Service, request: Request<Body>) -> Result<Acquired, Problem> {
    let tracing = service.tracing(request.headers());
    let body = json::body(request).await?;
    let check: Check<'_> = json::parse(&body)?;
    // Before anything is charged.
    service.held.require_room()?;
    let attributes = check.attributes.pairs();
    let asked = Asked { attributes: &attributes, cost: check.cost };
    let policy = service.engine.policy();
    let acquired = |mut verdict: Verdict<'_>| {
        let mut body = Vec::with_capacity(512);
        write_reply(&verdict, &mut body);
        let held = verdict.is_allowed().then(|| (verdict.take_permits(), lease_end(&verdict)));
        (body, held)
    };
    let calls = service.calls(Protocol::http).traced(tracing);
    Ok(calls.acquire(&policy, &asked, acquired).wait().await?)
}

pub(super) async fn release(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let body = json::body(request).await?;
    let release: Release<'_> = json::parse(&body)?;
    Ok(reply(&json!({ "released": service.held.release(&release.permit.0).await? })))
}

impl From<TooManyHeld> for Problem {
    fn from(too_many: TooManyHeld) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, too_many.to_string())
    }
}

/// When none of the permits is held any more, those of shadow limits included. None where one has no lease.
fn lease_end(verdict: &Verdict<'_>) -> Option<Timestamp> {
    let mut end = verdict.decided_at();
    for limit in verdict.limits().chain(verdict.shadow()) {
        if let tollgate::Rule::Concurrency(rule) = limit.rule() {
            end = end.max(verdict.decided_at().after(rule.lease()?));
        }
    }
    Some(end)
}
