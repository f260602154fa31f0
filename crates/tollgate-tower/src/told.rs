//! What clients are told of a decision.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use serde_json::json;
use tollgate_policy::{PROBLEM_JSON, Policy, RequestFault, TooManyLimits, Verdict, problem};

/// Puts on an answer what a client is told of the limits.
pub fn headers(policy: &Policy, verdict: &Verdict<'_>, unix_time: Duration, onto: &mut HeaderMap) {
    put(tollgate_policy::headers(&policy.headers, verdict, unix_time), onto);
}

/// Puts headers on an answer. They replace those of the same names.
pub(crate) fn put(told: Vec<(&'static str, String)>, onto: &mut HeaderMap) {
    for (name, value) in told {
        let value = HeaderValue::try_from(value).expect("names, digits and punctuation");
        onto.insert(HeaderName::from_static(name), value);
    }
}

/// The answer to a request of this method that is denied, told by a status.
pub fn denial(
    policy: &Policy,
    verdict: &Verdict<'_>,
    unix_time: Duration,
    method: &Method,
    status: StatusCode,
) -> Response<Bytes> {
    let mut response = with_problem(status, method, problem(verdict, status.as_u16()));
    headers(policy, verdict, unix_time, response.headers_mut());
    response
}

/// The answer to a request that nobody can decide, for which the policy has to be changed.
pub(crate) fn undecidable(error: &TooManyLimits, method: &Method) -> Response<Bytes> {
    with_detail(StatusCode::INTERNAL_SERVER_ERROR, method, &error.to_string())
}

/// The answer to a request of this method that applications read in more than one way.
pub fn refusal(fault: &RequestFault, method: &Method, status: StatusCode) -> Response<Bytes> {
    let mut response = with_detail(status, method, &format!("This request is refused: {fault}."));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn with_detail(status: StatusCode, method: &Method, detail: &str) -> Response<Bytes> {
    let problem = json!({
        "type": "about:blank",
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "detail": detail,
    });
    with_problem(status, method, problem.to_string().into_bytes())
}

fn with_problem(status: StatusCode, method: &Method, problem: Vec<u8>) -> Response<Bytes> {
    let body = if *method == Method::HEAD { Bytes::new() } else { problem.into() };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    response
}

/// The time of day.
#[expect(clippy::disallowed_methods, reason = "headers tell the time of day; nothing is decided by it")]
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
