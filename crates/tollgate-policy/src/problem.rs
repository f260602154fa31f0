//! The bodies of denials and errors: problem details (RFC 9457).

use http::StatusCode;
use serde_json::json;

use crate::engine::{LimitVerdict, Reason, Verdict};
use crate::reply::{write_limits, write_number, write_optional_seconds, write_reason};

/// The media type of [`problem`] and [`problem_with_detail`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The body of a denial with this status. It is put together without serde, which looks through every letter for what needs an
/// escape: nearly all of it is known here, and who is attacked sends many.
pub fn problem(denied: &Verdict<'_>, status: u16) -> Vec<u8> {
    let message = serde_json::to_vec(&message(denied)).expect("a string");
    let mut json = Vec::with_capacity(768);
    // Where nobody could decide, nothing is exceeded: what is known is the status.
    json.extend_from_slice(match denied.reason() {
        Some(Reason::Unavailable) => br#"{"type":"about:blank""#,
        _ => br##"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded""##.as_slice(),
    });
    json.extend_from_slice(br#","title":"Too Many Requests","status":"#);
    write_number(status.into(), &mut json);
    json.extend_from_slice(br#","detail":"#);
    json.extend_from_slice(&message);
    json.extend_from_slice(br#","violated-policies":["#);
    let is_violated =
        |limit: &LimitVerdict<'_, '_>| limit.reason().is_some_and(|why| why != Reason::Unavailable);
    for (place, limit) in denied.limits().filter(is_violated).enumerate() {
        json.extend_from_slice(if place == 0 { b"\"" } else { b",\"" });
        json.extend_from_slice(limit.name().as_bytes()); // names need no escapes: the policy file allows none that would
        json.push(b'"');
    }
    // The error is every denial's: clients go by it.
    json.extend_from_slice(br#"],"error":"rate_limit_exceeded","message":"#);
    json.extend_from_slice(&message);
    write_reason(denied.reason(), &mut json);
    json.extend_from_slice(br#","retry_after":"#);
    write_optional_seconds(denied.retry_after(), &mut json);
    json.extend_from_slice(br#","retry_after_seconds":"#);
    match denied.retry_after() {
        Some(wait) => write_number(wait.as_secs_ceil().max(1), &mut json),
        None => json.extend_from_slice(b"null"),
    }
    if denied.is_reduced() && denied.limits().next().is_some() {
        json.extend_from_slice(br#","reduced":true"#);
    }
    json.extend_from_slice(br#","limits":"#);
    write_limits(denied.limits(), &mut json);
    json.push(b'}');
    json
}

/// The body of an error with this status, for which the detail gives the reason.
pub fn problem_with_detail(status: StatusCode, detail: &str) -> Vec<u8> {
    let problem = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "detail": detail,
    });
    problem.to_string().into_bytes()
}

/// What happened and what to do, in a sentence or two.
fn message(denied: &Verdict<'_>) -> String {
    let Some(limit) = denied.reported() else { return "The request was denied.".to_owned() };
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
                Some(1) => state + " Try again in 1 second.",
                Some(wait) => format!("{state} Try again in {wait} seconds."),
            }
        }
    }
}
