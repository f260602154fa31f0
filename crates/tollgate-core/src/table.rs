//! How table tests are written: one row a request, in virtual time.

use std::time::Duration;

use crate::{Algorithm, Nanos, Outcome, Rate, Retry, Timestamp};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;
pub(crate) const MIN: u64 = 60 * S;
pub(crate) const DAY: u64 = 86_400 * S;

pub(crate) const ALLOW: Outcome = Outcome::ALLOW;
pub(crate) const NEVER: Outcome = Outcome::NEVER;

pub(crate) fn deny(nanos: u64) -> Outcome {
    Outcome::deny_for(Nanos::new(nanos))
}

pub(crate) fn allow_after(nanos: u64) -> Outcome {
    Outcome::Allow { delay: Nanos::new(nanos) }
}

pub(crate) fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

pub(crate) fn span(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

pub(crate) fn per_second(tokens: u64) -> Rate {
    Rate::per_second(tokens).unwrap()
}

/// Time, cost, outcome, remaining and reset; the last two of no interest where they are [`ANY`].
pub(crate) type Row = (u64, u64, Outcome, u64, u64);
pub(crate) const ANY: u64 = u64::MAX;

/// Decides each row in turn on a new key, and returns its state. A denied row and a peek must leave
/// the state as it was.
pub(crate) fn replay<A: Algorithm>(rule: &A, rows: &[Row]) -> A::State {
    let mut state = A::State::default();
    replay_on(rule, &mut state, rows);
    state
}

/// [`replay`], going on with a key.
pub(crate) fn replay_on<A: Algorithm>(rule: &A, state: &mut A::State, rows: &[Row]) {
    for (i, &(now, cost, outcome, remaining, reset)) in rows.iter().enumerate() {
        let before = state.clone();
        let decision = rule.decide(state, cost, at(now));
        let row = format!("row {i}: cost {cost} at {now}");
        assert_eq!(decision.outcome, outcome, "{row}");
        if remaining != ANY {
            assert_eq!(decision.status.remaining, remaining, "{row}: remaining");
        }
        if reset != ANY {
            assert_eq!(decision.status.reset_after, span(reset), "{row}: reset");
        }
        if cost == 0 || !outcome.is_allowed() {
            assert_eq!(*state, before, "{row} changed the state");
        }
    }
}

/// Asks `cost` at each time from `from` to `to`, both included, `step` apart; how many were allowed.
pub(crate) fn hammer<A: Algorithm>(rule: &A, state: &mut A::State, from: u64, to: u64, step: u64) -> u64 {
    (from..=to).step_by(step as usize).map(|now| u64::from(rule.decide(state, 1, at(now)).is_allowed())).sum()
}

/// Asks at `now` until denied; how many were allowed.
pub(crate) fn drain<A: Algorithm>(rule: &A, state: &mut A::State, now: u64) -> u64 {
    (0..).take_while(|_| rule.decide(state, 1, at(now)).is_allowed()).count() as u64
}

/// The wait a denial asks for.
pub(crate) fn retry(outcome: Outcome) -> Nanos {
    match outcome {
        Outcome::Deny { retry: Retry::After(wait) } => wait,
        other => panic!("not denied for a known time: {other:?}"),
    }
}
