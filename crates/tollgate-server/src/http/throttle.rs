//! `POST /v1/throttle`: decides by a rule sent with the call.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use tollgate_policy::{SentRule, ThrottleError, write_throttle_reply};

use super::json::{self, LONGEST_TEXT, Text};
use super::problem::Problem;
use super::{Answer, counted, json_body};
use crate::metrics::Protocol;
use crate::service::Service;

/// A key, and the numbers of one algorithm.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Throttle<'b> {
    #[serde(borrow)]
    key: Text<'b>,
    #[serde(default, deserialize_with = "json::optional_cost")]
    cost: Option<u64>,
    #[serde(borrow, default, deserialize_with = "numbers")]
    token_bucket: Option<&'b RawValue>,
    #[serde(borrow, default, deserialize_with = "numbers")]
    leaky_bucket: Option<&'b RawValue>,
    #[serde(borrow, default, deserialize_with = "numbers")]
    fixed_window: Option<&'b RawValue>,
    #[serde(borrow, default, deserialize_with = "numbers")]
    sliding_log: Option<&'b RawValue>,
    #[serde(borrow, default, deserialize_with = "numbers")]
    sliding_counter: Option<&'b RawValue>,
    #[serde(borrow, default, deserialize_with = "numbers")]
    burst_credits: Option<&'b RawValue>,
    #[serde(borrow, default, deserialize_with = "numbers")]
    concurrency: Option<&'b RawValue>,
}

/// Numbers that were sent, if only as null: they are none, which is told of them later.
fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'b> Throttle<'b> {
    /// The one algorithm that was sent, with its numbers.
    fn rule(&self) -> Result<(&'static str, &'b str), Problem> {
        let sent = [
            ("token_bucket", self.token_bucket),
            ("leaky_bucket", self.leaky_bucket),
            ("fixed_window", self.fixed_window),
            ("sliding_log", self.sliding_log),
            ("sliding_counter", self.sliding_counter),
            ("burst_credits", self.burst_credits),
            ("concurrency", self.concurrency),
        ];
        let mut given = sent.iter().filter_map(|(name, numbers)| Some((*name, (*numbers)?.get())));
        match (given.next(), given.next()) {
            (Some(rule), None) => Ok(rule),
            (Some((one, _)), Some((other, _))) => {
                Err(unprocessable(format!("two rules, `{one}` and `{other}`: send one")))
            }
            (None, _) => {
                let names = sent.map(|(name, _)| format!("`{name}`")).join(", ");
                Err(unprocessable(format!(
                    "no rule: send one of {names}, such as \"token_bucket\": {{\"rate\": \"5/s\"}}"
                )))
            }
        }
    }
}

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    counted(&service, Protocol::http, throttle(&service, request).await)
}

async fn throttle(service: &Service, request: Request<Body>) -> Answer {
    let body = json::body(request).await?;
    let throttle: Throttle<'_> = json::parse(&body)?;
    let (algorithm, numbers) = throttle.rule()?;
    if throttle.key.0.len() > LONGEST_TEXT {
        return Err(unprocessable(format!(
            "the key is longer than {LONGEST_TEXT} bytes, which are the most"
        )));
    }
    let sent = SentRule { key: &throttle.key.0, algorithm, numbers, cost: throttle.cost.unwrap_or(1) };
    let (engine, now) = (&service.engine, service.engine.clock().now());
    let throttled = match engine.is_shared() {
        false => engine.throttle(&sent, now)?,
        true => Box::pin(engine.decide_throttle(&sent, now)).await?,
    };
    service.observe_throttled(&throttled, sent.cost, Protocol::http);
    let mut reply = Vec::with_capacity(256);
    write_throttle_reply(algorithm, &throttled, &mut reply);
    Ok(json_body(reply))
}

fn unprocessable(detail: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

impl From<ThrottleError> for Problem {
    fn from(error: ThrottleError) -> Self {
        match error {
            ThrottleError::TooManyRules => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            error => unprocessable(error.to_string()),
        }
    }
}
