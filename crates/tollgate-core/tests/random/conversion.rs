//! Changing a rule's numbers never hands out more.

use std::time::Duration;

use tollgate_core::adaptive::{Load, Pace, RateMultiplier};
use tollgate_core::{Concurrency, Nanos, Outcome, PermitId, Rule, SlidingLog, State, Timestamp};
use tollgate_testkit::{Random, Trace};

use super::rules::{KINDS, random_rule};

/// A used key under one rule, carried over to another of the same algorithm.
fn on_any_change(runs: u64, mut check: impl FnMut(&str, (&Rule, &State), (&Rule, &State), Timestamp)) {
    for seed in 0..runs * tollgate_testkit::effort() {
        let mut random = Random::new(seed);
        let (old, scale) = random_rule(seed % KINDS, &mut random);
        let (new, _) = random_rule(seed % KINDS, &mut random);
        let mut state = State::default();
        let mut latest = Timestamp::default();
        for step in Trace::new(seed, scale, old.capacity()).longest_idle(1 << 50).take(100) {
            let now = Timestamp::from_nanos(step.now);
            if old.test(&state, step.cost, now).is_allowed() {
                old.spend(&mut state, PermitId(0), step.cost, now);
            }
            latest = latest.max(now);
            let mut converted = state.clone();
            new.convert(&old, &mut converted, latest);
            check(
                &format!("seed {seed} at {latest:?}: {old:?} to {new:?}"),
                (&old, &state),
                (&new, &converted),
                latest,
            );
        }
    }
}

#[test]
fn tokens_do_not_grow_and_counts_do_not_shrink() {
    on_any_change(2000, |at, (old, state), (new, converted), now| {
        let before = old.status(state, now).remaining;
        let after = new.status(converted, now).remaining;
        if old.is_unused(state, now) {
            assert!(new.is_unused(converted, now), "{at}: an unused key is no longer");
            assert_eq!(after, new.status(&State::default(), now).remaining, "{at}");
            return;
        }
        match new {
            Rule::TokenBucket(_) | Rule::TokenBucketMaxWait(_) | Rule::BurstCredits(_) => {
                assert!(after <= before, "{at}: {before} tokens, then {after}");
            }
            _ => {
                let used = (used(old, state, now), used(new, converted, now));
                // Nothing that was used is forgotten, as far as the new limit can hold it.
                assert!(used.1 >= used.0.min(new.capacity()), "{at}: {used:?} used");
            }
        }
    });
}

/// The count of a window, or the places taken in a queue, of which not all that are free may remain for those who
/// have to wait.
fn used(rule: &Rule, state: &State, now: Timestamp) -> u64 {
    if let Rule::LeakyBucketMaxWait(waits) = rule {
        let (queue, mut state) = (Rule::from(*waits.bucket()), state.clone());
        queue.convert(rule, &mut state, now);
        return used(&queue, &state, now);
    }
    rule.capacity() - rule.status(state, now).remaining
}

#[test]
fn a_converted_key_obeys_the_new_rule() {
    on_any_change(1000, |at, _, (new, converted), now| {
        let status = new.status(converted, now);
        let then = now.after(status.reset_after);
        assert!(new.is_unused(converted, then), "{at}: never as new");
        assert!(new.test(converted, new.capacity(), then).is_allowed(), "{at}");
        if let Outcome::Deny { retry: tollgate_core::Retry::After(wait) } = new.test(converted, 1, now) {
            assert!(new.test(converted, 1, now.after(wait)).is_allowed(), "{at}: denied after {wait:?}");
            assert!(!new.test(converted, 1, now.after(Nanos::new(wait.get() - 1))).is_allowed(), "{at}");
        }
    });
}

#[test]
fn numbers_changed_there_and_back_hand_out_nothing_and_lock_nobody_out() {
    on_any_change(2000, |at, (old, state), (new, converted), now| {
        let (before, mut back) = (old.status(state, now), converted.clone());
        let mut there = converted.clone();
        let mut was_unused = new.is_unused(&there, now);
        for _ in 0..10 {
            there = back.clone();
            was_unused |= new.is_unused(&there, now);
            old.convert(new, &mut back, now);
            let after = old.status(&back, now);
            // A key that is full under the numbers in between is as an absent one, and so full after them.
            if !was_unused {
                assert!(after.remaining <= before.remaining, "{at}: {before:?}, then {after:?}");
            }
            was_unused |= old.is_unused(&back, now);
            new.convert(old, &mut back, now);
        }
        old.convert(new, &mut back, now);
        // And nobody waits for more than either rule's longest, with room for those who may wait.
        let longest = full_reset(old).max(full_reset(new)).max(before.reset_after.get());
        let settled = old.status(&back, now).reset_after.max(new.status(&there, now).reset_after);
        assert!(settled.get() / 10 <= longest, "{at}: {settled}");
    });
}

/// How long a key is in use that has just spent all it could.
fn full_reset(rule: &Rule) -> u64 {
    let mut state = State::default();
    // Credits are not all spent at once.
    let times = if matches!(rule, Rule::BurstCredits(_)) { 60 } else { 1 };
    (0..times).for_each(|_| rule.spend(&mut state, PermitId(0), rule.capacity(), Timestamp::default()));
    rule.status(&state, Timestamp::default()).reset_after.get()
}

#[test]
fn converting_to_the_same_numbers_changes_no_answer() {
    on_any_change(1000, |at, (old, state), _, now| {
        let mut same = state.clone();
        old.convert(old, &mut same, now);
        assert_eq!(old.status(&same, now), old.status(state, now), "{at}");
        for cost in [1, old.capacity()] {
            assert_eq!(old.test(&same, cost, now), old.test(state, cost, now), "{at}: cost {cost}");
        }
    });
}

/// Requires that a view and a converted copy give equal answers, for some costs and times.
fn assert_view_is_converted_copy(
    at: &str,
    (old, state): (&Rule, &State),
    new: &Rule,
    charges: &[Timestamp],
    now: Timestamp,
    random: &mut Random,
) {
    let mut copy = state.clone();
    new.convert(old, &mut copy, now);
    let view = new.view(old, state, now);
    // A key at a reduced pace is converted between the full rules and decided by the reduced one.
    let rule = if random.chance(1, 3) { new.at_pace(reduced(random)) } else { *new };
    let at = format!("{at}: by {rule:?}");
    // The time of the conversion, and a time shortly before or after it: a caller may use a view more than once.
    let other = Timestamp::from_nanos((now.as_nanos() + random.below(1 << 20)).saturating_sub(1 << 19));
    for now in [now, other] {
        assert_eq!(view.status(&rule, now), rule.status(&copy, now), "{at}");
        for cost in [0, 1, random.between(0, rule.capacity()), rule.capacity(), rule.capacity() + 1] {
            let at = format!("{at}: cost {cost} at {now:?}");
            assert_eq!(view.test(&rule, cost, now), rule.test(&copy, cost, now), "{at}");
            assert_eq!(view.test_in_full(&rule, cost, now), rule.test_in_full(&copy, cost, now), "{at}");
            let charged = if charges.is_empty() { now } else { *random.pick(charges) };
            let given = rule.refund(&mut copy.clone(), cost, charged, now);
            assert_eq!(view.refundable(&rule, cost, charged, now), given, "{at}: charged {charged:?}");
        }
    }
}

fn reduced(random: &mut Random) -> Pace {
    let mut multiplier = RateMultiplier::new(100).unwrap();
    (0..random.between(1, 8)).for_each(|_| multiplier.observe(Load::High));
    multiplier.pace()
}

/// A rule of a random algorithm. About half of the rules are sliding logs.
fn any_rule(random: &mut Random) -> (Rule, u64) {
    const LOG: u64 = 5;
    match random.below(2 * KINDS) {
        kind if kind < KINDS => random_rule(kind, random),
        KINDS => {
            let lease = random.chance(1, 2).then(|| Duration::from_nanos(random.log_uniform(1, 1 << 40)));
            (Concurrency::new(random.log_uniform(1, 100), lease).unwrap().into(), 1 << 30)
        }
        _ => random_rule(LOG, random),
    }
}

#[test]
fn a_view_answers_as_a_converted_copy() {
    let (mut views, mut logs, mut moved, mut refunds) = (0, 0, 0, 0);
    for seed in 0..4000 * tollgate_testkit::effort() {
        let mut random = Random::new(seed);
        let (old, scale) = any_rule(&mut random);
        let (mut state, mut charges, mut id) = (State::default(), Vec::new(), 0);
        for step in Trace::new(seed, scale, old.capacity()).longest_idle(1 << 50).take(60) {
            let now = Timestamp::from_nanos(step.now);
            if random.chance(1, 20) {
                old.spend_in_full(&mut state, step.cost, now);
                charges.push(now);
            } else if old.test(&state, step.cost, now).is_allowed() {
                old.spend(&mut state, PermitId(id), step.cost, now);
                charges.push(now);
                id += 1;
            }
            let (new, _) = any_rule(&mut random);
            let at = format!("seed {seed} at {now:?}: {old:?} to {new:?}");
            assert_view_is_converted_copy(&at, (&old, &state), &new, &charges, now, &mut random);
            views += 1;
            if let (Rule::SlidingLog(_), Rule::SlidingLog(_), State::Log(log)) = (&old, &new, &state) {
                logs += 1;
                moved += u64::from(new.period() < old.period() && !log.is_empty());
                let mut copy = state.clone();
                new.convert(&old, &mut copy, now);
                refunds += u64::from(charges.iter().any(|&at| new.refund(&mut copy, 1, at, now) > 0));
            }
        }
    }
    // The random rules must produce enough of each case.
    assert!(views >= 200_000 && logs >= 50_000, "{views} views, {logs} of logs");
    assert!(moved >= 10_000 && refunds >= 10_000, "{moved} with a shorter window, {refunds} with a refund");
}

/// A copy has less spare memory than the state, so the state itself is converted here.
#[test]
fn a_view_of_a_large_state_counts_the_bytes_of_the_converted_state() {
    let (mut logs, mut with_spare_memory) = (0, 0);
    for seed in 0..20_000 * tollgate_testkit::effort() {
        let mut random = Random::new(seed);
        let ((old, scale), (new, _)) = (any_rule(&mut random), any_rule(&mut random));
        let (mut state, mut now) = (State::default(), Timestamp::default());
        for (id, step) in Trace::new(seed, scale, old.capacity()).take(random.below(60) as usize).enumerate()
        {
            now = Timestamp::from_nanos(step.now);
            if random.chance(1, 20) {
                old.spend_in_full(&mut state, step.cost, now);
            } else if old.test(&state, step.cost, now).is_allowed() {
                old.spend(&mut state, PermitId(id as u64), step.cost, now);
            }
        }
        // Views of other states are copies.
        let is_counter_to_log = matches!((&state, &new), (State::Counts(_), Rule::SlidingLog(_)));
        if !matches!(state, State::Log(_) | State::Permits(_)) && !is_counter_to_log {
            continue;
        }
        let at = format!("seed {seed} at {now:?}: {old:?} to {new:?}");
        let costs = [0, 1, random.between(0, new.capacity()), new.capacity(), 2 * new.capacity()];
        let view = new.view(&old, &state, now);
        let bytes = view.heap_bytes();
        let growth = costs.map(|cost| (view.heap_growth(&new, cost), view.heap_growth_in_full(&new, cost)));
        new.convert(&old, &mut state, now);
        assert_eq!(bytes, state.heap_bytes(), "{at}");
        let expected =
            costs.map(|cost| (new.heap_growth(&state, cost), new.heap_growth_in_full(&state, cost)));
        assert_eq!(growth, expected, "{at}: costs {costs:?}");
        if let State::Log(log) = &state {
            logs += 1;
            with_spare_memory += u64::from(log.allocated() > log.len());
        }
    }
    assert!(logs >= 3000 && with_spare_memory >= 500, "{logs} logs, {with_spare_memory} with spare memory");
}

#[test]
fn a_view_of_a_log_reads_few_of_its_entries() {
    let log = |limit, seconds| SlidingLog::new(limit, Duration::from_secs(seconds)).unwrap();
    let (old, new) = (Rule::from(log(1_000_000, 1000)), Rule::from(log(500_000, 500)));
    let (mut state, now) = (State::default(), Timestamp::from_nanos(1_000_000));
    for nanos in 0..1_000_000 {
        old.spend(&mut state, PermitId(0), 1, Timestamp::from_nanos(nanos));
    }
    // One view per entry. If each view copied the log, this test would take hours.
    for _ in 0..1_000_000 {
        let view = new.view(&old, &state, now);
        assert!(!view.test(&new, 1, now).is_allowed());
        assert_eq!(view.status(&new, now).remaining, 0);
        assert_eq!(view.refundable(&new, 1, now, now), 1); // the age of 1 ns is halved and rounded down to 0
    }
}
