//! Prometheus metrics. Labels are bounded: limits, outcomes, protocols; never a key, an address or a path.

mod descriptors;
mod leases;
mod limits;
pub(crate) mod sharded;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tollgate::{DelayQueue, Nanos, Timestamp};
use tollgate_policy::{DescriptorVerdict, Engine, PolicyInForce, Source, Verdict};

use self::descriptors::{DescriptorSeries, Descriptors};
use self::leases::LeaseSeries;
pub(crate) use self::limits::{LimitMetrics, LimitTotals, RATIOS};
use self::limits::{LimitSeries, Limits};
use self::sharded::Counter;
use crate::connections::{ConnectionMetrics, Connections};
use crate::distribution::Distribution;
use crate::gateway::GatewayMetrics;
use crate::held::HeldCounts;
use crate::output;
use crate::store::Health;
use crate::telemetry::Telemetry;

/// Which surface a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are label values, as they stand")]
pub(crate) enum Protocol {
    http,
    forward_auth,
    gateway,
    grpc,
    resp,
}

const PROTOCOLS: [Protocol; 5] =
    [Protocol::http, Protocol::forward_auth, Protocol::gateway, Protocol::grpc, Protocol::resp];

impl Protocol {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::http => "http",
            Self::forward_auth => "forward_auth",
            Self::gateway => "gateway",
            Self::grpc => "grpc",
            Self::resp => "resp",
        }
    }
}

/// The decision of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(non_camel_case_types, reason = "they are label values, as they stand")]
enum Outcome {
    allow,
    deny,
    shadow_deny,
}

const OUTCOMES: [Outcome; 3] = [Outcome::allow, Outcome::deny, Outcome::shadow_deny];

impl Outcome {
    const fn as_str(self) -> &'static str {
        match self {
            Self::allow => "allow",
            Self::deny => "deny",
            Self::shadow_deny => "shadow_deny",
        }
    }
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are label values, as they stand")]
pub(crate) enum RequestOutcome {
    allow,
    deny,
    /// It was refused before the limits were asked, or the limits could not decide it.
    error,
}

const REQUEST_OUTCOMES: [RequestOutcome; 3] =
    [RequestOutcome::allow, RequestOutcome::deny, RequestOutcome::error];

impl RequestOutcome {
    #[cfg(feature = "otlp")]
    const fn as_str(self) -> &'static str {
        match self {
            Self::allow => "allow",
            Self::deny => "deny",
            Self::error => "error",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    outcome: RequestOutcome,
    protocol: Protocol,
}

/// Who decides.
const SOURCES: [Source; 5] =
    [Source::Memory, Source::Store, Source::Lease, Source::DeniedCache, Source::Fallback];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// What is known of the record.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordMetrics {
    /// Decisions that are not in it.
    pub(crate) lost: Counter,
    /// 1 while it is written.
    pub(crate) active: Gauge,
}

/// The answers to all requests since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RequestTotals {
    /// Also after a delay.
    pub(crate) allowed: u64,
    pub(crate) delayed: u64,
    pub(crate) denied: u64,
    pub(crate) errors: u64,
}

/// All that is counted.
pub(crate) struct Metrics {
    registry: Registry,
    requests: [[Counter; REQUEST_OUTCOMES.len()]; PROTOCOLS.len()],
    limits: Arc<Limits>,
    descriptors: Arc<Descriptors>,
    duration: Distribution,
    wait: Distribution,
    reloads: Family<ReloadLabels, Counter>,
    last_reload: Gauge,
    record: RecordMetrics,
    sources: [Counter; SOURCES.len()], // requests by who decided them
    pub(crate) gateway: Option<GatewayMetrics>,
}

impl Metrics {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        store: Option<&Arc<dyn Health>>,
        delay_queue: &DelayQueue,
        connections: &Arc<Connections>,
        permits: &Arc<HeldCounts>,
        telemetry: Option<&Arc<Telemetry>>,
    ) -> Self {
        let mut registry = Registry::with_prefix("tollgate");
        let by_outcome: Family<RequestLabels, Counter> = Family::default();
        registry.register("requests", "Requests, each counted once, by their answer", by_outcome.clone());
        let requests = PROTOCOLS.map(|protocol| {
            REQUEST_OUTCOMES
                .map(|outcome| by_outcome.get_or_create_owned(&RequestLabels { outcome, protocol }))
        });
        let limits = Arc::new(Limits::default());
        let clock = engine.clock().clone();
        registry.register_collector(Box::new(LimitSeries { limits: Arc::clone(&limits), clock }));
        let descriptors = Arc::new(Descriptors::default());
        registry.register_collector(Box::new(DescriptorSeries(Arc::clone(&descriptors))));
        let by_source: Family<SourceLabels, Counter> = Family::default();
        registry.register("decisions_by_source", "Requests by who decided them", by_source.clone());
        let sources =
            SOURCES.map(|source| by_source.get_or_create_owned(&SourceLabels { source: source.as_str() }));
        let duration = Distribution::new(&[1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1, 1.0]);
        registry.register("decision_duration_seconds", "How long a decision took", duration.clone());
        let wait = Distribution::new(&[1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0]);
        registry.register(
            "wait_seconds",
            "How long requests were to be held before they went on",
            wait.clone(),
        );
        let reloads = Family::default();
        registry.register("config_reloads", "Reloads of the policy file", reloads.clone());
        let last_reload = Gauge::default();
        registry.register(
            "config_last_reload_timestamp_seconds",
            "When the policy in force was loaded",
            last_reload.clone(),
        );
        let record = RecordMetrics::default();
        registry.register("record_lost", "Decisions that could not be recorded", record.lost.clone());
        registry.register("record_active", "Whether decisions are recorded", record.active.clone());
        registry.register(
            "build",
            "The version that runs",
            Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION") }),
        );
        registry.register_collector(Box::new(Table {
            engine: Arc::clone(engine),
            delay_queue: delay_queue.clone(),
            permits: Arc::clone(permits),
        }));
        registry.register_collector(Box::new(ConnectionMetrics(Arc::clone(connections))));
        if let Some(store) = store {
            registry.register_collector(Box::new(Shards(Arc::clone(store))));
            registry.register_collector(Box::new(LeaseSeries(Arc::clone(engine))));
        }
        if let Some(telemetry) = telemetry {
            registry.register_collector(Box::new(Spans(Arc::clone(telemetry))));
        }
        let gateway = engine.policy().gateway.is_some().then(|| GatewayMetrics::new(&mut registry));
        let metrics = Self {
            registry,
            requests,
            limits,
            descriptors,
            duration,
            wait,
            reloads,
            last_reload,
            record,
            sources,
            gateway,
        };
        metrics.follow(&engine.policy());
        metrics
    }

    /// Counts the limits of another policy that is in force, and forgets all others.
    pub(crate) fn follow(&self, policy: &PolicyInForce<'_>) {
        self.limits.follow(policy);
        self.descriptors.follow(policy);
    }

    /// What is counted of the limit of this number.
    pub(crate) fn limit(&self, number: usize) -> Option<Arc<LimitMetrics>> {
        self.limits.get(number)
    }

    /// All limits that have decided something, with their counts.
    pub(crate) fn limit_totals(&self) -> Vec<(Arc<LimitMetrics>, LimitTotals)> {
        self.limits.totals()
    }

    /// What rules that came with requests have allowed and denied.
    pub(crate) fn sent_totals(&self) -> [u64; 2] {
        self.limits.sent_totals()
    }

    /// The answers to all requests.
    pub(crate) fn request_totals(&self) -> RequestTotals {
        let of = |outcome: RequestOutcome| self.requests.iter().map(|of| of[outcome as usize].get()).sum();
        RequestTotals {
            allowed: of(RequestOutcome::allow),
            delayed: self.wait.counts().iter().sum(),
            denied: of(RequestOutcome::deny),
            errors: of(RequestOutcome::error),
        }
    }

    /// The answers to all requests, by protocol.
    #[cfg(feature = "otlp")]
    pub(crate) fn requests_by_protocol(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        PROTOCOLS.into_iter().zip(&self.requests).flat_map(|(protocol, counts)| {
            let of = move |(outcome, count): (RequestOutcome, &Counter)| {
                (protocol.as_str(), outcome.as_str(), count.get())
            };
            REQUEST_OUTCOMES.into_iter().zip(counts).map(of)
        })
    }

    /// Requests by who decided them.
    pub(crate) fn source_totals(&self) -> impl Iterator<Item = (Source, u64)> {
        SOURCES.into_iter().zip(self.sources.iter().map(Counter::get))
    }

    /// How long decisions took.
    pub(crate) const fn decision_duration(&self) -> &Distribution {
        &self.duration
    }

    /// How long requests were delayed.
    pub(crate) const fn delay(&self) -> &Distribution {
        &self.wait
    }

    /// Whether decisions are recorded now.
    pub(crate) fn is_recording(&self) -> bool {
        self.record.active.get() != 0
    }

    /// Drops what is gone since a reload. To be called every second, and not on a worker.
    pub(crate) fn drop_retired(&self) {
        self.limits.drop_retired();
    }

    /// Frees the memory of hot keys that are too old to be shown.
    pub(crate) fn forget_old_hot_keys(&self, now: Timestamp) {
        self.limits.forget_old_hot_keys(now);
    }

    /// Counts requests that had the same answer.
    pub(crate) fn count_requests(&self, protocol: Protocol, outcome: RequestOutcome, count: u64) {
        if count > 0 {
            self.requests[protocol as usize][outcome as usize].inc_by(count);
        }
    }

    /// Counts a request that the limits have decided.
    pub(crate) fn count_decided(&self, protocol: Protocol, is_allowed: bool) {
        let outcome = if is_allowed { RequestOutcome::allow } else { RequestOutcome::deny };
        self.count_requests(protocol, outcome, 1);
    }

    /// Counts a request that the limits have not decided.
    pub(crate) fn count_error(&self, protocol: Protocol) {
        self.count_requests(protocol, RequestOutcome::error, 1);
    }

    /// Counts how many requests were decided by whom.
    pub(crate) fn count_source(&self, source: Source, requests: u64) {
        if let Some(place) = SOURCES.iter().position(|known| *known == source) {
            self.sources[place].inc_by(requests);
        }
    }

    /// Counts the decisions of the limits of a call.
    pub(crate) fn observe(&self, verdict: &Verdict<'_>, protocol: Protocol) {
        if !verdict.delay().is_zero() {
            self.wait.observe(seconds(verdict.delay()));
        }
        self.limits.observe(verdict, protocol);
    }

    /// Counts a decision by a rule that came with the request.
    pub(crate) fn observe_sent(&self, decision: &tollgate::Decision, protocol: Protocol) {
        let allowed = u64::from(decision.is_allowed());
        self.count_sent(protocol, [allowed, 1 - allowed]);
    }

    /// Counts a descriptor of an Envoy call by its values, if its limit asks for that.
    pub(crate) fn observe_descriptor(&self, verdict: &DescriptorVerdict<'_, '_>) {
        self.descriptors.observe(verdict);
    }

    /// Counts decisions by rules that came with requests: how many allowed, and how many denied.
    pub(crate) fn count_sent(&self, protocol: Protocol, counts: [u64; 2]) {
        self.limits.count_sent(protocol, counts);
    }

    /// Counts how long decisions took together.
    pub(crate) fn took(&self, took: Nanos, decisions: u64) {
        self.duration.observe_each(seconds(took) / decisions.max(1) as f64, decisions);
    }

    /// Counts a reload, at this time of day if it succeeded.
    pub(crate) fn reloaded(&self, at: Result<Duration, ()>) {
        let result = if at.is_ok() { "success" } else { "failure" };
        self.reloads.get_or_create(&ReloadLabels { result }).inc();
        if let Ok(at) = at {
            self.last_reload.set(i64::try_from(at.as_secs()).unwrap_or(i64::MAX));
        }
    }

    /// Counts a decision that could not be recorded.
    pub(crate) fn record_lost(&self) {
        self.record.lost.inc();
    }

    /// What the recorder itself counts.
    pub(crate) fn record(&self) -> RecordMetrics {
        self.record.clone()
    }

    /// Everything, as OpenMetrics has it or as Prometheus had it before.
    pub(crate) fn encode(&self, is_openmetrics: bool) -> String {
        let mut metrics = String::new();
        text::encode(&mut metrics, &self.registry).expect("a string takes everything");
        if is_openmetrics { metrics } else { classic(&metrics) }
    }
}

/// As Prometheus wants it.
fn seconds(span: Nanos) -> f64 {
    span.get() as f64 / 1e9
}

/// The text format from before OpenMetrics: a counter's type and help carry its full name, and nothing marks the end.
fn classic(openmetrics: &str) -> String {
    let counters: Vec<&str> = openmetrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let infos: Vec<&str> =
        openmetrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" info")).collect();
    let mut classic = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let descriptor = line.strip_prefix("# ").and_then(|line| line.split_once(' '));
        let renamed = descriptor.and_then(|(kind, rest)| {
            let (name, rest) = rest.split_once(' ')?;
            let suffix = match () {
                () if counters.contains(&name) => "_total",
                () if infos.contains(&name) => "_info",
                () => return None,
            };
            let rest = if kind == "TYPE" && rest == "info" { "gauge" } else { rest };
            Some(format!("# {kind} {name}{suffix} {rest}"))
        });
        classic.push_str(renamed.as_deref().unwrap_or(line));
        classic.push('\n');
    }
    classic
}

/// What the table holds, looked up when somebody asks.
#[derive(Debug)]
struct Table {
    engine: Arc<Engine>,
    delay_queue: DelayQueue,
    permits: Arc<HeldCounts>,
}

impl Collector for Table {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stats = self.engine.stats();
        let mut gauge = |name: &str, help: &str, value: f64| {
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
        };
        gauge("keys", "Keys remembered", stats.keys as f64)?;
        gauge("table_bytes", "Bytes that keys take", stats.bytes as f64)?;
        gauge(
            "table_rules",
            "Rules that keys have or lately had, counted in each shard by itself",
            stats.rules as f64,
        )?;
        gauge(
            "tenants_set",
            "Tenants with a tier that was set by PUT /v1/tenants",
            self.engine.tiers_set() as f64,
        )?;
        let pace = self.engine.pace().map_or(1.0, tollgate::adaptive::Pace::as_f64);
        gauge("rate_multiplier", "What every rate is multiplied by while the upstream is overloaded", pace)?;
        gauge("held", "Requests that wait for the end of their delay", self.delay_queue.waiting() as f64)?;
        gauge(
            "permits",
            "Callers that hold permits of POST /v1/acquire which this process keeps",
            self.permits.held() as f64,
        )?;
        let mut counter = |name: &str, help: &str, value: u64| {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
        };
        counter(
            "log_lines_lost",
            "Log lines that could not be written to standard error",
            output::log_lines_lost(),
        )?;
        counter(
            "permits_refused",
            "Calls of POST /v1/acquire that were refused because too many permits are held",
            self.permits.refused(),
        )?;
        counter("evictions", "Keys in use that were evicted to make room", stats.evictions)?;
        counter("refused", "Requests for which there was no room in the table", stats.refused)
    }
}

/// Counts of spans by what became of them, read at each scrape.
#[derive(Debug)]
struct Spans(Arc<Telemetry>);

impl Collector for Spans {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.counts();
        let help = "Spans by what became of them: exported, failed (the collector did not accept them), dropped (the queue was full)";
        let mut spans = encoder.encode_descriptor("telemetry_spans", help, None, MetricType::Counter)?;
        let outcomes =
            [("exported", counts.exported), ("failed", counts.failed), ("dropped", counts.dropped)];
        for (outcome, count) in outcomes {
            ConstCounter::new(count).encode(spans.encode_family(&[("outcome", outcome)])?)?;
        }
        Ok(())
    }
}

/// How the servers of a shared store are, looked up when somebody asks.
#[derive(Debug)]
struct Shards(Arc<dyn Health>);

impl Collector for Shards {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let shards = self.0.shards();
        let mut up = encoder.encode_descriptor(
            "store_up",
            "Whether a server of the store answers",
            None,
            MetricType::Gauge,
        )?;
        for shard in &shards {
            let gauge = ConstGauge::new(u64::from(shard.breaker.is_up()));
            gauge.encode(up.encode_family(&[("shard", shard.name.as_str())])?)?;
        }
        let mut calls =
            encoder.encode_descriptor("store_calls", "Calls of the store", None, MetricType::Counter)?;
        for shard in &shards {
            let labels = [("shard", shard.name.as_str())];
            ConstCounter::new(shard.calls).encode(calls.encode_family(&labels)?)?;
        }
        let mut errors = encoder.encode_descriptor(
            "store_errors",
            "Calls of the store that came to nothing, by the reason",
            None,
            MetricType::Counter,
        )?;
        for shard in &shards {
            for &(kind, count) in &shard.errors {
                let labels = [("shard", shard.name.as_str()), ("kind", kind)];
                ConstCounter::new(count).encode(errors.encode_family(&labels)?)?;
            }
        }
        let mut reconnects = encoder.encode_descriptor(
            "store_reconnects",
            "How often the store had to be connected to again",
            None,
            MetricType::Counter,
        )?;
        for shard in &shards {
            let labels = [("shard", shard.name.as_str())];
            ConstCounter::new(shard.reconnects).encode(reconnects.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics(..)")
    }
}
