//! A histogram that many threads write to without waiting for each other.

use std::collections::VecDeque;
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

    /// How many values were within each bound and above the one before, and above all bounds.
    pub(crate) fn counts(&self) -> Vec<u64> {
        (0..=self.bounds.len()).map(|place| self.sum(|counts| &counts.counts[place])).collect()
    }

    fn sum(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.wrapping_add(of(&shard.0).load(Ordering::Relaxed)))
    }
}

/// The counts of a distribution in the last steps, for quantiles of what happened lately.
#[derive(Debug, Default)]
pub(crate) struct Recent(VecDeque<Vec<u64>>);

/// The steps before the present one.
const RECENT_STEPS: usize = 3;

impl Recent {
    /// Ends a step.
    pub(crate) fn add(&mut self, distribution: &Distribution) {
        if self.0.len() >= RECENT_STEPS {
            self.0.pop_front();
        }
        self.0.push_back(distribution.counts());
    }

    /// Quantiles of the values since the first of the last steps. None without a value.
    pub(crate) fn quantiles<const N: usize>(
        &self,
        distribution: &Distribution,
        parts: [f64; N],
    ) -> Option<[f64; N]> {
        let mut counts = distribution.counts();
        if let Some(before) = self.0.front() {
            counts.iter_mut().zip(before).for_each(|(count, before)| *count = count.saturating_sub(*before));
        }
        let values = parts.map(|part| quantile(distribution.bounds, &counts, part));
        values.iter().all(Option::is_some).then(|| values.map(Option::unwrap_or_default))
    }
}

/// The value below which a part of all values lies, such as 0.5 for the median: linear between two bounds, from 0 on. Values above
/// all bounds count as the last bound. None without values.
pub(crate) fn quantile(bounds: &[f64], counts: &[u64], part: f64) -> Option<f64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let (wanted, mut below, mut lower) = (part * total as f64, 0.0, 0.0);
    for (&bound, &count) in bounds.iter().zip(counts) {
        let count = count as f64;
        if count > 0.0 && below + count >= wanted {
            return Some(lower + (bound - lower) * ((wanted - below) / count).clamp(0.0, 1.0));
        }
        (below, lower) = (below + count, bound);
    }
    bounds.last().copied()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_the_bounds_of_its_values() {
        let bounds = [1.0, 2.0, 4.0];
        assert_eq!(quantile(&bounds, &[0, 0, 0, 0], 0.5), None);
        assert_eq!(quantile(&bounds, &[0, 10, 0, 0], 0.5), Some(1.5));
        assert_eq!(quantile(&bounds, &[5, 5, 0, 0], 0.5), Some(1.0));
        assert_eq!(quantile(&bounds, &[5, 0, 5, 0], 0.95), Some(3.8));
        assert_eq!(quantile(&bounds, &[0, 0, 0, 3], 0.5), Some(4.0));
        assert_eq!(quantile(&[0.0, 1.0], &[7, 0, 0], 0.99), Some(0.0));
    }
}
