//! Random rules of every algorithm, for what must hold of all of them.

use std::time::Duration;

use tollgate_core::{
    Align, BurstCredits, FixedWindow, LeakyBucket, MaxWait, Mode, Rate, Rule, SlidingCounter, SlidingLog,
    TokenBucket,
};
use tollgate_testkit::Random;

const SECOND: u64 = 1_000_000_000;

/// How many kinds [`random_rule`] makes.
pub(crate) const KINDS: u64 = 10;

/// A rule of one kind with random numbers, and its time scale in nanoseconds.
pub(crate) fn random_rule(kind: u64, random: &mut Random) -> (Rule, u64) {
    let capacity = random.log_uniform(1, 60);
    let span = random.log_uniform(1, 100 * SECOND);
    let (rate, interval) = rate(random);
    let window = Duration::from_nanos(span);
    let scale = span / random.between(1, capacity);
    let token_bucket = TokenBucket::new(rate, capacity).unwrap();
    let leaky_bucket = LeakyBucket::new(rate, capacity).unwrap();
    let max_wait = Duration::from_nanos(random.log_uniform(1, 8 * interval.max(1)));
    let max_waiting = random.between(1, 6) as u32;
    let counter =
        |mode| Rule::SlidingCounter(SlidingCounter::new(capacity, window, buckets(span), mode).unwrap());
    match kind {
        0 => (Rule::TokenBucket(token_bucket), interval),
        1 => (Rule::LeakyBucket(leaky_bucket), interval),
        2 => (Rule::TokenBucketMaxWait(MaxWait::new(token_bucket, max_wait, max_waiting).unwrap()), interval),
        3 => (Rule::LeakyBucketMaxWait(MaxWait::new(leaky_bucket, max_wait, max_waiting).unwrap()), interval),
        4 => {
            let align = *random.pick(&[Align::Epoch, Align::First]);
            (Rule::FixedWindow(FixedWindow::new(capacity, window, align).unwrap()), scale)
        }
        5 => (Rule::SlidingLog(SlidingLog::new(capacity, window).unwrap()), scale),
        6 => (counter(Mode::Interpolate), scale),
        7 => (counter(Mode::Strict), scale),
        8 => (counter(Mode::Lenient), scale),
        9 => {
            let peak = Rate::new(rate.tokens() * random.between(2, 12), rate.period()).unwrap();
            let peak_burst = random.between(1, 20);
            (
                Rule::BurstCredits(BurstCredits::with_peak_burst(rate, peak, capacity, peak_burst).unwrap()),
                interval,
            )
        }
        other => panic!("there is no kind {other}"),
    }
}

/// One sub-window mostly, and a few that do not divide the window.
fn buckets(window: u64) -> u32 {
    [1, 1, 1, 2, 3, 7, 10][(window % 7) as usize].min(window) as u32
}

/// A rate and its interval.
fn rate(random: &mut Random) -> (Rate, u64) {
    let tokens = random.log_uniform(1, 10_000_000);
    let period = SECOND * random.between(1, 60);
    (Rate::new(tokens, Duration::from_nanos(period)).unwrap(), period / tokens)
}

#[test]
fn random_rules_have_every_algorithm_without_permits() {
    let mut random = Random::new(1);
    let kinds = (0..KINDS).map(|kind| random_rule(kind, &mut random).0.kind()).collect();
    assert_eq!(super::plain::kinds_without_permits(), kinds);
}
