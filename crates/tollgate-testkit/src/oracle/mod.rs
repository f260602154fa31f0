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
    /// Charges a cost that was allowed together with others of the same key, which may have been charged since.
    fn spend(&mut self, now: u64, cost: u64);
    /// [`would`](Self::would) for a request whose whole cost is charged in any case. Cost 0 is denied while
    /// the key is above its limit.
    fn would_in_full(&self, now: u64, cost: u64) -> Answer;
    /// Charges the whole cost, also beyond the limit. A bucket owes at most one burst, a log at most its
    /// limit.
    fn charge_in_full(&mut self, now: u64, cost: u64);
    /// Gives back what a request of `cost`, or a part of it, was charged at `charged`, as far as it
    /// still counts; how much that is, in whole units. The caller did make that charge, and gives it
    /// back once.
    fn refund(&mut self, now: u64, cost: u64, charged: u64) -> u64;
    /// Whether `ask` charges also what is denied.
    fn counts_denied(&self) -> bool;
}

// The methods are inherent too, so that a test of one algorithm need not import the trait.
macro_rules! rate_oracles {
    ($($name:ty: $counts_denied:expr, $spend:expr);*) => {$(
        impl Oracle for $name {
            fn would(&self, now: u64, cost: u64) -> Answer {
                self.would(now, cost)
            }
            fn ask(&mut self, now: u64, cost: u64) -> Answer {
                self.ask(now, cost)
            }
            fn spend(&mut self, now: u64, cost: u64) {
                $spend(self, now, cost);
            }
            fn would_in_full(&self, now: u64, cost: u64) -> Answer {
                self.would_in_full(now, cost)
            }
            fn charge_in_full(&mut self, now: u64, cost: u64) {
                self.charge_in_full(now, cost);
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
    TokenBucket: |_| false, Self::spend;
    LeakyQueue: |_| false, Self::spend;
    FixedWindow: Self::counts_denied, Self::ask;
    SlidingLog: |_| false, Self::ask;
    SlidingCounter: |_| false, Self::ask;
    BurstCredits: |_| false, Self::ask
);
