#![allow(clippy::unwrap_used)]

use super::*;
use crate::table::*;

const UNKNOWN: Outcome = Outcome::Deny { retry: Retry::Unknown };
const A: PermitId = PermitId(1);
const B: PermitId = PermitId(2);
const C: PermitId = PermitId(3);

fn limit(limit: u64) -> Concurrency {
    Concurrency::new(limit, None).unwrap()
}

fn leased(limit: u64, lease: u64) -> Concurrency {
    Concurrency::new(limit, Some(span(lease))).unwrap()
}

/// Tests and, if allowed, acquires. A denial must leave the state as it was.
fn acquire(rule: &Concurrency, state: &mut Permits, id: PermitId, cost: u64, now: u64) -> Outcome {
    let before = state.clone();
    let outcome = rule.test(state, cost, at(now));
    assert_eq!(*state, before);
    if outcome.is_allowed() {
        rule.acquire(state, id, cost, at(now));
    }
    outcome
}

#[test]
fn cc_1_a_permit_is_released_once() {
    let rule = limit(2);
    let mut state = Permits::default();
    assert_eq!(acquire(&rule, &mut state, A, 1, 0), ALLOW);
    assert_eq!(acquire(&rule, &mut state, B, 1, 0), ALLOW);
    assert_eq!(acquire(&rule, &mut state, C, 1, 0), UNKNOWN);
    assert!(rule.release(&mut state, A, at(0)));
    assert_eq!(acquire(&rule, &mut state, C, 1, 0), ALLOW);
    assert!(!rule.release(&mut state, A, at(0)));
    assert_eq!(rule.status(&state, at(0)).remaining, 0);
    assert!(!rule.is_unused(&state, at(DAY)));
}

#[test]
fn cc_2_a_lease_ends_by_itself() {
    let rule = leased(1, 30 * S);
    let mut state = Permits::default();
    assert_eq!(acquire(&rule, &mut state, A, 1, 0), ALLOW);
    assert_eq!(acquire(&rule, &mut state, B, 1, 29_999_999_999), deny(1));
    assert_eq!(acquire(&rule, &mut state, B, 1, 30 * S), ALLOW);
    assert!(!rule.release(&mut state, A, at(31 * S)));
    assert_eq!(rule.status(&state, at(31 * S)).remaining, 0);

    let rule = leased(3, 30 * S);
    let mut state = Permits::default();
    for (id, now) in [(A, 0), (B, 5 * S), (C, 9 * S)] {
        assert_eq!(acquire(&rule, &mut state, id, 1, now), ALLOW);
    }
    assert_eq!(acquire(&rule, &mut state, PermitId(4), 2, 10 * S), deny(25 * S));
    assert_eq!(rule.status(&state, at(10 * S)), Status { remaining: 0, reset_after: Nanos::new(29 * S) });
    assert!(rule.is_unused(&state, at(39 * S)));
}

#[test]
fn cc_3_a_lowered_limit_cuts_nobody_off() {
    let mut state = Permits::default();
    for id in 0..7 {
        assert_eq!(acquire(&limit(10), &mut state, PermitId(id), 1, 0), ALLOW);
    }
    let lowered = limit(4);
    for id in 0..4 {
        assert_eq!(acquire(&lowered, &mut state, PermitId(9), 1, 0), UNKNOWN, "with {} in flight", 7 - id);
        assert_eq!(lowered.status(&state, at(0)).remaining, 0);
        assert!(lowered.release(&mut state, PermitId(id), at(0)));
    }
    assert_eq!(acquire(&lowered, &mut state, PermitId(9), 1, 0), ALLOW);
}

#[test]
fn cc_4_cost() {
    let rule = limit(10);
    let mut state = Permits::default();
    assert_eq!(acquire(&rule, &mut state, A, 8, 0), ALLOW);
    assert_eq!(acquire(&rule, &mut state, B, 3, 0), UNKNOWN);
    assert_eq!(acquire(&rule, &mut state, B, 11, 0), NEVER);
    assert_eq!(acquire(&rule, &mut state, B, 0, 0), ALLOW);
    assert_eq!(acquire(&rule, &mut state, B, 2, 0), ALLOW);
    assert_eq!(rule.status(&state, at(0)).remaining, 0);
}

#[test]
fn a_new_lease_is_for_new_permits() {
    let mut state = Permits::default();
    assert_eq!(acquire(&limit(3), &mut state, A, 1, 0), ALLOW);
    assert_eq!(acquire(&leased(3, 60 * S), &mut state, B, 1, 0), ALLOW);
    assert_eq!(acquire(&leased(3, 10 * S), &mut state, C, 1, 0), ALLOW);
    let rule = leased(3, 10 * S);
    assert_eq!(rule.test(&state, 1, at(0)), deny(10 * S));
    assert_eq!(rule.test(&state, 2, at(0)), deny(60 * S));
    assert_eq!(rule.test(&state, 3, at(0)), UNKNOWN);
}

#[test]
fn a_clock_that_steps_back_finds_nothing_freed() {
    let rule = leased(1, 10 * S);
    let mut state = Permits::default();
    assert_eq!(acquire(&rule, &mut state, A, 1, 20 * S), ALLOW);
    assert_eq!(acquire(&rule, &mut state, B, 1, 5 * S), deny(25 * S));
    assert!(rule.release(&mut state, A, at(5 * S)));
    assert_eq!(acquire(&rule, &mut state, B, 1, 5 * S), ALLOW); // held as from 20 s on
    assert_eq!(acquire(&rule, &mut state, C, 1, 29_999_999_999), deny(1));
}

#[test]
fn nonsense_is_refused() {
    assert_eq!(Concurrency::new(0, None), Err(RuleError::ZeroCapacity { what: "limit" }));
    assert_eq!(Concurrency::new(1, Some(Duration::ZERO)), Err(RuleError::ZeroSpan { what: "lease" }));
    assert!(matches!(Concurrency::new(1, Some(Duration::MAX)), Err(RuleError::TooLong { .. })));
}
