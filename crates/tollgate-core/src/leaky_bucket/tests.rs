#![allow(clippy::unwrap_used)]

use super::*;
use crate::table::*;

fn queue(per_second_: u64, capacity: u64) -> LeakyBucket {
    LeakyBucket::new(per_second(per_second_), capacity).unwrap()
}

/// Offers `arrivals` at `now`: how many are accepted, and the delay of the last.
fn offer(rule: &LeakyBucket, state: &mut Tat, now: u64, arrivals: u64) -> (u64, u64) {
    let mut accepted = (0, 0);
    for _ in 0..arrivals {
        match rule.decide(state, 1, at(now)).outcome {
            Outcome::Allow { delay } => accepted = (accepted.0 + 1, delay.get()),
            denied => assert_eq!(denied, deny(333_334)),
        }
    }
    accepted
}

#[test]
fn lq_1_seconds_of_traffic_against_a_queue() {
    let rule = queue(3000, 5000);
    let mut state = Tat::default();
    let occupancy = |state: &Tat, now| 5000 - rule.status(state, at(now)).remaining;
    for (now, arrivals, before, accepted, after, last_delay) in [
        (0, 4000, 0, 4000, 4000, 1_333_000_000),
        (S, 2500, 1000, 2500, 3500, 1_166_333_334),
        (2 * S, 3200, 500, 3200, 3700, 1_233_000_000),
        (3 * S, 6000, 700, 4300, 5000, 1_666_333_334),
    ] {
        assert_eq!(occupancy(&state, now), before, "before, at {now}");
        assert_eq!(offer(&rule, &mut state, now, arrivals), (accepted, last_delay), "at {now}");
        assert_eq!(occupancy(&state, now), after, "after, at {now}");
    }
    assert_eq!(occupancy(&state, 4 * S), 2000);
}

#[test]
fn lq_2_a_deadline_refuses_at_once() {
    let rule = queue(1, 50);
    let mut state = Tat::default();
    for i in 0..50 {
        assert_eq!(rule.decide(&mut state, 1, at(0)).outcome, allow_after(i * S));
    }
    assert_eq!(rule.decide(&mut state, 1, at(0)).outcome, deny(S));

    let mut state = Tat::default();
    let deadline = Nanos::new(10 * S);
    for i in 0..50 {
        let outcome = rule.test_within(&state, 1, at(0), deadline);
        assert_eq!(outcome, if i <= 10 { allow_after(i * S) } else { deny(S) }, "request {i}");
        if outcome.is_allowed() {
            rule.spend(&mut state, 1, at(0));
        }
    }
    // What was refused occupies nothing.
    assert_eq!(rule.status(&state, at(0)).remaining, 50 - 11);
    // Where the queue is also full, the longer of both waits is told.
    let short = queue(1, 11);
    assert_eq!(short.test_within(&state, 1, at(0), deadline), deny(S));
    assert_eq!(short.test_within(&state, 3, at(0), deadline), deny(3 * S));
    assert_eq!(short.test_within(&state, 1, at(0), Nanos::new(4 * S)), deny(7 * S));
}

#[test]
fn lq_3_spacing() {
    let rule = queue(3, 100);
    let mut state = Tat::default();
    for k in 0..100 {
        let release = (k * S).div_ceil(3);
        assert_eq!(rule.decide(&mut state, 1, at(0)).outcome, allow_after(release));
    }
    // And whatever the arrivals: k apart never closer than floor(k * T).
    let mut state = Tat::default();
    let arrivals =
        (0..2000).map(|i: u64| i * 7_919_333 % (30 * S)).collect::<std::collections::BTreeSet<_>>();
    let mut releases = Vec::new();
    for now in arrivals {
        if let Outcome::Allow { delay } = rule.decide(&mut state, 1, at(now)).outcome {
            releases.push(now + delay.get());
        }
    }
    for k in 1..releases.len() {
        let closest = releases.windows(k + 1).map(|run| run[k] - run[0]).min().unwrap();
        assert!(closest >= k as u64 * S / 3, "{k} apart: {closest}");
    }
}

#[test]
fn new_numbers_keep_the_places_and_the_promised_times() {
    let old = queue(10, 100);
    // (new rule, remaining then, delay of the next)
    for (new, remaining, delay) in [
        (queue(10, 50), 10, 4 * S),
        (queue(10, 200), 160, 4 * S),
        (queue(5, 100), 60, 8 * S),  // slower: 40 places take longer
        (queue(40, 200), 40, 4 * S), // faster: nobody overtakes those who were told 4 s
    ] {
        let mut state = Tat::default();
        let _ = old.decide(&mut state, 40, at(0));
        new.convert(&old, &mut state, at(0));
        assert_eq!(new.status(&state, at(0)).remaining, remaining, "{new:?}");
        assert_eq!(new.test(&state, 1, at(0)), allow_after(delay), "{new:?}");
    }
}

#[test]
fn numbers_changed_there_and_back_lock_nobody_out_for_longer_than_the_slower_queue_is() {
    let (fast, slow) = (queue(100, 50), queue(1, 50));
    let mut state = Tat::default();
    let _ = fast.decide(&mut state, 10, at(0));
    for _ in 0..10 {
        slow.convert(&fast, &mut state, at(0));
        fast.convert(&slow, &mut state, at(0));
        assert!(fast.status(&state, at(0)).reset_after <= span(50 * S));
    }
}

#[test]
fn a_place_in_the_queue_is_not_given_back() {
    let rule = LeakyBucket::new(per_second(1), 3).unwrap();
    let mut state = replay(&rule, &[(0, 1, ALLOW, 2, S), (0, 1, allow_after(S), 1, 2 * S)]);
    let before = state;
    assert_eq!(rule.refund(&mut state, 1, at(0), at(0)), 0);
    assert_eq!(state, before);
    // Otherwise two would go at 1 s.
    replay_on(&rule, &mut state, &[(0, 1, allow_after(2 * S), 0, 3 * S)]);
}
