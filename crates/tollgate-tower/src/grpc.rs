//! Refusals as gRPC clients understand them.
//!
//! A gRPC client takes an HTTP status for a fault of the network, and does not show the body to its caller. It reads
//! `grpc-status`, which a response without a message has among its headers ("Trailers-Only").

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::Value;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

const INVALID_ARGUMENT: HeaderValue = HeaderValue::from_static("3");
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
const INTERNAL: HeaderValue = HeaderValue::from_static("13");

/// What a `grpc-message` cannot have as it is: all but printable ASCII, and what the escapes begin with.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The media type of a request, if it is one of gRPC's.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<&HeaderValue> {
    let content_type = headers.get(header::CONTENT_TYPE)?;
    let rest = content_type.as_bytes().strip_prefix(b"application/grpc")?;
    // `application/grpc+proto`, and `application/grpc-web`, which has the same answers.
    matches!(rest, [] | [b'+' | b'-' | b';' | b' ', ..]).then_some(content_type)
}

/// Turns an HTTP refusal into a gRPC refusal. Its other headers stay.
pub(crate) fn refusal(refused: Response<Bytes>, content_type: &HeaderValue) -> Response<Bytes> {
    let (mut head, problem) = refused.into_parts();
    let status = match head.status {
        StatusCode::TOO_MANY_REQUESTS => RESOURCE_EXHAUSTED,
        StatusCode::BAD_REQUEST => INVALID_ARGUMENT,
        _ => INTERNAL,
    };
    head.headers.insert(GRPC_STATUS, status);
    if let Some(message) = detail(&problem) {
        head.headers.insert(GRPC_MESSAGE, message);
    }
    head.headers.insert(header::CONTENT_TYPE, content_type.clone());
    head.status = StatusCode::OK;
    Response::from_parts(head, Bytes::new())
}

/// The `detail` of a problem body, escaped for `grpc-message`.
fn detail(problem: &[u8]) -> Option<HeaderValue> {
    let problem: Value = serde_json::from_slice(problem).ok()?;
    let escaped = utf8_percent_encode(problem.get("detail")?.as_str()?, ESCAPED).to_string();
    HeaderValue::try_from(escaped).ok()
}

#[cfg(test)]
mod tests;
