//! Memory stays within its bound, and what is being limited is not forgiven.

use tollgate::{Clock, KeyedLimiter, Nanos, Rate, Timestamp, TokenBucket, WhenFull};

/// 50 million keys where `./test --long` asks for it, two million otherwise, through a table for a fiftieth.
fn keys() -> u64 {
    if tollgate_testkit::is_long() { 50_000_000 } else { 2_000_000 }
}

fn builder(rate: u64, burst: u64, max_keys: usize) -> tollgate::Builder {
    let rule = TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap();
    KeyedLimiter::builder(rule).clock(Clock::manual()).max_keys(max_keys)
}

#[test]
fn many_keys_through_a_small_table_leave_the_limited_ones_limited() {
    let max_keys = keys() / 50;
    let limiter = builder(1, 10, max_keys as usize).build();
    // A hundred keys are limited for ten seconds and more; meanwhile everybody else comes once, a million a
    // second, so that most of them are in use at a time that the table has no room for.
    let now = |i: u64| Timestamp::from_nanos(i * 1000);
    for key in 0..100_u64 {
        let _ = limiter.ask(&("limited", key)).cost(10).check_at(now(0));
    }
    for i in 0..keys() {
        assert!(limiter.check_at(&i, now(i)).is_allowed(), "key {i}");
        if i.is_multiple_of(keys() / 200) {
            let stats = limiter.stats();
            assert!(stats.keys <= max_keys as usize, "{stats:?}");
            assert!(stats.bytes <= 28 * max_keys as usize, "{stats:?}");
        }
        // Whoever is limited has not been forgiven: of the ten, as many are back as seconds have passed.
        if i.is_multiple_of(keys() / 20) && i * 1000 < 9_000_000_000 {
            for key in 0..100_u64 {
                let remaining = limiter.ask(&("limited", key)).cost(0).check_at(now(i)).status.remaining;
                assert_eq!(remaining, i * 1000 / 1_000_000_000, "limited key {key} at {i}");
            }
        }
    }
    let stats = limiter.stats();
    assert!(stats.evictions > 0, "{stats:?}");
    assert_eq!(stats.refused, 0, "{stats:?}");
    // Sweeping, splitting and lengthening included.
    assert!(stats.most_touched <= 4096, "{stats:?}");
}

#[test]
fn what_happens_at_the_bound_is_a_choice() {
    let fill = |limiter: &KeyedLimiter| {
        for key in 0..1000_u64 {
            let _ = limiter.ask(&key).cost(2).check();
        }
    };
    // Everybody is limited, so nobody can make room.
    let evict = builder(1, 2, 1000).build();
    let deny = builder(1, 2, 1000).when_full(WhenFull::Deny).build();
    let allow = builder(1, 2, 1000).when_full(WhenFull::Allow).build();
    for (limiter, newcomer_passes) in [(&evict, false), (&deny, false), (&allow, true)] {
        fill(limiter);
        let before = limiter.stats();
        let passes = |i: &u64| limiter.ask(&("newcomer", *i)).cost(2).check().is_allowed();
        let passed = (0..100).filter(passes).count();
        let stats = limiter.stats();
        assert!(stats.keys <= 1000, "{stats:?}");
        assert_eq!(stats.evictions, 0, "{stats:?}");
        // A few shards have room left; where they do not, it is counted.
        let turned_away = (stats.refused - before.refused) as usize;
        assert!(turned_away > 50, "{stats:?}");
        assert_eq!(passed, if newcomer_passes { 100 } else { 100 - turned_away }, "{stats:?}");
        // Nobody who was limited has been forgiven.
        assert!(
            (0..1000_u64).all(|key| limiter.peek(&key).remaining == 0 || limiter.peek(&key).remaining == 2)
        );
    }
}

#[test]
fn expired_keys_make_room_by_themselves() {
    let limiter = builder(1000, 1, 100_000).build();
    let clock = limiter.clock().clone();
    for i in 0..1_000_000_u64 {
        assert!(limiter.check(&i).is_allowed());
        clock.advance(Nanos::new(1000)); // a key is in use for as long as a thousand others take
    }
    let stats = limiter.stats();
    assert!(stats.keys < 20_000, "{stats:?}");
    assert_eq!((stats.evictions, stats.refused), (0, 0), "{stats:?}");
}

#[test]
fn a_table_without_a_bound_remembers_everybody() {
    let limiter = builder(1, 1, usize::MAX).build();
    assert!((0..10_000_u64).all(|key| limiter.check(&key).is_allowed()));
    assert_eq!(limiter.stats().keys, 10_000);
}

/// Everybody in it has places for one more, but the busiest of them must not lose its count for it.
#[test]
fn the_key_that_all_plans_share_is_not_forgotten_for_their_newcomers() {
    for max_keys in [1, 2, 1000, 10_000] {
        let users = builder(1, 10, max_keys).build();
        let tenants = users.another(TokenBucket::new(Rate::per_second(1000).unwrap(), 1000).unwrap());
        let plan =
            |user: &u64| KeyedLimiter::check_all([users.ask(user), tenants.ask("acme")]).0.is_allowed();
        assert!((0..20_000).filter(plan).count() <= 1000, "max_keys {max_keys}");
    }
}

#[test]
fn a_plan_of_newcomers_is_charged_in_full_or_not_at_all() {
    for when_full in [WhenFull::Evict, WhenFull::Deny] {
        let limiter = builder(1, 10, 3).when_full(when_full).build();
        let mut decisions = [tollgate::Decision::default(); 4];
        for first in 0..1000_u64 {
            let requests: Vec<_> = (4 * first..4 * first + 4).map(|key| limiter.ask(&key)).collect();
            let now = limiter.clock().now();
            let verdict = KeyedLimiter::check_all_at(&requests, now, &mut decisions);
            assert!(!verdict.is_allowed(), "four keys where there is room for three");
        }
        assert_eq!(limiter.stats().keys, 0);
        // Three fit.
        let (verdict, _) = KeyedLimiter::check_all([limiter.ask(&1), limiter.ask(&2), limiter.ask(&3)]);
        assert!(verdict.is_allowed());
        assert_eq!(limiter.stats().keys, 3);
    }
}

#[test]
fn neither_permits_nor_keys_under_lowered_numbers_make_way() {
    let flights = KeyedLimiter::builder(tollgate::Concurrency::new(10, None).unwrap()).max_keys(5).build();
    let held: Vec<_> = (0..5).map(|key| flights.ask(&key).cost(9).acquire().unwrap()).collect();
    assert!((5..100).all(|key| flights.ask(&key).acquire().is_err()));
    assert!((0..5).all(|key| flights.remaining(&key) == 1));
    drop(held);
    let window = |limit| {
        let minute = std::time::Duration::from_secs(60);
        tollgate::FixedWindow::new(limit, minute, tollgate::Align::First).unwrap()
    };
    let limiter = KeyedLimiter::builder(window(100)).clock(Clock::manual()).max_keys(100).build();
    for key in 0..100 {
        assert!(limiter.ask(&key).cost(50).check().is_allowed());
    }
    limiter.set_rule(window(20));
    assert!((100..1000).all(|key| !limiter.check(&key).is_allowed()));
    assert!((0..100).all(|key| limiter.remaining(&key) == 0));
}

/// The bytes of rules count, too: a newcomer with a rule of its own takes the place of a key with one.
#[test]
fn keys_with_rules_of_their_own_are_evicted_at_the_bound_of_bytes() {
    let rule = |burst| TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap();
    let limiter = KeyedLimiter::builder(rule(10)).clock(Clock::manual()).max_bytes(1 << 20).build();
    for i in 0..50_000_u64 {
        let sent = limiter.request_rule(&i, rule(10 + i));
        assert!(limiter.ask(&i).rule(&sent).check().is_allowed(), "key {i}: {:?}", limiter.stats());
        assert!(limiter.stats().bytes <= 1 << 20, "key {i}: {:?}", limiter.stats());
    }
    let stats = limiter.stats();
    assert!(stats.evictions > 20_000 && stats.refused == 0, "{stats:?}");
    // New keys of callers with ordinary rules pass.
    assert!((0..1000).all(|i| limiter.check(&("ordinary", i)).is_allowed()), "{:?}", limiter.stats());
    // Known keys that get rules of their own stay within the bound as well.
    for i in 0..5000_u64 {
        let sent = limiter.request_rule(&("later", i), rule(100_000 + i));
        let _ = limiter.ask(&("ordinary", i)).rule(&sent).check();
        assert!(limiter.stats().bytes <= 1 << 20, "key {i}: {:?}", limiter.stats());
    }
}
