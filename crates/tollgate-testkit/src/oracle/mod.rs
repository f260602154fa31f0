//! Slow, obvious models of every algorithm, to compare the real ones with step by step.
//!
//! Each follows the definition rather than the closed formula wherever the two differ: the token
//! bucket holds tokens, not a theoretical arrival time; the log keeps every admitted event; the
//! counter finds its retry by searching through time. What can no longer matter is pruned, so that
//! a million steps take seconds; each file says why its pruning is safe. Arithmetic is exact
//! everywhere.

pub mod adaptive;
#[cfg(test)]
mod arrival_time;
mod burst_credits;
mod concurrency;
pub mod envoy;
#[cfg(test)]
mod expected;
mod fair_queue;
mod fixed_window;
mod leaky_queue;
#[cfg(test)]
mod properties;
mod rounding;
mod several;
mod sliding_counter;
mod sliding_log;
mod token_bucket;
mod waiting;

pub use burst_credits::BurstCredits;
pub use concurrency::Concurrency;
pub use fair_queue::FairQueue;
pub use fixed_window::FixedWindow;
pub use leaky_queue::LeakyQueue;
pub use several::Several;
pub use sliding_counter::{CounterMode, SlidingCounter};
pub use sliding_log::SlidingLog;
pub use token_bucket::TokenBucket;

use crate::answer::Answer;

/// One key under one rate rule.
pub trait Oracle: std::fmt::Debug + Send {
    /// Decides without charging; remaining and reset are those of the unchanged state.
    fn would(&self, now: u64, cost: u64) -> Answer;
    /// Decides, and charges if allowed. Cost 0 peeks: always allowed, never written.
    fn ask(&mut self, now: u64, cost: u64) -> Answer;
    /// Gives back what a request of `cost`, or a part of it, was charged at `charged`, as far as it
    /// still counts; how much that is, in whole units. The caller did make that charge, and gives it
    /// back once.
    fn refund(&mut self, now: u64, cost: u64, charged: u64) -> u64;
    /// Whether `ask` charges also what is denied.
    fn counts_denied(&self) -> bool;
}

// The methods are inherent too, so that a test of one algorithm need not import the trait.
macro_rules! rate_oracles {
    ($($name:ty: $counts_denied:expr),*) => {$(
        impl Oracle for $name {
            fn would(&self, now: u64, cost: u64) -> Answer {
                self.would(now, cost)
            }
            fn ask(&mut self, now: u64, cost: u64) -> Answer {
                self.ask(now, cost)
            }
            fn refund(&mut self, now: u64, cost: u64, charged: u64) -> u64 {
                self.refund(now, cost, charged)
            }
            fn counts_denied(&self) -> bool {
                $counts_denied(self)
            }
        }
    )*};
}

rate_oracles!(
    TokenBucket: |_| false,
    LeakyQueue: |_| false,
    FixedWindow: Self::counts_denied,
    SlidingLog: |_| false,
    SlidingCounter: |_| false,
    BurstCredits: |_| false
);
