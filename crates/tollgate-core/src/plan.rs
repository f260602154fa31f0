//! Several limits on one request: all are charged, or none.

use crate::{Decision, Nanos, Outcome, Retry, Status, Timestamp};

/// The limits that apply to one request, each with its key's state and its cost.
///
/// They are reached by number, so that a store can keep states of any kind behind any lock. No two may
/// stand for the same state: a plan that names one twice is merged first, its costs added.
pub trait Plan {
    /// How many limits apply.
    fn len(&self) -> usize;

    /// Whether none applies.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether limit `i` would let the request pass. Changes nothing.
    fn test(&self, i: usize, now: Timestamp) -> Outcome;

    /// Charges the request to limit `i`, which has let it pass.
    fn spend(&mut self, i: usize, now: Timestamp);

    /// How limit `i` stands.
    fn status(&self, i: usize, now: Timestamp) -> Status;
}

/// The answer to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not go ahead"]
pub struct Verdict {
    /// Allowed after the longest delay, or denied for the longest wait, of all limits.
    pub outcome: Outcome,
    /// The smallest of all that remains. None where no limit applies.
    pub remaining: Option<u64>,
    /// The limit to tell the caller of: the one that denies for longest, or, when all allow, the one
    /// with least remaining. None where no limit applies.
    pub reported: Option<usize>,
}

impl Verdict {
    /// Whether the request may pass, now or after its delay.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }
}

/// Decides a plan at one instant: every limit is asked, then all are charged or none is.
///
/// The answer of each limit is written to `decisions`, which must be as long as the plan. Where the
/// request is denied they tell of states that have not changed, also for limits that would have
/// allowed it.
#[inline]
pub fn decide_all<P: Plan + ?Sized>(plan: &mut P, now: Timestamp, decisions: &mut [Decision]) -> Verdict {
    assert_eq!(plan.len(), decisions.len(), "one decision for each limit of the plan");
    for (i, decision) in decisions.iter_mut().enumerate() {
        decision.outcome = plan.test(i, now);
    }
    let allowed = decisions.iter().all(Decision::is_allowed);
    for (i, decision) in decisions.iter_mut().enumerate() {
        if allowed {
            plan.spend(i, now);
        }
        decision.status = plan.status(i, now);
    }
    summarise(decisions)
}

/// One answer for all: the worst outcome, the least remaining, and the limit they are due to.
#[inline]
fn summarise(decisions: &[Decision]) -> Verdict {
    let mut outcome = Outcome::ALLOW;
    for decision in decisions {
        outcome = worse(outcome, decision.outcome);
    }
    let reported = if outcome.is_allowed() {
        tightest(decisions, |_| true)
    } else {
        tightest(decisions, |decision| decision.outcome == outcome)
    };
    Verdict { outcome, remaining: decisions.iter().map(|d| d.status.remaining).min(), reported }
}

/// A denial before an allowance, then the longer wait.
#[inline]
fn worse(a: Outcome, b: Outcome) -> Outcome {
    match (a, b) {
        (Outcome::Allow { delay: a }, Outcome::Allow { delay: b }) => Outcome::Allow { delay: a.max(b) },
        (Outcome::Deny { retry: a }, Outcome::Deny { retry: b }) => Outcome::Deny { retry: a.max(b) },
        (denied @ Outcome::Deny { .. }, _) | (_, denied) => denied,
    }
}

/// Of those that `counts`, the limit with least remaining; on a tie the longer reset, then the first.
#[inline]
fn tightest(decisions: &[Decision], counts: impl Fn(&Decision) -> bool) -> Option<usize> {
    let key =
        |decision: &Decision| (decision.status.remaining, std::cmp::Reverse(decision.status.reset_after));
    let candidates = decisions.iter().enumerate().filter(|(_, decision)| counts(decision));
    candidates.min_by_key(|(_, decision)| key(decision)).map(|(i, _)| i)
}

/// What an undecided place holds, for callers that make room for decisions on the stack.
impl Default for Decision {
    fn default() -> Self {
        Self {
            outcome: Outcome::Deny { retry: Retry::Unknown },
            status: Status { remaining: 0, reset_after: Nanos::ZERO },
        }
    }
}

#[cfg(test)]
mod tests;
