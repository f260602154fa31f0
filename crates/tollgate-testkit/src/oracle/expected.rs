//! Short ways to write down the answer a vector asks for.

use crate::answer::{Answer, Retry};

pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1000 * MS;

pub(super) fn allow(remaining: u64, reset: u64) -> Answer {
    held(0, remaining, reset)
}

pub(super) fn held(delay: u64, remaining: u64, reset: u64) -> Answer {
    Answer::new(Ok(delay), remaining, reset)
}

pub(super) fn deny(retry: u64, remaining: u64, reset: u64) -> Answer {
    Answer::new(Err(Retry::After(retry)), remaining, reset)
}

pub(super) fn never(remaining: u64, reset: u64) -> Answer {
    Answer::new(Err(Retry::Never), remaining, reset)
}

/// The retry of a denial that a wait ends.
pub(super) fn wait(answer: Answer) -> u64 {
    match answer.retry {
        Some(Retry::After(wait)) => wait,
        other => panic!("expected a wait, found {other:?}"),
    }
}
