//! Changing a rule's numbers never hands out more.

use tollgate_core::{Nanos, Outcome, PermitId, Rule, State, Timestamp};
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
