#![allow(clippy::unwrap_used)]

use super::*;
use crate::table::*;

fn counter(limit: u64, buckets: u32, mode: Mode) -> SlidingCounter {
    SlidingCounter::new(limit, span(MIN), buckets, mode).unwrap()
}

fn interpolate(limit: u64) -> SlidingCounter {
    counter(limit, 1, Mode::Interpolate)
}

/// A key with `previous` and `current` counts, N = 1, and the moment `into` the current window.
fn key(previous: u64, current: u64, into: u64) -> (Counts, u64) {
    let generous = interpolate(1_000_000);
    let mut counts = Counts::default();
    generous.spend(&mut counts, previous, at(10 * MIN));
    generous.spend(&mut counts, current, at(11 * MIN));
    (counts, 11 * MIN + into)
}

/// Hammers every `step` from `from` for `duration`: when each was admitted.
fn admissions(rule: &SlidingCounter, state: &mut Counts, from: u64, duration: u64, step: u64) -> Vec<u64> {
    (from..from + duration)
        .step_by(step as usize)
        .filter(|&t| rule.decide(state, 1, at(t)).is_allowed())
        .collect()
}

#[test]
fn sc_1_exact_to_the_nanosecond() {
    let rule = interpolate(50);
    let (mut state, now) = key(42, 18, 15 * S);
    replay_on(
        &rule,
        &mut state,
        &[
            (now, 1, deny(714_285_715), 0, ANY),
            (now + 714_285_714, 1, deny(1), 0, ANY),
            (now + 714_285_715, 1, ALLOW, 0, ANY),
        ],
    );
    let (mut state, now) = key(42, 18, 15 * S);
    replay_on(&interpolate(51), &mut state, &[(now, 1, ALLOW, 0, ANY)]);
}

#[test]
fn sc_2_retry_beyond_the_window() {
    let (mut state, now) = key(0, 10, 20 * S);
    replay_on(
        &interpolate(10),
        &mut state,
        &[
            (now, 1, deny(46 * S), 0, 100 * S),
            (now + 45_999_999_999, 1, deny(1), 0, ANY),
            (now + 46 * S, 1, ALLOW, 0, ANY),
        ],
    );
}

#[test]
fn sc_3_estimates() {
    for (previous, current, into, limit, outcome, remaining) in [
        (84, 36, 15 * S, 100, ALLOW, 0),
        (80, 30, 15 * S, 100, ALLOW, 9),
        (80, 40, 15 * S, 100, deny(750 * MS), 0),
        (5, 3, 18 * S, 7, deny(6 * S), 0),
    ] {
        let (mut state, now) = key(previous, current, into);
        replay_on(&interpolate(limit), &mut state, &[(now, 1, outcome, remaining, ANY)]);
    }
    let (mut state, now) = key(80, 30, 15 * S);
    assert_eq!(drain(&interpolate(100), &mut state, now), 10);
}

#[test]
fn sc_4_costs() {
    let (mut state, now) = key(40, 10, 30 * S);
    replay_on(&interpolate(50), &mut state, &[(now, 21, deny(1500 * MS), 20, ANY), (now, 20, ALLOW, 0, ANY)]);
}

#[test]
fn sc_5_the_true_worst_case() {
    let first = 59_999 * MS;
    let rule = interpolate(100);
    let mut state = Counts::default();
    assert_eq!(drain(&rule, &mut state, first), 100);
    let later = admissions(&rule, &mut state, first, MIN, MS);
    let expected: Vec<u64> = (1..=99).map(|k| MIN + k * 600 * MS).collect();
    assert_eq!(later, expected); // 199 in one true window
    for buckets in [1, 2, 4, 10, 60] {
        let rule = counter(100, buckets, Mode::Interpolate);
        let mut state = Counts::default();
        assert_eq!(drain(&rule, &mut state, first), 100);
        let later = admissions(&rule, &mut state, first, MIN, MS);
        assert_eq!(later.len(), 99, "N = {buckets}");
        // What N buys: at most the limit in any span of W - w.
        assert!(later[0] >= first + MIN - MIN / u64::from(buckets), "N = {buckets}");
    }
}

#[test]
fn sc_5_strict_never_passes_the_limit_in_any_window() {
    for buckets in [1, 2, 4, 10, 60] {
        let rule = counter(100, buckets, Mode::Strict);
        let mut state = Counts::default();
        assert_eq!(drain(&rule, &mut state, 59_999 * MS), 100);
        let times = admissions(&rule, &mut state, 59_999 * MS, 10 * MIN, MS);
        assert!(times[0] >= 59_999 * MS + MIN);
        assert!(times.windows(101).all(|run| run[100] - run[0] >= MIN), "N = {buckets}");
    }
}

#[test]
fn sc_6_strict() {
    let rule = counter(100, 10, Mode::Strict);
    let mut state = Counts::default();
    assert_eq!(drain(&rule, &mut state, 59_999 * MS), 100);
    assert_eq!(rule.test(&state, 1, at(59_999 * MS)), deny(120 * S - 59_999 * MS));
    let times = admissions(&rule, &mut state, 60 * S, 66 * MIN, 10 * MS);
    assert_eq!(times[0], 120 * S);
    // Sustained at least L / (W + w): 90.9 a minute.
    assert!(times.len() as u64 * (MIN + MIN / 10) >= 100 * 66 * MIN, "{}", times.len());
}

#[test]
fn sc_7_rollover_after_idle() {
    let rule = interpolate(100);
    let (state, _) = key(0, 50, 0);
    assert_eq!(rule.view(&state, at(12 * MIN)).old, 50);
    assert_eq!(rule.view(&state, at(12 * MIN)).full, 0);
    assert_eq!(rule.status(&state, at(12 * MIN)).remaining, 50);
    assert_eq!(rule.status(&state, at(13 * MIN)), Status { remaining: 100, reset_after: Nanos::ZERO });
    assert!(rule.is_unused(&state, at(13 * MIN)));
    // Nor does what was forgotten come back with the next request, an even or odd number of windows on.
    for windows in [13, 14, 15, 100, 101] {
        replay_on(&rule, &mut state.clone(), &[(windows * MIN, 1, ALLOW, 99, 2 * MIN)]);
    }
}

#[test]
fn sc_8_estimate_error_range() {
    // All 42 came at the very end of their window, or at its very start: what truly counts at a quarter
    // of the next is 42 or 0. The estimate is 31.5 either way: off by -10.5 to +31.5.
    let (state, now) = key(42, 0, 15 * S);
    let view = interpolate(50).view(&state, at(now));
    let estimate = view.old as f64 * (MIN - view.into) as f64 / MIN as f64;
    assert_eq!((estimate - 42.0, estimate - 0.0), (-10.5, 31.5));
    assert_eq!(interpolate(50).status(&state, at(now)).remaining, 50 - 32);
}

#[test]
fn sc_9_clock_steps_back() {
    let rule = interpolate(50);
    let mut state = Counts::default();
    rule.spend(&mut state, 40, at(30 * S));
    rule.spend(&mut state, 10, at(60 * S));
    replay_on(
        &rule,
        &mut state,
        &[(55 * S, 1, deny(6_500 * MS), 0, 125 * S), (61_500 * MS, 1, ALLOW, 0, ANY)],
    );
}

#[test]
fn sub_windows_that_do_not_divide_the_window_lose_nothing() {
    // 7 sub-windows of 10 ns are 1 3/7 ns long: edges at 0, 1.43, 2.86, 4.29, ...
    let rule = SlidingCounter::new(5, span(10), 7, Mode::Lenient).unwrap();
    let mut state = Counts::default();
    rule.spend(&mut state, 5, at(4)); // in sub-window 2, which is forgotten at 9 * 10/7 = 12.86
    replay_on(&rule, &mut state, &[(4, 1, deny(9), 0, 9), (12, 1, deny(1), 0, 1), (13, 1, ALLOW, 4, ANY)]);
}

#[test]
fn sub_windows_begin_on_the_minute_of_the_wall_clock() {
    // The clock's zero is 20 s past the minute.
    let rule = interpolate(10).started_at(span(7 * MIN + 20 * S));
    replay(
        &rule,
        &[(0, 10, ALLOW, 0, 100 * S), (40 * S, 1, deny(6 * S), 0, MIN), (46 * S, 1, ALLOW, 0, ANY)],
    );
}

#[test]
fn new_numbers_keep_the_counts() {
    // 40 in the previous window, 10 in this one, at its half: 30 by interpolation.
    for (new, remaining) in [
        (interpolate(60), 30),
        (interpolate(20), 0),
        (counter(50, 1, Mode::Strict), 0),
        (counter(50, 1, Mode::Lenient), 40),
        (counter(50, 6, Mode::Interpolate), 20),
        (SlidingCounter::new(50, span(S), 1, Mode::Interpolate).unwrap(), 20),
        (SlidingCounter::new(50, span(60 * MIN), 4, Mode::Strict).unwrap(), 20),
    ] {
        let old = interpolate(50);
        let (mut state, now) = key(40, 10, 30 * S);
        new.convert(&old, &mut state, at(now));
        assert_eq!(new.status(&state, at(now)).remaining, remaining, "{new:?}");
    }
}

#[test]
fn nonsense_is_refused() {
    let new = |limit, window, buckets| SlidingCounter::new(limit, span(window), buckets, Mode::Strict);
    assert_eq!(new(0, S, 1), Err(RuleError::ZeroCapacity { what: "limit" }));
    assert_eq!(new(1, 0, 1), Err(RuleError::ZeroSpan { what: "window" }));
    assert_eq!(new(1, 10, 0), Err(RuleError::Buckets { found: 0, most: 10 }));
    assert_eq!(new(1, 10, 11), Err(RuleError::Buckets { found: 11, most: 10 }));
    assert!(new(1, 10, 10).is_ok());
    assert!(matches!(new(u64::MAX, S, 1), Err(RuleError::TooLarge { .. })));
}

#[test]
fn a_conversion_with_a_clock_that_stepped_back_is_as_at_the_newest_sub_window() {
    let (old, new) = (interpolate(10), SlidingCounter::new(10, span(10 * S), 1, Mode::Lenient).unwrap());
    let mut state = Counts::default();
    old.spend(&mut state, 10, at(120 * S));
    new.convert(&old, &mut state, at(65 * S));
    replay_on(&new, &mut state, &[(65 * S, 1, deny(65 * S), 0, ANY), (129 * S, 1, deny(S), 0, ANY)]);
}

#[test]
fn counts_that_nobody_converted_start_afresh() {
    let (few, many) = (counter(10, 2, Mode::Strict), counter(10, 10, Mode::Strict));
    for (from, to) in [(few, many), (many, few), (interpolate(10), many), (many, interpolate(10))] {
        let mut state = Counts::default();
        from.spend(&mut state, 3, at(120 * S));
        for now in [0, 120 * S, 500 * S] {
            let _ = to.decide(&mut state.clone(), 1, at(now));
        }
    }
}

#[test]
fn a_refund_leaves_the_sub_window_it_was_counted_in() {
    // 40 in [600, 660), 10 in [660, 720); at 690 s half of the 40 counts.
    let rule = interpolate(50);
    let (mut state, now) = key(40, 10, 30 * S);
    assert_eq!(rule.refund(&mut state, 20, at(659 * S), at(now)), 20);
    replay_on(&rule, &mut state, &[(now, 0, ALLOW, 30, 90 * S)]);
    // With nothing left in the newest, the one before it is what is left to forget.
    assert_eq!(rule.refund(&mut state, 15, at(660 * S), at(now)), 10);
    replay_on(&rule, &mut state, &[(now, 0, ALLOW, 40, 30 * S)]);
    // An earlier moment is still taken as the start of the newest.
    replay_on(&rule, &mut state, &[(630 * S, 0, ALLOW, 30, 90 * S)]);
    let before = state.clone();
    for (cost, charged, now) in [(20, 600 * S, 720 * S), (0, 600 * S, now), (1, 720 * S, now), (1, 0, now)] {
        assert_eq!(rule.refund(&mut state, cost, at(charged), at(now)), 0);
        assert_eq!(state, before);
    }
    assert_eq!(rule.refund(&mut state, 20, at(600 * S), at(720 * S - 1)), 20);
    assert_eq!(state, Counts::default());
}

#[test]
fn a_refund_of_what_lenient_has_forgotten_gives_nothing() {
    for (mode, given) in [(Mode::Lenient, 0), (Mode::Strict, 3), (Mode::Interpolate, 3)] {
        let rule = counter(10, 6, mode);
        let state = replay(&rule, &[(5 * S, 3, ALLOW, 7, ANY)]);
        for (now, given) in [(60 * S - 1, 3), (60 * S, given), (70 * S, 0)] {
            let mut refunded = state.clone();
            assert_eq!(rule.refund(&mut refunded, 3, at(5 * S), at(now)), given, "{mode:?} at {now}");
            assert_eq!(refunded, if given > 0 { Counts::default() } else { state.clone() });
        }
    }
}

#[test]
fn what_had_run_out_before_longer_sub_windows_is_not_given_back() {
    let short = SlidingCounter::new(10, span(S), 1, Mode::Strict).unwrap();
    let long = counter(10, 1, Mode::Strict);
    let mut state = replay(&short, &[(5 * S, 5, ALLOW, 5, ANY), (20 * S, 3, ALLOW, 7, ANY)]);
    long.convert(&short, &mut state, at(20 * S + 1));
    for charged in [5 * S, 20 * S] {
        let before = state.clone();
        assert_eq!(long.refund(&mut state, 3, at(charged), at(21 * S)), 0);
        assert_eq!(state, before);
    }
    replay_on(&long, &mut state, &[(30 * S, 2, ALLOW, 5, ANY)]);
    assert_eq!(long.refund(&mut state, 2, at(30 * S), at(31 * S)), 2);
    // Nor by a rule whose sub-windows nobody converted it to.
    assert_eq!(counter(10, 6, Mode::Strict).refund(&mut state, 2, at(30 * S), at(31 * S)), 0);
}
