//! Several limits on one request: all are charged or none.

use super::Oracle;
use crate::answer::{Answer, Retry, Verdict};
use std::cmp::Reverse;

#[cfg(test)]
mod tests;

/// Decides a request that several limits apply to.
#[derive(Clone, Copy, Debug)]
pub struct Several;

impl Several {
    /// Asks every limit with its own cost and charges all of them if all allow, else those that count denied requests.
    ///
    /// The limits are distinct keys, at least one, and there is one cost for each.
    pub fn decide(limits: &mut [&mut dyn Oracle], now: u64, costs: &[u64]) -> Verdict {
        assert_eq!(limits.len(), costs.len(), "one cost for each limit");
        let mut answers: Vec<_> =
            limits.iter().zip(costs).map(|(limit, cost)| limit.would(now, *cost)).collect();
        let allowed = answers.iter().all(|answer| answer.allowed);
        for ((limit, cost), answer) in limits.iter_mut().zip(costs).zip(&mut answers) {
            if allowed || limit.counts_denied() {
                *answer = limit.ask(now, *cost);
            }
        }
        Self::summary(answers)
    }

    /// What the answers of the limits (at least one) come to.
    pub fn summary(answers: Vec<Answer>) -> Verdict {
        let allowed = answers.iter().all(|answer| answer.allowed);
        // `max_by_key` takes the last of equals; in reverse that is the first in the policy.
        let (reported, explains) = answers
            .iter()
            .enumerate()
            .rev()
            .max_by_key(|(_, answer)| (rank(answer.retry), Reverse(answer.remaining), answer.reset))
            .expect("at least one limit applies");
        Verdict {
            allowed,
            delay: if allowed { answers.iter().map(|answer| answer.delay).max().unwrap_or(0) } else { 0 },
            retry: explains.retry,
            remaining: answers.iter().map(|answer| answer.remaining).min().unwrap_or(0),
            reported,
            answers,
        }
    }
}

/// Orders retries: a limit that admits comes first, then the waits by length, unknown, never.
fn rank(retry: Option<Retry>) -> (u8, u64) {
    match retry {
        None => (0, 0),
        Some(Retry::After(wait)) => (1, wait),
        Some(Retry::Unknown) => (2, 0),
        Some(Retry::Never) => (3, 0),
    }
}
