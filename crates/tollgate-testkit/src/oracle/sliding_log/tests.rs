use super::SlidingLog;
use crate::Random;
use crate::oracle::expected::{MS, S, allow, deny, never, wait};

#[test]
fn sl_1_the_oldest_makes_room() {
    let mut log = SlidingLog::new(3, 10 * S);
    for second in 0..3 {
        assert_eq!(log.ask(second * S, 1), allow(2 - second, 10 * S));
    }
    assert_eq!(log.ask(3 * S, 1), deny(7 * S, 0, 9 * S));
    assert_eq!(wait(log.ask(9_999_999_999, 1)), 1);
    assert_eq!(log.ask(10 * S, 1), allow(0, 10 * S));
    assert_eq!(log.ask(10_500 * MS, 1), deny(500 * MS, 0, 9_500 * MS));
}

#[test]
fn sl_2_a_full_window_blocks_for_its_length() {
    let mut log = SlidingLog::new(100, 60 * S);
    assert!((0..100).all(|_| log.ask(59 * S, 1).allowed));
    assert_eq!(wait(log.ask(60 * S, 1)), 59 * S);
    for second in 60..119 {
        assert!(!log.ask(second * S, 1).allowed);
    }
    assert!(!log.ask(119 * S - 1, 1).allowed);
    assert!((0..100).all(|_| log.ask(119 * S, 1).allowed));
    assert!(!log.ask(119 * S, 1).allowed);
}

#[test]
fn sl_3_costs() {
    let mut log = SlidingLog::new(5, 10 * S);
    assert!(log.ask(0, 3).allowed);
    assert!(log.ask(4 * S, 2).allowed);
    assert_eq!(log.ask(5 * S, 1), deny(5 * S, 0, 9 * S));
    assert_eq!(wait(log.ask(5 * S, 3)), 5 * S);
    assert_eq!(wait(log.ask(5 * S, 4)), 9 * S);
    assert_eq!(log.ask(5 * S, 6), never(0, 9 * S));
}

#[test]
fn sl_4_bounded_memory() {
    let mut log = SlidingLog::new(50, S);
    for now in 0..1_000_000 {
        log.ask(now, 1);
    }
    assert!(log.entries() <= 50);
}

#[test]
fn sl_5_never_over_the_limit_in_any_window() {
    let mut random = Random::new(5);
    let mut log = SlidingLog::new(20, 1000);
    let (mut now, mut admitted) = (0, Vec::new());
    for _ in 0..5000 {
        now += random.log_uniform(0, 500);
        let cost = random.between(1, 6);
        if log.ask(now, cost).allowed {
            admitted.push((now, cost));
        }
    }
    for (end, _) in &admitted {
        let inside = admitted.iter().filter(|(time, _)| time + 1000 > *end && time <= end);
        assert!(inside.map(|(_, cost)| cost).sum::<u64>() <= 20, "until {end}");
    }
}

#[test]
fn sl_6_clock_steps_back() {
    let mut log = SlidingLog::new(3, 10 * S);
    assert_eq!(log.ask(10 * S, 1), allow(2, 10 * S));
    assert_eq!(log.ask(9 * S, 1), allow(1, 11 * S));
    assert_eq!(log.ask(10 * S, 1), allow(0, 10 * S));
    assert_eq!(log.ask(9 * S, 1), deny(11 * S, 0, 11 * S));
    assert!(!log.ask(19_999_999_999, 1).allowed);
    assert!(log.ask(20 * S, 1).allowed);
}

#[test]
fn a_refund_strikes_the_entries_of_its_moment() {
    let mut log = SlidingLog::new(5, 10 * S);
    assert_eq!(log.ask(0, 2), allow(3, 10 * S));
    assert_eq!(log.ask(S, 3), allow(0, 10 * S));
    assert_eq!(log.refund(2 * S, 1, 500 * MS), 0);
    assert_eq!(log.refund(2 * S, 1, 0), 1);
    assert_eq!(log.ask(2 * S, 0), allow(1, 9 * S));
    assert_eq!(log.clone().refund(10 * S - 1, 1, 0), 1);
    assert_eq!(log.refund(10 * S, 1, 0), 0);
    assert_eq!(log.refund(10 * S, 4, S), 3);
    assert_eq!(log.ask(10 * S, 0), allow(5, 0));
}

#[test]
fn a_refund_is_not_found_where_the_clock_had_stepped_back() {
    let mut log = SlidingLog::new(5, 10 * S);
    assert!(log.ask(10 * S, 1).allowed);
    assert!(log.ask(9 * S, 1).allowed);
    assert_eq!(log.refund(9 * S, 1, 9 * S), 0);
    assert_eq!(log.refund(9 * S, 2, 10 * S), 2);
}
