//! What clients are told of a decision.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use tollgate_policy::{PROBLEM_JSON, Policy, Verdict, problem};

/// Puts on an answer what a client is told of the limits.
pub fn headers(policy: &Policy, verdict: &Verdict<'_>, unix_time: Duration, onto: &mut HeaderMap) {
    for (name, value) in tollgate_policy::headers(&policy.headers, verdict, unix_time) {
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
    let body = match *method {
        Method::HEAD => Bytes::new(),
        _ => problem(verdict, status.as_u16()).into(),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    headers(policy, verdict, unix_time, response.headers_mut());
    response
}
