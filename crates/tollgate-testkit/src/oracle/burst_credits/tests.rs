use super::BurstCredits;
use crate::oracle::expected::{MS, S, allow, never, wait};

/// 100/s that may run at ten times that for 30 s.
fn thirty_seconds_of_burst() -> BurstCredits {
    BurstCredits::new(100, S, 27_000, 1000, S, 1000)
}

#[test]
fn bc_1_full_credits_hold_the_peak_for_thirty_seconds() {
    let mut credits = thirty_seconds_of_burst();
    let admitted: Vec<_> = (0..40_000).filter(|ms| credits.ask(ms * MS, 1).allowed).collect();
    assert_eq!(admitted.iter().filter(|ms| **ms < 29_999).count(), 29_999);
    assert_eq!(admitted.iter().filter(|ms| **ms >= 30_000).count(), 1000);
}

#[test]
fn bc_1_the_ceiling_is_what_the_peak_takes_beyond_the_base() {
    for (base, peak, burst_for, ceiling) in [
        ((100, S), (1000, S), 30 * S, 27_000),
        ((1, S), (2, S), 1500 * MS, 1),      // of 1.5
        ((2, 10 * S), (3, 2 * S), 7 * S, 9), // of 10.5 - 1.4
        ((1, 3 * S), (1, 2 * S), 6 * S, 1),  // of 3 - 2
        ((1, 3 * S), (1, 2 * S), 6 * S - 1, 0),
    ] {
        assert_eq!(BurstCredits::ceiling_for(base, peak, burst_for), ceiling.into(), "{base:?} {peak:?}");
    }
}

#[test]
fn bc_1_the_ceiling_fills_in_270_idle_seconds() {
    let mut credits = thirty_seconds_of_burst();
    for second in 0..27 {
        assert!(credits.ask(second * S, 1000).allowed);
    }
    let drained = credits.ask(27 * S, 1000);
    assert!(drained.allowed);
    // What came in meanwhile, 2700, is spent at the peak too.
    assert!(credits.ask(28 * S, 1000).allowed);
    assert!(credits.ask(29 * S, 900).allowed);
    assert_eq!(credits.ask(29 * S, 0), allow(0, 270 * S));
    assert_eq!(credits.ask(299 * S, 0).reset, 0);
}

#[test]
fn bc_1_thirty_seconds_of_base_rate_last_three_and_a_third() {
    let mut credits = BurstCredits::new(100, S, 3000, 1000, S, 1000);
    let first_denied = (0..).find(|ms| !credits.ask(ms * MS, 1).allowed);
    assert_eq!(first_denied, Some(3333));
}

#[test]
fn bc_2_one_request_each_millisecond() {
    let mut credits = thirty_seconds_of_burst();
    for ms in 0..29_999 {
        assert!(credits.ask(ms * MS, 1).allowed, "at {ms} ms");
    }
    let denied = credits.ask(29_999 * MS, 1);
    assert_eq!((wait(denied), denied.remaining), (MS, 0));
    let admitted: Vec<_> = (30_000..30_100).filter(|ms| credits.ask(ms * MS, 1).allowed).collect();
    assert_eq!(admitted, (0..10).map(|k| 30_000 + 10 * k).collect::<Vec<_>>());
}

#[test]
fn bc_3_asked_all_the_time() {
    let mut credits = thirty_seconds_of_burst();
    assert!((0..1000).all(|_| credits.ask(0, 1).allowed));
    assert_eq!(wait(credits.ask(0, 1)), MS);
    let (mut now, mut admitted) = (0, 1000);
    loop {
        let answer = credits.ask(now, 1);
        if answer.allowed {
            admitted += 1;
        } else if credits.credits.would(now, 1).allowed {
            now += wait(answer);
        } else {
            break;
        }
    }
    assert_eq!((admitted, now), (29_888, 28_888 * MS));
}

#[test]
fn a_cost_over_either_bucket_is_never_admitted() {
    let mut credits = thirty_seconds_of_burst();
    assert_eq!(credits.ask(0, 1001), never(1000, 0));
    assert_eq!(BurstCredits::new(100, S, 500, 1000, S, 1000).ask(0, 501), never(500, 0));
}

#[test]
fn a_refund_gives_back_to_both_and_tells_the_smaller() {
    // Credits 50 at 10/s, peak 20 at 100/s.
    let mut credits = BurstCredits::new(10, S, 50, 100, S, 20);
    assert_eq!(credits.ask(0, 20), allow(0, 2 * S));
    // After 50 ms 15 are missing from the peak and 19.5 from the credits.
    assert_eq!(credits.clone().refund(50 * MS, 20, 0), 15);
    assert_eq!(credits.refund(50 * MS, 10, 0), 10);
    assert_eq!(credits.ask(50 * MS, 0), allow(15, 950 * MS));
    // After 200 ms the peak has forgotten the charge, the credits have not.
    assert_eq!(credits.refund(200 * MS, 5, 0), 0);
    assert_eq!(credits.ask(200 * MS, 0), allow(20, 300 * MS));
    assert_eq!(credits.refund(200 * MS, 21, 0), 0);
}
