#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::table::*;
use crate::{Algorithm, Nanos, RuleError, TokenBucket};

fn bounds() -> Bounds {
    Bounds::new(1, 1000).unwrap()
}

fn ok(rtt: Duration, in_flight: u64) -> Sample {
    Sample { rtt, in_flight, dropped: false }
}

fn drop_with(in_flight: u64) -> Sample {
    Sample { rtt: span(10 * MS), in_flight, dropped: true }
}

#[test]
fn ad_1_aimd() {
    for (limit, sample, after) in [
        (20, ok(span(MS), 10), 21),
        (20, ok(span(MS), 9), 20),
        (20, drop_with(10), 18),
        (20, drop_with(1), 18), // a drop counts however few are in flight
        (20, ok(Duration::from_secs(6), 10), 18),
        (2, drop_with(2), 1),
        (1, drop_with(1), 1),
        (1000, ok(span(MS), 1000), 1000),
    ] {
        let mut aimd = Aimd::new(limit, bounds(), 900, Duration::from_secs(5)).unwrap();
        aimd.observe(sample);
        assert_eq!(aimd.limit(), after, "{limit} after {sample:?}");
    }
}

#[test]
fn ad_2_gradient2() {
    // The average is warmed up with too few in flight to move the limit, so that the last sample stands
    // in the given proportion to the average it then belongs to.
    let ms = |n: u64| span(n * MS);
    for (name, warm_up, last, in_flight, after) in [
        ("long = short", vec![ms(10)], ms(10), 50, 100.8),
        ("short = 1.25 long", vec![ms(3)], ms(5), 50, 96.8),
        ("short = 2 long", vec![ms(1); 2], ms(4), 50, 90.8),
        ("short = 4 long", vec![ms(1); 9], ms(6), 50, 90.8),
        ("too few in flight", vec![ms(10)], ms(10), 49, 100.0),
    ] {
        let mut gradient = Gradient2::new(100, bounds());
        warm_up.into_iter().for_each(|rtt| gradient.observe(ok(rtt, 0)));
        gradient.observe(ok(last, in_flight));
        let limit = gradient.limit_units() as f64 / 1024.0;
        assert!((limit - after).abs() <= 1.0 / 1024.0, "{name}: {limit}");
        assert_eq!(gradient.limit() as f64, after.floor(), "{name}");
    }
}

#[test]
fn ad_2_lasting_overload_does_not_become_the_usual() {
    let mut gradient = Gradient2::new(100, Bounds::new(4, 200).unwrap());
    (0..1000).for_each(|_| gradient.observe(ok(span(10 * MS), 0)));
    (0..500).for_each(|_| gradient.observe(ok(span(15 * MS), 200)));
    assert!(gradient.limit() <= 12, "{}", gradient.limit());
    // But a base that has really shifted is learned in the end.
    (0..3000).for_each(|_| gradient.observe(ok(span(15 * MS), 200)));
    assert!(gradient.limit() > 100, "{}", gradient.limit());
    // Even one that is ten times as long.
    (0..20_000).for_each(|_| gradient.observe(ok(span(150 * MS), 200)));
    assert!(gradient.limit() > 100, "{}", gradient.limit());
}

#[test]
fn ad_3_vegas() {
    let tenths = |n: u64| span(n * 100_000);
    for (sample, after) in [
        (ok(tenths(100), 10), 26),
        (ok(tenths(110), 10), 21),
        (ok(tenths(125), 10), 20),
        (ok(tenths(200), 10), 19),
        (drop_with(10), 19),
        (drop_with(1), 19),
        (ok(tenths(100), 9), 20),
    ] {
        let mut vegas = Vegas::new(20, bounds(), 1);
        vegas.observe(ok(tenths(100), 0)); // learns the no-load time
        vegas.observe(sample);
        assert_eq!(vegas.limit(), after, "{sample:?}");
    }
}

#[test]
fn ad_3_steps_grow_with_the_limit() {
    for (limit, rtt, after) in [(99, 10, 105), (100, 10, 112), (200, 10, 212), (1000, 20, 997)] {
        let mut vegas = Vegas::new(limit, Bounds::new(1, 2000).unwrap(), 1);
        vegas.observe(ok(span(10 * MS), 0));
        vegas.observe(ok(span(rtt * MS), limit));
        assert_eq!(vegas.limit(), after, "{limit}");
    }
}

#[test]
fn a_quick_refusal_is_no_measure_of_time() {
    let refusal = Sample { rtt: span(MS / 10), in_flight: 100, dropped: true };
    let mut vegas = Vegas::new(100, bounds(), 1);
    vegas.observe(ok(span(10 * MS), 0));
    vegas.observe(refusal);
    assert_eq!(vegas.no_load(), Some(10 * MS));
    let mut gradient = Gradient2::new(100, bounds());
    (0..100).for_each(|_| gradient.observe(ok(span(10 * MS), 0)));
    (0..10).for_each(|_| gradient.observe(refusal));
    gradient.observe(ok(span(10 * MS), 100));
    assert_eq!(gradient.limit(), 100); // 100.8: times are as usual
}

#[test]
fn ad_3_one_busy_moment_does_not_poison_the_no_load_time() {
    let mut vegas = Vegas::new(20, Bounds::new(20, 20).unwrap(), 7);
    for i in 0..100_000 {
        // One request in 250 finds an empty upstream.
        vegas.observe(ok(if i % 250 == 0 { span(10 * MS) } else { span(50 * MS) }, 20));
        assert_eq!(vegas.no_load(), Some(10 * MS), "after {i}");
    }
    // A base that has shifted is found within two periods.
    (0..2 * 30 * 20).for_each(|_| vegas.observe(ok(span(30 * MS), 20)));
    assert_eq!(vegas.no_load(), Some(30 * MS));
}

#[test]
fn ad_4_shared_multiplier() {
    let mut multiplier = RateMultiplier::new(100).unwrap();
    let mut run = |load, times, expected: &[f64]| {
        let seen: Vec<f64> = (0..times)
            .map(|_| {
                multiplier.observe(load);
                multiplier.pace().as_f64()
            })
            .collect();
        let near = |(seen, expected): (&f64, &f64)| (seen - expected).abs() < 1e-9;
        assert!(seen.iter().zip(expected).all(near) && seen.len() == expected.len(), "{load:?}: {seen:?}");
    };
    run(Load::High, 3, &[0.8, 0.64, 0.512]);
    run(Load::Between, 5, &[0.512; 5]);
    run(Load::Low, 10, &[0.562, 0.612, 0.662, 0.712, 0.762, 0.812, 0.862, 0.912, 0.962, 1.0]);
    (0..100).for_each(|_| multiplier.observe(Load::High));
    assert_eq!(multiplier.pace().as_f64(), 0.1);
    assert_eq!(multiplier.pace_of(2).as_f64(), 0.1);
}

#[test]
fn ad_4_shed_classes() {
    let mut multiplier = RateMultiplier::new(100).unwrap();
    (0..3).for_each(|_| multiplier.observe(Load::High));
    let rule = TokenBucket::new(per_second(100), 10).unwrap();
    for (shed, interval) in [(0, 10_000_000), (1, 19_531_250), (2, 38_146_973)] {
        let mut clock = VirtualClock::default();
        clock.set_pace(at(0), multiplier.pace_of(shed));
        let mut state = Default::default();
        assert_eq!(drain(&rule, &mut state, 0), 10);
        // 100/s, 51.2/s, 26.2144/s: the time between tokens, to the nanosecond.
        let wait = clock.real_wait(at(0), retry(rule.test(&state, 1, clock.at(at(0)))));
        assert_eq!(wait, span(interval), "shed {shed}");
        assert!(!rule.test(&state, 1, clock.at(at(interval - 1))).is_allowed());
        assert!(rule.test(&state, 1, clock.at(at(interval))).is_allowed());
    }
    // A window's limit is scaled instead.
    assert_eq!([0, 1, 2].map(|shed| multiplier.pace_of(shed).of(100)), [100, 51, 26]);
    assert_eq!(multiplier.pace_of(2).of(3), 1);
}

#[test]
fn ad_4_a_tenant_within_the_reduced_rate_sees_no_denial() {
    let mut multiplier = RateMultiplier::new(100).unwrap();
    let mut clock = VirtualClock::default();
    let rule = TokenBucket::new(per_second(100), 10).unwrap();
    let (mut modest, mut greedy) = Default::default();
    let mut greedy_admitted = 0;
    for i in 0..51 * 60 {
        if i < 3 {
            multiplier.observe(Load::High);
            clock.set_pace(at(i * S / 51), multiplier.pace());
        }
        let now = clock.at(at(i * S / 51));
        assert!(rule.decide(&mut modest, 1, now).is_allowed(), "request {i}");
        greedy_admitted += drain(&rule, &mut greedy, now.as_nanos());
    }
    // In a minute, the burst and 51.2 a second (a little more while the multiplier came down).
    assert!((10 + 3071..=10 + 3073).contains(&greedy_admitted), "{greedy_admitted}");
}

#[test]
fn ad_4_a_change_hands_out_nothing() {
    let rule = TokenBucket::new(per_second(100), 10).unwrap();
    let mut clock = VirtualClock::default();
    let mut state = Default::default();
    assert_eq!(drain(&rule, &mut state, 0), 10);
    let mut half = RateMultiplier::new(500).unwrap();
    (0..9).for_each(|_| half.observe(Load::High));
    clock.set_pace(at(0), half.pace());
    assert_eq!(rule.status(&state, clock.at(at(0))).remaining, 0);
    let wait = retry(rule.test(&state, 1, clock.at(at(0))));
    assert_eq!(clock.real_wait(at(0), wait), span(20 * MS));
}

#[test]
fn a_virtual_clock_never_jumps() {
    let mut clock = VirtualClock::default();
    let mut multiplier = RateMultiplier::new(1).unwrap();
    multiplier.observe(Load::High);
    clock.set_pace(at(7), multiplier.pace());
    assert_eq!([7, 8, 9, 12].map(|t| clock.at(at(t)).as_nanos()), [7, 7, 8, 11]);
    multiplier.observe(Load::High);
    clock.set_pace(at(9), multiplier.pace()); // 8.6, and 0.64 from there
    assert_eq!([9, 10, 11, 14].map(|t| clock.at(at(t)).as_nanos()), [8, 9, 9, 11]);
    // However far the real clock steps back, a wait is never short.
    for now in 0..12 {
        let wait = clock.real_wait(at(now), Nanos::new(3));
        assert!(clock.at(at(now).after(wait)).as_nanos() >= clock.at(at(now)).as_nanos() + 3, "at {now}");
    }
    // A real clock that steps back finds it earlier, and setting the pace then moves nothing.
    assert_eq!(clock.at(at(5)).as_nanos(), 6);
    let before = clock;
    clock.set_pace(at(5), multiplier.pace());
    assert_eq!(clock, before);
}

#[test]
fn nonsense_is_refused() {
    assert_eq!(Bounds::new(0, 5), Err(RuleError::Bounds { min: 0, max: 5 }));
    assert_eq!(Bounds::new(6, 5), Err(RuleError::Bounds { min: 6, max: 5 }));
    assert!(Bounds::new(1, u64::MAX).is_err());
    assert!(Aimd::new(1, bounds(), 1000, Duration::ZERO).is_err());
    assert!(RateMultiplier::new(0).is_err());
    assert!(RateMultiplier::new(1001).is_err());
}
