#![allow(clippy::unwrap_used)]

use super::*;
use crate::table::*;

const NOON: u64 = 12 * 60 * MIN;

fn aligned(limit: u64, window: u64) -> FixedWindow {
    FixedWindow::new(limit, span(window), Align::Epoch).unwrap()
}

fn anchored(limit: u64, window: u64) -> FixedWindow {
    FixedWindow::new(limit, span(window), Align::First).unwrap()
}

#[test]
fn fw_1_twice_the_limit_round_an_edge() {
    let rule = aligned(10, MIN);
    let mut state = Window::default();
    assert_eq!(hammer(&rule, &mut state, NOON + 50 * S, NOON + 59 * S, S), 10);
    replay_on(&rule, &mut state, &[(NOON + 59 * S + 500 * MS, 1, deny(500 * MS), 0, 500 * MS)]);
    assert_eq!(hammer(&rule, &mut state, NOON + MIN, NOON + MIN + 9 * S, S), 10);
    // 20 in 19 s, and 2 * limit is the most in any span of a window: nothing more until the next edge.
    assert_eq!(hammer(&rule, &mut state, NOON + MIN + 10 * S, NOON + 2 * MIN - 1, S), 0);
}

#[test]
fn fw_2_last_and_first_second() {
    let rule = aligned(99, MIN);
    let mut state = Window::default();
    assert_eq!(drain(&rule, &mut state, MIN - S), 99);
    assert_eq!(drain(&rule, &mut state, MIN + S - 1), 99);
}

#[test]
fn fw_3_costs_and_denial() {
    replay(
        &aligned(10, MIN),
        &[(0, 8, ALLOW, 2, MIN), (0, 3, deny(MIN), 2, MIN), (0, 2, ALLOW, 0, MIN), (0, 11, NEVER, 0, MIN)],
    );
}

#[test]
fn fw_4_denials_are_not_counted() {
    let rule = aligned(10, MIN);
    let mut state = Window::default();
    assert_eq!(drain(&rule, &mut state, 0), 10);
    replay_on(&rule, &mut state, &[(S, 1, deny(59 * S), 0, 59 * S); 7]);
    assert_eq!(state.used, 10);
}

#[test]
fn fw_5_clock_back_into_the_previous_window() {
    let rule = aligned(10, MIN);
    let mut state =
        replay(&rule, &[(101 * MIN, 1, ALLOW, 9, MIN), (100 * MIN + 59 * S, 1, ALLOW, 8, 61 * S)]);
    assert_eq!(drain(&rule, &mut state, 101 * MIN), 8);
    replay_on(&rule, &mut state, &[(6059 * S, 1, deny(61 * S), 0, 61 * S)]);
}

#[test]
fn an_anchored_window_opens_with_the_first_request() {
    let rule = anchored(2, MIN);
    replay(
        &rule,
        &[
            (50 * S, 0, ALLOW, 2, 0),
            (59 * S, 1, ALLOW, 1, MIN),
            (61 * S, 1, ALLOW, 0, 58 * S),
            (119 * S - 1, 1, deny(1), 0, 1),
            (119 * S, 1, ALLOW, 1, MIN),
            // Of a key that was idle, the next window opens when it comes back.
            (1000 * S, 1, ALLOW, 1, MIN),
        ],
    );
}

#[test]
fn windows_begin_on_the_minute_of_the_wall_clock() {
    // The clock's zero is 12:00:20.
    let rule = aligned(1, MIN).started_at(span(NOON + 20 * S));
    replay(&rule, &[(0, 1, ALLOW, 0, 40 * S), (39 * S, 1, deny(S), 0, S), (40 * S, 1, ALLOW, 0, MIN)]);
}

#[test]
fn new_numbers_keep_the_count() {
    let old = aligned(10, MIN);
    // (new rule, remaining at 90 s, reset then)
    for (new, remaining, reset) in [
        (aligned(20, MIN), 12, 30 * S),
        (aligned(5, MIN), 0, 30 * S),
        (aligned(10, 10 * S), 2, 10 * S), // a shorter window forgives nothing now
        (aligned(10, 60 * MIN), 2, 60 * MIN - 90 * S),
        (anchored(10, MIN), 2, MIN),
    ] {
        let mut state = replay(&old, &[(80 * S, 8, ALLOW, 2, ANY)]);
        new.convert(&old, &mut state, at(90 * S));
        replay_on(&new, &mut state, &[(90 * S, 0, ALLOW, remaining, reset)]);
    }
    // An unused key stays unused.
    let mut state = replay(&old, &[(0, 8, ALLOW, 2, ANY)]);
    aligned(20, MIN).convert(&old, &mut state, at(60 * S));
    assert_eq!(state, Window::default());
}

#[test]
fn nonsense_is_refused() {
    let window = |limit, window| FixedWindow::new(limit, window, Align::Epoch);
    assert_eq!(window(0, span(S)), Err(RuleError::ZeroCapacity { what: "limit" }));
    assert_eq!(window(1, Duration::ZERO), Err(RuleError::ZeroSpan { what: "window" }));
    assert!(matches!(window(1, Duration::MAX), Err(RuleError::TooLong { .. })));
}

#[test]
fn a_conversion_with_a_clock_that_stepped_back_is_as_at_the_start_of_the_window() {
    let old = aligned(10, MIN);
    let mut state = replay(&old, &[(120 * S, 10, ALLOW, 0, ANY)]);
    let new = aligned(10, 10 * S);
    new.convert(&old, &mut state, at(65 * S));
    replay_on(&new, &mut state, &[(65 * S, 1, deny(65 * S), 0, ANY), (129 * S, 1, deny(S), 0, ANY)]);
}
