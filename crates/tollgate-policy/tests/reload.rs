//! Policies changed while they are in use.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tollgate::Clock;
use tollgate_policy::{Engine, Policy, Request};
use tollgate_testkit::{Counting, Directory};

fn policy(file: &str) -> Policy {
    Policy::read(Path::new("test.yaml"), file).unwrap_or_else(|faults| panic!("{faults}"))
}

/// The wait of a denial is that of the numbers in force, and the request passes when it is over.
#[test]
fn an_exhausted_key_refills_by_the_numbers_in_force() {
    let file = |rate: &str| {
        format!(
            "tiers: {{ free: {{}}, pro: {{}} }}
default_tier: free
limits:
  - {{ name: own, key: [user], token_bucket: {{ rate: {rate}, burst: 1 }} }}
  - {{ name: by-tier, key: [tenant], when_missing: skip, token_bucket: {{ rate: 1/h, burst: 1 }}, tiers: {{ pro: {{ rate: 1/s }} }} }}
"
        )
    };
    let engine = Engine::with_clock(policy(&file("1/h")), Clock::manual()).unwrap();
    let check = |attributes: &[(&str, &str)]| {
        let policy = engine.policy();
        let verdict =
            policy.check(&Request { attributes, cost: None }, engine.clock().now()).now().unwrap().unwrap();
        verdict.outcome().retry_after().map(|wait| wait.as_secs_ceil())
    };
    let (alice, acme) = ([("user", "alice")], [("tenant", "acme"), ("user", "bob")]);
    assert_eq!((check(&alice), check(&acme)), (None, None));
    engine.reload(policy(&file("1/s"))).unwrap();
    engine.set_tier("acme", "pro").unwrap();
    for attributes in [&alice[..], &acme] {
        assert_eq!(check(attributes), Some(1), "{attributes:?}");
    }
    engine.clock().advance(std::time::Duration::from_secs(1));
    for attributes in [&alice[..], &acme] {
        assert_eq!(check(attributes), None, "{attributes:?}");
    }
}

/// A user may have the name of a tenant. Denied requests of that user must not move the tenant's key to a shorter window.
#[test]
fn a_key_that_another_attribute_can_name_stays_with_its_tier() {
    let file = "
tiers: { pro: {} }
tenants: { acme: { tier: pro } }
limits:
  - name: calls
    key: [tenant|user]
    fixed_window: { limit: 2, window: 2s, align: first }
    tiers: { pro: { window: 1h } }
";
    let engine = Engine::with_clock(policy(file), Clock::manual()).unwrap();
    let passes = |attributes: &[(&str, &str)]| {
        let policy = engine.policy();
        policy
            .check(&Request { attributes, cost: None }, engine.clock().now())
            .now()
            .unwrap()
            .unwrap()
            .is_allowed()
    };
    assert_eq!([(); 3].map(|()| passes(&[("tenant", "acme")])), [true, true, false]);
    assert!(!passes(&[("user", "acme")]));
    engine.clock().advance(std::time::Duration::from_secs(3));
    assert!(!passes(&[("tenant", "acme")]));
}

/// A thousand reloads, each of which changes the numbers of some tenants and hands places in the table from one to
/// another: what passes is what the policies allow, to the token.
#[test]
fn a_thousand_reloads_under_load_admit_not_one_token_more() {
    // `steady` never changes; `flapping` goes between 500 and 400, and can only lose by it.
    let file = |round: usize| {
        let own = |tenant: usize| {
            format!("  t{tenant}: {{ limits: {{ flapping: {{ burst: {} }} }} }}\n", 300 + tenant)
        };
        let tenants: String = (0..20).filter(|tenant| !(tenant + round).is_multiple_of(3)).map(own).collect();
        format!(
            "tenants:\n{tenants}
limits:
  - {{ name: steady, key: [user], token_bucket: {{ rate: 1/h, burst: 1000 }} }}
  - {{ name: flapping, key: [user], token_bucket: {{ rate: 1/h, burst: {} }} }}
  - {{ name: other-{}, key: [user], fixed_window: {{ limit: 1000000, window: 1h }} }}
",
            if round.is_multiple_of(2) { 500 } else { 400 },
            round % 5,
        )
    };
    let engine = Engine::with_clock(policy(&file(0)), Clock::manual()).unwrap();
    let (stop, passed) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 20]);
    let asked = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (tenant, passed) in passed.iter().enumerate() {
                        let name = format!("t{tenant}");
                        let attributes = [("tenant", name.as_str()), ("user", name.as_str())];
                        let policy = engine.policy();
                        let request = Request { attributes: &attributes, cost: None };
                        let verdict = policy.check(&request, engine.clock().now()).now().unwrap().unwrap();
                        assert_eq!(verdict.limits().count(), 3);
                        passed.fetch_add(u64::from(verdict.is_allowed()), Ordering::Relaxed);
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for round in 1..=1000 {
            engine.reload(policy(&file(round))).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(asked.load(Ordering::Relaxed) > 20_000, "a load worth the name");
    for (tenant, passed) in passed.iter().enumerate() {
        let passed = passed.load(Ordering::Relaxed);
        // Never more than the most generous numbers it ever had, which are those of all: 500.
        assert!((300..=500).contains(&passed), "t{tenant}: {passed}");
    }
    // A tenant that was charged only while its numbers stood at one value spent exactly what they say.
    let alone = [("tenant", "fresh"), ("user", "fresh")];
    let (policy, now) = (engine.policy(), engine.clock().now());
    let request = Request { attributes: &alone, cost: None };
    let allowed =
        (0..1000).filter(|_| policy.check(&request, now).now().unwrap().unwrap().is_allowed()).count();
    assert_eq!(allowed, 500);
}

/// A tier that was set at run time ends when the line of its tenant changes. Those of all other tenants stay.
#[test]
fn tiers_set_at_run_time_end_with_their_lines() {
    const TENANTS: usize = 2500; // more than a reload looks at under one lock
    let directory = Directory::new();
    let read = |free: &dyn Fn(usize) -> bool| {
        let tier = |i: usize| if free(i) { "free" } else { "mid" };
        let lines: String = (0..TENANTS).map(|i| format!("t{i},{}\n", tier(i))).collect();
        directory.write("tenants.csv", &lines);
        let file = "tiers: { free: {}, mid: {}, pro: {} }
tenants_file: tenants.csv
limits:
  - { name: a, key: [tenant], token_bucket: { rate: 1/h, burst: 1 }, tiers: { mid: { burst: 2 }, pro: { burst: 3 } } }";
        let policy = Policy::read(&directory.path().join("policy.yaml"), file);
        policy.unwrap_or_else(|faults| panic!("{faults}"))
    };
    let engine = Engine::with_clock(read(&|_| true), Clock::manual()).unwrap();
    let remaining = |tenant: usize| {
        let (policy, tenant) = (engine.policy(), format!("t{tenant}"));
        let request = Request { attributes: &[("tenant", &tenant)], cost: Some(0) };
        let verdict = policy.check(&request, engine.clock().now()).now().unwrap().unwrap();
        verdict.limits().next().unwrap().decision().status.remaining
    };
    for i in 0..TENANTS {
        engine.set_tier(&format!("t{i}"), "pro").unwrap();
    }
    engine.reload(read(&|_| true)).unwrap();
    assert!((0..TENANTS).all(|i| remaining(i) == 3));
    engine.reload(read(&|i| i % 3 != 0)).unwrap();
    assert!((0..TENANTS).all(|i| remaining(i) == if i % 3 == 0 { 2 } else { 3 }));
    // What was set again stays, and a line that changes back ends it.
    engine.set_tier("t0", "pro").unwrap();
    engine.reload(read(&|i| i % 3 != 0 || i == 3)).unwrap();
    assert_eq!([remaining(0), remaining(3), remaining(6), remaining(7)], [3, 1, 2, 3]);
}

/// A policy of limits whose names end in a generation.
fn generation(number: usize, limits: usize) -> Policy {
    let limit =
        |i| format!("  - {{ name: l{i}-{number}, key: [user], token_bucket: {{ rate: 1/h, burst: 9 }} }}\n");
    policy(&format!("limits:\n{}", (0..limits).map(limit).collect::<String>()))
}

/// Memory, the numbers of limits and the rules in the table are those of one generation, whatever came before.
#[test]
fn a_hundred_reloads_that_rename_every_limit_leave_nothing_behind() {
    const LIMITS: usize = 30;
    let engine = Engine::with_clock(generation(0, LIMITS), Clock::manual()).unwrap();
    let mut bytes = Vec::new();
    for number in 1..=100 {
        for user in 0..50 {
            let user = user.to_string();
            let attributes = [("user", user.as_str())];
            let request = Request { attributes: &attributes, cost: None };
            let _ = engine.policy().check(&request, engine.clock().now()).now().unwrap().unwrap();
        }
        engine.reload(generation(number, LIMITS)).unwrap();
        engine.maintain();
        let highest = engine.policy().limit_numbers().map(|(number, _)| number).max().unwrap();
        assert!(highest < 2 * LIMITS, "limit number {highest} in generation {number}");
        assert!(engine.stats().keys <= 50 * LIMITS, "{:?}", engine.stats());
        bytes.push(Counting::bytes());
    }
    // Other tests may run in this process, but nextest runs each in its own.
    let (early, late) = (bytes[20..40].iter().max().unwrap(), bytes[80..].iter().max().unwrap());
    assert!(*late < early + early / 10, "{early} bytes after 40 reloads, {late} after 100");
}

/// A policy with thousands of limits takes milliseconds to drop, which no request should wait for.
#[test]
fn a_request_that_was_decided_by_an_old_policy_does_not_drop_it() {
    let engine = Engine::with_clock(generation(0, 1000), Clock::manual()).unwrap();
    let old = engine.policy();
    engine.reload(generation(1, 1000)).unwrap();
    engine.maintain();
    let freed = |act: &mut dyn FnMut()| {
        let before = Counting::bytes();
        act();
        before.saturating_sub(Counting::bytes())
    };
    let mut old = Some(old);
    assert!(freed(&mut || old = None) < 1000, "the last request that knows it");
    let by_maintain = freed(&mut || engine.maintain());
    assert!(by_maintain > 1000 * 500, "{by_maintain} bytes");
}
