//! Replaces telemetry in a build without the cargo feature `otlp`. These types have no values.

use std::sync::Arc;

use tollgate::{Clock, Timestamp};

use super::{DecisionSpan, TraceParent, Tracing};
use crate::service::Service;

/// Telemetry that does not exist.
#[derive(Debug)]
pub(crate) enum Telemetry {}

/// A span that does not exist.
#[derive(Debug)]
pub(crate) struct GatewaySpan<'t>(&'t Telemetry);

impl Telemetry {
    pub(crate) fn start(_: &tollgate_policy::Telemetry) -> Result<Self, String> {
        Err("this build has no telemetry".to_owned())
    }

    pub(crate) fn export_metrics(&self, _: &Arc<Service>) {
        match *self {}
    }

    pub(crate) fn counts(&self) -> super::SpanCounts {
        match *self {}
    }

    pub(crate) fn add_decision<'d>(&self, _: Tracing, _: Timestamp, _: impl FnOnce() -> DecisionSpan<'d>) {
        match *self {}
    }

    pub(crate) fn begin_gateway<'t>(
        &'t self,
        _: Option<TraceParent>,
        _: Timestamp,
        _: &'t Clock,
    ) -> Option<GatewaySpan<'t>> {
        match *self {}
    }

    pub(crate) fn finish(&self) {
        match *self {}
    }
}

impl GatewaySpan<'_> {
    pub(crate) fn as_parent(&self) -> TraceParent {
        match *self.0 {}
    }

    pub(crate) fn for_upstream(&self) -> TraceParent {
        match *self.0 {}
    }

    pub(crate) fn set_upstream_call(&mut self, _: Timestamp, _: Timestamp) {
        match *self.0 {}
    }

    pub(crate) fn set_outcome(&mut self, _: &'static str, _: u16) {
        match *self.0 {}
    }
}
