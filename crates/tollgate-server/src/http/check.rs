//! `POST /v1/check`: decides a request, or several in order.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use tollgate_policy::{Request as Asked, TooManyLimits, Verdict, write_reply};

use super::json::{self, Checks};
use super::problem::Problem;
use super::{Answer, counted, json_body};
use crate::metrics::Protocol;
use crate::service::Service;

/// About as long as the answer of a limit or two.
const USUAL_REPLY: usize = 512;

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    counted(&service, Protocol::http, check(&service, request).await)
}

async fn check(service: &Service, request: Request<Body>) -> Answer {
    let tracing = service.tracing(request.headers());
    let body = json::body(request).await?;
    let checks = Checks::parse(&body)?;
    let (policy, calls) = (service.engine.policy(), service.calls(Protocol::http).traced(tracing));
    match checks {
        Checks::One(check) => {
            let attributes = check.attributes.pairs();
            let asked = Asked { attributes: &attributes, cost: check.cost };
            let reply = |verdict: Verdict<'_>| {
                let mut reply = Vec::with_capacity(USUAL_REPLY);
                write_reply(&verdict, &mut reply);
                reply
            };
            Ok(json_body(calls.check(&policy, &asked, reply).wait().await?))
        }
        Checks::Many(checks) => {
            let attributes: Vec<_> = checks.iter().map(|check| check.attributes.pairs()).collect();
            let asked: Vec<Asked<'_>> = checks
                .iter()
                .zip(&attributes)
                .map(|(check, attributes)| Asked { attributes, cost: check.cost })
                .collect();
            let mut reply = Vec::with_capacity(USUAL_REPLY * checks.len() + 2);
            reply.push(b'[');
            let each = |verdict: &Verdict<'_>| {
                if reply.len() > 1 {
                    reply.push(b',');
                }
                write_reply(verdict, &mut reply);
            };
            calls.check_each(&policy, &asked, each).await?;
            reply.push(b']');
            Ok(json_body(reply))
        }
    }
}

impl From<TooManyLimits> for Problem {
    fn from(too_many: TooManyLimits) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, too_many.to_string())
    }
}
