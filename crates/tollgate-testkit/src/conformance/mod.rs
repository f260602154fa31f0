//! What every store promises. A new backend adds one call, not new tests.
//!
//! A store is driven through [`Store`] with plain numbers and compared with the oracles. An
//! asynchronous store's adapter blocks. Times are given and expected in the store's own
//! [tick](Store::tick): a store on microseconds gives the same answers as one on nanoseconds, with
//! its tick in place of one.

mod oracle_store;
pub mod promises;
mod random_plans;
mod rule;
#[cfg(test)]
mod tests;
mod ticks;

pub use oracle_store::OracleStore;
pub use random_plans::random_plans_equal_the_oracles;
pub use rule::{Rule, one_of_each};

use crate::answer::Verdict;
use ticks::InTicks;

/// One limit of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The limit's name.
    pub limit: String,
    /// The key it counts by.
    pub key: String,
    /// Its rule; the same name always comes with the same rule.
    pub rule: Rule,
    /// What the request costs it.
    pub cost: u64,
}

impl Line {
    /// A line of a plan.
    pub fn new(limit: &str, key: &str, rule: Rule, cost: u64) -> Self {
        Self { limit: limit.to_owned(), key: key.to_owned(), rule, cost }
    }
}

/// Where keys keep their state.
pub trait Store {
    /// Nanoseconds of the smallest step the store's clock can tell. All times it is asked with are
    /// multiples of it, and so are its answers.
    fn tick(&self) -> u64 {
        1
    }

    /// Decides a request at `now` (ns): charges every line or none. A plan has at least one line,
    /// and no two with the same limit and key.
    fn decide(&mut self, now: u64, plan: &[Line]) -> Verdict;
}

impl<S: Store + ?Sized> Store for &mut S {
    fn tick(&self) -> u64 {
        (**self).tick()
    }

    fn decide(&mut self, now: u64, plan: &[Line]) -> Verdict {
        (**self).decide(now, plan)
    }
}

/// Checks every promise on a store of its own; panics at the first that is broken, naming it.
///
/// `fresh` makes an empty store.
pub fn conforms<S: Store>(mut fresh: impl FnMut() -> S) {
    let mut fresh = || InTicks(fresh());
    // First, because the other promises look with it.
    promises::cost_zero_creates_and_changes_nothing(fresh());
    promises::one_key_does_not_spend_anothers_budget(fresh());
    promises::the_same_key_under_two_limits_is_two_counters(fresh());
    promises::names_and_keys_are_not_run_together(fresh());
    promises::a_refusal_at_one_level_spends_nothing_at_the_others(fresh());
    promises::a_denied_request_changes_nothing(fresh());
    promises::cost_over_capacity_is_never_and_charges_nobody(fresh());
    promises::several_limits_give_one_answer(fresh());
    promises::a_retry_is_exact(fresh());
    promises::an_unused_key_is_as_new(fresh());
    promises::a_key_in_use_is_not_forgotten(fresh());
    promises::a_clock_that_steps_back_mints_nothing(fresh());
    promises::a_fractional_rate_is_never_early(fresh());
    for seed in 0..3 {
        random_plans_equal_the_oracles(fresh(), seed, 10_000);
    }
}
