//! A histogram that many threads write to without waiting for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// How often values fell between some bounds. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Distribution(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    bounds: &'static [f64],
    counts: Box<[AtomicU64]>, // one more than there are bounds
    billionths: AtomicU64,    // the sum of all values
}

impl Distribution {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(Counts { bounds, counts, billionths: AtomicU64::new(0) }))
    }

    /// Counts a value, which is not below zero.
    pub(crate) fn observe(&self, value: f64) {
        self.observe_each(value, 1);
    }

    /// Counts the same value several times.
    pub(crate) fn observe_each(&self, value: f64, times: u64) {
        let Counts { bounds, counts, billionths } = &*self.0;
        let place = bounds.iter().position(|&bound| value <= bound).unwrap_or(bounds.len());
        counts[place].fetch_add(times, Ordering::Relaxed);
        #[expect(clippy::cast_sign_loss, reason = "not below zero; what is too large is cut off")]
        billionths.fetch_add((value * 1e9 * times as f64) as u64, Ordering::Relaxed);
    }
}

impl EncodeMetric for Distribution {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Counts { bounds, counts, billionths } = &*self.0;
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> =
            bounds.zip(counts.iter().map(|count| count.load(Ordering::Relaxed))).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(
            billionths.load(Ordering::Relaxed) as f64 / 1e9,
            count,
            &buckets,
            None,
        )
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl TypedMetric for Distribution {
    const TYPE: MetricType = MetricType::Histogram;
}
