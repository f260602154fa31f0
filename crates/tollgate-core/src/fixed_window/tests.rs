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
fn the_time_of_day_moves_no_window_that_begins_with_a_request() {
    let old = anchored(10, 10 * S);
    let new = old.started_at(span(NOON + 3 * S));
    assert_eq!(new, old);
    let mut state = replay(&old, &[(20 * S, 8, ALLOW, 2, 10 * S)]);
    new.convert(&old, &mut state, at(29 * S));
    replay_on(&new, &mut state, &[(29 * S, 0, ALLOW, 2, S), (30 * S, 10, ALLOW, 0, 10 * S)]);
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

#[test]
fn a_refund_is_for_a_charge_of_the_open_window() {
    let rule = aligned(10, MIN);
    let state = replay(&rule, &[(59 * S, 4, ALLOW, 6, S), (60 * S, 7, ALLOW, 3, MIN)]);
    // (cost, charged, now, given)
    for (cost, charged, now, given) in [
        (4, 59 * S, 61 * S, 0),
        (4, 60 * S, 61 * S, 4),
        (9, 60 * S, 120 * S - 1, 7),
        (4, 60 * S, 120 * S, 0),
        (4, 120 * S, 61 * S, 0),
        (4, 61 * S, 30 * S, 4), // by a clock that stepped back, the window is still the open one
        (0, 60 * S, 61 * S, 0),
    ] {
        let mut refunded = state;
        assert_eq!(
            rule.refund(&mut refunded, cost, at(charged), at(now)),
            given,
            "{cost} of {charged} at {now}"
        );
        assert_eq!(refunded.used, 7 - given, "{cost} of {charged} at {now}");
        assert_eq!(refunded == Window::default(), given == 7);
        assert_eq!(refunded == state, given == 0);
    }
}

#[test]
fn an_anchored_window_with_nothing_left_in_it_opens_anew() {
    let rule = anchored(2, MIN);
    let mut state = replay(&rule, &[(7 * S, 1, ALLOW, 1, MIN)]);
    assert_eq!(rule.refund(&mut state, 1, at(7 * S), at(8 * S)), 1);
    replay_on(&rule, &mut state, &[(50 * S, 1, ALLOW, 1, MIN)]);
}

#[test]
fn what_had_run_out_before_a_longer_window_is_not_given_back() {
    let (minute, hour) = (aligned(10, MIN), aligned(10, 60 * MIN));
    let mut state = replay(&minute, &[(30 * S, 5, ALLOW, 5, ANY), (70 * S, 3, ALLOW, 7, ANY)]);
    hour.convert(&minute, &mut state, at(80 * S));
    for charged in [30 * S, 70 * S] {
        let before = state;
        assert_eq!(hour.refund(&mut state, 3, at(charged), at(90 * S)), 0);
        assert_eq!(state, before);
    }
    // What came after the change is.
    replay_on(&hour, &mut state, &[(85 * S, 2, ALLOW, 5, ANY)]);
    assert_eq!(hour.refund(&mut state, 2, at(85 * S), at(90 * S)), 2);
    // A change of the limit alone leaves the window as it is.
    let mut state = replay(&minute, &[(70 * S, 3, ALLOW, 7, ANY)]);
    aligned(20, MIN).convert(&minute, &mut state, at(80 * S));
    assert_eq!(aligned(20, MIN).refund(&mut state, 3, at(70 * S), at(90 * S)), 3);
}
