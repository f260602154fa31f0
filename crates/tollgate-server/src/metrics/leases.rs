//! Metrics of leases: what became of the units that this process has drawn from the store.

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use tollgate_policy::{Engine, LeaseStats};

/// The leases of each limit that was leased, read on each scrape.
#[derive(Debug)]
pub(super) struct LeaseSeries(pub(super) Arc<Engine>);

type Read = fn(&LeaseStats) -> u64;

const COUNTERS: [(&str, &str, Read); 5] = [
    ("lease_draws", "Draws of grants that were sent to the store", |stats| stats.draws),
    ("lease_units_drawn", "Units that the store granted to this process", |stats| stats.drawn),
    (
        "lease_units_lapsed",
        "Units that were granted to this process and were neither spent nor returned in time",
        |stats| stats.lapsed,
    ),
    ("lease_units_returned", "Granted units that this process returned to the store", |stats| stats.returned),
    (
        "lease_marks_presented",
        "Draws that showed a new primary of the store what an earlier one had charged",
        |stats| stats.presented,
    ),
];

const GAUGES: [(&str, &str, Read); 3] = [
    ("lease_keys", "Keys with a lease in this process", |stats| stats.keys),
    ("lease_units_held", "Granted units that this process holds", |stats| stats.held),
    (
        "lease_most_excess",
        "Upper bound of the excess over the limit in any span of time, for all processes",
        |stats| stats.most_excess,
    ),
];

impl Collector for LeaseSeries {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let leases = self.0.lease_stats();
        if leases.is_empty() {
            return Ok(());
        }
        for (name, help, read) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for stats in &leases {
                let labels = [("limit", stats.limit.as_str())];
                ConstCounter::new(read(stats)).encode(family.encode_family(&labels)?)?;
            }
        }
        for (name, help, read) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for stats in &leases {
                let labels = [("limit", stats.limit.as_str())];
                ConstGauge::new(read(stats)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
