#![allow(clippy::unwrap_used)]

use super::*;
use crate::table::*;

fn log(limit: u64, window: u64) -> SlidingLog {
    SlidingLog::new(limit, span(window)).unwrap()
}

#[test]
fn sl_1_an_entry_of_age_exactly_the_window_is_out() {
    replay(
        &log(3, 10 * S),
        &[
            (0, 1, ALLOW, 2, 10 * S),
            (S, 1, ALLOW, 1, 10 * S),
            (2 * S, 1, ALLOW, 0, 10 * S),
            (3 * S, 1, deny(7 * S), 0, 9 * S),
            (9_999_999_999, 1, deny(1), 0, ANY),
            (10 * S, 1, ALLOW, 0, 10 * S),
            (10_500 * MS, 1, deny(500 * MS), 0, 9_500 * MS),
        ],
    );
}

#[test]
fn sl_2_a_full_window_stays_full() {
    let rule = log(100, 60 * S);
    let mut state = Log::default();
    assert_eq!(drain(&rule, &mut state, 59 * S), 100);
    assert_eq!(rule.test(&state, 1, at(60 * S)), deny(59 * S));
    assert_eq!(hammer(&rule, &mut state, 60 * S, 119 * S - 1, 10 * MS), 0);
    assert_eq!(drain(&rule, &mut state, 119 * S), 100);
}

#[test]
fn sl_3_costs() {
    replay(
        &log(5, 10 * S),
        &[
            (0, 3, ALLOW, 2, ANY),
            (4 * S, 2, ALLOW, 0, ANY),
            (5 * S, 1, deny(5 * S), 0, ANY),
            (5 * S, 3, deny(5 * S), 0, ANY),
            (5 * S, 4, deny(9 * S), 0, ANY),
            (5 * S, 6, NEVER, 0, ANY),
        ],
    );
}

#[test]
fn sl_4_bounded_memory() {
    let rule = log(1000, 60 * S);
    let mut state = Log::default();
    assert_eq!(drain(&rule, &mut state, 0), 1000);
    for i in 0..1_000_000 {
        assert!(!rule.decide(&mut state, 1, at(i * 10)).is_allowed());
    }
    assert_eq!((state.len(), state.allocated()), (1000, 1000));
    // Nor does admitted traffic, however long: 8 bytes an entry, at most the limit of them.
    for i in 1..100_000 {
        let _ = rule.decide(&mut state, 1, at(60 * S + i * MS));
    }
    assert_eq!((state.len(), state.allocated()), (1000, 1000));
    assert_eq!(size_of::<Timestamp>(), 8);
}

#[test]
fn sl_5_never_above_the_limit_in_any_window() {
    let rule = log(7, 1000);
    let mut state = Log::default();
    let mut admitted: Vec<(u64, u64)> = Vec::new();
    let mut now = 0;
    for i in 0..20_000_u64 {
        now += i * i % 97;
        let cost = 1 + i % 3;
        if rule.decide(&mut state, cost, at(now)).is_allowed() {
            admitted.push((now, cost));
        }
        let inside = admitted.iter().rev().take_while(|(time, _)| time + 1000 > now);
        assert!(inside.map(|(_, cost)| cost).sum::<u64>() <= 7, "at {now}");
    }
}

#[test]
fn sl_6_clock_steps_back() {
    replay(
        &log(3, 10 * S),
        &[
            (10 * S, 1, ALLOW, 2, 10 * S),
            (9 * S, 1, ALLOW, 1, 11 * S),
            (10 * S, 1, ALLOW, 0, 10 * S),
            (9 * S, 1, deny(11 * S), 0, 11 * S),
            (19_999_999_999, 1, deny(1), 0, 1),
            (20 * S, 1, ALLOW, 2, 10 * S),
        ],
    );
}

#[test]
fn memory_grows_with_use_not_with_the_limit() {
    let rule = log(1_000_000, MIN);
    let state = replay(&rule, &[(0, 3, ALLOW, 999_997, MIN)]);
    assert!(state.allocated() < 10);
}

#[test]
fn new_numbers_keep_what_counts() {
    let old = log(10, 60 * S);
    let rows = [(0, 2, ALLOW, ANY, ANY), (20 * S, 2, ALLOW, ANY, ANY), (50 * S, 4, ALLOW, 2, ANY)];
    // (new rule, remaining at 60 s, wait for all of the limit)
    for (new, remaining, all) in [
        (log(20, 60 * S), 14, deny(50 * S)),
        (log(5, 60 * S), 0, deny(50 * S)),
        (log(3, 60 * S), 0, deny(50 * S)),
        (log(10, 6 * S), 4, deny(5 * S)), // entries keep their place in the window
        (log(10, 600 * S), 4, deny(590 * S)),
    ] {
        let mut state = replay(&old, &rows);
        new.convert(&old, &mut state, at(60 * S));
        replay_on(
            &new,
            &mut state,
            &[(60 * S, 0, ALLOW, remaining, ANY), (60 * S, new.capacity(), all, ANY, ANY)],
        );
        assert!(state.allocated() <= new.limit.max(10));
    }
}

#[test]
fn nonsense_is_refused() {
    assert_eq!(SlidingLog::new(0, span(S)), Err(RuleError::ZeroCapacity { what: "limit" }));
    assert_eq!(SlidingLog::new(1, span(0)), Err(RuleError::ZeroSpan { what: "window" }));
    assert!(matches!(SlidingLog::new(1 << 32, span(1)), Err(RuleError::TooLarge { .. })));
}

#[test]
fn a_limit_lowered_and_raised_again_forgives_nothing() {
    let (high, low) = (log(10, MIN), log(5, MIN));
    let mut state = replay(&high, &[(0, 10, ALLOW, 0, ANY)]);
    low.convert(&high, &mut state, at(S));
    replay_on(&low, &mut state, &[(S, 1, deny(59 * S), 0, 59 * S)]);
    high.convert(&low, &mut state, at(2 * S));
    replay_on(&high, &mut state, &[(2 * S, 1, deny(58 * S), 0, 58 * S), (MIN, 10, ALLOW, 0, MIN)]);
}

#[test]
fn a_refund_strikes_the_entries_of_its_moment() {
    let rule = log(5, 10 * S);
    let state = replay(&rule, &[(0, 2, ALLOW, 3, ANY), (S, 3, ALLOW, 0, ANY)]);
    // (cost, charged, now, given, remaining then)
    for (cost, charged, now, given, remaining) in [
        (1, 500 * MS, 2 * S, 0, 0),
        (1, 0, 2 * S, 1, 1),
        (9, 0, 2 * S, 2, 2),
        (u64::MAX, S, 2 * S, 3, 3),
        (1, 0, 10 * S - 1, 1, 1),
        (1, 0, 10 * S, 0, 2), // it has left
        (3, S, 10 * S, 3, 5),
        (3, S, 0, 3, 3), // by a clock that stepped back
        (0, S, 2 * S, 0, 0),
    ] {
        let (mut refunded, row) = (state.clone(), format!("{cost} of {charged} at {now}"));
        assert_eq!(rule.refund(&mut refunded, cost, at(charged), at(now)), given, "{row}");
        assert_eq!(rule.status(&refunded, at(now)).remaining, remaining, "{row}");
        assert_eq!(refunded == state, given == 0, "{row}");
    }
}

#[test]
fn a_refund_of_the_newest_brings_nothing_back_that_had_left() {
    let rule = log(5, 10 * S);
    let mut state = replay(&rule, &[(0, 2, ALLOW, 3, ANY), (10 * S, 1, ALLOW, 4, ANY)]);
    assert_eq!(rule.refund(&mut state, 1, at(10 * S), at(10 * S)), 1);
    assert_eq!(state, Log::default());
    // One that was logged later than it was stamped is not found.
    let mut state = replay(&rule, &[(10 * S, 1, ALLOW, 4, ANY), (9 * S, 1, ALLOW, 3, ANY)]);
    assert_eq!(rule.refund(&mut state, 1, at(9 * S), at(9 * S)), 0);
    assert_eq!(rule.refund(&mut state, 2, at(10 * S), at(9 * S)), 2);
}
