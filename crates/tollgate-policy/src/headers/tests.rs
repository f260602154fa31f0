use std::path::Path;
use std::time::Duration;

use tollgate::{Clock, Nanos};

use crate::{Engine, Policy, Request, headers, problem};

const UNIX: Duration = Duration::from_millis(1_700_000_000_500);

const LIMITS: &str = "
limits:
  - { name: per-user, key: [user], token_bucket: { rate: 3/s, burst: 10 } }
  - { name: hourly, match: { path: /two }, key: [user], fixed_window: { limit: 100, window: 1h } }
  - { name: in-flight, match: { path: /flight }, key: [user], concurrency: { limit: 2 } }
  - { name: watched, key: [user], shadow: true, token_bucket: { rate: 1/s } }
";

/// The headers of the last of `asked` requests, one a line, under some generation.
fn told(generation: &str, path: &str, cost: u64, asked: usize) -> Vec<String> {
    let file = format!("headers: {generation}\n{LIMITS}");
    let engine =
        Engine::with_clock(Policy::read(Path::new("t.yaml"), &file).unwrap(), Clock::manual()).unwrap();
    let policy = engine.policy();
    let request = Request { attributes: &[("user", "a"), ("path", path)], cost: Some(cost) };
    let (mut told, mut held) = (Vec::new(), Vec::new());
    for _ in 0..asked {
        let mut verdict = policy.acquire(&request, engine.clock().now()).now().unwrap().unwrap();
        told = headers(&policy.headers, &verdict, UNIX);
        held.push(verdict.take_permits());
    }
    told.into_iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

#[test]
fn draft_08_lists_every_limit_that_applied() {
    let ietf = "{ x_ratelimit: off }";
    assert_eq!(
        told(ietf, "/", 4, 1),
        ["ratelimit-policy: \"per-user\";q=10;w=4", "ratelimit: \"per-user\";r=6;t=1"]
    );
    // The tightest first.
    assert_eq!(
        told(ietf, "/two", 4, 1),
        [
            "ratelimit-policy: \"per-user\";q=10;w=4, \"hourly\";q=100;w=3600",
            "ratelimit: \"per-user\";r=6;t=1, \"hourly\";r=96;t=3600",
        ]
    );
    // Denied: of what is missing, not of one token.
    assert_eq!(
        told(ietf, "/", 6, 2),
        [
            "ratelimit-policy: \"per-user\";q=10;w=4",
            "ratelimit: \"per-user\";r=4;t=1",
            "retry-after: 1",
            "cache-control: no-store",
        ]
    );
    // No wait helps: no Retry-After.
    assert_eq!(
        told(ietf, "/", 11, 1),
        [
            "ratelimit-policy: \"per-user\";q=10;w=4",
            "ratelimit: \"per-user\";r=10",
            "cache-control: no-store"
        ]
    );
    assert_eq!(
        told(ietf, "/flight", 1, 3),
        [
            "ratelimit-policy: \"per-user\";q=10;w=4, \"in-flight\";q=2;qu=\"concurrent-requests\"",
            "ratelimit: \"in-flight\";r=0, \"per-user\";r=8;t=1",
            "cache-control: no-store",
        ]
    );
}

/// Clients may compare the value with that of the answer before.
#[test]
fn ratelimit_policy_keeps_the_order_of_the_policy_file() {
    let numbers = |name: char, limit: u32| {
        format!(
            "  - {{ name: {name}, match: {{ path: [/all, /{name}] }}, key: [], fixed_window: {{ limit: {limit}, window: 1h }} }}\n"
        )
    };
    let file = format!("limits:\n{}{}{}", numbers('a', 30), numbers('b', 20), numbers('c', 40));
    for generation in ["draft-08", "draft-07", "draft-06"] {
        let file = format!("headers: {{ ietf: {generation} }}\n{file}");
        let engine =
            Engine::with_clock(Policy::read(Path::new("t.yaml"), &file).unwrap(), Clock::manual()).unwrap();
        let policy = engine.policy();
        let value = |name: &str, path: &str| {
            let request = Request { attributes: &[("path", path)], cost: Some(5) };
            let verdict = policy.check(&request, engine.clock().now()).now().unwrap().unwrap();
            let told = headers(&policy.headers, &verdict, UNIX);
            told.into_iter().find(|(known, _)| *known == name).unwrap().1
        };
        let all = value("ratelimit-policy", "/all");
        (0..7).for_each(|_| _ = value("ratelimit-policy", "/c")); // now c is the tightest
        assert_eq!(value("ratelimit-policy", "/all"), all, "{generation}");
        if generation == "draft-08" {
            assert_eq!(all, "\"a\";q=30;w=3600, \"b\";q=20;w=3600, \"c\";q=40;w=3600");
            assert!(value("ratelimit", "/all").starts_with("\"c\";"), "the tightest first");
        }
    }
}

/// Of more limits than a header has, both headers name the same.
#[test]
fn the_tightest_eight_limits_are_listed() {
    let limits: String = (1..=10)
        .map(|n| {
            format!("  - {{ name: l{n}, key: [], fixed_window: {{ limit: {}, window: 1h }} }}\n", 100 - 9 * n)
        })
        .collect();
    let file = format!("limits:\n{limits}");
    let engine =
        Engine::with_clock(Policy::read(Path::new("t.yaml"), &file).unwrap(), Clock::manual()).unwrap();
    let policy = engine.policy();
    let verdict =
        policy.check(&Request { attributes: &[], cost: None }, engine.clock().now()).now().unwrap().unwrap();
    let told = headers(&policy.headers, &verdict, UNIX);
    let names = |value: &str| -> Vec<String> {
        value.split(", ").map(|item| item.split('"').nth(1).unwrap().to_owned()).collect()
    };
    let expected: Vec<String> = (3..=10).map(|n| format!("l{n}")).collect();
    assert_eq!(names(&told[0].1), expected);
    assert_eq!(names(&told[1].1), expected.into_iter().rev().collect::<Vec<_>>());
}

/// What can never pass before what can, later.
#[test]
fn the_worst_news_comes_first() {
    let limits = "limits:
      - { name: later, key: [], token_bucket: { rate: 1/s, burst: 10 } }
      - { name: never, key: [], token_bucket: { rate: 1/s, burst: 2 } }";
    let engine =
        Engine::with_clock(Policy::read(Path::new("t.yaml"), limits).unwrap(), Clock::manual()).unwrap();
    let policy = engine.policy();
    let check = |cost| {
        policy
            .check(&Request { attributes: &[], cost: Some(cost) }, engine.clock().now())
            .now()
            .unwrap()
            .unwrap()
    };
    assert!(check(2).is_allowed());
    let told = headers(&policy.headers, &check(9), UNIX);
    assert_eq!(told[1].1, "\"never\";r=0;t=1, \"later\";r=8;t=1");
    assert_eq!(check(9).reported().unwrap().name(), "never");
}

#[test]
fn older_drafts_tell_of_one_limit() {
    let seven = "{ ietf: draft-07, x_ratelimit: off }";
    assert_eq!(
        told(seven, "/two", 4, 1),
        ["ratelimit: limit=10, remaining=6, reset=2", "ratelimit-policy: 10;w=4, 100;w=3600"]
    );
    assert_eq!(
        told(seven, "/", 10, 2),
        [
            "ratelimit: limit=10, remaining=0, reset=4",
            "ratelimit-policy: 10;w=4",
            "retry-after: 4",
            "cache-control: no-store",
        ]
    );
    let six = "{ ietf: draft-06, x_ratelimit: off }";
    assert_eq!(
        told(six, "/two", 4, 1),
        [
            "ratelimit-limit: 10",
            "ratelimit-remaining: 6",
            "ratelimit-reset: 2",
            "ratelimit-policy: 10;w=4, 100;w=3600",
        ]
    );
    assert_eq!(told(six, "/flight", 1, 1)[3], "ratelimit-policy: 10;w=4, 2");
}

#[test]
fn x_ratelimit_tells_the_reset_as_a_time_or_as_a_wait() {
    // 4 of 10 at 3 a second: full in 1.33 s, which is 1700000001.83.
    let expected = |reset: &str| ["10", "6", reset].map(str::to_owned);
    for (style, reset) in [("epoch", "1700000002"), ("delta", "2")] {
        let told = told(&format!("{{ ietf: off, x_ratelimit: {style} }}"), "/", 4, 1);
        let names = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
        let expected: Vec<_> = names.iter().zip(expected(reset)).map(|(n, v)| format!("{n}: {v}")).collect();
        assert_eq!(told, expected);
    }
    assert_eq!(told("{ ietf: off, x_ratelimit: off }", "/", 4, 1), Vec::<String>::new());
}

#[test]
fn nothing_is_told_where_no_limit_applies() {
    let engine = Engine::new(Policy::default()).unwrap();
    let policy = engine.policy();
    let verdict =
        policy.check(&Request { attributes: &[], cost: None }, engine.clock().now()).now().unwrap().unwrap();
    assert_eq!(headers(&policy.headers, &verdict, UNIX), []);
}

#[test]
fn numbers_too_large_for_a_structured_field_are_cut() {
    let limits = "limits: [{ name: a, key: [], fixed_window: { limit: 9000000000000000000, window: 1s } }]";
    let policy = Policy::read(Path::new("t.yaml"), limits).unwrap();
    let engine = Engine::with_clock(policy, Clock::manual()).unwrap();
    let policy = engine.policy();
    let verdict =
        policy.check(&Request { attributes: &[], cost: None }, engine.clock().now()).now().unwrap().unwrap();
    let told = headers(&policy.headers, &verdict, UNIX);
    assert_eq!(told[0].1, "\"a\";q=999999999999999;w=1");
    assert_eq!(told[1].1, "\"a\";r=999999999999999;t=1");
}

/// Whatever the limits and the cost: `Retry-After` is not before `t` of the limit that denied, and who waits that long is
/// let in.
#[test]
fn whoever_waits_as_long_as_told_is_let_in() {
    let rules = [
        "token_bucket: { rate: 7/min, burst: 3 }",
        "leaky_bucket: { rate: 7/min, queue: 3 }",
        "fixed_window: { limit: 3, window: 17s }",
        "sliding_log: { limit: 3, window: 17s }",
        "sliding_counter: { limit: 3, window: 17s }",
        "sliding_counter: { limit: 3, window: 17s, buckets: 4, mode: strict }",
        "burst_credits: { rate: 7/min, peak: 3x, credits: 5 }",
    ];
    for rule in rules {
        let clock = Clock::manual();
        let file = format!("limits: [{{ name: a, key: [], {rule} }}]");
        let engine =
            Engine::with_clock(Policy::read(Path::new("t.yaml"), &file).unwrap(), clock.clone()).unwrap();
        let policy = engine.policy();
        let request = Request { attributes: &[], cost: None };
        let mut denied = 0;
        for step in 0..200_u64 {
            let verdict = policy.check(&request, clock.now()).now().unwrap().unwrap();
            if verdict.is_allowed() {
                clock.advance(Nanos::new(step * 7_919_317 % 1_000_000_000));
                continue;
            }
            denied += 1;
            let told = headers(&policy.headers, &verdict, UNIX);
            let value = |name: &str| told.iter().find(|(n, _)| *n == name).unwrap().1.clone();
            let retry: u64 = value("retry-after").parse().unwrap();
            let t: u64 = value("ratelimit").rsplit_once("t=").unwrap().1.parse().unwrap();
            assert!(retry >= t, "{rule}: Retry-After {retry}, t {t}");
            if retry > 1 {
                clock.advance(Duration::from_secs(retry - 1));
                assert!(
                    !policy.check(&request, clock.now()).now().unwrap().unwrap().is_allowed(),
                    "{rule}: a second early"
                );
                clock.advance(Duration::from_secs(1));
            } else {
                clock.advance(Duration::from_secs(retry));
            }
            assert!(
                policy.check(&request, clock.now()).now().unwrap().unwrap().is_allowed(),
                "{rule}: waited {retry} s"
            );
        }
        assert!(denied > 20, "{rule}: {denied}");
    }
}

#[test]
fn a_denial_explains_itself() {
    let engine =
        Engine::with_clock(Policy::read(Path::new("t.yaml"), LIMITS).unwrap(), Clock::manual()).unwrap();
    let policy = engine.policy();
    let request = Request { attributes: &[("user", "a")], cost: Some(6) };
    let _ = policy.check(&request, engine.clock().now()).now().unwrap().unwrap();
    let verdict = policy.check(&request, engine.clock().now()).now().unwrap().unwrap();
    let body: serde_json::Value = serde_json::from_slice(&problem(&verdict, 429)).unwrap();
    assert_eq!(
        body,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Too Many Requests",
            "status": 429,
            "detail": "Limit `per-user` has 4 left and the request costs 6. Try again in 1 second.",
            "violated-policies": ["per-user"],
            "error": "rate_limit_exceeded",
            "message": "Limit `per-user` has 4 left and the request costs 6. Try again in 1 second.",
            "reason": "rate",
            "retry_after": 0.666666667,
            "retry_after_seconds": 1,
            "limits": [{
                "name": "per-user", "allowed": false, "limit": 10, "remaining": 4,
                "retry_after": 0.666666667, "reset_after": 2.0, "reason": "rate"
            }],
        })
    );
}
