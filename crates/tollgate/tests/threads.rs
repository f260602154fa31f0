//! Threads on the same keys: never more than each limit, and none lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate::adaptive::{Load, RateMultiplier};
use tollgate::{Clock, KeyedLimiter, Limiter, Numbers, Rate, Shed, TokenBucket};
use tollgate_testkit::Random;

const THREADS: u64 = 4;

fn limiter(burst: u64) -> KeyedLimiter {
    let rule = TokenBucket::new(Rate::per_second(1).unwrap(), burst).unwrap();
    KeyedLimiter::builder(rule).clock(Clock::manual()).build()
}

#[test]
fn threads_on_one_key_admit_exactly_the_limit() {
    for round in 0..20 {
        let (limiter, admitted) = (limiter(10_000), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let allowed = limiter.check("one").is_allowed();
                        admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 10_000, "round {round}");
    }
}

#[test]
fn threads_on_a_limiter_without_keys_admit_exactly_the_limit() {
    let bucket = |burst| TokenBucket::new(Rate::per_second(1).unwrap(), burst).unwrap();
    for round in 0..40 {
        let limiter = Limiter::with_clock(bucket(10_000), Clock::manual());
        let admitted = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let allowed = limiter.check().is_allowed();
                        admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
                    }
                });
            }
            // In every other round the numbers change meanwhile, which hands out nothing. (It waits for the
            // first charge: a bucket that nobody has used is full under any numbers.)
            if round % 2 == 1 {
                while limiter.remaining() == 10_000 {
                    thread::yield_now();
                }
                limiter.set_rule(bucket(20_000));
            }
        });
        assert_eq!(admitted.into_inner(), 10_000, "round {round}");
    }
}

#[test]
fn threads_on_overlapping_plans_charge_all_limits_or_none() {
    for round in 0..10 {
        let users = limiter(300);
        let tenants = users.another(TokenBucket::new(Rate::per_second(1).unwrap(), 700).unwrap());
        let everybody = users.another(TokenBucket::new(Rate::per_second(1).unwrap(), 1500).unwrap());
        let admitted: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (users, tenants, everybody, admitted) = (&users, &tenants, &everybody, &admitted);
                scope.spawn(move || {
                    let mut random = Random::new(round * THREADS + thread);
                    for _ in 0..5000 {
                        let user = random.below(8);
                        // In any order, lest an order of locks be hidden by the order of asking.
                        let mut plan = [users.ask(&user), tenants.ask(&(user % 3)), everybody.ask(&())];
                        plan.rotate_left(random.below(3) as usize);
                        let allowed = KeyedLimiter::check_all(plan).0.is_allowed();
                        admitted[user as usize].fetch_add(u64::from(allowed), Ordering::Relaxed);
                    }
                });
            }
        });
        let admitted: Vec<u64> = admitted.into_iter().map(AtomicU64::into_inner).collect();
        let total: u64 = admitted.iter().sum();
        // What each limit has left is what it held less what passed: nothing lost, nothing charged in vain.
        assert_eq!(everybody.peek(&()).remaining, 1500 - total, "round {round}");
        for tenant in 0..3_u64 {
            let of_tenant: u64 = (tenant..8).step_by(3).map(|user| admitted[user as usize]).sum();
            assert_eq!(tenants.peek(&tenant).remaining, 700 - of_tenant, "round {round}, tenant {tenant}");
        }
        for user in 0..8_u64 {
            assert_eq!(
                users.peek(&user).remaining,
                300 - admitted[user as usize],
                "round {round}, user {user}"
            );
        }
        assert_eq!(total, 1500, "round {round}: so many asked that the widest limit is spent");
    }
}

#[test]
fn other_paces_and_limiters_that_come_and_go_hand_out_nothing_to_threads() {
    for round in 0..5 {
        let limiter = limiter(10_000);
        let rule = limiter.rule_of(limiter.base_tier());
        let tier = limiter.add_tier(Numbers { rule, shed: Shed::Normal });
        let admitted = AtomicU64::new(0);
        let _ = limiter.ask("one").tier(&tier).check(); // unused, it would be full in any class
        let tier = &tier;
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let allowed = limiter.ask("one").tier(tier).check().is_allowed();
                        admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
                    }
                });
            }
            let (limiter, mut random) = (&limiter, Random::new(round));
            scope.spawn(move || {
                let mut multiplier = RateMultiplier::new(100).unwrap();
                for _ in 0..1000 {
                    multiplier.observe(*random.pick(&[Load::High, Load::Low]));
                    limiter.set_paces(&multiplier);
                    let shed = *random.pick(&[Shed::Exempt, Shed::Normal, Shed::First]);
                    KeyedLimiter::set_tiers(&[(limiter, tier, Numbers { rule, shed })]);
                    let another = limiter.another(rule);
                    assert_eq!(another.check("one").status.remaining, 9999);
                }
            });
        });
        assert_eq!(admitted.into_inner(), 9999, "round {round}");
    }
}

/// Numbers that are changed together hold together: no plan sees some of them and not the others.
#[test]
fn a_plan_never_sees_half_of_a_change() {
    let bucket = |burst| Numbers::from(TokenBucket::new(Rate::per_second(1).unwrap(), burst).unwrap());
    let limits: Vec<KeyedLimiter> = {
        let first = limiter(10);
        (1..8).map(|_| first.another(bucket(10).rule)).chain([first.clone()]).collect()
    };
    let (changes, looks) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for i in 0..2000 {
                let numbers = bucket(10 + i % 2);
                let all: Vec<_> = limits.iter().map(|limit| (limit, limit.base_tier(), numbers)).collect();
                KeyedLimiter::set_tiers(&all);
                changes.fetch_add(1, Ordering::Relaxed);
            }
        });
        while changes.load(Ordering::Relaxed) < 2000 {
            // Keys that nobody uses, in shards all over the table; each has what its numbers say.
            let key = looks.fetch_add(1, Ordering::Relaxed);
            let requests: Vec<_> = limits.iter().map(|limit| limit.ask(&key).cost(0)).collect();
            let mut decisions = vec![tollgate::Decision::default(); requests.len()];
            let _ = KeyedLimiter::check_all_at(&requests, limits[0].clock().now(), &mut decisions);
            let left: Vec<u64> = decisions.iter().map(|decision| decision.status.remaining).collect();
            assert!(left.iter().all(|&other| other == left[0]), "{left:?}");
        }
    });
}
