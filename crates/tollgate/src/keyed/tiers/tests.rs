use std::time::Duration;

use tollgate_core::{Concurrency, Rate, SlidingLog, TokenBucket};

use super::*;
use crate::{Clock, Permit};

fn bucket(rate: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap()
}

#[test]
fn numbers_may_change_without_end() {
    let limiter = KeyedLimiter::builder(bucket(1, 1000)).clock(Clock::manual()).build();
    for i in 0..20_000_u64 {
        limiter.set_rule(bucket(1 + i % 7, 1000 + i % 3));
        if i.is_multiple_of(100) {
            assert_eq!(limiter.check("alice").status.remaining, 1000 - i / 100 - 1, "after {i} changes");
        }
    }
}

#[test]
fn numbers_may_change_as_often_as_keys_come_and_expire() {
    let limiter = KeyedLimiter::builder(bucket(1000, 1)).clock(Clock::manual()).max_keys(200).build();
    for i in 0..70_000_u64 {
        limiter.set_rule(bucket(1000, 1 + i % 2));
        assert!(limiter.check(&i).is_allowed());
        limiter.clock().advance(Duration::from_millis(10));
    }
}

/// In each shard: here there is one.
#[test]
fn rules_run_out_only_where_keys_in_use_need_them() {
    let limiter = KeyedLimiter::builder(bucket(1, 1000)).clock(Clock::manual()).max_keys(511).build();
    let check = |i: u64| {
        limiter.set_rule(bucket(1, 1000 + i));
        limiter.check(&i)
    };
    let allowed = (0..500_u64).filter(|&i| check(i).is_allowed()).count();
    assert_eq!(allowed, 300); // the shard has no number for another rule
    assert_eq!((limiter.stats().rules, limiter.stats().refused), (300, 200));
    // A key that is known is denied, too, if its rule has no place, and keeps what it has.
    assert_eq!(check(7), check(7));
    assert!(!check(7).is_allowed());
    assert_eq!(limiter.remaining(&7_u64), 1006);
    limiter.clock().advance(Duration::from_secs(3600));
    assert!((0..200).all(|i| check(10_000 + i).is_allowed()));
}

#[test]
fn tiers_are_changed_together() {
    let users = KeyedLimiter::builder(bucket(1, 10)).clock(Clock::manual()).build();
    let tenants = users.another(bucket(1, 20));
    let numbers = |burst| Numbers::from(bucket(1, burst));
    let tiers = [100, 200, 300].map(|burst| users.add_tier(numbers(burst)));
    let capacity = |tier| users.rule_of(tier).capacity();
    assert_eq!(tiers.each_ref().map(capacity), [100, 200, 300]);
    let ask = |tier| users.ask("alice").tier(tier);
    assert_eq!(ask(&tiers[0]).check().status.remaining, 99);
    KeyedLimiter::set_tiers(&[
        (&users, &tiers[1], numbers(201)),
        (&users, &tiers[0], numbers(100)),
        (&tenants, tenants.base_tier(), numbers(21)),
    ]);
    assert_eq!((capacity(&tiers[1]), tenants.remaining("a")), (201, 21));
    assert_eq!(ask(&tiers[0]).peek().remaining, 99);
    KeyedLimiter::set_tiers(&[]);
}

#[test]
fn keys_of_a_tier_that_is_told_the_same_again_do_not_notice() {
    let rule = SlidingLog::new(10, Duration::from_secs(10)).unwrap();
    let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
    let base = limiter.base_tier();
    for i in 1..=10 {
        let same = Numbers { rule: rule.into(), shed: Shed::Exempt };
        KeyedLimiter::set_tiers(&[(&limiter, base, same)]);
        assert_eq!(limiter.check("alice").status.remaining, 10 - i);
    }
    // The shed class is one of the numbers, and setting the rule alone keeps it.
    KeyedLimiter::set_tiers(&[(&limiter, base, Numbers { rule: rule.into(), shed: Shed::First })]);
    limiter.set_rule(SlidingLog::new(20, Duration::from_secs(10)).unwrap());
    assert_eq!(limiter.remaining("alice"), 10);
}

#[test]
fn limiters_may_come_and_go_without_end() {
    let first = KeyedLimiter::builder(bucket(1, 10)).clock(Clock::manual()).max_keys(10_000).build();
    for i in 0..200_000_u64 {
        let limiter = first.another(bucket(1, 100));
        // Of the same name as a key of those before it, which are still in use.
        assert_eq!(limiter.ask("alice").cost(60).check().status.remaining, 40, "limiter {i}");
        if i.is_multiple_of(7) {
            limiter.set_rule(bucket(1, 200));
            let tier = limiter.add_tier(bucket(1, 300));
            assert_eq!(limiter.clone().ask("alice").tier(&tier).check().status.remaining, 39);
        }
    }
    assert!(first.stats().rules <= 39 * 300, "{:?}", first.stats());
    assert!(first.stats().keys <= 10_000 && first.stats().evictions == 0, "{:?}", first.stats());
}

#[test]
fn a_limiter_lives_as_long_as_its_last_clone_and_its_permits_longer() {
    let first = KeyedLimiter::builder(bucket(1, 10)).clock(Clock::manual()).build();
    let flights = first.another(Concurrency::new(2, None).unwrap());
    let stale = flights.base_tier().clone();
    let clone = flights.clone();
    drop(flights);
    let permits = [(); 2].map(|()| clone.ask("a").acquire().unwrap());
    assert!(clone.ask("a").acquire().is_err());
    drop(clone);
    // Its place is taken by others, and nobody takes its permits or its tier for theirs.
    let others: Vec<_> = (0..250).map(|_| first.another(bucket(1, 10))).collect();
    assert!(others.iter().all(|other| other.check("a").status.remaining == 9));
    assert!(others.iter().all(|other| *other.base_tier() != stale));
    assert_eq!(permits.map(Permit::release), [true, true]);
    assert!(others.iter().all(|other| other.remaining("a") == 9));
    drop((first, others));
}

#[test]
fn keys_of_a_limiter_that_is_gone_make_way_first() {
    let first = KeyedLimiter::builder(bucket(1, 10)).clock(Clock::manual()).max_keys(100).build();
    let gone = first.another(TokenBucket::new(Rate::per_hour(1).unwrap(), 1).unwrap());
    assert!((0..100).all(|key| gone.check(&key).is_allowed()));
    assert!(!first.check("alice").is_allowed());
    drop(gone);
    assert!((0..30).all(|key| first.check(&key).is_allowed()));
    assert_eq!(first.stats().evictions, 0);
}

#[test]
#[should_panic = "must be of one table"]
fn tiers_of_different_tables_cannot_be_changed_together() {
    let (one, other) = (KeyedLimiter::new(bucket(1, 1)), KeyedLimiter::new(bucket(1, 1)));
    let numbers = Numbers::from(bucket(1, 2));
    KeyedLimiter::set_tiers(&[(&one, one.base_tier(), numbers), (&other, other.base_tier(), numbers)]);
}

#[test]
#[should_panic = "belongs to the limiter it was added to"]
fn a_tier_of_another_limiter_is_refused() {
    let users = KeyedLimiter::new(bucket(1, 1));
    let tenants = users.another(bucket(10, 10));
    let _ = users.ask("a").tier(tenants.base_tier());
}
