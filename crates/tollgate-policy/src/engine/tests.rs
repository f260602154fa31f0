use std::path::Path;
use std::time::Duration;

use tollgate::{AlgorithmKind, Clock, Outcome, Retry};

use super::{Engine, EngineError, Reason, Request, SentRule, TenantError};
use crate::policy::Policy;

fn policy(file: &str) -> Policy {
    Policy::read(Path::new("test.yaml"), file).unwrap_or_else(|faults| panic!("{faults}"))
}

fn engine(file: &str) -> Engine {
    Engine::with_clock(policy(file), Clock::manual()).unwrap()
}

/// What each limit has left after a request, and whether the request passed.
fn ask(engine: &Engine, attributes: &[(&str, &str)]) -> (bool, Vec<(String, u64)>) {
    let (policy, now) = (engine.policy(), engine.clock().now());
    let verdict = policy.check(&Request { attributes, cost: None }, now).now().unwrap().unwrap();
    let left = verdict.limits().map(|limit| (limit.name().to_owned(), limit.decision().status.remaining));
    (verdict.is_allowed(), left.collect())
}

fn expect(engine: &Engine, attributes: &[(&str, &str)], allowed: bool, left: &[(&str, u64)]) {
    let left: Vec<_> = left.iter().map(|(name, left)| ((*name).to_owned(), *left)).collect();
    assert_eq!(ask(engine, attributes), (allowed, left), "{attributes:?}");
}

const RIDES: &str = "
tiers: { free: {}, pro: { weight: 2 } }
default_tier: free
tenants:
  acme: { tier: pro }
  globex: { tier: pro, limits: { per-tenant: { burst: 500 } } }
costs:
  - { match: { method: POST, path: /export/* }, cost: 10 }
  - { match: { path: /free }, cost: 0 }
limits:
  - name: per-tenant
    key: [tenant]
    token_bucket: { rate: 1/min, burst: 20 }
    tiers: { pro: { burst: 200 } }
  - name: per-user
    match: { path: [/api/*, /login] }
    key: [user|ip]
    token_bucket: { rate: 1/min, burst: 5 }
  - name: reports
    match: { path: /reports, attributes: { team: 'a*' } }
    key: [tier, team]
    fixed_window: { limit: 3, window: 60s }
";

#[test]
fn limits_apply_where_their_match_holds() {
    let engine = engine(RIDES);
    expect(&engine, &[("tenant", "x"), ("path", "/other")], true, &[("per-tenant", 19)]);
    expect(&engine, &[("tenant", "x"), ("path", "/login")], true, &[("per-tenant", 18), ("per-user", 4)]);
    expect(&engine, &[("tenant", "x"), ("path", "/reports")], true, &[("per-tenant", 17)]);
    let team = [("tenant", "x"), ("path", "/reports"), ("team", "apes")];
    expect(&engine, &team, true, &[("per-tenant", 16), ("reports", 2)]);
}

#[test]
fn tenants_have_the_numbers_of_their_tier_or_their_own() {
    let engine = engine(RIDES);
    for (tenant, left) in [("x", 19), ("acme", 199), ("globex", 499)] {
        expect(&engine, &[("tenant", tenant)], true, &[("per-tenant", left)]);
    }
    assert_eq!(engine.set_tier("x", "pro"), Ok(()));
    // She keeps what she has spent, not what she has left: a bucket of 20 with 19 left is one of 200 with 19 left.
    expect(&engine, &[("tenant", "x")], true, &[("per-tenant", 18)]);
    expect(&engine, &[("tenant", "y")], true, &[("per-tenant", 19)]);
    let unknown = TenantError::UnknownTier { tier: "gold".into(), known: vec!["free".into(), "pro".into()] };
    assert_eq!(engine.set_tier("x", "gold"), Err(unknown));
}

#[test]
fn the_tier_is_derived_whatever_the_caller_says() {
    let engine = engine(RIDES);
    let request = |tenant| [("tenant", tenant), ("path", "/reports"), ("team", "apes"), ("tier", "pro")];
    expect(&engine, &request("x"), true, &[("per-tenant", 19), ("reports", 2)]);
    expect(&engine, &request("y"), true, &[("per-tenant", 19), ("reports", 1)]); // both are free
    expect(&engine, &request("acme"), true, &[("per-tenant", 199), ("reports", 2)]);
}

#[test]
fn costs_come_from_the_caller_else_from_the_policy() {
    let engine = engine(RIDES);
    let export = [("tenant", "x"), ("method", "POST"), ("path", "/export/all")];
    expect(&engine, &export, true, &[("per-tenant", 10)]);
    expect(&engine, &[("tenant", "x"), ("path", "/free")], true, &[("per-tenant", 10)]);
    let (policy, now) = (engine.policy(), engine.clock().now());
    let verdict = policy.check(&Request { attributes: &export, cost: Some(3) }, now).now().unwrap().unwrap();
    assert_eq!((verdict.cost(), verdict.reported().unwrap().decision().status.remaining), (3, 7));
    let verdict = policy.check(&Request { attributes: &export, cost: Some(21) }, now).now().unwrap().unwrap();
    assert_eq!((verdict.outcome(), verdict.reason()), (Outcome::NEVER, Some(Reason::CostExceedsLimit)));
}

#[test]
fn keys_take_the_first_attribute_that_is_there() {
    let engine = engine(RIDES);
    let login = |who: (&'static str, &'static str)| [("tenant", who.1), ("path", "/login"), who];
    expect(&engine, &login(("user", "1")), true, &[("per-tenant", 19), ("per-user", 4)]);
    // The same text under another name is the same key: the alternatives of a part are one part.
    expect(&engine, &login(("ip", "1")), true, &[("per-tenant", 18), ("per-user", 3)]);
    expect(&engine, &[("tenant", "z"), ("path", "/login")], true, &[("per-tenant", 19), ("per-user", 4)]);
}

#[test]
fn parts_of_keys_do_not_run_into_each_other() {
    let engine = engine("limits: [{ name: a, key: [x, y], token_bucket: { rate: 1/min, burst: 2 } }]");
    expect(&engine, &[("x", "ab"), ("y", "c")], true, &[("a", 1)]);
    expect(&engine, &[("x", "a"), ("y", "bc")], true, &[("a", 1)]);
    expect(&engine, &[("x", "abc")], true, &[("a", 1)]);
    expect(&engine, &[("x", "ab"), ("y", "c")], true, &[("a", 0)]);
}

#[test]
fn a_missing_attribute_shares_skips_or_denies() {
    let engine = engine(
        "limits:
          - { name: shares, key: [user], token_bucket: { rate: 1/min, burst: 2 } }
          - { name: skips, key: [user], when_missing: skip, token_bucket: { rate: 1/min, burst: 2 } }
          - { name: denies, key: [user], match: { path: /strict }, when_missing: deny, token_bucket: { rate: 1/min, burst: 2 } }",
    );
    expect(&engine, &[("user", "a")], true, &[("shares", 1), ("skips", 1)]);
    expect(&engine, &[], true, &[("shares", 1)]);
    expect(&engine, &[("path", "/strict")], false, &[("shares", 1), ("denies", 2)]); // nothing is charged
    expect(&engine, &[], true, &[("shares", 0)]);
    let (policy, now) = (engine.policy(), engine.clock().now());
    let strict = Request { attributes: &[("path", "/strict")], cost: None };
    let verdict = policy.check(&strict, now).now().unwrap().unwrap();
    assert_eq!((verdict.reason(), verdict.retry_after()), (Some(Reason::MissingAttribute), None));
    assert!(policy.check(&Request { cost: Some(0), ..strict }, now).now().unwrap().unwrap().is_allowed()); // a peek
}

#[test]
fn a_denial_by_one_limit_costs_the_others_nothing() {
    let engine = engine(
        "limits:
          - { name: user, key: [user], token_bucket: { rate: 1/s, burst: 1 } }
          - { name: tenant, key: [tenant], token_bucket: { rate: 10/s, burst: 10 } }",
    );
    let request = [("user", "u"), ("tenant", "t")];
    expect(&engine, &request, true, &[("user", 0), ("tenant", 9)]);
    for _ in 0..4 {
        expect(&engine, &request, false, &[("user", 0), ("tenant", 9)]);
    }
    let (policy, now) = (engine.policy(), engine.clock().now());
    let verdict = policy.check(&Request { attributes: &request, cost: None }, now).now().unwrap().unwrap();
    assert_eq!(verdict.reported().unwrap().name(), "user");
    assert_eq!(Duration::from(verdict.retry_after().unwrap()), Duration::from_secs(1));
}

#[test]
fn shadow_limits_decide_alone_and_change_nothing() {
    let engine = engine(
        "limits:
          - { name: live, key: [user], token_bucket: { rate: 1/min, burst: 2 } }
          - { name: candidate, key: [user], shadow: true, token_bucket: { rate: 1/min, burst: 1 } }
          - { name: wide, key: [user], shadow: true, token_bucket: { rate: 1/min, burst: 9 } }",
    );
    let request = Request { attributes: &[("user", "a")], cost: None };
    let (policy, now) = (engine.policy(), engine.clock().now());
    for (allowed, candidate, wide) in [(true, true, 8), (true, false, 7), (false, false, 6)] {
        let verdict = policy.check(&request, now).now().unwrap().unwrap();
        assert_eq!(verdict.is_allowed(), allowed);
        assert_eq!(verdict.limits().map(|limit| limit.name()).collect::<Vec<_>>(), ["live"]);
        let shadow: Vec<_> = verdict.shadow().map(|limit| (limit.name(), limit.is_allowed())).collect();
        assert_eq!(shadow, [("candidate", candidate), ("wide", true)]);
        // Charged as if it alone decided, also where the request was denied.
        assert_eq!(verdict.shadow().last().unwrap().decision().status.remaining, wide);
    }
}

#[test]
fn concurrency_limits_act_only_where_a_permit_can_be_held() {
    let engine = engine(
        "limits:
          - { name: rate, key: [user], token_bucket: { rate: 1/min, burst: 9 } }
          - { name: in-flight, key: [user], concurrency: { limit: 1, lease: 30s } }",
    );
    let request = Request { attributes: &[("user", "a")], cost: None };
    let (policy, now) = (engine.policy(), engine.clock().now());
    expect(&engine, request.attributes, true, &[("rate", 8)]);
    let acquire = || policy.acquire(&request, now).now().unwrap().unwrap();
    let mut first = acquire();
    let permits = first.take_permits();
    assert!(first.is_allowed() && permits.len() == 1);
    let mut verdict = acquire();
    assert_eq!((verdict.reason(), verdict.take_permits().len()), (Some(Reason::InFlight), 0));
    assert_eq!(Duration::from(verdict.retry_after().unwrap()), Duration::from_secs(30));
    assert_eq!(verdict.limits().next().unwrap().decision().status.remaining, 7); // not charged again
    drop(permits);
    assert!(acquire().is_allowed());
}

#[test]
fn shadow_places_are_held_with_the_live_ones() {
    let engine = engine(
        "limits:
          - { name: live, key: [], concurrency: { limit: 3, lease: 30s } }
          - { name: watched, shadow: true, key: [], concurrency: { limit: 1, lease: 30s } }",
    );
    let (policy, now) = (engine.policy(), engine.clock().now());
    let request = Request { attributes: &[], cost: None };
    let acquire = || {
        let mut verdict = policy.acquire(&request, now).now().unwrap().unwrap();
        let permits = verdict.take_permits();
        let watched = verdict.shadow().next().unwrap().is_allowed();
        (verdict.is_allowed(), watched, permits)
    };
    let (first, second, third) = (acquire(), acquire(), acquire());
    assert_eq!((first.0, first.1, first.2.len()), (true, true, 2));
    assert_eq!((second.0, second.1, second.2.len()), (true, false, 1));
    assert!(third.0);
    assert_eq!((acquire().0, acquire().2.len()), (false, 0)); // denied: it holds nothing, in the shadow either
    drop((first, second, third));
    assert_eq!(acquire().2.len(), 2);
}

/// Above `exact_up_to` a log is a strict counter: who crosses that line, up or down, keeps what was counted.
#[test]
fn a_log_and_the_counter_in_its_place_count_as_one() {
    let engine = engine(
        "tiers: { free: {}, big: {} }\ndefault_tier: free
limits: [{ name: l, key: [user], sliding_log: { limit: 3, window: 1h }, tiers: { big: { limit: 20000 } } }]",
    );
    let user = [("tenant", "t"), ("user", "u")];
    let mut admitted = 0;
    for _ in 0..5 {
        engine.set_tier("t", "free").unwrap();
        admitted += (0..5).filter(|_| ask(&engine, &user).0).count();
        engine.set_tier("t", "big").unwrap();
        assert!(ask(&engine, &user).0);
    }
    assert_eq!(admitted, 3);
    // And by a reload.
    engine.set_tier("t", "free").unwrap();
    engine
        .reload(policy("limits: [{ name: l, key: [user], sliding_log: { limit: 10001, window: 1h } }]"))
        .unwrap();
    let before = engine.policy().key("l", &user, engine.clock().now()).now().unwrap().unwrap().unwrap();
    assert!(before.status.remaining <= 10_001 - 8, "{before:?}");
    engine
        .reload(policy("limits: [{ name: l, key: [user], sliding_log: { limit: 8, window: 1h } }]"))
        .unwrap();
    expect(&engine, &user, false, &[("l", 0)]);
}

#[test]
fn rules_that_callers_send_take_no_numbers_from_the_policy() {
    let engine = engine("limits: [{ name: a, key: [], token_bucket: { rate: 1/min, burst: 10 } }]");
    let (now, keys) = (engine.clock().now(), 5000);
    for i in 1..=keys {
        let numbers = format!(r#"{{"limit":{i},"window":"30d"}}"#);
        let sent = SentRule {
            key: &i.to_string(),
            algorithm: AlgorithmKind::FixedWindow,
            numbers: &numbers,
            cost: 1,
        };
        engine.throttle(&sent, now).now().unwrap().unwrap();
    }
    assert_eq!(engine.stats().keys, keys);
    assert_eq!((engine.limiter.part_stats().keys, engine.limiter.part_stats().rules), (0, 0));
}

#[test]
fn more_limits_than_can_be_decided_together_are_an_error_that_names_them() {
    let limit = |i: usize| format!("{{ name: l{i}, key: [user], token_bucket: {{ rate: 1/s }} }}");
    let limits: Vec<String> = (0..33).map(limit).collect();
    let engine = engine(&format!("limits: [{}]", limits.join(", ")));
    let request = Request { attributes: &[("user", "a")], cost: None };
    let error = engine.policy().check(&request, engine.clock().now()).now().unwrap().unwrap_err();
    assert!(
        error.to_string().starts_with("33 limits apply to this request, and 32 is the most: l0, l1"),
        "{error}"
    );
    assert_eq!(engine.stats().keys, 0);
}

#[test]
fn explain_says_why_and_charges_nothing() {
    let engine = engine(RIDES);
    let request = Request { attributes: &[("tenant", "acme"), ("path", "/api/trips")], cost: Some(7) };
    let (policy, now) = (engine.policy(), engine.clock().now());
    let explanation = policy.explain(&request, now).now().unwrap().unwrap();
    assert_eq!((explanation.tier, explanation.cost), (Some("pro"), 7));
    let why: Vec<_> = explanation
        .limits
        .iter()
        .map(|limit| (limit.limit.name.as_str(), limit.applies, limit.why.as_str()))
        .collect();
    assert_eq!(
        why,
        [
            ("per-tenant", true, "the limit has no `match`: it applies to every request"),
            ("per-user", true, "the request has no `user|ip`: all requests without it share one key"),
            ("reports", false, "`path` is `/api/trips`, which does not match `/reports`"),
        ]
    );
    assert_eq!(explanation.limits[1].decision.outcome, Outcome::Deny { retry: Retry::Never }); // 7 of 5
    assert_eq!(engine.stats().keys, 0);
}

#[test]
fn explain_and_check_agree_on_what_is_missing() {
    for (when_missing, applies, denies) in
        [("share", true, false), ("skip", false, false), ("deny", true, true)]
    {
        let file = format!(
            "limits: [{{ name: a, key: [user], when_missing: {when_missing}, token_bucket: {{ rate: 1/s }} }}]"
        );
        let engine = engine(&file);
        let (policy, now) = (engine.policy(), engine.clock().now());
        let request = Request { attributes: &[], cost: None };
        let explained = &policy.explain(&request, now).now().unwrap().unwrap().limits[0];
        assert_eq!(explained.applies, applies, "{when_missing}: {}", explained.why);
        assert_eq!(explained.reason() == Some(Reason::MissingAttribute), denies, "{when_missing}");
        let verdict = policy.check(&request, now).now().unwrap().unwrap();
        assert_eq!(
            (verdict.limits().count() == 1, !verdict.is_allowed()),
            (applies, denies),
            "{when_missing}"
        );
    }
}

#[test]
fn keys_can_be_looked_at_and_reset() {
    let engine = engine(RIDES);
    let acme = [("tenant", "acme")];
    expect(&engine, &acme, true, &[("per-tenant", 199)]);
    let now = engine.clock().now();
    let status = engine.policy().key("per-tenant", &acme, now).now().unwrap().unwrap().unwrap();
    assert_eq!(
        (status.key, status.rule.capacity(), status.status.remaining),
        (vec!["acme".into()], 200, 199)
    );
    let reset = |limit| engine.policy().reset(limit, &acme).now().unwrap().unwrap();
    assert_eq!([reset("per-tenant"), reset("per-tenant"), reset("nobody")], [Some(true), Some(false), None]);
    expect(&engine, &acme, true, &[("per-tenant", 199)]);
}

#[test]
fn a_reload_keeps_what_keys_have_left() {
    let before = "limits: [{ name: a, key: [user], token_bucket: { rate: 1/min, burst: 10 } }]";
    let engine = engine(before);
    for left in [9, 8, 7] {
        expect(&engine, &[("user", "u")], true, &[("a", left)]);
    }
    let reload = |file: &str| engine.reload(policy(file)).unwrap();
    reload("limits: [{ name: a, key: [user], token_bucket: { rate: 60/min, burst: 100 } }]");
    expect(&engine, &[("user", "u")], true, &[("a", 6)]); // of 100 now
    expect(&engine, &[("user", "v")], true, &[("a", 99)]);
    reload(before);
    expect(&engine, &[("user", "u")], true, &[("a", 5)]);
    // Another limit, another order: neither is noticed.
    reload(
        "limits: [{ name: b, key: [user], token_bucket: { rate: 1/s } },
                  { name: a, key: [user], token_bucket: { rate: 1/min, burst: 10 } }]",
    );
    expect(&engine, &[("user", "u")], true, &[("b", 0), ("a", 4)]);
    // A changed key and a changed algorithm start afresh.
    reload("limits: [{ name: a, key: [user, path], token_bucket: { rate: 1/min, burst: 10 } }]");
    expect(&engine, &[("user", "u")], true, &[("a", 9)]);
    reload("limits: [{ name: a, key: [user, path], fixed_window: { limit: 10, window: 1h } }]");
    expect(&engine, &[("user", "u")], true, &[("a", 9)]);
}

#[test]
fn a_policy_that_cannot_be_put_in_force_changes_nothing() {
    let engine = engine("limits: [{ name: a, key: [], token_bucket: { rate: 1/min, burst: 10 } }]");
    expect(&engine, &[], true, &[("a", 9)]);
    let mut persistent = policy("");
    if let crate::StoreSettings::Memory(memory) = &mut persistent.store {
        memory.persist = Some("./state".to_owned());
    }
    let not_built = "`store: { memory: { persist } }`".to_owned();
    assert_eq!(engine.reload(persistent), Err(EngineError::NotBuilt(vec![not_built])));
    expect(&engine, &[], true, &[("a", 8)]);
}

/// Equal numbers of tenants are one set; different ones are as many as there are.
#[test]
fn a_hundred_thousand_tenants_have_numbers_of_their_own() {
    let with_tenants = |burst: u64, own: u64| {
        let tenant = |i: u64| format!("  t{i}: {{ limits: {{ a: {{ burst: {} }} }} }}\n", own + i % 90_000);
        policy(&format!(
            "limits: [{{ name: a, key: [tenant], token_bucket: {{ rate: 1/min, burst: {burst} }} }}]
tenants:\n{}",
            (0..100_000).map(tenant).collect::<String>()
        ))
    };
    let engine = Engine::with_clock(with_tenants(5, 100), Clock::manual()).unwrap();
    let sets = |engine: &Engine| engine.policy().compiled.limits[0].sets_of_numbers();
    assert_eq!(sets(&engine), 90_001);
    for (tenant, left) in [("t0", 99), ("t1", 100), ("t90001", 100), ("t99999", 10_098), ("other", 4)] {
        expect(&engine, &[("tenant", tenant)], true, &[("a", left)]);
    }
    // Everybody keeps their tokens under other numbers.
    engine.reload(with_tenants(6, 200)).unwrap();
    assert_eq!(sets(&engine), 90_001);
    for (tenant, left) in [("t0", 98), ("t99999", 10_097), ("other", 3)] {
        expect(&engine, &[("tenant", tenant)], true, &[("a", left)]);
    }
}

#[test]
fn rules_can_come_with_the_request() {
    let engine = engine("");
    let now = engine.clock().now();
    let throttle = |key: &str, algorithm: &str, numbers: &str| {
        let algorithm = AlgorithmKind::from_name(algorithm).expect("an algorithm");
        engine.throttle(&SentRule { key, algorithm, numbers, cost: 1 }, now).now().unwrap()
    };
    let left = |key, algorithm, numbers| throttle(key, algorithm, numbers).unwrap().decision.status.remaining;
    let bucket = r#"{"rate":"5/s","burst":20}"#;
    assert_eq!(left("alice", "token_bucket", bucket), 19);
    assert_eq!(left("alice", "token_bucket", r#"{"rate": "5/s", "burst": 20}"#), 18); // the same key
    assert_eq!(left("alice", "token_bucket", r#"{"rate":"5/s","burst":30}"#), 17); // and it keeps its tokens
    assert_eq!(left("alice", "fixed_window", r#"{"limit":3,"window":"60s"}"#), 2); // of its own
    assert_eq!(left("alice", "token_bucket", bucket), 16); // not forgotten for it
    for (algorithm, numbers, message) in [
        ("token_bucket", "{}", "`token_bucket`: `rate` is missing: write `rate: 5/s`"),
        ("token_bucket", r#"{"rate":"5"}"#, "`token_bucket`: `5` cannot be read"),
        (
            "token_bucket",
            r#"{"rate":"5/s","brst":1}"#,
            "`token_bucket`: unknown key `brst`: did you mean `burst`?",
        ),
        ("token_bucket", "[", "`token_bucket`:"),
        ("fixed_window", r#"{"limit":0,"window":"60s"}"#, "`fixed_window`:"),
        (
            "sliding_log",
            r#"{"limit":9,"window":"60s","exact_up_to":9}"#,
            "`sliding_log`: `exact_up_to` cannot be sent",
        ),
    ] {
        let error = throttle("alice", algorithm, numbers).unwrap_err().to_string();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn any_number_of_rules_can_come_and_go() {
    let engine = engine("");
    for burst in 1..10_000 {
        let now = engine.clock().now();
        let numbers = format!(r#"{{"rate":"1/s","burst":{burst}}}"#);
        let sent =
            SentRule { key: "alice", algorithm: AlgorithmKind::TokenBucket, numbers: &numbers, cost: 0 };
        let throttled = engine.throttle(&sent, now).now().unwrap().unwrap();
        assert_eq!(throttled.rule.capacity(), burst);
        engine.clock().advance(Duration::from_millis(1));
    }
}

#[test]
fn warnings_name_what_is_worth_a_second_look() {
    const TRUST: &str = "identity: { client_ip: { trusted_proxies: [127.0.0.1] } }\n";
    let limits = |count: usize, of: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..count).map(of).collect();
        format!("{TRUST}limits: [{}]", all.join(","))
    };
    let everywhere = |i| format!("{{ name: l{i}, key: [], token_bucket: {{ rate: 1/s, burst: 20 }} }}");
    let apart =
        |i| format!("{{ name: l{i}, match: {{ path: /p{i} }}, key: [], token_bucket: {{ rate: 1/s }} }}");
    let one = |limit: &str| format!("{TRUST}limits: [{{ name: l, {limit} }}]");
    let costly = "costs: [{ match: { path: /a }, cost: 10 }]\ntiers: { free: {}, pro: {} }\n";
    let rows: Vec<(String, &[&str])> = vec![
        (limits(8, &everywhere), &[]),
        (limits(9, &everywhere), &["9 limits may apply to one request"]),
        (limits(9, &apart), &[]),
        (
            costly.to_owned()
                + TRUST
                + "limits:
  - { name: small, key: [], token_bucket: { rate: 1/s, burst: 9 }, tiers: { pro: { burst: 8 }, free: { burst: 90 } } }
  - { name: watched, shadow: true, key: [], token_bucket: { rate: 1/s, burst: 9 } }
  - { name: elsewhere, match: { path: /b }, key: [], token_bucket: { rate: 1/s, burst: 9 } }",
            &["limit `small` holds 9, 8 in tier pro and a request may cost 10: where both apply, it never passes"],
        ),
        (one("match: { path: login }, key: [], token_bucket: { rate: 1/s }"), &["limit `l` matches `path: login`"]),
        (one("match: { method: post }, key: [], token_bucket: { rate: 1/s }"), &["limit `l` matches `method: post`"]),
        (one("key: [ipp], token_bucket: { rate: 1/s }"), &["limit `l` counts by `ipp`: did you mean `ip`?"]),
        (one("key: [team], token_bucket: { rate: 1/s }"), &[]),
        (one("key: [], concurrency: { limit: 1 }"), &["limit `l` has no `lease`"]),
        (one("key: [ip], token_bucket: { rate: 1/s }").replace(TRUST, ""), &["no `identity.client_ip.trusted_proxies`"]),
        (one("key: [user], token_bucket: { rate: 1/s }").replace(TRUST, ""), &[]),
        (one("key: [user], token_bucket: { rate: 1/s }") + "\nlisten: { resp: '0.0.0.0:6380' }", &["`listen.resp` 0.0.0.0:6380 is open"]),
        (one("key: [user], token_bucket: { rate: 1/s }") + "\nlisten: { resp: '127.0.0.1:6380' }", &[]),
        (String::new(), &["there are no limits"]),
    ];
    for (file, expected) in rows {
        let warnings = policy(&file).warnings();
        assert_eq!(warnings.len(), expected.len(), "{file}: {warnings:?}");
        for (warning, expected) in warnings.iter().zip(expected) {
            assert!(warning.starts_with(expected), "{file}: {warning}");
        }
    }
}

#[test]
fn changes_say_what_becomes_of_each_limit() {
    let old = policy(
        "limits:
          - { name: same, key: [], token_bucket: { rate: 1/s } }
          - { name: numbers, key: [], token_bucket: { rate: 1/s } }
          - { name: algorithm, key: [], token_bucket: { rate: 1/s } }
          - { name: gone, key: [], token_bucket: { rate: 1/s } }",
    );
    let new = policy(
        "limits:
          - { name: added, key: [], token_bucket: { rate: 1/s } }
          - { name: numbers, key: [], token_bucket: { rate: 2/s } }
          - { name: algorithm, key: [], fixed_window: { limit: 1, window: 1s } }
          - { name: same, key: [], token_bucket: { rate: 1/s } }",
    );
    let changes: Vec<String> =
        new.changes_from(&old).into_iter().map(|(name, change)| format!("{name} {change}")).collect();
    assert_eq!(
        changes,
        [
            "added is new",
            "algorithm starts afresh for every key: its algorithm changed",
            "gone is gone, with the state of its keys",
            "numbers has other numbers; every key keeps its tokens, or its count",
        ]
    );
}
