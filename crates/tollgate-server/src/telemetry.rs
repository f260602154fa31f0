//! Traces and metrics for an OpenTelemetry collector.
//!
//! A request that is traced gives a span for each decision, and requests through the gateway also have a span for themselves and one for
//! the application. Spans carry limit, outcome, protocol and source; never a key, a header, a path or an address. Requests never wait
//! for an export: spans that find the queue full are dropped and counted.

#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod metrics;
#[cfg(feature = "otlp")]
mod otlp;
mod trace_parent;
#[cfg(not(feature = "otlp"))]
mod without_otlp;

use std::borrow::Cow;

use tollgate::Timestamp;
use tollgate_policy::Policy;

#[cfg(feature = "otlp")]
pub(crate) use self::otlp::{GatewaySpan, Telemetry};
pub(crate) use self::trace_parent::{TRACEPARENT, TRACESTATE, TraceParent};
#[cfg(not(feature = "otlp"))]
pub(crate) use self::without_otlp::{GatewaySpan, Telemetry};

/// Which decisions of a call are exported as spans.
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nothing is exported"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tracing {
    /// The decisions of a request whose caller sent this trace. Whether it is sampled decides. A share of the requests without a
    /// trace get one.
    Caller(Option<TraceParent>),
    /// All decisions, as children of this span.
    Within(TraceParent),
    /// None.
    Off,
}

impl Tracing {
    /// The trace that a caller sent in its headers.
    pub(crate) fn of_headers(headers: &axum::http::HeaderMap) -> Self {
        Self::Caller(TraceParent::of(headers.get_all(TRACEPARENT).iter().map(|value| value.as_bytes())))
    }
}

/// A decision, as its span has it.
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nothing is exported"))]
#[derive(Debug)]
pub(crate) struct DecisionSpan<'d> {
    pub(crate) protocol: &'static str,
    pub(crate) outcome: &'static str,
    pub(crate) source: &'static str,
    /// The limit that denied, or else the one with the least left.
    pub(crate) limit: Option<Cow<'d, str>>,
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
}

/// What became of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpanCounts {
    /// The collector accepted them.
    pub(crate) exported: u64,
    /// The collector did not accept them.
    pub(crate) failed: u64,
    /// The queue was full.
    pub(crate) dropped: u64,
}

/// Refuses a policy with `telemetry:` in a build that cannot export.
pub(crate) fn require_support(policy: &Policy) -> Result<(), String> {
    match policy.telemetry.is_some() && cfg!(not(feature = "otlp")) {
        true => {
            Err("`telemetry:` needs the cargo feature `otlp`, which this build of tollgate does not have: \
                     build it with `--features otlp`, or remove `telemetry:` from the policy"
                .to_owned())
        }
        false => Ok(()),
    }
}
