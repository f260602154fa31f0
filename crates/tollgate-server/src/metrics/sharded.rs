//! Counts that worker threads add to without writing to the same cache line.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// The most shards. Threads beyond share them.
const MOST_SHARDS: usize = 16;

/// The number of shards: one for each processor. With more worker threads than processors, threads share shards, and the counts
/// still fit into the caches of the processors.
pub(crate) fn shard_count() -> usize {
    static COUNT: LazyLock<usize> = LazyLock::new(|| {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        processors.next_power_of_two().min(MOST_SHARDS)
    });
    *COUNT
}

/// The shard of this thread, below [`shard_count`].
pub(crate) fn own_shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = THREADS.fetch_add(1, Ordering::Relaxed) % shard_count();
    }
    SHARD.with(|shard| *shard)
}

/// Keeps the value of one thread away from the cache lines of others. Processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct OwnLines<T>(pub(crate) T);

/// A counter. Clones count together.
#[derive(Clone, Debug)]
pub(crate) struct Counter(Arc<[OwnLines<AtomicU64>]>);

impl Default for Counter {
    fn default() -> Self {
        Self((0..shard_count()).map(|_| OwnLines::default()).collect())
    }
}

impl Counter {
    pub(crate) fn inc(&self) {
        self.inc_by(1);
    }

    pub(crate) fn inc_by(&self, count: u64) {
        self.0[own_shard()].0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.iter().fold(0, |sum, shard| sum.wrapping_add(shard.0.load(Ordering::Relaxed)))
    }
}

impl EncodeMetric for Counter {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        encoder.encode_counter::<NoLabelSet, _, u64>(&self.get(), None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

impl TypedMetric for Counter {
    const TYPE: MetricType = MetricType::Counter;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_together() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * MOST_SHARDS {
                scope.spawn(|| (0..1000).for_each(|_| counter.inc()));
            }
        });
        assert_eq!(counter.get(), 2000 * MOST_SHARDS as u64);
    }

    #[test]
    fn threads_write_to_different_cache_lines() {
        let counter = Counter::default();
        let addresses: Vec<usize> =
            counter.0.iter().map(|shard| std::ptr::from_ref(shard) as usize).collect();
        assert!(addresses.windows(2).all(|pair| pair[1] - pair[0] >= 128), "{addresses:?}");
        assert!(addresses.iter().all(|address| address % 128 == 0), "{addresses:?}");
    }
}
