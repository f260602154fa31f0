//! Memory stays within its bound, and what is being limited is not forgiven.
#![allow(clippy::unwrap_used)]

use tollgate::{Clock, KeyedLimiter, Nanos, Rate, Timestamp, TokenBucket, WhenFull};

/// 50 million keys where `./test --long` asks for it, two million otherwise, through a table for a fiftieth.
fn keys() -> u64 {
    if std::env::var_os("TOLLGATE_LONG").is_some() { 50_000_000 } else { 2_000_000 }
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
