//! `limit: 0`: a limit, a tier or a tenant that nothing passes.

use std::path::Path;
use std::time::Duration;

use tollgate::{Clock, Outcome, Retry, Timestamp};
use tollgate_policy::{Engine, Permits, Policy, Reason, Request, headers};

const ALGORITHMS: [&str; 4] = [
    "fixed_window: { limit: LIMIT, window: 60s }",
    "sliding_log: { limit: LIMIT, window: 60s }",
    "sliding_counter: { limit: LIMIT, window: 60s }",
    "concurrency: { limit: LIMIT, lease: 30s }",
];

fn policy(file: &str) -> Policy {
    Policy::read(Path::new("test.yaml"), file).unwrap_or_else(|faults| panic!("{file}\n{faults}"))
}

fn engine(file: &str) -> Engine {
    Engine::with_clock(policy(file), Clock::manual()).expect("a policy that can be put in force")
}

/// A limit of 2, which is 0 for the tier `banned` and for the tenant `acme`.
fn file(algorithm: &str, limit: &str) -> String {
    format!(
        "tiers: {{ banned: {{}}, free: {{}} }}
tenants:
  acme: {{ limits: {{ a: {{ limit: 0 }} }} }}
  globex: {{ tier: banned }}
  initech: {{ tier: banned, limits: {{ a: {{ limit: 1 }} }} }}
limits:
  - name: a
    key: [tenant]
    {}
    tiers: {{ banned: {{ limit: 0 }} }}
",
        algorithm.replace("LIMIT", limit)
    )
}

/// Whether it passed, the reason, the capacity, what remains, and how long to wait.
type Told = (bool, Option<Reason>, u64, u64, Option<u64>);

/// Whether a request of a tenant passes, with the reason, the capacity, what remains, and how long to wait.
fn ask(engine: &Engine, tenant: &str, cost: u64) -> Told {
    ask_and_hold(engine, tenant, cost).0
}

fn ask_and_hold(engine: &Engine, tenant: &str, cost: u64) -> (Told, Permits) {
    let policy = engine.policy();
    let attributes = [("tenant", tenant)];
    let request = Request { attributes: &attributes, cost: Some(cost) };
    let mut verdict = policy.acquire(&request, Timestamp::default()).now().unwrap().unwrap();
    let permits = verdict.take_permits();
    let limit = verdict.reported().expect("one limit");
    let retry_after = verdict.retry_after().map(tollgate::Nanos::get);
    let remaining = limit.decision().status.remaining;
    ((verdict.is_allowed(), verdict.reason(), limit.capacity(), remaining, retry_after), permits)
}

const BLOCKED: Told = (false, Some(Reason::CostExceedsLimit), 0, 0, None);

#[test]
fn limit_0_blocks_a_tier_and_a_tenant_and_nobody_else() {
    for algorithm in ALGORITHMS {
        let engine = engine(&file(algorithm, "2"));
        for tenant in ["acme", "globex"] {
            assert_eq!(ask(&engine, tenant, 1), BLOCKED, "{tenant}: {algorithm}");
            assert_eq!(ask(&engine, tenant, 1), BLOCKED, "{tenant}: {algorithm}");
            assert_eq!(ask(&engine, tenant, 0), (true, None, 0, 0, None), "a peek of {tenant}: {algorithm}");
        }
        assert_eq!(ask(&engine, "initech", 1), (true, None, 1, 0, None), "{algorithm}");
        let (first, _held) = ask_and_hold(&engine, "other", 1);
        assert_eq!(first, (true, None, 2, 1, None), "{algorithm}");
        let (second, _held_too) = ask_and_hold(&engine, "other", 1);
        assert_eq!(second, (true, None, 2, 0, None), "{algorithm}");
        assert!(!ask(&engine, "other", 1).0, "{algorithm}");
    }
}

#[test]
fn limit_0_of_the_limit_blocks_everybody_without_another_limit() {
    for algorithm in ALGORITHMS {
        let engine = engine(&file(algorithm, "0"));
        for tenant in ["acme", "globex", "other", ""] {
            assert_eq!(ask(&engine, tenant, 1), BLOCKED, "{tenant}: {algorithm}");
        }
        assert_eq!(ask(&engine, "initech", 1), (true, None, 1, 0, None), "{algorithm}");
        let notes = engine.policy().notes();
        assert!(notes.iter().any(|note| note.starts_with("limit `a` has `limit: 0`")), "{notes:?}");
    }
}

/// A tier with the limit that stands in for 0 inside is still apart from it.
#[test]
fn limit_0_differs_from_limit_1() {
    let engine = engine(&file(ALGORITHMS[0], "1"));
    assert_eq!(ask(&engine, "globex", 1), BLOCKED);
    assert_eq!(ask(&engine, "other", 1), (true, None, 1, 0, None));
}

#[test]
fn a_blocked_limit_shows_0_in_headers_numbers_and_explanations() {
    let engine = engine(&file(ALGORITHMS[0], "2"));
    let policy = engine.policy();
    let request = Request { attributes: &[("tenant", "acme")], cost: None };
    let verdict = policy.check(&request, Timestamp::default()).now().unwrap().unwrap();
    assert_eq!(verdict.outcome(), Outcome::Deny { retry: Retry::Never });
    let headers = headers(&policy.headers, &verdict, Duration::ZERO);
    let find = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    assert_eq!(find("ratelimit-policy").as_deref(), Some("\"a\";q=0;w=60"));
    assert_eq!(find("x-ratelimit-limit").as_deref(), Some("0"));
    assert_eq!(find("x-ratelimit-remaining").as_deref(), Some("0"));
    assert_eq!(find("retry-after"), None);
    assert_eq!(policy.limits[0].numbers(Some("banned"))[0], ("limit", "0".to_owned()));
    assert_eq!(policy.tenants["acme"].numbers("a")[0], ("limit", "0".to_owned()));
    assert!(policy.limits[0].is_blocked(Some("banned")) && !policy.limits[0].is_blocked(None));
    assert!(policy.tenants["acme"].is_blocked("a") && !policy.tenants["initech"].is_blocked("a"));
    let explained = policy.explain(&request, Timestamp::default()).now().unwrap().unwrap();
    let limit = &explained.limits[0];
    assert_eq!((limit.capacity, limit.decision.status.remaining), (0, 0));
    assert_eq!(limit.reason(), Some(Reason::CostExceedsLimit));
    let key =
        policy.key("a", &[("tenant", "acme")], Timestamp::default()).now().unwrap().unwrap().expect("a key");
    assert_eq!((key.capacity, key.status.remaining), (0, 0));
}

#[test]
fn a_reload_blocks_and_unblocks() {
    let engine = engine(&file(ALGORITHMS[0], "1"));
    assert_eq!(ask(&engine, "one", 1), (true, None, 1, 0, None));
    let zero = policy(&file(ALGORITHMS[0], "0"));
    let changes = zero.changes_from(&engine.policy());
    assert_eq!(changes.len(), 1, "from 1 to 0: {changes:?}");
    engine.reload(zero).expect("valid");
    assert_eq!(ask(&engine, "one", 1), BLOCKED);
    assert_eq!(ask(&engine, "two", 1), BLOCKED);
    engine.reload(policy(&file(ALGORITHMS[0], "3"))).expect("valid");
    assert!(ask(&engine, "two", 1).0);
}

/// Other limits of a request are not charged for what a blocked one denies.
#[test]
fn a_blocked_request_is_charged_to_no_limit() {
    let engine = engine(
        "limits:
  - { name: all, key: [], fixed_window: { limit: 5, window: 60s } }
  - { name: out, match: { path: /out }, key: [], sliding_log: { limit: 0, window: 60s } }
  - { name: watch, key: [], shadow: true, sliding_counter: { limit: 0, window: 60s } }",
    );
    let policy = engine.policy();
    let decide = |path: &str| {
        let attributes = [("path", path)];
        let request = Request { attributes: &attributes, cost: None };
        let verdict = policy.check(&request, Timestamp::default()).now().unwrap().unwrap();
        let left = verdict.limits().next().expect("one").decision().status.remaining;
        (verdict.is_allowed(), left, verdict.shadow().next().expect("one").is_allowed())
    };
    assert_eq!(decide("/out"), (false, 5, false));
    assert_eq!(decide("/in"), (true, 4, false));
}

#[test]
fn numbers_that_cannot_be_0_name_limit_0() {
    for numbers in [
        "token_bucket: { rate: 0/s }",
        "token_bucket: { rate: 1/s, burst: 0 }",
        "leaky_bucket: { rate: 1/s, queue: 0 }",
        "burst_credits: { rate: 1/s, peak: 2x, credits: 0 }",
    ] {
        let file = format!("limits: [{{ name: a, key: [], {numbers} }}]");
        let faults = Policy::read(Path::new("test.yaml"), &file).expect_err(numbers);
        let help = faults.iter().next().and_then(|fault| fault.help.clone()).unwrap_or_default();
        assert!(help.contains("to block requests, use `limit: 0`"), "{numbers}: {help}");
    }
}

/// A bucket has no `limit`, and `limit: 0` still blocks a tier or a tenant of it.
#[test]
fn limit_of_0_blocks_a_tenant_of_every_algorithm() {
    for algorithm in [
        "token_bucket: { rate: 5/s, burst: 2 }",
        "leaky_bucket: { rate: 5/s, queue: 2 }",
        "burst_credits: { rate: 5/s, peak: 10/s, credits: 10 }",
    ] {
        let text = format!(
            "tiers: {{ banned: {{}} }}
tenants: {{ acme: {{ limits: {{ a: {{ limit: 0 }} }} }}, globex: {{ tier: banned }} }}
limits: [{{ name: a, key: [tenant], {algorithm}, tiers: {{ banned: {{ limit: 0 }} }} }}]"
        );
        let engine = engine(&text);
        for blocked in ["acme", "globex"] {
            let expected = (false, Some(Reason::CostExceedsLimit), 0, 0, None);
            assert_eq!(ask(&engine, blocked, 1), expected, "{algorithm}: {blocked}");
        }
        assert!(ask(&engine, "other", 1).0, "{algorithm}");
        let other = text.replace("limit: 0", "limit: 1");
        assert!(Policy::read(Path::new("test.yaml"), &other).is_err(), "{algorithm}: only 0 makes sense");
    }
}
