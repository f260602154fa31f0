use super::CounterMode::{Interpolate, Lenient, Strict};
use super::{CounterMode, SlidingCounter};
use crate::Random;
use crate::oracle::expected::{MS, S, allow, deny, never, wait};

/// One counter of 60 s with `previous` in [0, 60) and `current` in [60, 120), admitted under a
/// limit high enough for both.
fn two_counters(previous: u64, current: u64, limit: u64) -> SlidingCounter {
    let mut counter = SlidingCounter::new(previous + current, 60 * S, 1, Interpolate);
    assert!(counter.ask(0, previous).allowed);
    assert!(counter.ask(60 * S, current).allowed);
    counter.limit = limit;
    counter
}

#[test]
fn sc_1_the_estimate_is_compared_exactly() {
    let mut counter = two_counters(42, 18, 50);
    let now = 75 * S;
    assert_eq!(counter.ask(now, 1), deny(714_285_715, 0, 105 * S));
    assert_eq!(wait(counter.ask(now + 714_285_714, 1)), 1);
    assert!(counter.ask(now + 714_285_715, 1).allowed);
    assert_eq!(two_counters(42, 18, 51).ask(now, 1), allow(0, 105 * S));
}

#[test]
fn sc_2_retry_beyond_the_window() {
    let mut counter = two_counters(0, 10, 10);
    let now = 80 * S;
    assert_eq!(counter.ask(now, 1), deny(46 * S, 0, 100 * S));
    assert!(!counter.ask(now + 46 * S - 1, 1).allowed);
    assert!(counter.ask(now + 46 * S, 1).allowed);
}

#[test]
fn sc_3_two_counter_rows() {
    assert_eq!(two_counters(84, 36, 100).ask(75 * S, 1).remaining, 0);
    assert!(two_counters(84, 36, 100).ask(75 * S, 1).allowed);
    let mut counter = two_counters(80, 30, 100);
    assert_eq!(counter.ask(75 * S, 1), allow(9, 105 * S));
    assert_eq!((0..20).filter(|_| counter.ask(75 * S, 1).allowed).count(), 9);
    assert_eq!(wait(two_counters(80, 40, 100).ask(75 * S, 1)), 750 * MS);
    assert_eq!(wait(two_counters(5, 3, 7).ask(78 * S, 1)), 6 * S);
}

#[test]
fn sc_4_costs() {
    let counter = two_counters(40, 10, 50);
    assert_eq!(counter.clone().ask(90 * S, 20), allow(0, 90 * S));
    assert_eq!(counter.clone().ask(90 * S, 21), deny(1500 * MS, 20, 90 * S));
    assert_eq!(counter.clone().ask(90 * S, 51), never(20, 90 * S));
}

/// Asks without pause from `now` until `until`; the times of the admissions.
fn hammer(counter: &mut SlidingCounter, mut now: u64, until: u64) -> Vec<u64> {
    let mut admitted = Vec::new();
    while now < until {
        let answer = counter.ask(now, 1);
        if answer.allowed {
            admitted.push(now);
        } else {
            now += wait(answer);
        }
    }
    admitted
}

#[test]
fn sc_5_the_true_worst_case() {
    for buckets in [1, 2, 4, 10, 60] {
        let mut counter = SlidingCounter::new(100, 60 * S, buckets, Interpolate);
        let start = 59_999 * MS;
        assert!(counter.ask(start, 100).allowed);
        let later = hammer(&mut counter, start, start + 60 * S);
        assert_eq!(100 + later.len(), 199, "{buckets} sub-windows");
        if buckets == 1 {
            assert_eq!((later[0], later[1], later[98]), (60_600 * MS, 61_200 * MS, 119_400 * MS));
        }
    }
}

#[test]
fn sc_5_what_the_sub_windows_buy() {
    for (mode, buckets) in [(Interpolate, 1), (Interpolate, 4), (Interpolate, 7), (Strict, 1), (Strict, 7)] {
        let window = 1000u64;
        let mut random = Random::new(5);
        let mut counter = SlidingCounter::new(30, window, buckets, mode);
        let (mut now, mut admitted) = (0u64, Vec::new());
        for _ in 0..5000 {
            now += random.log_uniform(0, 300);
            let cost = random.between(1, 9);
            if counter.ask(now, cost).allowed {
                admitted.push((now, cost));
            }
        }
        let safe = if mode == Strict { window } else { window - window.div_ceil(buckets.into()) };
        for (end, _) in &admitted {
            let inside = admitted.iter().filter(|(time, _)| time + safe > *end && time <= end);
            let sum: u64 = inside.map(|(_, cost)| cost).sum();
            assert!(sum <= 30, "{mode:?} {buckets}: {sum} until {end}");
        }
    }
}

#[test]
fn sc_6_strict() {
    let mut counter = SlidingCounter::new(100, 60 * S, 10, Strict);
    assert!(counter.ask(59_999 * MS, 100).allowed);
    assert_eq!(counter.ask(59_999 * MS, 1), deny(60_001 * MS, 0, 60_001 * MS));
    let admitted = hammer(&mut counter, 59_999 * MS, 59_999 * MS + 60 * 60 * S);
    assert_eq!(admitted[0], 120 * S);
    assert!(admitted.len() as u64 * 66 >= 60 * 60 * 100 - 100 * 66, "{} in an hour", admitted.len());
}

#[test]
fn sc_7_rollover_after_idle() {
    let mut counter = SlidingCounter::new(50, 60 * S, 1, Interpolate);
    assert!(counter.ask(30 * S, 50).allowed);
    assert_eq!(counter.ask(60 * S, 0), allow(0, 60 * S));
    assert_eq!(counter.ask(90 * S, 0), allow(25, 30 * S));
    assert_eq!(counter.ask(120 * S, 0), allow(50, 0));
}

#[test]
fn sc_8_the_estimate_ignores_where_in_the_window_they_came() {
    for time in [0, 59_999 * MS] {
        let mut counter = SlidingCounter::new(50, 60 * S, 1, Interpolate);
        assert!(counter.ask(time, 42).allowed);
        // 31.5 of the 42 count: 10.5 too few if all were late, 31.5 too many if all were early.
        assert_eq!(counter.ask(75 * S, 0).remaining, 18);
    }
}

#[test]
fn sc_9_clock_steps_back() {
    let mut counter = two_counters(40, 10, 50);
    assert_eq!(counter.ask(55 * S, 1), deny(6500 * MS, 0, 125 * S));
}

#[test]
fn lenient_forgets_a_sub_window_at_once() {
    let mut counter = SlidingCounter::new(10, 60 * S, 6, Lenient);
    assert_eq!(counter.ask(5 * S, 10), allow(0, 55 * S));
    assert_eq!(counter.ask(59 * S, 1), deny(S, 0, S));
    assert_eq!(counter.ask(60 * S, 1), allow(9, 60 * S));
}

#[test]
fn sub_windows_of_fractional_length_are_exact() {
    // 1000 ns in 3: edges at 0, 333 1/3, 666 2/3, 1000, ... A time is in the next one from the
    // first whole nanosecond on.
    let mut counter = SlidingCounter::new(6, 1000, 3, Strict);
    assert_eq!(counter.ask(333, 1), allow(5, 1334 - 333));
    assert_eq!(counter.ask(334, 5), allow(0, 1667 - 334));
    assert_eq!(counter.ask(334, 1), deny(1334 - 334, 0, 1667 - 334));
}

/// The retry formula of the vectors, for whole sub-windows, against the search.
#[test]
fn the_search_agrees_with_the_closed_formula() {
    let mut random = Random::new(11);
    for _ in 0..20_000 {
        let (w, buckets, limit) = (random.between(1, 40), random.between(1, 5), random.between(1, 30));
        let mode = *random.pick(&[Interpolate, Strict, Lenient]);
        let mut counter = SlidingCounter::new(limit, w * buckets, u32::try_from(buckets).unwrap(), mode);
        let mut now = 0;
        for _ in 0..12 {
            now += random.below(2 * w);
            counter.ask(now, random.between(1, limit));
        }
        let cost = random.between(1, limit);
        let answer = counter.would(now, cost);
        if !answer.allowed {
            assert_eq!(wait(answer), closed_retry(&counter, mode, w, now, cost), "{counter:?} {now} {cost}");
        }
    }
}

fn closed_retry(counter: &SlidingCounter, mode: CounterMode, w: u64, now: u64, cost: u64) -> u64 {
    let (limit, buckets) = (counter.limit, u64::from(counter.buckets));
    let count = |index: u64| {
        counter
            .counts
            .iter()
            .filter(|(counted, _)| *counted == i128::from(index))
            .map(|(_, c)| c)
            .sum::<u64>()
    };
    let full = |index: u64| (index.saturating_sub(buckets - 1)..=index).map(count).sum::<u64>();
    let old = |index: u64| index.checked_sub(buckets).map_or(0, count);
    let mut index = now / w;
    match mode {
        Interpolate => {
            while full(index) + cost > limit {
                index += 1;
            }
            let over = (old(index) + full(index) + cost).saturating_sub(limit);
            let e = if over == 0 { 0 } else { (w * over).div_ceil(old(index)) };
            index * w + e - now
        }
        Strict | Lenient => {
            let old = |index| if mode == Strict { old(index) } else { 0 };
            while old(index) + full(index) + cost > limit {
                index += 1;
            }
            index * w - now
        }
    }
}

#[test]
fn a_refund_leaves_the_sub_window_it_was_counted_in() {
    // 40 in [0, 60), 10 in [60, 120); at 90 s half of the 40 counts.
    let mut counter = two_counters(40, 10, 50);
    assert_eq!(counter.ask(90 * S, 0), allow(20, 90 * S));
    assert_eq!(counter.refund(90 * S, 20, 59 * S), 20);
    assert_eq!(counter.ask(90 * S, 0), allow(30, 90 * S));
    // With nothing left in the newest, the one before it is what is left to forget.
    assert_eq!(counter.refund(90 * S, 15, 60 * S), 10);
    assert_eq!(counter.ask(90 * S, 0), allow(40, 30 * S));
    // An earlier moment is still taken as the start of the newest.
    assert_eq!(counter.ask(30 * S, 0), allow(30, 90 * S));
    assert_eq!(counter.clone().refund(120 * S, 20, 0), 0);
    assert_eq!(counter.refund(120 * S - 1, 20, 0), 20);
    assert_eq!(counter.ask(30 * S, 1), allow(49, 90 * S));
}

#[test]
fn a_refund_of_what_lenient_has_forgotten_gives_nothing() {
    for (mode, given) in [(Lenient, 0), (Strict, 3), (Interpolate, 3)] {
        let mut counter = SlidingCounter::new(10, 60 * S, 6, mode);
        assert!(counter.ask(5 * S, 3).allowed);
        assert_eq!(counter.clone().refund(60 * S - 1, 3, 0), 3);
        assert_eq!(counter.clone().refund(60 * S, 3, 0), given);
        assert_eq!(counter.refund(70 * S, 3, 0), 0);
    }
}
