//! `ANY /v1/forward-auth`: decides for a proxy that asks before it lets a request through.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use tollgate::{Nanos, Timestamp, Turn};
use tollgate_policy::{Request as Asked, Verdict, denial_response, headers, put_headers, refusal_response};

use super::problem::Problem;
use super::query::query_pairs;
use super::{Answer, counted};
use crate::client::original;
use crate::listener::Connection;
use crate::metrics::Protocol;
use crate::service::{Service, unix_time};

/// What the proxy's configuration says in the query, where no client can.
struct Settings {
    deny: StatusCode,
    key: Option<String>,
    cost: Option<u64>,
}

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let (head, _body) = request.into_parts();
    let decided = decide(&service, &Request::from_parts(head, ())).await;
    let (response, delay) = counted(&service, Protocol::forward_auth, decided)?;
    if let Some(Delay { turn, delay, decided_at }) = delay {
        // A client that hangs up drops this future, which gives its turn to the next request.
        service.wait_for_turn(turn, delay, decided_at).await;
    }
    Ok(response)
}

/// How long an answer is delayed, and its turn in the delay queue.
struct Delay {
    turn: Option<Turn>,
    delay: Nanos,
    decided_at: Timestamp,
}

/// The answer, and its delay if it has one.
async fn decide(service: &Service, request: &Request<()>) -> Result<(Response, Option<Delay>), Problem> {
    let settings = Settings::read(request.uri().query())?;
    let connection = *request.extensions().get::<Connection>().expect("every request knows its connection");
    let policy = service.engine.policy();
    let original = original(&policy, request, connection.peer.ip());
    let mut attributes = match original.attributes(&policy) {
        Ok(attributes) => attributes,
        Err(fault) => {
            service.metrics.count_error(Protocol::forward_auth);
            return Ok((refusal_response(&fault, request.method(), settings.deny).map(Body::from), None));
        }
    };
    if let Some(key) = &settings.key {
        attributes.push(("key", key.into()));
    }
    let attributes: Vec<(&str, &str)> = attributes.iter().map(|(name, value)| (*name, &**value)).collect();
    let asked = Asked { attributes: &attributes, cost: settings.cost };
    let calls = service.calls(Protocol::forward_auth).traced(service.tracing(request.headers()));
    service.delay_queue.wake_due(calls.now());
    let respond = |verdict: Verdict<'_>| {
        let response = if verdict.is_allowed() {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            put_headers(headers(&policy.headers, &verdict, unix_time()), response.headers_mut());
            response
        } else {
            denial_response(&policy, &verdict, unix_time(), request.method(), settings.deny).map(Body::from)
        };
        let delay = Delay { turn: verdict.turn(), delay: verdict.delay(), decided_at: verdict.decided_at() };
        (response, (!delay.delay.is_zero()).then_some(delay))
    };
    Ok(calls.check(&policy, &asked, respond).wait().await?)
}

impl Settings {
    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut settings = Self { deny: StatusCode::TOO_MANY_REQUESTS, key: None, cost: None };
        for (name, value) in query_pairs(query)? {
            match name.as_str() {
                "deny" => {
                    settings.deny = match value.as_str() {
                        "401" => StatusCode::UNAUTHORIZED,
                        "403" => StatusCode::FORBIDDEN,
                        "429" => StatusCode::TOO_MANY_REQUESTS,
                        _ => {
                            let detail = format!(
                                "deny={value}: it is 429, or 403 or 401 for proxies that know no other"
                            );
                            return Err(Problem::bad_request(detail));
                        }
                    };
                }
                "key" => settings.key = Some(value),
                "cost" => {
                    let cost = value.parse().map_err(|_| {
                        Problem::bad_request(format!("cost={value}: it is a whole number, 0 to peek"))
                    })?;
                    settings.cost = Some(cost);
                }
                _ => {
                    return Err(Problem::bad_request(format!(
                        "`{name}`: the query takes `deny`, `key` and `cost`"
                    )));
                }
            }
        }
        Ok(settings)
    }
}
