use super::Concurrency;
use crate::answer::{Answer, Retry};
use crate::oracle::expected::{S, allow, deny, never, wait};

#[test]
fn cc_1_releasing_twice_is_one_release() {
    let mut slots = Concurrency::new(2, None);
    assert_eq!(slots.acquire(0, 1, 1), allow(1, 0));
    assert_eq!(slots.acquire(0, 2, 1), allow(0, 0));
    assert_eq!(slots.acquire(0, 3, 1), Answer::new(Err(Retry::Unknown), 0, 0));
    assert!(slots.release(0, 1));
    assert_eq!(slots.acquire(0, 3, 1), allow(0, 0));
    assert!(!slots.release(0, 1));
    assert_eq!(slots.in_flight(0), 2);
}

#[test]
fn cc_2_a_lease_ends_by_itself() {
    let mut slots = Concurrency::new(1, Some(30 * S));
    assert_eq!(slots.acquire(0, 1, 1), allow(0, 30 * S));
    assert_eq!(slots.acquire(30 * S - 1, 2, 1), deny(1, 0, 1));
    assert_eq!(slots.acquire(30 * S, 2, 1), allow(0, 30 * S));
    assert!(!slots.release(31 * S, 1));
    assert_eq!(slots.in_flight(31 * S), 1);
}

#[test]
fn cc_2_retry_waits_for_enough_leases() {
    let mut slots = Concurrency::new(3, Some(30 * S));
    for (id, now) in [(1, 0), (2, 5 * S), (3, 9 * S)] {
        assert!(slots.acquire(now, id, 1).allowed);
    }
    assert_eq!(slots.acquire(10 * S, 4, 2), deny(25 * S, 0, 29 * S));
    assert_eq!(wait(slots.would(10 * S, 1)), 20 * S);
}

#[test]
fn cc_3_a_lowered_limit_cuts_nobody() {
    let mut slots = Concurrency::new(10, None);
    for id in 0..7 {
        assert!(slots.acquire(0, id, 1).allowed);
    }
    slots.set_limit(4);
    assert_eq!(slots.in_flight(0), 7);
    for id in 0..3 {
        assert_eq!(slots.would(0, 1), Answer::new(Err(Retry::Unknown), 0, 0));
        assert!(slots.release(0, id));
    }
    assert!(!slots.would(0, 1).allowed);
    assert!(slots.release(0, 3));
    assert_eq!(slots.acquire(0, 9, 1), allow(0, 0));
}

#[test]
fn cc_4_costs() {
    let mut slots = Concurrency::new(10, None);
    assert!(slots.acquire(0, 1, 8).allowed);
    assert!(!slots.acquire(0, 2, 3).allowed);
    assert_eq!(slots.acquire(0, 3, 2), allow(0, 0));
    assert_eq!(slots.acquire(0, 4, 11), never(0, 0));
    assert_eq!(slots.acquire(0, 5, 0), allow(0, 0));
    assert!(!slots.release(0, 5));
}

#[test]
fn a_clock_that_steps_back_ends_no_lease_early() {
    let mut slots = Concurrency::new(2, Some(30 * S));
    assert!(slots.acquire(10 * S, 1, 1).allowed);
    assert_eq!(slots.acquire(5 * S, 2, 1), allow(0, 35 * S));
    assert_eq!(slots.acquire(5 * S, 3, 1), deny(35 * S, 0, 35 * S));
    assert_eq!(slots.in_flight(39 * S), 2);
}
