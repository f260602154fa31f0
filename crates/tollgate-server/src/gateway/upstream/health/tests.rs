use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

#[test]
fn three_failures_in_a_row_and_it_is_left_alone_for_longer_each_time() {
    let health = Health::default();
    let second = Duration::from_secs(1);
    assert_eq!([(); 3].map(|()| health.failed(at(10), false)), [None, None, Some(second)]);
    assert!(health.since_when_out(at(10)).is_some());
    assert!(health.since_when_out(at(11)).is_none(), "after a second it is tried again");
    // The trial fails, and so do those after it.
    for (now, until) in [(11, 13), (13, 17), (17, 25), (25, 41), (41, 71), (71, 101)] {
        assert!(health.is_tried(at(now)));
        assert_eq!(health.failed(at(now), true), Some(second * (until - now) as u32));
        assert!(health.since_when_out(at(until - 1)).is_some(), "at {}", until - 1);
        assert!(health.since_when_out(at(until)).is_none(), "at {until}");
    }
    assert!(health.succeeded());
    assert!(health.since_when_out(at(72)).is_none());
    assert_eq!(health.failed(at(72), false), None, "and it has three again");
}

#[test]
fn one_request_tries_it_and_the_others_wait_for_how_it_fares() {
    let health = Health::default();
    (0..3).for_each(|_| _ = health.failed(at(10), false));
    assert!(health.since_when_out(at(11)).is_none());
    assert!(health.is_tried(at(11)));
    assert!(!health.is_tried(at(11)));
    assert!(health.since_when_out(at(11)).is_some());
    assert!(health.since_when_out(at(12)).is_none(), "should it never end, the next does");
}

#[test]
fn a_success_in_between_makes_them_no_row() {
    let health = Health::default();
    for _ in 0..10 {
        assert_eq!([(); 2].map(|()| health.failed(at(1), false)), [None, None]);
        assert!(!health.succeeded());
    }
}

#[test]
fn all_that_fail_with_it_are_one_failure() {
    let health = Health::default();
    (0..60).for_each(|_| _ = health.failed(at(10), false));
    assert!(health.since_when_out(at(11)).is_none(), "after a second it is tried again");
    assert!(health.is_tried(at(11)));
    (0..60).for_each(|_| _ = health.failed(at(11), false));
    assert_eq!(health.failed(at(11), true), Some(Duration::from_secs(2)));
}
