//! Fixed window, sliding log and sliding counter against their oracles.

use std::time::Duration;

use tollgate_core::{Align, FixedWindow, Mode, SlidingCounter, SlidingLog};
use tollgate_testkit::oracle::{self, CounterMode};
use tollgate_testkit::{Random, Trace};

use super::compare::{RUNS, compare};

const MONTH: u64 = 30 * 86_400 * 1_000_000_000;
const HORIZON: u64 = 1 << 62;

/// A window that people would write, or any at all.
fn window(random: &mut Random) -> u64 {
    let second = 1_000_000_000;
    match random.below(3) {
        0 => *random.pick(&[second, 10 * second, 60 * second, 3600 * second, 86_400 * second, MONTH]),
        1 => random.log_uniform(1, 1000),
        _ => random.log_uniform(1, MONTH),
    }
}

#[test]
fn aligned_window_equals_its_oracle() {
    compare(RUNS, |seed| {
        let mut random = Random::new(seed);
        let (limit, window) = (random.log_uniform(1, 1_000_000), window(&mut random));
        let rule = FixedWindow::new(limit, Duration::from_nanos(window), Align::Epoch).unwrap();
        (rule, oracle::FixedWindow::aligned(limit, window), Trace::new(seed, window, limit), HORIZON)
    });
}

#[test]
fn anchored_window_equals_its_oracle() {
    compare(RUNS, |seed| {
        let mut random = Random::new(seed);
        let (limit, window) = (random.log_uniform(1, 1_000_000), window(&mut random));
        let rule = FixedWindow::new(limit, Duration::from_nanos(window), Align::First).unwrap();
        (rule, oracle::FixedWindow::anchored(limit, window), Trace::new(seed, window, limit), HORIZON)
    });
}

#[test]
fn window_that_counts_denied_requests_equals_its_oracle() {
    compare(RUNS, |seed| {
        let mut random = Random::new(seed);
        let (limit, window) = (random.log_uniform(1, 1_000_000), window(&mut random));
        let rule = FixedWindow::new(limit, Duration::from_nanos(window), Align::Epoch).unwrap();
        let oracle = oracle::FixedWindow::aligned(limit, window).counting_denied();
        (rule.counting_denied(), oracle, Trace::new(seed, window, limit), HORIZON)
    });
}

#[test]
fn sliding_log_equals_its_oracle() {
    compare(RUNS, |seed| {
        let mut random = Random::new(seed);
        let (limit, window) = (random.log_uniform(1, 300), window(&mut random));
        let rule = SlidingLog::new(limit, Duration::from_nanos(window)).unwrap();
        let scale = window / random.between(1, limit);
        (rule, oracle::SlidingLog::new(limit, window), Trace::new(seed, scale, limit), HORIZON)
    });
}

fn sliding_counter(runs: u64, mode: Mode, oracle_mode: CounterMode) {
    compare(runs, |seed| {
        let mut random = Random::new(seed);
        let (limit, window) = (random.log_uniform(1, 1000), window(&mut random));
        let buckets = match random.below(4) {
            0 | 1 => 1,
            2 => *random.pick(&[2, 4, 10, 60]),
            _ => random.between(1, 70),
        };
        let buckets = buckets.min(window) as u32;
        let rule = SlidingCounter::new(limit, Duration::from_nanos(window), buckets, mode).unwrap();
        let oracle = oracle::SlidingCounter::new(limit, window, buckets, oracle_mode);
        let scale = window / random.between(1, limit.min(20));
        (rule, oracle, Trace::new(seed, scale, limit), HORIZON)
    });
}

#[test]
fn interpolating_counter_equals_its_oracle() {
    sliding_counter(RUNS, Mode::Interpolate, CounterMode::Interpolate);
}

#[test]
fn strict_counter_equals_its_oracle() {
    sliding_counter(RUNS, Mode::Strict, CounterMode::Strict);
}

#[test]
fn lenient_counter_equals_its_oracle() {
    sliding_counter(RUNS, Mode::Lenient, CounterMode::Lenient);
}
