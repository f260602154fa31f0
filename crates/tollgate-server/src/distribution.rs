//! A histogram that many threads write to without waiting for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::metrics::sharded::{OwnLines, own_shard, shard_count};

/// How often values fell between some bounds. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    bounds: &'static [f64],
    shards: Arc<[OwnLines<Counts>]>,
}

/// The most bounds. The counts and the sum of a shard then take two cache lines.
const MOST_BOUNDS: usize = 14;

#[derive(Debug, Default)]
struct Counts {
    counts: [AtomicU64; MOST_BOUNDS + 1], // one more than there are bounds
    billionths: AtomicU64,                // the sum of all values
}

impl Distribution {
    /// A value above the last of the bounds, or above the 14th, is counted as larger than all of them.
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let bounds = &bounds[..bounds.len().min(MOST_BOUNDS)];
        Self { bounds, shards: (0..shard_count()).map(|_| OwnLines::default()).collect() }
    }

    /// Counts a value, which is not below zero.
    pub(crate) fn observe(&self, value: f64) {
        self.observe_each(value, 1);
    }

    /// Counts the same value several times.
    pub(crate) fn observe_each(&self, value: f64, times: u64) {
        let OwnLines(Counts { counts, billionths }) = &self.shards[own_shard()];
        let place = self.bounds.iter().position(|&bound| value <= bound).unwrap_or(self.bounds.len());
        counts[place].fetch_add(times, Ordering::Relaxed);
        #[expect(clippy::cast_sign_loss, reason = "not below zero; what is too large is cut off")]
        billionths.fetch_add((value * 1e9 * times as f64) as u64, Ordering::Relaxed);
    }

    fn sum(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(of(&shard.0).load(Ordering::Relaxed)))
    }
}

impl EncodeMetric for Distribution {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds
            .enumerate()
            .map(|(place, bound)| (bound, self.sum(|counts| &counts.counts[place])))
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.sum(|counts| &counts.billionths) as f64 / 1e9;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}
