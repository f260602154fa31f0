//! `max_bytes` bounds the bytes that are really allocated, whatever the keys keep.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tollgate::{
    Clock, Concurrency, KeyedLimiter, Mode, Nanos, Rate, SlidingCounter, SlidingLog, TokenBucket, WhenFull,
};
use tollgate_testkit::{Counting, Random};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MAX_BYTES: usize = 4 << 20;

#[test]
fn bytes_are_counted_and_bounded() {
    for (seed, when_full) in [WhenFull::Evict, WhenFull::Deny, WhenFull::Allow].into_iter().enumerate() {
        let minute = Duration::from_secs(60);
        let before = Counting::bytes();
        let bucket = TokenBucket::new(Rate::per_second(1).unwrap(), 100).unwrap();
        let buckets = KeyedLimiter::builder(bucket)
            .clock(Clock::manual())
            .max_bytes(MAX_BYTES)
            .when_full(when_full)
            .build();
        let logs = buckets.another(SlidingLog::new(3000, minute).unwrap());
        let counter = |buckets| SlidingCounter::new(100, minute, buckets, Mode::Strict).unwrap();
        let counters = buckets.another(counter(30));
        let flights = buckets.another(Concurrency::new(1000, None).unwrap());
        let mut random = Random::new(seed as u64);
        let mut permits = Vec::with_capacity(2000);
        let empty = Counting::bytes() - before;
        for i in 0..400_000_u64 {
            buckets.clock().advance(Nanos::new(random.log_uniform(0, 20_000_000)));
            let key = random.log_uniform(0, 100_000);
            match random.below(4) {
                0 => drop(buckets.check(&key)),
                1 => drop(logs.ask(&key).cost(random.log_uniform(0, 3000)).check()),
                2 => drop(counters.check(&key)),
                _ => {
                    if permits.len() == permits.capacity() {
                        drop(permits.swap_remove(random.below(2000) as usize));
                    }
                    permits.extend(flights.ask(&(key % 100)).acquire());
                }
            }
            // Longer and shorter rings: keys that are there are carried over all the same.
            if i.is_multiple_of(50_000) {
                counters.set_rule(counter(20 + (i / 50_000 % 2) as u32 * 10));
            }
            if i.is_multiple_of(100) {
                let (stats, really) = (buckets.stats(), Counting::bytes() - before);
                assert!(stats.bytes <= MAX_BYTES, "{stats:?} after {i}");
                assert!(really <= MAX_BYTES + empty, "{really} bytes after {i}, {stats:?}");
                // What is counted is what is out, but for the rules and the permits' own list.
                assert!(really.abs_diff(stats.bytes) <= empty + (32 << 10), "{really} of {stats:?}");
            }
        }
        let stats = buckets.stats();
        assert!(stats.bytes > MAX_BYTES / 2, "{stats:?}");
        assert!(
            if when_full == WhenFull::Evict { stats.evictions > 0 } else { stats.refused > 0 },
            "{stats:?}"
        );
    }
}
