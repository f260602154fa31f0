//! What the gateway answers by itself.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use bytes::Bytes;
use serde_json::json;
use tollgate::NoSlot;
use tollgate_policy::PROBLEM_JSON;

use super::front::BodyError;
use super::h1::Malformed;
use super::slots::Refused;
use super::upstream::CallError;

/// An answer of the gateway's own.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, detail: &str) -> Self {
        Self::with(status, json!({ "type": "about:blank" }), detail)
    }

    fn with(status: StatusCode, mut problem: serde_json::Value, detail: &str) -> Self {
        problem["title"] = status.canonical_reason().unwrap_or("Error").into();
        problem["status"] = status.as_u16().into();
        problem["detail"] = detail.into();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Self { status, headers, body: problem.to_string().into() }
    }

    /// The message is not one that can be taken.
    pub(super) fn malformed(malformed: Malformed) -> Self {
        Self::new(malformed.status, &format!("This request is refused: {}.", malformed.why))
    }

    /// Nobody could take the request in time.
    pub(super) fn no_slot(refused: Refused) -> Self {
        let detail = match refused.why {
            NoSlot::TooManyOfTenant => {
                "As many of your requests wait as may. Try again when some have been answered."
            }
            NoSlot::TooManyWaiting => "As many requests wait as may.",
            _ => "No place came free in time.",
        };
        let seconds = retry_seconds(refused.retry_after);
        let kind = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
        let problem = json!({
            "type": kind,
            "error": "overloaded",
            "message": detail,
            "retry_after": seconds,
            "retry_after_seconds": seconds,
        });
        let mut refusal = Self::with(StatusCode::SERVICE_UNAVAILABLE, problem, detail);
        refusal.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        refusal
    }

    /// The application did not answer. None where there is nobody left to tell.
    pub(super) fn not_answered(error: &CallError) -> Option<Self> {
        let (status, detail) = match error {
            CallError::Unreachable(_) => (StatusCode::BAD_GATEWAY, "The application cannot be reached."),
            CallError::Closed => (StatusCode::BAD_GATEWAY, "The application closed the connection."),
            CallError::Malformed(_) => (StatusCode::BAD_GATEWAY, "The application's answer is not HTTP."),
            CallError::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "The application did not answer in time."),
            CallError::Body(BodyError::Malformed(malformed)) => return Some(Self::malformed(*malformed)),
            CallError::Body(BodyError::TooLarge) => return Some(Self::too_large()),
            CallError::Body(BodyError::OtherLength) => {
                (StatusCode::BAD_REQUEST, "The body is not as long as its Content-Length says.")
            }
            CallError::Body(BodyError::Stalled) => {
                (StatusCode::REQUEST_TIMEOUT, "The body of the request did not come in time.")
            }
            CallError::Body(BodyError::TooSlow) => (
                StatusCode::REQUEST_TIMEOUT,
                "The body of the request came too slowly. The gateway requires a minimum average rate.",
            ),
            CallError::Body(BodyError::Gone) | CallError::Gone => return None,
        };
        Some(Self::new(status, detail))
    }

    /// The body is larger than may be.
    pub(super) fn too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "The body of the request is larger than may be.")
    }
}

/// Whole seconds, at least one.
fn retry_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}
