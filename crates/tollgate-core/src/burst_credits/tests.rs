#![allow(clippy::unwrap_used)]

use super::*;
use crate::table::*;

#[test]
fn bc_1_two_readings_of_thirty_seconds() {
    let (rate, peak) = (per_second(100), per_second(1000));
    let lasting = BurstCredits::lasting(rate, peak, Duration::from_secs(30)).unwrap();
    assert_eq!(lasting, BurstCredits::new(rate, peak, 27_000).unwrap());
    assert_eq!(lasting.base.capacity(), 27_000);
    assert_eq!(lasting.peak.capacity(), 1000);

    // From empty it takes 270 idle seconds to fill.
    let mut base = Tat::default();
    assert_eq!(drain(&lasting.base, &mut base, 0), 27_000);
    assert_eq!(lasting.base.status(&base, at(0)).reset_after, span(270 * S));

    // Full, 1000 a second are held for exactly 30 s, then 100 a second.
    let mut state = Credits::default();
    assert_eq!(hammer(&lasting, &mut state, 0, 30 * S - 2 * MS, MS), 29_999);
    assert_eq!(hammer(&lasting, &mut state, 30 * S, 40 * S - MS, MS), 1000);

    // 30 s of the base rate is another setting: 3000 credits, gone after 3.333 s.
    let few = BurstCredits::new(rate, peak, 3000).unwrap();
    let mut state = Credits::default();
    let allowed = hammer(&few, &mut state, 0, 3332 * MS, MS);
    assert_eq!(allowed, 3333);
    assert!(!few.decide(&mut state, 1, at(3333 * MS)).is_allowed());
}

#[test]
fn the_credits_that_last_are_rounded_once() {
    let rate = |tokens, period| Rate::new(tokens, span(period)).unwrap();
    for (base, peak, burst_for, credits) in [
        (rate(2, 10 * S), rate(3, 2 * S), 7 * S, 9), // 10.5 - 1.4
        (rate(1, 2 * S), rate(2, 3 * S), 7 * S, 1),  // 4.67 - 3.5
        (rate(1, 2 * S), rate(4, 3 * S), 5 * S, 4),  // 6.67 - 2.5
        (rate(1, 3 * S), rate(1, 2 * S), 6 * S, 1),  // 3 - 2
        (rate(3, 2 * S), rate(2, S), 5 * S, 2),      // 10 - 7.5
    ] {
        let rule = BurstCredits::lasting(base, peak, span(burst_for)).unwrap();
        assert_eq!(rule.base.capacity(), credits, "{base} and {peak} for {burst_for}");
    }
    // The largest numbers there are can be counted, and are refused for what they come to.
    let most = Rate::new(1 << 62, MAX_SPAN).unwrap();
    let fast = Rate::new(u64::MAX, Duration::from_nanos(u64::MAX / 5)).unwrap();
    let refused = BurstCredits::lasting(most, fast, MAX_SPAN).unwrap_err();
    assert!(matches!(refused, RuleError::TooLarge { what: "number of credits", .. }), "{refused}");
}

#[test]
fn bc_2_one_request_each_millisecond() {
    let rule = BurstCredits::new(per_second(100), per_second(1000), 27_000).unwrap();
    let mut state = Credits::default();
    assert_eq!(hammer(&rule, &mut state, 0, 29_998 * MS, MS), 29_999);
    replay_on(&rule, &mut state, &[(29_999 * MS, 1, deny(MS), 0, ANY)]);
    for second in 30..40 {
        assert_eq!(hammer(&rule, &mut state, second * S, (second + 1) * S - MS, MS), 100);
    }
}

#[test]
fn bc_3_asked_all_the_time() {
    let rule = BurstCredits::new(per_second(100), per_second(1000), 27_000).unwrap();
    let mut state = Credits::default();
    assert_eq!(drain(&rule, &mut state, 0), 1000);
    replay_on(&rule, &mut state, &[(0, 1, deny(MS), 0, ANY)]);
    let mut allowed = 1000;
    let mut now = 0;
    while rule.base.test(&state.base, 1, at(now)).is_allowed() {
        now += MS;
        allowed += drain(&rule, &mut state, now);
    }
    assert_eq!((allowed, now), (29_888, 28_888 * MS));
}

#[test]
fn a_cost_above_either_bucket_never_passes() {
    let rule = BurstCredits::with_peak_burst(per_second(10), per_second(100), 50, 20).unwrap();
    replay(&rule, &[(0, 21, NEVER, 20, 0), (0, 20, ALLOW, 0, 2 * S), (0, 20, deny(200 * MS), 0, ANY)]);
}

#[test]
fn nonsense_is_refused() {
    let slow = per_second(10);
    // 1.5 credits are 1, and spans that cannot be counted are refused.
    let few = BurstCredits::lasting(per_second(1), per_second(2), span(1500 * MS)).unwrap();
    assert_eq!(few.base.capacity(), 1);
    assert!(BurstCredits::lasting(slow, per_second(20), Duration::MAX).is_err());
    assert_eq!(
        BurstCredits::new(slow, slow, 5).unwrap_err().to_string(),
        "the peak rate of 10 per 1s is not above the base rate of 10 per 1s, so there is nothing to save credits \
         for; give a higher peak"
    );
    assert_eq!(BurstCredits::new(slow, slow, 5), Err(RuleError::PeakNotAboveBase { base: slow, peak: slow }));
    assert_eq!(
        BurstCredits::lasting(slow, per_second(20), span(1)),
        Err(RuleError::ZeroCapacity { what: "number of credits" })
    );
}

#[test]
fn a_refund_gives_back_to_both_and_tells_the_smaller() {
    let rule = BurstCredits::with_peak_burst(per_second(10), per_second(100), 50, 20).unwrap();
    let mut state = replay(&rule, &[(0, 20, ALLOW, 0, 2 * S)]);
    // After 50 ms 15 are missing from the peak and 19.5 from the credits: all of both come back.
    let mut all = state;
    assert_eq!(rule.refund(&mut all, 20, at(0), at(50 * MS)), 15);
    assert_eq!(all, Credits::default());
    assert_eq!(rule.refund(&mut state, 10, at(0), at(50 * MS)), 10);
    replay_on(&rule, &mut state, &[(50 * MS, 0, ALLOW, 15, 950 * MS)]);
    // After 200 ms the peak has forgotten the charge, the credits have not.
    assert_eq!(rule.refund(&mut state, 5, at(0), at(200 * MS)), 0);
    replay_on(&rule, &mut state, &[(200 * MS, 0, ALLOW, 20, 300 * MS)]);
    let before = state;
    for (cost, now) in [(0, 200 * MS), (21, 200 * MS), (5, 5 * S)] {
        assert_eq!(rule.refund(&mut state, cost, at(0), at(now)), 0);
        assert_eq!(state, before);
    }
}
