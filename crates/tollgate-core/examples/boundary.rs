//! One attack, every algorithm: `cargo run --example boundary`.
//!
//! The limit is 100 a minute. A caller sends 100 requests in the last second of a minute, 100 in the
//! first second of the next, and goes on with ten a second. The table shows how many each algorithm
//! lets through, and the most in any 60 seconds.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Align, FixedWindow, LeakyBucket, Mode, Outcome, Rate, RuleError, SlidingCounter, SlidingLog,
    Timestamp, TokenBucket,
};

const MINUTE: Duration = Duration::from_secs(60);

fn main() -> Result<(), RuleError> {
    let rate = Rate::new(100, MINUTE)?;
    println!("{:<34} {:>8} {:>22}", "100 a minute", "admitted", "most in any 60 seconds");
    attack("token bucket, burst 100", &TokenBucket::new(rate, 100)?);
    attack("token bucket, burst 10", &TokenBucket::new(rate, 10)?);
    attack("leaky bucket, queue of 100", &LeakyBucket::new(rate, 100)?);
    attack("fixed window", &FixedWindow::new(100, MINUTE, Align::Epoch)?);
    attack("sliding log", &SlidingLog::new(100, MINUTE)?);
    attack("sliding counter", &SlidingCounter::new(100, MINUTE, 1, Mode::Interpolate)?);
    attack("sliding counter, strict, 32 parts", &SlidingCounter::new(100, MINUTE, 32, Mode::Strict)?);
    Ok(())
}

fn attack<A: Algorithm>(name: &str, rule: &A) {
    let mut state = A::State::default();
    let mut released: Vec<u64> = Vec::new();
    for now in arrivals() {
        let decision = rule.decide(&mut state, 1, Timestamp::from_nanos(now));
        if let Outcome::Allow { delay } = decision.outcome {
            released.push(now + delay.get());
        }
    }
    println!("{name:<34} {:>8} {:>22}", released.len(), most_in_a_minute(&released));
}

/// In nanoseconds since the minute before.
fn arrivals() -> impl Iterator<Item = u64> {
    let ms = |ms: u64| ms * 1_000_000;
    let last_second = (0..100).map(move |i| ms(59_000 + i * 10));
    let first_second = (0..100).map(move |i| ms(60_000 + i * 10));
    let steady = (0..590).map(move |i| ms(61_000 + i * 100));
    last_second.chain(first_second).chain(steady)
}

fn most_in_a_minute(released: &[u64]) -> usize {
    let minute = MINUTE.as_nanos() as u64;
    let since = |start: u64| released.iter().filter(|&&time| time >= start && time - start < minute).count();
    released.iter().map(|&start| since(start)).max().unwrap_or(0)
}
