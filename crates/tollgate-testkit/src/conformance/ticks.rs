//! A store asked in its own ticks instead of nanoseconds.

use super::{Line, Store};
use crate::answer::{Answer, Retry, Verdict};

/// Multiplies every time that goes in by the store's tick and divides every time that comes out, so
/// that the promises are written once, in whole ticks.
pub(super) struct InTicks<S>(pub(super) S);

impl<S: Store> Store for InTicks<S> {
    fn decide(&mut self, now: u64, plan: &[Line]) -> Verdict {
        let tick = self.0.tick();
        let plan: Vec<_> =
            plan.iter().map(|line| Line { rule: line.rule.in_units_of(tick), ..line.clone() }).collect();
        let verdict = self.0.decide(now * tick, &plan);
        Verdict {
            delay: ticks(verdict.delay, tick),
            retry: retry(verdict.retry, tick),
            answers: verdict.answers.into_iter().map(|each| answer(each, tick)).collect(),
            ..verdict
        }
    }
}

fn answer(answer: Answer, tick: u64) -> Answer {
    Answer {
        delay: ticks(answer.delay, tick),
        retry: retry(answer.retry, tick),
        reset: ticks(answer.reset, tick),
        ..answer
    }
}

fn retry(retry: Option<Retry>, tick: u64) -> Option<Retry> {
    match retry {
        Some(Retry::After(wait)) => Some(Retry::After(ticks(wait, tick))),
        other => other,
    }
}

fn ticks(nanos: u64, tick: u64) -> u64 {
    assert!(nanos.is_multiple_of(tick), "{nanos} ns is not a whole number of ticks of {tick} ns");
    nanos / tick
}
