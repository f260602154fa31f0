//! The body of a denial: problem details as RFC 9457 has them.

use serde::Serialize;

use crate::engine::{LimitVerdict, Reason, Summary};
use crate::reply::{Seconds, write_limits};

/// The media type of [`problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";

#[derive(Serialize)]
struct Problem<'v> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'v str,
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<&'v str>,
    error: &'static str,
    message: &'v str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    retry_after: Option<Seconds>,
    retry_after_seconds: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reduced: bool,
}

/// The body of a denial with this status.
pub fn problem<'v, 'a: 'v>(denied: impl Into<Summary<'v, 'a>>, status: u16) -> Vec<u8> {
    let denied = denied.into();
    let message = message(&denied);
    // Where nobody could decide, nothing is exceeded: what is known is the status.
    let kind = match denied.reason() {
        Some(Reason::Unavailable) => "about:blank",
        _ => "https://iana.org/assignments/http-problem-types#quota-exceeded",
    };
    let violated =
        |limit: &&LimitVerdict<'_, '_>| limit.reason().is_some_and(|why| why != Reason::Unavailable);
    let problem = Problem {
        kind,
        title: "Too Many Requests",
        status,
        detail: &message,
        violated_policies: denied.limits.iter().filter(violated).map(|limit| limit.name()).collect(),
        error: "rate_limit_exceeded", // every denial's: clients go by it
        message: &message,
        reason: denied.reason(),
        retry_after: denied.retry_after().map(Seconds),
        retry_after_seconds: denied.retry_after().map(|wait| wait.as_secs_ceil().max(1)),
        reduced: denied.limits.iter().any(LimitVerdict::is_reduced),
    };
    let mut json = serde_json::to_vec(&problem).expect("made of what JSON has");
    let closing = json.pop();
    json.extend_from_slice(b",\"limits\":");
    write_limits(denied.limits.iter().copied(), &mut json);
    json.extend(closing);
    json
}

/// What happened and what to do, in a sentence or two.
fn message(denied: &Summary<'_, '_>) -> String {
    let Some(limit) = denied.reported else { return "The request was denied.".to_owned() };
    let (name, capacity) = (limit.name(), limit.capacity());
    let wait = denied.retry_after().map(|wait| wait.as_secs_ceil().max(1));
    match (limit.reason(), wait) {
        (Some(Reason::CostExceedsLimit), _) => {
            format!(
                "The request costs {}, and limit `{name}` holds {capacity}: it can never pass.",
                limit.cost()
            )
        }
        (Some(Reason::MissingAttribute), _) => {
            let key: Vec<String> = limit.limit().key.iter().map(ToString::to_string).collect();
            format!("Limit `{name}` needs to know the {} of a request.", key.join(", "))
        }
        (Some(Reason::InFlight), None) => {
            format!(
                "Limit `{name}` lets {capacity} be in flight, and they are. Try again when one has ended."
            )
        }
        (Some(Reason::Unavailable), _) => format!("Limit `{name}` could not be decided."),
        (_, wait) => {
            let state = match limit.decision().status.remaining {
                0 => format!("Limit `{name}` is spent."),
                left => format!("Limit `{name}` has {left} left and the request costs {}.", limit.cost()),
            };
            match wait {
                None => state,
                Some(1) => format!("{state} Try again in 1 second."),
                Some(wait) => format!("{state} Try again in {wait} seconds."),
            }
        }
    }
}
