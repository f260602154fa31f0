//! Rows about the library alone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tollgate::{Clock, Concurrency, FairSemaphore, KeyedLimiter, Nanos, Rate, SlidingLog, TokenBucket};
use tollgate_core::{FairQueue, Request, Weight};
use tollgate_testkit::{Random, StallWatch};

use crate::measure::{cpu_of, cpu_per_call, nanos_since, now, thread_cpu, thread_waits};
use crate::{Report, grouped};

pub(crate) fn permits(report: &mut Report) {
    for count in [100, 10_000, 100_000] {
        let limiter = KeyedLimiter::new(Concurrency::new(1_000_000, None).expect("valid"));
        let held: Vec<_> =
            (0..count).map(|_| limiter.ask("acme").acquire().expect("there is room")).collect();
        let nanos = cpu_per_call(Duration::from_millis(50), || {
            drop(limiter.ask("acme").acquire().expect("there is room"));
        });
        report.add(
            "permits of one key: acquire and release",
            grouped(count),
            nanos / 1000.0,
            "us CPU per pair",
            "O(log n)",
        );
        std::mem::forget(held); // a release of each would take as long again
    }
}

pub(crate) fn expired_keys(report: &mut Report) {
    for count in [10_000_u64, 100_000, 1_000_000] {
        let rule = TokenBucket::new(Rate::per_second(1).expect("valid"), 5).expect("valid");
        let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
        for key in 0..count {
            let _ = limiter.check(&key);
        }
        limiter.clock().advance(Duration::from_secs(3600));
        let mut random = Random::new(1);
        for _ in 0..16 * count {
            let _ = limiter.check(&random.below(1000));
            limiter.clock().advance(Nanos::new(1_000_000));
        }
        let what = "keys that expired: left after 16 checks per key, all of 1 000 known keys";
        report.add(what, grouped(count), limiter.stats().keys as f64, "keys", "any check reclaims");
        limiter.sweep(4 * count as usize);
        let what = "keys that expired: left after a sweep";
        report.add(what, grouped(count), limiter.stats().keys as f64, "keys", "1 000");
    }
}

pub(crate) fn changed_log(report: &mut Report) {
    for is_tier in [false, true] {
        for count in [1000, 100_000, 1_000_000] {
            let limiter = full_log(count);
            let smaller = log(count / 2, Duration::from_secs(43_200));
            let tier = limiter.add_tier(smaller);
            if !is_tier {
                limiter.set_rule(smaller);
            }
            let denied = || {
                let request = limiter.ask("acme");
                let request = if is_tier { request.tier(&tier) } else { request };
                assert!(!request.check().is_allowed());
            };
            let change = if is_tier { "is asked for under another tier" } else { "has other numbers now" };
            let (first, ()) = cpu_of(denied);
            let what = format!("a full log that {change}: the first denied request");
            report.add(what, grouped(count), first / 1000.0, "us CPU", "");
            let each = cpu_per_call(Duration::from_millis(50), denied);
            let what = format!("a full log that {change}: each later denied request");
            let wanted = if is_tier { "O(log n)" } else { "converted once" };
            report.add(what, grouped(count), each / 1000.0, "us CPU", wanted);
        }
    }
}

fn log(limit: u64, window: Duration) -> SlidingLog {
    SlidingLog::new(limit, window).expect("valid")
}

/// A limiter with a key that has used up its log of this many entries.
fn full_log(count: u64) -> KeyedLimiter {
    let limiter =
        KeyedLimiter::builder(log(count, Duration::from_secs(86_400))).clock(Clock::manual()).build();
    for _ in 0..count {
        assert!(limiter.check("acme").is_allowed());
        limiter.clock().advance(Nanos::new(1_000_000));
    }
    limiter
}

pub(crate) fn fair_queue(report: &mut Report) {
    let request = || Request { weight: Weight::ONE, cost: 1, deadline: None, item: () };
    for count in [5_000_usize, 50_000, 500_000] {
        let mut queue = FairQueue::new(0, count, count);
        let mut tickets: Vec<_> = (0..count).map(|_| queue.push("acme", request()).expect("room")).collect();
        shuffle(&mut tickets);
        tickets.truncate(2000);
        let leaving = tickets.len() as f64;
        let (nanos, ()) = cpu_of(|| {
            tickets.drain(..).for_each(|ticket| assert!(queue.cancel(&"acme", ticket).is_some()));
        });
        let what = "fair queue: one waiter leaves";
        report.add(what, grouped(count), nanos / leaving / 1000.0, "us CPU", "O(log n)");
    }
    for count in [500_usize, 5_000, 50_000] {
        let semaphore = FairSemaphore::builder(1).max_waiting(count).max_waiting_each(count).build();
        let slot = semaphore.try_acquire("other", 1).expect("it is free");
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting: Vec<Pin<Box<dyn Future<Output = _>>>> = Vec::new();
        for _ in 0..count {
            let mut place: Pin<Box<dyn Future<Output = _>>> = Box::pin(semaphore.acquire("acme", 1));
            assert!(place.as_mut().poll(&mut context).is_pending());
            waiting.push(place);
        }
        shuffle(&mut waiting);
        let (nanos, ()) = cpu_of(|| drop(waiting));
        let what = "fair queue: all waiters hang up at once";
        report.add(what, grouped(count), nanos / 1e6, "ms CPU in all", "O(n log n)");
        drop(slot);
    }
}

fn shuffle<T>(items: &mut [T]) {
    let mut random = Random::new(7);
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

pub(crate) fn slowest_insert(report: &mut Report) {
    for count in [200_000_u64, 1_000_000, 5_000_000] {
        let rule = TokenBucket::new(Rate::per_hour(10).expect("valid"), 100).expect("valid");
        let limiter = KeyedLimiter::new(rule);
        let watch = StallWatch::start();
        let (mut wall, mut cpu, mut waits) = (0, 0, thread_waits());
        for key in 0..count {
            if key.is_multiple_of(1000) {
                waits = thread_waits();
            }
            let (begin, begin_cpu) = (now(), thread_cpu());
            let _ = limiter.check(&key);
            cpu = cpu.max(thread_cpu() - begin_cpu);
            let took = nanos_since(begin);
            if took > wall {
                let waited = thread_waits() - waits; // since at most 1000 inserts, few of which have to wait
                wall = wall.max(took.saturating_sub(waited));
            }
        }
        let stalls = watch.stop().worst.as_nanos() as f64;
        let (what, size) = ("a table that grows", grouped(count));
        let touched = limiter.stats().most_touched as f64;
        report.add(format!("{what}: most slots touched by one insert"), &size, touched, "slots", "1 650");
        report.add(format!("{what}: slowest insert, processor time"), &size, cpu as f64 / 1e6, "ms CPU", "1");
        let what = format!("{what}: slowest insert, wall time without waits for a core");
        report.add(what, &size, wall as f64 / 1e6, "ms", "1");
        report.add("peer: the machine's longest stall during these inserts", &size, stalls / 1e6, "ms", "");
    }
}
