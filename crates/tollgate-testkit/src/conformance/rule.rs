//! The rules a store is tried with.

use crate::oracle::{
    BurstCredits, CounterMode, FixedWindow, LeakyQueue, Oracle, SlidingCounter, SlidingLog, TokenBucket,
};

/// An algorithm with its numbers; times in nanoseconds.
///
/// Concurrency is not among them: a plan that is only decided cannot hold a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the numbers are those of the oracle of the same name")]
pub enum Rule {
    /// See [`TokenBucket`].
    TokenBucket { tokens: u64, period: u64, burst: u64 },
    /// See [`LeakyQueue`].
    LeakyQueue { tokens: u64, period: u64, capacity: u64 },
    /// See [`FixedWindow::aligned`].
    FixedWindow { limit: u64, window: u64 },
    /// See [`FixedWindow::anchored`].
    AnchoredWindow { limit: u64, window: u64 },
    /// See [`FixedWindow::counting_denied`].
    CountingWindow { limit: u64, window: u64 },
    /// See [`SlidingLog`].
    SlidingLog { limit: u64, window: u64 },
    /// See [`SlidingCounter`].
    SlidingCounter { limit: u64, window: u64, buckets: u32, mode: CounterMode },
    /// See [`BurstCredits`].
    BurstCredits {
        tokens: u64,
        period: u64,
        ceiling: u64,
        peak_tokens: u64,
        peak_period: u64,
        peak_burst: u64,
    },
}

impl Rule {
    /// An unused key under this rule.
    pub fn oracle(self) -> Box<dyn Oracle> {
        match self {
            Self::TokenBucket { tokens, period, burst } => Box::new(TokenBucket::new(tokens, period, burst)),
            Self::LeakyQueue { tokens, period, capacity } => {
                Box::new(LeakyQueue::new(tokens, period, capacity))
            }
            Self::FixedWindow { limit, window } => Box::new(FixedWindow::aligned(limit, window)),
            Self::AnchoredWindow { limit, window } => Box::new(FixedWindow::anchored(limit, window)),
            Self::CountingWindow { limit, window } => {
                Box::new(FixedWindow::aligned(limit, window).counting_denied())
            }
            Self::SlidingLog { limit, window } => Box::new(SlidingLog::new(limit, window)),
            Self::SlidingCounter { limit, window, buckets, mode } => {
                Box::new(SlidingCounter::new(limit, window, buckets, mode))
            }
            Self::BurstCredits { tokens, period, ceiling, peak_tokens, peak_period, peak_burst } => {
                Box::new(BurstCredits::new(tokens, period, ceiling, peak_tokens, peak_period, peak_burst))
            }
        }
    }

    /// The largest cost it can ever admit.
    pub fn capacity(self) -> u64 {
        match self {
            Self::TokenBucket { burst: most, .. }
            | Self::LeakyQueue { capacity: most, .. }
            | Self::FixedWindow { limit: most, .. }
            | Self::AnchoredWindow { limit: most, .. }
            | Self::CountingWindow { limit: most, .. }
            | Self::SlidingLog { limit: most, .. }
            | Self::SlidingCounter { limit: most, .. } => most,
            Self::BurstCredits { ceiling, peak_burst, .. } => ceiling.min(peak_burst),
        }
    }

    /// The same rule with every time multiplied by `unit`.
    pub(crate) fn in_units_of(mut self, unit: u64) -> Self {
        match &mut self {
            Self::TokenBucket { period: time, .. }
            | Self::LeakyQueue { period: time, .. }
            | Self::FixedWindow { window: time, .. }
            | Self::AnchoredWindow { window: time, .. }
            | Self::CountingWindow { window: time, .. }
            | Self::SlidingLog { window: time, .. }
            | Self::SlidingCounter { window: time, .. } => *time *= unit,
            Self::BurstCredits { period, peak_period, .. } => {
                *period *= unit;
                *peak_period *= unit;
            }
        }
        self
    }
}

/// One rule of every kind, each with capacity 10 and back to unused within 2500. Their intervals
/// are whole, so every store can be exact with them.
pub fn one_of_each() -> Vec<Rule> {
    let counter = |buckets, mode| Rule::SlidingCounter { limit: 10, window: 1000, buckets, mode };
    vec![
        Rule::TokenBucket { tokens: 5, period: 1000, burst: 10 },
        Rule::LeakyQueue { tokens: 1, period: 200, capacity: 10 },
        Rule::FixedWindow { limit: 10, window: 1000 },
        Rule::AnchoredWindow { limit: 10, window: 1000 },
        Rule::SlidingLog { limit: 10, window: 1000 },
        counter(1, CounterMode::Interpolate),
        counter(4, CounterMode::Interpolate),
        counter(4, CounterMode::Strict),
        counter(4, CounterMode::Lenient),
        Rule::BurstCredits {
            tokens: 10,
            period: 1000,
            ceiling: 15,
            peak_tokens: 20,
            peak_period: 1000,
            peak_burst: 10,
        },
    ]
}
