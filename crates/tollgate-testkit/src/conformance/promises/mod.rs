//! One function for each promise; each takes an empty store and panics, naming the promise, if it
//! is broken.
//!
//! Times are ticks of the store, taken as nanoseconds.

mod charging;
mod keys;
mod time;

pub use charging::*;
pub use keys::*;
pub use time::*;

use super::{Line, Rule, Store};
use crate::answer::Answer;

/// A time at which windows of 1000 begin, far enough from 0 to step back from.
const START: u64 = 1_000_000;

/// Asks one limit alone.
fn ask(store: &mut impl Store, now: u64, limit: &str, key: &str, rule: Rule, cost: u64) -> Answer {
    let verdict = store.decide(now, &[Line::new(limit, key, rule, cost)]);
    let answer = verdict.answers[0];
    assert_eq!(
        (verdict.allowed, verdict.delay, verdict.retry, verdict.remaining, verdict.reported),
        (answer.allowed, answer.delay, answer.retry, answer.remaining, 0),
        "the answer to one limit is that limit's: {rule:?}"
    );
    answer
}

fn as_new(answer: Answer) -> (u64, u64) {
    (answer.remaining, answer.reset)
}
