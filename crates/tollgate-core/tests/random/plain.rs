//! The rules of the conformance suite, which are plain numbers, as rules of the core.

use std::time::Duration;

use tollgate_core::{
    Align, BurstCredits, FixedWindow, LeakyBucket, Mode, Rate, Rule, SlidingCounter, SlidingLog, TokenBucket,
};
use tollgate_testkit::conformance;
use tollgate_testkit::oracle::CounterMode;

pub(crate) fn rule_of(plain: conformance::Rule) -> Rule {
    let rate = |tokens, period| Rate::new(tokens, Duration::from_nanos(period)).unwrap();
    let span = Duration::from_nanos;
    match plain {
        conformance::Rule::TokenBucket { tokens, period, burst } => {
            Rule::TokenBucket(TokenBucket::new(rate(tokens, period), burst).unwrap())
        }
        conformance::Rule::LeakyQueue { tokens, period, capacity } => {
            Rule::LeakyBucket(LeakyBucket::new(rate(tokens, period), capacity).unwrap())
        }
        conformance::Rule::FixedWindow { limit, window } => {
            Rule::FixedWindow(FixedWindow::new(limit, span(window), Align::Epoch).unwrap())
        }
        conformance::Rule::AnchoredWindow { limit, window } => {
            Rule::FixedWindow(FixedWindow::new(limit, span(window), Align::First).unwrap())
        }
        conformance::Rule::SlidingLog { limit, window } => {
            Rule::SlidingLog(SlidingLog::new(limit, span(window)).unwrap())
        }
        conformance::Rule::SlidingCounter { limit, window, buckets, mode } => {
            let mode = match mode {
                CounterMode::Interpolate => Mode::Interpolate,
                CounterMode::Strict => Mode::Strict,
                CounterMode::Lenient => Mode::Lenient,
            };
            Rule::SlidingCounter(SlidingCounter::new(limit, span(window), buckets, mode).unwrap())
        }
        conformance::Rule::BurstCredits { tokens, period, ceiling, peak_tokens, peak_period, peak_burst } => {
            let (base, peak) = (rate(tokens, period), rate(peak_tokens, peak_period));
            Rule::BurstCredits(BurstCredits::with_peak_burst(base, peak, ceiling, peak_burst).unwrap())
        }
    }
}
