use super::{Load, RateMultiplier, aimd, fraction, gradient2, vegas, whole};
use crate::oracle::TokenBucket;
use crate::oracle::expected::{MS, S, deny, wait};
use num_traits::ToPrimitive;

#[test]
fn ad_1_aimd() {
    for (limit, in_flight, dropped, next) in
        [(20, 10, false, 21), (20, 9, false, 20), (20, 0, true, 18), (2, 0, true, 1), (1, 1, true, 1)]
    {
        assert_eq!(aimd(&whole(limit), in_flight, dropped), whole(next), "{limit} {in_flight} {dropped}");
    }
}

#[test]
fn ad_2_gradient2() {
    let next = |long, short, in_flight| gradient2(&whole(100), &whole(long), &whole(short), in_flight);
    assert_eq!(next(10, 10, 50), fraction(1008, 10));
    assert_eq!(next(100, 125, 50), fraction(968, 10));
    assert_eq!(next(10, 20, 50), fraction(908, 10));
    assert_eq!(next(10, 40, 50), fraction(908, 10));
    assert_eq!(next(10, 40, 49), whole(100));
    assert_eq!(next(20, 10, 50), fraction(1008, 10));
}

#[test]
fn ad_3_vegas() {
    let next = |rtt, in_flight, dropped| vegas(&whole(20), 10 * MS, rtt, in_flight, dropped);
    assert_eq!(next(10 * MS, 10, false), whole(26));
    assert_eq!(next(11 * MS, 10, false), whole(21));
    assert_eq!(next(12_500_000, 10, false), whole(20));
    assert_eq!(next(20 * MS, 10, false), whole(19));
    assert_eq!(next(10 * MS, 10, true), whole(19));
    assert_eq!(next(10 * MS, 1, true), whole(19));
    assert_eq!(next(10 * MS, 9, false), whole(20));
    // At 100 the steps are twice as large.
    assert_eq!(vegas(&whole(100), 1, 1, 50, false), whole(112));
}

fn after(loads: &[(Load, usize)]) -> RateMultiplier {
    let mut multiplier = RateMultiplier::new(fraction(1, 10));
    for (load, times) in loads {
        for _ in 0..*times {
            multiplier.step(0, *load);
        }
    }
    multiplier
}

#[test]
fn ad_4_shared_multiplier() {
    use Load::{Between, High, Low};
    for (loads, value) in [
        (&[(High, 1)][..], 800),
        (&[(High, 2)], 640),
        (&[(High, 3)], 512),
        (&[(High, 3), (Between, 5)], 512),
        (&[(High, 3), (Low, 1)], 562),
        (&[(High, 3), (Low, 9)], 962),
        (&[(High, 3), (Low, 10)], 1000),
        (&[(High, 1000)], 100),
    ] {
        assert_eq!(*after(loads).value(), fraction(value, 1000), "{loads:?}");
    }
}

#[test]
fn ad_4_shed_classes() {
    let multiplier = after(&[(Load::High, 3)]);
    assert_eq!(multiplier.factor(0), whole(1));
    assert_eq!(multiplier.factor(1) * whole(100), fraction(512, 10));
    assert_eq!(multiplier.real_wait(1, 10 * MS), 19_531_250);
    assert_eq!(multiplier.factor(2) * whole(100), fraction(262_144, 10_000));
    assert_eq!(after(&[(Load::High, 6)]).factor(2), fraction(1, 10));
}

#[test]
fn ad_4_a_change_hands_out_nothing() {
    let mut bucket = TokenBucket::new(100, S, 10);
    assert!(bucket.ask(0, 10).allowed);
    // From the floor eight steps up: one half.
    let multiplier = after(&[(Load::High, 20), (Load::Low, 8)]);
    assert_eq!(*multiplier.value(), fraction(1, 2));
    let denied = bucket.ask(0, 1);
    assert_eq!(denied, deny(10 * MS, 0, 100 * MS));
    assert_eq!(multiplier.real_wait(1, wait(denied)), 20 * MS);
    let at = |now| multiplier.virtual_time(1, now).floor().to_integer().to_u64().unwrap();
    assert!(!bucket.would(at(20 * MS - 1), 1).allowed);
    assert!(bucket.would(at(20 * MS), 1).allowed);
}

#[test]
fn ad_4_a_tenant_below_the_reduced_rate_sees_no_denial() {
    let multiplier = after(&[(Load::High, 3)]);
    let mut bucket = TokenBucket::new(100, S, 1);
    for request in 0..1000 {
        let now = (request * S).div_ceil(51);
        let at = multiplier.virtual_time(1, now).floor().to_integer().to_u64().unwrap();
        assert!(bucket.ask(at, 1).allowed);
    }
}

#[test]
fn the_virtual_clock_is_the_integral_of_the_factor() {
    let mut multiplier = RateMultiplier::new(fraction(1, 10));
    multiplier.step(1000, Load::High);
    multiplier.step(3000, Load::High);
    assert_eq!(multiplier.virtual_time(1, 500), whole(500));
    assert_eq!(multiplier.virtual_time(1, 2000), whole(1800));
    assert_eq!(multiplier.virtual_time(1, 4000), whole(1000 + 1600 + 640));
    assert_eq!(multiplier.virtual_time(0, 4000), whole(4000));
    assert_eq!(multiplier.virtual_time(2, 2000), whole(1640));
}
