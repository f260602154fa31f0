//! Denied requests under another tier allocate no memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::time::Duration;

use tollgate::{Clock, Concurrency, KeyedLimiter, Mode, Nanos, Rule, SlidingCounter, SlidingLog};
use tollgate_testkit::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: u64 = 1000;

fn log(limit: u64, seconds: u64) -> SlidingLog {
    SlidingLog::new(limit, Duration::from_secs(seconds)).unwrap()
}

fn limiter(rule: impl Into<Rule>) -> KeyedLimiter {
    KeyedLimiter::builder(rule).clock(Clock::manual()).build()
}

/// Requires that denied requests under another tier allocate nothing, and that the key stays as it was.
fn assert_no_allocation(limiter: &KeyedLimiter, tier: impl Into<Rule>) {
    let tier = limiter.add_tier(tier);
    let before = limiter.ask("acme").peek();
    let denied = || assert!(!limiter.ask("acme").tier(&tier).check().is_allowed());
    denied(); // on the first request, the table gives the rule of the tier a number
    let allocations = Counting::allocations();
    for _ in 0..10 {
        denied();
        assert_eq!(limiter.ask("acme").tier(&tier).peek().remaining, 0);
    }
    assert_eq!(Counting::allocations(), allocations);
    assert_eq!(limiter.ask("acme").peek(), before);
}

#[test]
fn denial_under_another_tier_copies_no_log() {
    for (limit, seconds) in [(LIMIT, 30), (LIMIT / 2, 30), (LIMIT / 2, 90)] {
        let limiter = limiter(log(LIMIT, 60));
        for _ in 0..LIMIT {
            assert!(limiter.check("acme").is_allowed());
            limiter.clock().advance(Nanos::new(1_000_000));
        }
        assert_no_allocation(&limiter, log(limit, seconds));
    }
}

#[test]
fn denial_under_a_tier_with_a_log_builds_no_log_of_a_counter() {
    let minute = Duration::from_secs(60);
    let limiter = limiter(SlidingCounter::new(LIMIT, minute, 1, Mode::Strict).unwrap());
    assert!(limiter.ask("acme").cost(LIMIT).check().is_allowed());
    assert_no_allocation(&limiter, log(LIMIT, 60));
}

#[test]
fn denial_under_another_tier_copies_no_permits() {
    let lease = Some(Duration::from_secs(60));
    let limiter = limiter(Concurrency::new(LIMIT, lease).unwrap());
    let permits: Vec<_> = (0..LIMIT).map(|_| limiter.ask("acme").acquire().unwrap()).collect();
    assert_no_allocation(&limiter, Concurrency::new(LIMIT / 2, lease).unwrap());
    drop(permits);
}
