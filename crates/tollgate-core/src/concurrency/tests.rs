#![allow(clippy::unwrap_used)]

use super::permit_tree::visits;
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

/// A key that holds `count` permits of cost 1, given one nanosecond apart.
fn holding(rule: &Concurrency, count: u64) -> Permits {
    let mut state = Permits::default();
    for id in 0..count {
        rule.acquire(&mut state, PermitId(id), 1, at(id));
    }
    state
}

/// An order that visits each of `0..count` once; `count` is a power of ten.
fn shuffled(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |i| i * 7919 % count)
}

#[test]
fn many_permits_are_released_in_any_order() {
    let rule = limit(1000);
    let mut state = holding(&rule, 1000);
    for (released, id) in (0..).zip(shuffled(1000)) {
        assert_eq!(rule.status(&state, at(1000)).remaining, released);
        assert!(rule.release(&mut state, PermitId(id), at(1000)), "{id}");
        assert!(!rule.release(&mut state, PermitId(id), at(1000)), "{id} a second time");
    }
    assert!(rule.is_unused(&state, at(1000)));
}

#[test]
fn many_permits_end_by_themselves() {
    let rule = leased(1000, S);
    let state = holding(&rule, 1000);
    for ended in 0..1000 {
        let now = at(S + ended);
        assert_eq!(rule.status(&state, now).remaining, ended + 1);
        assert_eq!(rule.test(&state, ended + 1, now), ALLOW);
        let wait = if ended == 999 { NEVER } else { deny(1) };
        assert_eq!(rule.test(&state, ended + 2, now), wait);
        assert_eq!(rule.is_unused(&state, now), ended == 999);
    }
}

#[test]
fn a_lease_that_was_shortened_ends_before_many_older_ones() {
    let mut state = holding(&limit(1000), 500);
    for id in 500..700 {
        leased(1000, 60 * S).acquire(&mut state, PermitId(id), 1, at(0));
    }
    let rule = leased(1000, 10 * S);
    for id in 700..1000 {
        rule.acquire(&mut state, PermitId(id), 1, at(499));
    }
    assert_eq!(rule.test(&state, 300, at(499)), deny(10 * S));
    assert_eq!(rule.test(&state, 301, at(499)), deny(60 * S));
    assert_eq!(rule.test(&state, 501, at(499)), UNKNOWN);
    assert_eq!(rule.status(&state, at(20 * S)).remaining, 300);
}

#[test]
fn calls_look_at_few_permits_however_many_are_held() {
    for (count, most) in [(1000, 150), (10_000, 200), (100_000, 250)] {
        let rule = leased(count, 3600 * S);
        let mut state = holding(&rule, count);
        let now = at(count);
        let mut seen = Vec::new();
        let mut look = |call: &mut dyn FnMut()| seen.push(visits::of(call));
        for id in shuffled(count).take(1000) {
            look(&mut || assert!(!rule.test(&state, count / 2, now).is_allowed()));
            look(&mut || assert!(rule.release(&mut state, PermitId(id), now)));
            look(&mut || assert!(rule.test(&state, 1, now).is_allowed()));
            look(&mut || rule.acquire(&mut state, PermitId(count + id), 1, now));
            look(&mut || assert_eq!(rule.status(&state, now).remaining, 0));
            look(&mut || assert!(!rule.is_unused(&state, now)));
        }
        let worst = seen.into_iter().max().unwrap();
        assert!(worst <= most, "a call looked at {worst} of {count} permits");
    }
}

#[test]
fn leases_that_end_together_delay_no_call() {
    let rule = leased(200_000, S);
    let mut state = Permits::default();
    for id in 0..100_000 {
        rule.acquire(&mut state, PermitId(id), 1, at(0));
    }
    rule.acquire(&mut state, PermitId(100_000), 1, at(S - 1));
    for id in 1..=60_000 {
        let worst = visits::of(|| rule.acquire(&mut state, PermitId(100_000 + id), 1, at(S)));
        assert!(worst <= 600, "call {id} looked at {worst} permits");
        assert_eq!(rule.status(&state, at(S)).remaining, 200_000 - 1 - id);
    }
    let Holders::Many(tree) = &state.holders else { panic!("more than 64 permits are in a tree") };
    assert_eq!(tree.len(), 60_001);
}

#[test]
fn heap_growth_covers_what_a_permit_adds() {
    for lease in [1, 100, 1_000_000] {
        let rule = leased(u64::MAX, lease);
        let mut state = Permits::default();
        for id in 0..3000 {
            let most = state.heap_bytes() + state.heap_growth();
            rule.acquire(&mut state, PermitId(id), 1, at(id));
            assert!(
                state.heap_bytes() <= most,
                "permit {id}, lease {lease}: {} > {most}",
                state.heap_bytes()
            );
        }
    }
}

#[test]
fn memory_is_small_again_when_many_permits_have_gone() {
    let rule = limit(10_000);
    let mut state = holding(&rule, 10_000);
    assert!(state.heap_bytes() >= 10_000 * 56);
    for id in shuffled(10_000).skip(10) {
        assert!(rule.release(&mut state, PermitId(id), at(0)));
    }
    assert!(state.heap_bytes() <= FEW * size_of::<Permit>(), "{}", state.heap_bytes());
    assert_eq!(size_of::<Permits>(), 40);
}

#[test]
fn equal_permits_are_equal_in_a_list_and_in_a_tree() {
    let rule = leased(1000, S);
    let few = holding(&rule, 20);
    let mut many = holding(&rule, 20);
    for id in 20..200 {
        rule.acquire(&mut many, PermitId(id), 1, at(19));
    }
    assert_ne!(few, many);
    for id in 20..180 {
        rule.release(&mut many, PermitId(id), at(19));
    }
    assert!(matches!(many.holders, Holders::Many(_)));
    let mut few = few;
    for id in 180..200 {
        rule.acquire(&mut few, PermitId(id), 1, at(19));
    }
    assert!(matches!(few.holders, Holders::Few(_)));
    assert_eq!(few, many);
}
