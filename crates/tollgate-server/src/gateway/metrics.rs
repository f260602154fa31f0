//! What is counted of the gateway.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use serde::Serialize;
use tollgate::{Nanos, NoSlot};

use super::behind::Behind;
use super::slots::{SlotTime, SlotsView};
use super::upstream::CallError;
use crate::distribution::{Distribution, Recent};
use crate::metrics::sharded::Counter;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are label values, as they stand")]
pub(super) enum Ended {
    /// The application answered.
    forwarded,
    /// A limit denied it.
    denied,
    /// There was no slot in time.
    no_slot,
    /// It was no request that could be taken.
    refused,
    /// The application did not answer.
    failed,
    /// The client left.
    gone,
}

const ENDED: [Ended; 6] =
    [Ended::forwarded, Ended::denied, Ended::no_slot, Ended::refused, Ended::failed, Ended::gone];

impl Ended {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::forwarded => "forwarded",
            Self::denied => "denied",
            Self::no_slot => "no_slot",
            Self::refused => "refused",
            Self::failed => "failed",
            Self::gone => "gone",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndedLabels {
    outcome: Ended,
}

/// Why the application did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are label values, as they stand")]
pub(super) enum UpstreamError {
    unreachable,
    closed,
    timeout,
    malformed,
}

const UPSTREAM_ERRORS: [UpstreamError; 4] =
    [UpstreamError::unreachable, UpstreamError::closed, UpstreamError::timeout, UpstreamError::malformed];

impl UpstreamError {
    /// None where it is not the application's fault.
    pub(super) const fn of(error: &CallError) -> Option<Self> {
        Some(match error {
            CallError::Unreachable(_) => Self::unreachable,
            CallError::Closed => Self::closed,
            CallError::TimedOut => Self::timeout,
            CallError::Malformed(_) => Self::malformed,
            CallError::Body(_) | CallError::Gone => return None,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    kind: UpstreamError,
}

/// Why a request got no slot: the bound of the gateway or the key of the policy that refused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are label values, as they stand")]
enum NoSlotReason {
    queue_full,
    per_key,
    max_wait,
}

const NO_SLOT_REASONS: [NoSlotReason; 3] =
    [NoSlotReason::queue_full, NoSlotReason::per_key, NoSlotReason::max_wait];

impl NoSlotReason {
    const fn of(why: NoSlot) -> Self {
        match why {
            NoSlot::TooManyWaiting => Self::queue_full,
            NoSlot::TooManyOfTenant => Self::per_key,
            _ => Self::max_wait,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NoSlotLabels {
    reason: NoSlotReason,
}

/// What a client did too slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "they are label values, as they stand")]
pub(super) enum SlowClient {
    upload,
    download,
}

const SLOW_CLIENTS: [SlowClient; 2] = [SlowClient::upload, SlowClient::download];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SlowClientLabels {
    direction: SlowClient,
}

/// What is counted. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct GatewayMetrics {
    ended: [Counter; ENDED.len()],
    errors: [Counter; UPSTREAM_ERRORS.len()],
    no_slot: [Counter; NO_SLOT_REASONS.len()],
    slow_clients: [Counter; SLOW_CLIENTS.len()],
    answered: Distribution,
    queued: Distribution,
    watched: Arc<ArcSwapOption<Behind>>, // looked at when somebody asks
}

impl GatewayMetrics {
    /// How all requests ended.
    #[cfg(feature = "otlp")]
    pub(crate) fn ended_totals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ENDED.into_iter().zip(&self.ended).map(|(ended, count)| (ended.as_str(), count.get()))
    }

    pub(crate) fn new(registry: &mut Registry) -> Self {
        let ended: Family<EndedLabels, Counter> = Family::default();
        registry.register(
            "gateway_requests",
            "Requests through the gateway, by how they ended",
            ended.clone(),
        );
        let errors: Family<ErrorLabels, Counter> = Family::default();
        registry.register("upstream_errors", "Requests that the application did not answer", errors.clone());
        let no_slot: Family<NoSlotLabels, Counter> = Family::default();
        registry.register(
            "queue_refused",
            "Requests that got no slot: too many waited (queue_full), too many of their tenant waited (per_key), or they waited too long (max_wait)",
            no_slot.clone(),
        );
        let slow_clients: Family<SlowClientLabels, Counter> = Family::default();
        registry.register(
            "gateway_slow_clients",
            "Requests that were ended because their client sent or read too slowly",
            slow_clients.clone(),
        );
        let answered = Distribution::new(&[
            1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 2e-1, 5e-1, 1.0, 2.0, 5.0, 10.0, 30.0,
        ]);
        registry.register(
            "upstream_duration_seconds",
            "How long the application took to begin its answer",
            answered.clone(),
        );
        let queued =
            Distribution::new(&[1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 2e-1, 5e-1, 1.0, 2.0, 5.0]);
        registry.register("queue_wait_seconds", "How long requests waited for a slot", queued.clone());
        let watched = Arc::new(ArcSwapOption::empty());
        registry.register_collector(Box::new(Watch(Arc::clone(&watched))));
        Self {
            ended: ENDED.map(|outcome| ended.get_or_create_owned(&EndedLabels { outcome })),
            errors: UPSTREAM_ERRORS.map(|kind| errors.get_or_create_owned(&ErrorLabels { kind })),
            no_slot: NO_SLOT_REASONS.map(|reason| no_slot.get_or_create_owned(&NoSlotLabels { reason })),
            slow_clients: SLOW_CLIENTS
                .map(|direction| slow_clients.get_or_create_owned(&SlowClientLabels { direction })),
            answered,
            queued,
            watched,
        }
    }

    /// How long the application took to begin its answers.
    pub(crate) const fn upstream_durations(&self) -> &Distribution {
        &self.answered
    }

    /// How long requests waited for a slot.
    pub(crate) const fn queue_waits(&self) -> &Distribution {
        &self.queued
    }

    /// The present state of the gateway. None before it has started.
    pub(crate) fn view(&self, durations: &Recent, waits: &Recent) -> Option<GatewayView> {
        let watched = self.watched.load_full()?;
        let now = watched.clock.now();
        let upstream = |upstream: &super::upstream::Upstream| UpstreamView {
            name: upstream.authority.clone(),
            in_flight: upstream.in_flight(),
            is_up: upstream.is_well(now),
        };
        let [duration_p50, duration_p99] = quantiles(durations, &self.answered, [0.5, 0.99]);
        let [wait_p50, wait_p95] = quantiles(waits, &self.queued, [0.5, 0.95]);
        Some(GatewayView {
            slots: watched.slots.as_ref().map(|slots| slots.view()),
            upstreams: watched.upstreams.iter().map(upstream).collect(),
            ended: ENDED.map(|outcome| (outcome.as_str(), self.ended[outcome as usize].get())).into(),
            duration_p50,
            duration_p99,
            wait_p50,
            wait_p95,
        })
    }

    /// The tenants that had slots of the application for the longest time. None without a fair queue.
    pub(crate) fn slot_time(&self, most: usize) -> Option<SlotTime> {
        self.watched.load_full()?.slots.as_ref()?.slot_time(most)
    }

    /// Lets this be looked at.
    pub(super) fn watch(&self, behind: Arc<Behind>) {
        self.watched.store(Some(behind));
    }

    pub(super) fn ended(&self, ended: Ended) {
        self.ended[ended as usize].inc();
    }

    pub(super) fn got_no_slot(&self, why: NoSlot) {
        self.no_slot[NoSlotReason::of(why) as usize].inc();
    }

    pub(super) fn upstream_failed(&self, error: UpstreamError) {
        self.errors[error as usize].inc();
    }

    pub(super) fn slow_client(&self, direction: SlowClient) {
        self.slow_clients[direction as usize].inc();
    }

    pub(super) fn upstream_answered(&self, after: Nanos) {
        self.answered.observe(after.get() as f64 / 1e9);
    }

    pub(super) fn queued(&self, time: Nanos) {
        self.queued.observe(time.get() as f64 / 1e9);
    }
}

fn quantiles<const N: usize>(
    recent: &Recent,
    distribution: &Distribution,
    parts: [f64; N],
) -> [Option<f64>; N] {
    match recent.quantiles(distribution, parts) {
        Some(values) => values.map(Some),
        None => [None; N],
    }
}

/// The state of the gateway. Quantiles are of the last 10 to 15 seconds, in seconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GatewayView {
    slots: Option<SlotsView>,
    upstreams: Vec<UpstreamView>,
    ended: BTreeMap<&'static str, u64>, // requests so far
    duration_p50: Option<f64>,          // of the application, to the beginning of its answer
    duration_p99: Option<f64>,
    wait_p50: Option<f64>, // for a slot
    wait_p95: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct UpstreamView {
    name: String,
    in_flight: usize,
    is_up: bool,
}

#[derive(Debug)]
struct Watch(Arc<ArcSwapOption<Behind>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamLabels {
    upstream: String,
}

impl Collector for Watch {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(watched) = self.0.load_full() else { return Ok(()) };
        let mut gauge = |name: &str, help: &str, value: i64| {
            let gauge = ConstGauge::new(value);
            let descriptor =
                encoder.encode_descriptor(name, help, None, EncodeMetric::metric_type(&gauge))?;
            gauge.encode(descriptor)
        };
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        if let Some(slots) = &watched.slots {
            gauge("inflight", "Slots of the application in use", number(slots.in_use() as u64))?;
            gauge("limit_current", "Slots of the application", number(slots.limit()))?;
            gauge("queue_length", "Requests that wait for a slot", number(slots.waiting() as u64))?;
        }
        let now = watched.clock.now();
        let each = |name: &str,
                    help: &str,
                    encoder: &mut DescriptorEncoder<'_>,
                    of: &dyn Fn(&super::upstream::Upstream) -> i64| {
            let mut family =
                encoder.encode_descriptor(name, help, None, prometheus_client::metrics::MetricType::Gauge)?;
            for upstream in watched.upstreams.iter() {
                let labels = UpstreamLabels { upstream: upstream.authority.clone() };
                ConstGauge::new(of(upstream)).encode(family.encode_family(&labels)?)?;
            }
            Ok::<(), std::fmt::Error>(())
        };
        each("upstream_inflight", "Requests that are there", &mut encoder, &|upstream| {
            number(upstream.in_flight() as u64)
        })?;
        each(
            "upstream_up",
            "1 while it is asked, 0 while it is left alone because it fails",
            &mut encoder,
            &|upstream| i64::from(upstream.is_well(now)),
        )
    }
}
