//! `POST /v1/check`: decides a request, or several in order.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use tollgate::Timestamp;
use tollgate_policy::{PolicyInForce, Reply, Request as Asked, TooManyLimits};

use super::json::{self, Check, Checks};
use super::problem::Problem;
use super::{Answer, json_body};
use crate::metrics::Protocol;
use crate::service::Service;

/// About as long as the answer of a limit or two.
const USUAL_REPLY: usize = 512;

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let body = json::body(request).await?;
    let checks = Checks::parse(&body)?;
    let (policy, now) = (service.engine.policy(), service.engine.clock().now());
    let reply = match checks {
        Checks::One(check) => {
            let mut reply = Vec::with_capacity(USUAL_REPLY);
            decide(&service, &policy, &check, now, &mut reply)?;
            reply
        }
        Checks::Many(checks) => {
            require_possible(&policy, &checks, now)?;
            let mut reply = Vec::with_capacity(USUAL_REPLY * checks.len() + 2);
            reply.push(b'[');
            for (i, check) in checks.iter().enumerate() {
                if i > 0 {
                    reply.push(b',');
                }
                decide(&service, &policy, check, now, &mut reply)?;
            }
            reply.push(b']');
            reply
        }
    };
    Ok(json_body(reply))
}

fn decide(
    service: &Service,
    policy: &PolicyInForce<'_>,
    check: &Check<'_>,
    now: Timestamp,
    reply: &mut Vec<u8>,
) -> Result<(), Problem> {
    let attributes = check.attributes.pairs();
    let asked = Asked { attributes: &attributes, cost: check.cost };
    let verdict = service.check(policy, &asked, now, Protocol::http)?;
    serde_json::to_writer(reply, &Reply::new(&verdict)).expect("made of what JSON has");
    Ok(())
}

/// Refuses several checks before any is charged, if one of them could not be decided.
fn require_possible(policy: &PolicyInForce<'_>, checks: &[Check<'_>], now: Timestamp) -> Result<(), Problem> {
    if policy.limits.len() <= MOST_LIMITS {
        return Ok(());
    }
    for check in checks {
        let attributes = check.attributes.pairs();
        let _ = policy.check(&Asked { attributes: &attributes, cost: Some(0) }, now)?;
    }
    Ok(())
}

/// As many limits can always be decided together.
const MOST_LIMITS: usize = 32;

impl From<TooManyLimits> for Problem {
    fn from(too_many: TooManyLimits) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, too_many.to_string())
    }
}
