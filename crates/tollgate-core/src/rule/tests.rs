#![allow(clippy::unwrap_used)]

use tollgate_testkit::Random;

use super::*;
use crate::table::*;
use crate::{Align, Mode, Rate};

fn bucket(rate: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap()
}

fn spend(rule: &Rule, state: &mut State, cost: u64) {
    assert!(rule.test(state, cost, at(0)).is_allowed());
    rule.spend(state, PermitId(7), cost, at(0));
}

#[test]
fn a_limit_whose_algorithm_changes_starts_afresh() {
    let old = Rule::TokenBucket(bucket(1, 10));
    let new = Rule::FixedWindow(FixedWindow::new(10, span(S), Align::Epoch).unwrap());
    let mut state = State::default();
    spend(&old, &mut state, 10);
    // Even where nobody converts, another algorithm's state is never misread.
    assert_eq!(new.status(&state, at(0)).remaining, 10);
    assert!(new.is_unused(&state, at(0)));
    new.convert(&old, &mut state, at(0));
    assert_eq!(state, State::Unused);
    spend(&new, &mut state, 4);
    assert_eq!(new.status(&state, at(0)).remaining, 6);
}

#[test]
fn a_max_wait_comes_and_goes_without_a_fresh_burst() {
    let plain = Rule::TokenBucket(bucket(1, 10));
    let patient = Rule::TokenBucketMaxWait(MaxWait::new(bucket(1, 10), span(S), 5).unwrap());
    let mut state = State::default();
    spend(&plain, &mut state, 8);
    patient.convert(&plain, &mut state, at(0));
    assert_eq!(patient.status(&state, at(0)).remaining, 2);
    spend(&patient, &mut state, 3);
    plain.convert(&patient, &mut state, at(0));
    assert_eq!(plain.test(&state, 1, at(0)), deny(2 * S));
}

#[test]
fn permits_stay_with_their_holders() {
    let old = Rule::Concurrency(Concurrency::new(3, None).unwrap());
    let new = Rule::Concurrency(Concurrency::new(2, Some(span(S))).unwrap());
    let mut state = State::default();
    spend(&old, &mut state, 2);
    new.convert(&old, &mut state, at(0));
    assert!(!new.test(&state, 1, at(DAY)).is_allowed());
    let State::Permits(permits) = &mut state else { panic!("{state:?}") };
    assert!(Concurrency::new(2, None).unwrap().release(permits, PermitId(7), at(DAY)));
    assert!(new.is_unused(&state, at(DAY)));
}

#[test]
fn whoever_waits_in_a_queue_counts_when_it_is_given_a_max_wait() {
    let queue = LeakyBucket::new(per_second(1), 50).unwrap();
    let patient = MaxWait::new(queue, span(100 * S), 3).unwrap();
    let mut state = State::default();
    (0..5).for_each(|_| spend(&Rule::from(queue), &mut state, 1)); // leave at 0, 1, 2, 3 and 4 s
    Rule::from(patient).convert(&queue.into(), &mut state, at(0));
    assert_eq!(Rule::from(patient).test(&state, 1, at(0)), deny(2 * S));
    assert_eq!(Rule::from(patient).test(&state, 1, at(2 * S)), allow_after(3 * S));
}

#[test]
fn a_bucket_that_loses_its_max_wait_is_converted_to_the_new_numbers() {
    let patient = Rule::from(MaxWait::new(bucket(10, 1), span(S), 5).unwrap());
    let plain = Rule::from(bucket(1, 1));
    let mut state = State::default();
    (0..3).for_each(|_| spend(&patient, &mut state, 1)); // two tokens are owed
    plain.convert(&patient, &mut state, at(0));
    // Of the debt there stays what could be waited for: a second, which is one token now.
    assert_eq!(plain.test(&state, 1, at(0)), deny(2 * S));
}

#[test]
fn refunds_reach_the_algorithm() {
    let window = Rule::from(FixedWindow::new(10, span(S), Align::Epoch).unwrap());
    for (rule, given) in [
        (Rule::from(bucket(1, 10)), 4),
        (Rule::from(LeakyBucket::new(per_second(1), 10).unwrap()), 0),
        (Rule::from(MaxWait::new(bucket(1, 10), span(S), 5).unwrap()), 4),
        (window, 4),
        (Rule::from(SlidingLog::new(10, span(S)).unwrap()), 4),
        (Rule::from(SlidingCounter::new(10, span(S), 1, Mode::Strict).unwrap()), 4),
        (Rule::from(BurstCredits::new(per_second(1), per_second(10), 10).unwrap()), 4),
        (Rule::from(Concurrency::new(10, None).unwrap()), 0), // a permit is released by its id
    ] {
        let mut state = State::default();
        assert_eq!(rule.refund(&mut state, 4, at(0), at(0)), 0);
        assert_eq!(state, State::Unused);
        spend(&rule, &mut state, 7);
        assert_eq!(rule.refund(&mut state, 4, at(0), at(0)), given, "{rule:?}");
        assert_eq!(rule.status(&state, at(0)).remaining, 3 + given, "{rule:?}");
        // A state of another algorithm is left alone.
        let (before, other) =
            (state.clone(), if rule == window { Rule::from(bucket(1, 10)) } else { window });
        assert_eq!(other.refund(&mut state, 4, at(0), at(0)), 0);
        assert_eq!(state, before);
    }
}

#[test]
fn heap_bytes_are_what_is_allocated() {
    let patient = Rule::from(MaxWait::new(bucket(1, 1), span(10 * S), 5).unwrap());
    let counter = |buckets| Rule::from(SlidingCounter::new(10, span(S), buckets, Mode::Strict).unwrap());
    for (rule, least) in [
        (Rule::from(bucket(1, 10)), 0),
        (patient, 4 * 8), // the first of five does not wait
        (Rule::from(FixedWindow::new(10, span(S), Align::Epoch).unwrap()), 0),
        (Rule::from(SlidingLog::new(10, span(S)).unwrap()), 5 * 8),
        (counter(1), 0),
        (counter(10), 11 * 8),
        (Rule::from(BurstCredits::new(per_second(1), per_second(10), 10).unwrap()), 0),
        (Rule::from(Concurrency::new(10, None).unwrap()), 5 * 32),
    ] {
        let mut state = State::default();
        assert_eq!(state.heap_bytes(), 0);
        (0..5).for_each(|_| spend(&rule, &mut state, 1));
        let bytes = state.heap_bytes();
        assert!(bytes >= least && bytes <= 2 * least, "{rule:?}: {bytes}");
    }
    // Room that is no longer used counts, until it is given back.
    let (large, small) = (SlidingLog::new(1000, span(S)).unwrap(), SlidingLog::new(10, span(S)).unwrap());
    let mut state = State::default();
    spend(&large.into(), &mut state, 1000);
    assert_eq!(Rule::from(large).refund(&mut state, 1000, at(0), at(0)), 1000);
    assert_eq!(state.heap_bytes(), 8000);
    Rule::from(small).convert(&large.into(), &mut state, at(0));
    assert_eq!(state.heap_bytes(), 80);
}

#[test]
fn a_charge_adds_no_more_to_the_heap_than_was_said() {
    let mut random = Random::new(1);
    for rule in [
        Rule::from(bucket(1, 10)),
        Rule::from(MaxWait::new(bucket(5, 1), span(10 * S), 40).unwrap()),
        Rule::from(SlidingLog::new(300, span(S)).unwrap()),
        Rule::from(SlidingCounter::new(300, span(S), 7, Mode::Strict).unwrap()),
        Rule::from(Concurrency::new(300, Some(span(S))).unwrap()),
    ] {
        let (mut state, mut now, mut most) = (State::default(), 0, 0);
        for id in 0..20_000 {
            now += random.log_uniform(0, S);
            let cost = random.log_uniform(0, rule.capacity());
            let (before, growth) = (state.heap_bytes(), rule.heap_growth(&state, cost));
            let _ = rule.decide(&mut state, PermitId(id), cost, at(now));
            let after = state.heap_bytes();
            assert!(after <= before + growth, "{rule:?}: {before} and {growth} make {after}");
            most = after.max(most);
        }
        assert!(most > 0 || matches!(rule, Rule::TokenBucket(_)), "{rule:?}");
    }
    // Also of a cost that nobody could keep.
    let rule = Rule::from(SlidingLog::new(u32::MAX.into(), span(S)).unwrap());
    assert_eq!(rule.heap_growth(&State::default(), u64::MAX), u32::MAX as usize * 8);
}

#[test]
fn a_state_takes_the_memory_it_is_said_to() {
    assert_eq!(size_of::<State>(), 48);
    assert_eq!([size_of::<Tat>(), size_of::<Credits>(), size_of::<Window>()], [8, 16, 24]);
    assert_eq!([size_of::<Log>(), size_of::<Counts>()], [32, 40]);
    assert_eq!([size_of::<Waiting>(), size_of::<Permits>()], [40, 40]);
}

#[test]
fn a_key_carried_to_another_clock_is_decided_there_as_it_would_have_been() {
    let mut random = Random::new(2);
    let queue = LeakyBucket::new(per_second(7), 9).unwrap();
    for rule in [
        Rule::from(bucket(7, 10)),
        Rule::from(queue),
        Rule::from(MaxWait::new(bucket(7, 3), span(S), 5).unwrap()),
        Rule::from(MaxWait::new(queue, span(S), 5).unwrap()),
        Rule::from(BurstCredits::new(per_second(3), per_second(10), 10).unwrap()),
    ] {
        assert!(rule.has_schedule());
        for _ in 0..1000 {
            let (mut state, from) = (State::default(), random.log_uniform(10 * S, 1 << 50));
            for id in 0..random.below(20) {
                let now = at(from - random.below(3 * S));
                let _ = rule.decide(&mut state, PermitId(id), 1 + random.below(3), now);
            }
            let (mut carried, to) = (state.clone(), random.log_uniform(10 * S, 1 << 50));
            rule.carry(&mut carried, at(from), at(to));
            for _ in 0..10 {
                let (later, cost) = (random.log_uniform(0, 2 * S), random.below(4));
                let decide = |state: &State, now: u64| {
                    rule.decide(&mut state.clone(), PermitId(0), cost, at(now + later))
                };
                assert_eq!(decide(&carried, to), decide(&state, from), "{rule:?}, {state:?}");
            }
        }
    }
}
