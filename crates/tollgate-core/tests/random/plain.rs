//! Between the core and the testkit, which speaks in plain numbers.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate_core::{
    AlgorithmKind, Align, BurstCredits, Decision, FixedWindow, LeakyBucket, Mode, Outcome, Rate, Retry, Rule,
    SlidingCounter, SlidingLog, TokenBucket,
};
use tollgate_testkit::oracle::CounterMode;
use tollgate_testkit::{Answer, answer, conformance};

/// A decision in the oracles' words.
pub(crate) fn answer(decision: Decision) -> Answer {
    let outcome = match decision.outcome {
        Outcome::Allow { delay } => Ok(delay.get()),
        Outcome::Deny { retry: Retry::After(wait) } => Err(answer::Retry::After(wait.get())),
        Outcome::Deny { retry: Retry::Unknown } => Err(answer::Retry::Unknown),
        Outcome::Deny { retry: Retry::Never } => Err(answer::Retry::Never),
    };
    Answer::new(outcome, decision.status.remaining, decision.status.reset_after.get())
}

/// A rule of the conformance suite as one of the core.
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
        conformance::Rule::CountingWindow { limit, window } => {
            let rule = FixedWindow::new(limit, span(window), Align::Epoch).unwrap();
            Rule::FixedWindow(rule.counting_denied())
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

/// The algorithms that refill with time. The suites for them do not hold permits.
pub(crate) fn kinds_without_permits() -> BTreeSet<AlgorithmKind> {
    AlgorithmKind::ALL.iter().copied().filter(|kind| !kind.has_permits()).collect()
}

#[test]
fn the_conformance_suite_has_every_algorithm_without_permits() {
    let kinds: BTreeSet<_> =
        conformance::one_of_each().into_iter().map(|rule| rule_of(rule).kind()).collect();
    assert_eq!(kinds, kinds_without_permits());
}
