//! The HTTP responses about a decision, which the gateway, forward-auth and tower share.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use crate::engine::Verdict;
use crate::headers::headers;
use crate::policy::Policy;
use crate::problem::{PROBLEM_JSON, problem, problem_with_detail};
use crate::request_attributes::RequestFault;

/// Puts [headers] on a response. They replace headers of the same name.
pub fn put_headers(headers: Vec<(&'static str, String)>, onto: &mut HeaderMap) {
    for (name, value) in headers {
        let value = HeaderValue::try_from(value).expect("values of `headers` are printable ASCII");
        onto.insert(HeaderName::from_static(name), value);
    }
}

/// The response to a request that the limits deny.
pub fn denial_response(
    policy: &Policy,
    verdict: &Verdict<'_>,
    unix_time: Duration,
    method: &Method,
    status: StatusCode,
) -> Response<Bytes> {
    let mut response = with_body(status, denial_body(verdict, method, status));
    put_headers(headers(&policy.headers, verdict, unix_time), response.headers_mut());
    response
}

/// The body of a denial. It is empty for HEAD.
pub fn denial_body(verdict: &Verdict<'_>, method: &Method, status: StatusCode) -> Bytes {
    body(method, || problem(verdict, status.as_u16()))
}

/// The response to a request that has no attributes. Its body names the fault.
pub fn refusal_response(fault: &RequestFault, method: &Method, status: StatusCode) -> Response<Bytes> {
    let mut response = error_response(&fault.detail(), method, status);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The response to a request that is not decided, with the reason.
pub fn error_response(detail: &str, method: &Method, status: StatusCode) -> Response<Bytes> {
    with_body(status, body(method, || problem_with_detail(status, detail)))
}

/// A response to HEAD has no body (RFC 9110, section 9.3.2).
fn body(method: &Method, problem: impl FnOnce() -> Vec<u8>) -> Bytes {
    if *method == Method::HEAD { Bytes::new() } else { problem().into() }
}

fn with_body(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
    response
}

#[cfg(test)]
mod tests;
