//! Metrics for the collector: the counters that `/metrics` shows, read when they are exported.
//!
//! They follow the metrics of ASP.NET's limiter, the only limiter for which OpenTelemetry defines names.

use std::sync::{Arc, Weak};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, MeterProvider as _};
use opentelemetry_otlp::{MetricExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{Instrument, PeriodicReader, SdkMeterProvider, Stream};
use tollgate_policy::Telemetry;

use super::collector::Collector;
use crate::service::Service;

/// The most series of one metric: 10 000 limits with three outcomes.
const MOST_SERIES: usize = 30_000;

/// Begins to export metrics.
pub(super) fn export_metrics(
    service: &Arc<Service>,
    settings: &Telemetry,
    collector: Collector,
    resource: Resource,
) -> Result<SdkMeterProvider, String> {
    let exporter = MetricExporter::builder()
        .with_http()
        .with_http_client(collector)
        .with_endpoint(format!("{}/v1/metrics", settings.otlp))
        .build()
        .map_err(|error| error.to_string())?;
    let reader = PeriodicReader::builder(exporter).with_interval(settings.interval).build();
    let series = |_: &Instrument| Stream::builder().with_cardinality_limit(MOST_SERIES).build().ok();
    let provider =
        SdkMeterProvider::builder().with_reader(reader).with_resource(resource).with_view(series).build();
    add_instruments(&provider, service);
    Ok(provider)
}

fn add_instruments(provider: &SdkMeterProvider, service: &Arc<Service>) {
    let meter = provider.meter("tollgate");
    let counter = |name: &'static str, unit: &'static str, description: &'static str, read: Read<u64>| {
        let service = Arc::downgrade(service);
        meter
            .u64_observable_counter(name)
            .with_unit(unit)
            .with_description(description)
            .with_callback(move |observer| observe(&service, observer, read))
            .build();
    };
    counter("tollgate.requests", "{request}", "Requests by their answer.", |service, observe| {
        for (protocol, outcome, count) in service.metrics.requests_by_protocol() {
            observe(
                count,
                &[KeyValue::new("tollgate.protocol", protocol), KeyValue::new("tollgate.outcome", outcome)],
            );
        }
    });
    counter("tollgate.decisions", "{decision}", "Decisions of each limit.", |service, observe| {
        for (limit, totals) in service.metrics.limit_totals() {
            let denied = if limit.is_shadow() { "shadow_deny" } else { "deny" };
            for (outcome, count) in [("allow", totals.allowed), (denied, totals.denied)] {
                let name = KeyValue::new("tollgate.limit", limit.name().to_owned());
                observe(count, &[name, KeyValue::new("tollgate.outcome", outcome)]);
            }
        }
    });
    counter(
        "tollgate.requests.by_source",
        "{request}",
        "Requests by what decided them.",
        |service, observe| {
            for (source, count) in service.metrics.source_totals() {
                observe(count, &[KeyValue::new("tollgate.source", source.as_str())]);
            }
        },
    );
    counter("tollgate.gateway.requests", "{request}", "Requests through the gateway.", |service, observe| {
        for (outcome, count) in service.metrics.gateway.iter().flat_map(|gateway| gateway.ended_totals()) {
            observe(count, &[KeyValue::new("tollgate.outcome", outcome)]);
        }
    });
    counter("tollgate.evictions", "{key}", "Keys in use that were evicted.", |service, observe| {
        observe(service.engine.stats().evictions, &[]);
    });
    let gauge = |name: &'static str, unit: &'static str, description: &'static str, read: Read<f64>| {
        let service = Arc::downgrade(service);
        meter
            .f64_observable_gauge(name)
            .with_unit(unit)
            .with_description(description)
            .with_callback(move |observer| observe(&service, observer, read))
            .build();
    };
    gauge("tollgate.keys", "{key}", "Keys in the table.", |service, observe| {
        observe(service.engine.stats().keys as f64, &[]);
    });
    gauge(
        "tollgate.queued_requests",
        "{request}",
        "Requests that wait for the end of their delay.",
        |service, observe| {
            observe(service.delay_queue.waiting() as f64, &[]);
        },
    );
    gauge("tollgate.rate_multiplier", "1", "The factor on every rate.", |service, observe| {
        observe(service.engine.pace().map_or(1.0, tollgate::adaptive::Pace::as_f64), &[]);
    });
}

/// Reads values of the service, and passes each with its attributes.
type Read<T> = fn(&Service, &mut dyn FnMut(T, &[KeyValue]));

fn observe<T>(service: &Weak<Service>, observer: &dyn AsyncInstrument<T>, read: Read<T>) {
    if let Some(service) = service.upgrade() {
        read(&service, &mut |value, attributes| observer.observe(value, attributes));
    }
}
