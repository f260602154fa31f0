//! Spans, and the queue in which they wait for their export.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, IdGenerator as _, RandomIdGenerator, SpanData, SpanEvents,
    SpanExporter, SpanLinks, SpanProcessor as _,
};
use tokio::runtime::Runtime;
use tollgate::{Clock, Limiter, Rate, Timestamp, TokenBucket};

use super::collector::Collector;
use super::metrics::export_metrics;
use super::{DecisionSpan, SpanCounts, TraceParent, Tracing};
use crate::service::Service;

/// The most requests per second that are traced. A caller chooses whether its requests are sampled, so there has to be a bound.
const MOST_TRACED: u64 = 1000;

/// The most spans that wait for their export: about 600 bytes each.
const MOST_WAITING: u64 = 4096;

/// The longest that a span waits for others to be exported with it.
const EXPORT_EVERY: Duration = Duration::from_secs(1);

/// How long the last export may take when the process ends.
const FINISH_WITHIN: Duration = Duration::from_secs(2);

/// Exports spans and metrics.
#[derive(Debug)]
pub(crate) struct Telemetry {
    settings: tollgate_policy::Telemetry,
    traced: Limiter,
    scope: InstrumentationScope,
    resource: Resource,
    processor: BatchSpanProcessor,
    counters: Arc<SpanCounters>,
    collector: Collector,
    runtime: Option<Runtime>,
    metrics: OnceLock<SdkMeterProvider>,
}

/// What became of spans.
#[derive(Debug, Default)]
struct SpanCounters {
    waiting: AtomicU64,
    exported: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

/// A span that is exported when it ends.
#[derive(Clone, Copy, Debug)]
struct Span {
    trace: TraceId,
    id: SpanId,
    parent: Option<u64>, // span
    is_remote: bool,     // the parent
}

/// A request through the gateway that is traced. Its span ends when this is dropped.
#[derive(Debug)]
pub(crate) struct GatewaySpan<'t> {
    telemetry: &'t Telemetry,
    span: Span,
    upstream: SpanId,
    began: Timestamp,
    upstream_call: Option<(Timestamp, Timestamp)>, // the last one: when it began, and when it was answered or failed
    outcome: &'static str,
    status: Option<u16>,
    clock: &'t Clock,
}

impl Telemetry {
    /// Begins to export spans. [`export_metrics`](Self::export_metrics) begins to export metrics.
    pub(crate) fn start(settings: &tollgate_policy::Telemetry) -> Result<Self, String> {
        let refused = |error: &dyn std::fmt::Display| format!("telemetry cannot be exported: {error}");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("telemetry")
            .enable_all()
            .build()
            .map_err(|error| refused(&error))?;
        let collector = Collector::new(&settings.otlp, &runtime)?;
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_http_client(collector.clone())
            .with_endpoint(format!("{}/v1/traces", settings.otlp))
            .build()
            .map_err(|error| refused(&error))?;
        let counters = Arc::<SpanCounters>::default();
        let resource = resource();
        let most_waiting = usize::try_from(MOST_WAITING).expect("a small number");
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(most_waiting)
            .with_scheduled_delay(EXPORT_EVERY)
            .build();
        let exporter = CountedExporter { exporter, counters: Arc::clone(&counters) };
        let mut processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        processor.set_resource(&resource);
        let rate = Rate::per_second(MOST_TRACED).expect("more than none");
        Ok(Self {
            settings: settings.clone(),
            traced: Limiter::new(TokenBucket::new(rate, MOST_TRACED).expect("the burst fits")),
            scope: InstrumentationScope::builder("tollgate").with_version(env!("CARGO_PKG_VERSION")).build(),
            resource,
            processor,
            counters,
            collector,
            runtime: Some(runtime),
            metrics: OnceLock::new(),
        })
    }

    /// Begins to export metrics, once.
    pub(crate) fn export_metrics(&self, service: &Arc<Service>) {
        let settings = &self.settings;
        match export_metrics(service, settings, self.collector.clone(), self.resource.clone()) {
            Ok(provider) => _ = self.metrics.set(provider),
            Err(error) => tracing::warn!("metrics are not exported: {error}"),
        }
    }

    /// What became of spans since the start.
    pub(crate) fn counts(&self) -> SpanCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let SpanCounters { exported, failed, dropped, .. } = &*self.counters;
        SpanCounts { exported: count(exported), failed: count(failed), dropped: count(dropped) }
    }

    /// Exports a decision, if its request is traced.
    pub(crate) fn add_decision<'d>(
        &self,
        tracing: Tracing,
        now: Timestamp,
        decision: impl FnOnce() -> DecisionSpan<'d>,
    ) {
        let Some(span) = self.sample(tracing, now) else { return };
        let DecisionSpan { protocol, outcome, source, limit, began, ended } = decision();
        let limit = limit.map(|limit| KeyValue::new("tollgate.limit", limit.into_owned()));
        let mut attributes = vec![
            KeyValue::new("tollgate.protocol", protocol),
            KeyValue::new("tollgate.outcome", outcome),
            KeyValue::new("tollgate.source", source),
        ];
        attributes.extend(limit);
        let kind = if span.is_remote { SpanKind::Server } else { SpanKind::Internal };
        self.add(span, "decide", kind, (began, ended), ended, attributes);
    }

    /// Begins the span of a request through the gateway, if the request is traced. `clock` is read when it ends.
    pub(crate) fn begin_gateway<'t>(
        &'t self,
        parent: Option<TraceParent>,
        began: Timestamp,
        clock: &'t Clock,
    ) -> Option<GatewaySpan<'t>> {
        let span = self.sample(Tracing::Caller(parent), began)?;
        Some(GatewaySpan {
            telemetry: self,
            span,
            upstream: RandomIdGenerator::default().new_span_id(),
            began,
            upstream_call: None,
            outcome: "gone",
            status: None,
            clock,
        })
    }

    /// Exports the last spans and metrics, within [`FINISH_WITHIN`] each. Call it at the end, and not on a worker.
    pub(crate) fn finish(&self) {
        let _ = self.processor.shutdown_with_timeout(FINISH_WITHIN);
        if let Some(metrics) = self.metrics.get() {
            let _ = metrics.shutdown_with_timeout(FINISH_WITHIN);
        }
    }

    /// The span of a request that is traced.
    fn sample(&self, tracing: Tracing, now: Timestamp) -> Option<Span> {
        let parent = match tracing {
            Tracing::Off => return None,
            Tracing::Within(parent) => Some(parent),
            Tracing::Caller(Some(parent)) if parent.is_sampled => Some(parent),
            Tracing::Caller(Some(_)) => return None,
            Tracing::Caller(None) if chance_of(self.settings.sample) => None,
            Tracing::Caller(None) => return None,
        };
        if matches!(tracing, Tracing::Caller(_)) && !self.traced.check_at(now).is_allowed() {
            return None;
        }
        let ids = RandomIdGenerator::default();
        Some(Span {
            trace: parent.map_or_else(|| ids.new_trace_id(), |parent| TraceId::from(parent.trace)),
            id: ids.new_span_id(),
            parent: parent.map(|parent| parent.span),
            is_remote: matches!(tracing, Tracing::Caller(_)),
        })
    }

    /// Puts a span into the queue, or drops it if the queue is full. `now` is the time of the engine.
    fn add(
        &self,
        span: Span,
        name: &'static str,
        kind: SpanKind,
        (began, ended): (Timestamp, Timestamp),
        now: Timestamp,
        attributes: Vec<KeyValue>,
    ) {
        let counters = &self.counters;
        if counters.waiting.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
            counters.waiting.fetch_sub(1, Ordering::Relaxed);
            counters.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "spans carry the time of day")]
        let time_of_day = SystemTime::now();
        let at = |moment: Timestamp| {
            let ago = Duration::from_nanos(now.since(moment).get());
            time_of_day.checked_sub(ago).unwrap_or(time_of_day)
        };
        let context =
            |id| SpanContext::new(span.trace, id, TraceFlags::SAMPLED, false, TraceState::default());
        self.processor.on_end(SpanData {
            span_context: context(span.id),
            parent_span_id: span.parent.map_or(SpanId::INVALID, SpanId::from),
            parent_span_is_remote: span.parent.is_some() && span.is_remote,
            span_kind: kind,
            name: Cow::Borrowed(name),
            start_time: at(began),
            end_time: at(ended),
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        });
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // A worker of one runtime must not wait for another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl GatewaySpan<'_> {
    /// The span as the parent of the decision.
    pub(crate) fn as_parent(&self) -> TraceParent {
        self.parent_of(self.span.id)
    }

    /// The trace as the application gets it: its parent is the span of the call to the application.
    pub(crate) fn for_upstream(&self) -> TraceParent {
        self.parent_of(self.upstream)
    }

    fn parent_of(&self, span: SpanId) -> TraceParent {
        let trace = u128::from_be_bytes(self.span.trace.to_bytes());
        TraceParent { trace, span: u64::from_be_bytes(span.to_bytes()), is_sampled: true }
    }

    /// Sets when the last call to the application began, and when it was answered or failed.
    pub(crate) fn set_upstream_call(&mut self, began: Timestamp, ended: Timestamp) {
        self.upstream_call = Some((began, ended));
    }

    /// Sets how the request ended. A span without this call belongs to a client that left.
    pub(crate) fn set_outcome(&mut self, outcome: &'static str, status: u16) {
        (self.outcome, self.status) = (outcome, Some(status));
    }
}

impl Drop for GatewaySpan<'_> {
    fn drop(&mut self) {
        let now = self.clock.now();
        if let Some(times) = self.upstream_call {
            let own = u64::from_be_bytes(self.span.id.to_bytes());
            let span = Span { id: self.upstream, parent: Some(own), is_remote: false, ..self.span };
            self.telemetry.add(span, "upstream", SpanKind::Client, times, now, Vec::new());
        }
        let mut attributes = vec![
            KeyValue::new("tollgate.protocol", "gateway"),
            KeyValue::new("tollgate.outcome", self.outcome),
        ];
        let status = self.status.map(|status| KeyValue::new("http.response.status_code", i64::from(status)));
        attributes.extend(status);
        self.telemetry.add(self.span, "gateway", SpanKind::Server, (self.began, now), now, attributes);
    }
}

/// An exporter that counts.
#[derive(Debug)]
struct CountedExporter {
    exporter: opentelemetry_otlp::SpanExporter,
    counters: Arc<SpanCounters>,
}

impl SpanExporter for CountedExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len() as u64;
        self.counters.waiting.fetch_sub(count, Ordering::Relaxed);
        let result = self.exporter.export(batch).await;
        let counter = if result.is_ok() { &self.counters.exported } else { &self.counters.failed };
        counter.fetch_add(count, Ordering::Relaxed);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// The resource of all exports: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, or else `tollgate`.
fn resource() -> Resource {
    let is_set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
    let has_name = is_set("OTEL_SERVICE_NAME")
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|text| text.contains("service.name="));
    let resource =
        Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if has_name { resource.build() } else { resource.with_service_name("tollgate").build() }
}

thread_local! {
    /// The state of a SplitMix64 generator.
    static RANDOM: Cell<u64> = Cell::new(getrandom::u64().unwrap_or(0));
}

/// True with this probability, in thousandths. Each thread has a generator of its own: a shared one would be a cache
/// line that all decisions write to.
fn chance_of(thousandths: u32) -> bool {
    let random = RANDOM.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    });
    // The high bits, as a part of 1000.
    ((u128::from(random) * 1000) >> 64) < u128::from(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_requests_is_traced() {
        assert!((0..1000).all(|_| chance_of(1000)));
        let traced = (0..100_000).filter(|_| chance_of(10)).count();
        assert!((700..1300).contains(&traced), "{traced} of 100 000 at one in a hundred");
    }
}
