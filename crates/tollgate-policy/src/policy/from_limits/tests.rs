use std::path::Path;
use std::time::Duration;

use tollgate::{
    Align, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Mode, Rate, SlidingCounter,
    SlidingLog, TokenBucket,
};

use super::*;
use crate::{Engine, Request};

const MINUTE: Duration = Duration::from_secs(60);

fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(5).unwrap(), 10).unwrap()
}

/// A rule of each algorithm, and the same in a policy file.
fn rules() -> Vec<(Rule, &'static str)> {
    let rate = Rate::per_second(5).unwrap();
    let leaky = LeakyBucket::new(Rate::per_minute(7).unwrap(), 10).unwrap();
    let window = FixedWindow::new(7, MINUTE, Align::First).unwrap();
    vec![
        (bucket().into(), "token_bucket: { rate: 5/s, burst: 10 }"),
        (
            MaxWait::new(bucket(), Duration::from_millis(500), 3).unwrap().into(),
            "token_bucket: { rate: 5/s, burst: 10 }, max_wait: 500ms, max_waiting: 3",
        ),
        (leaky.into(), "leaky_bucket: { rate: 7/min, queue: 10 }"),
        (
            MaxWait::new(leaky, MINUTE, 4).unwrap().into(),
            "leaky_bucket: { rate: 7/min, queue: 10 }, max_wait: 60s, max_waiting: 4",
        ),
        (window.into(), "fixed_window: { limit: 7, window: 60s, align: first }"),
        (
            window.counting_denied().into(),
            "fixed_window: { limit: 7, window: 60s, align: first }, count_denied: true",
        ),
        (
            SlidingLog::new(20_000, MINUTE).unwrap().into(),
            "sliding_log: { limit: 20000, window: 60s, exact_up_to: 18446744073709551615 }",
        ),
        (
            SlidingCounter::new(7, MINUTE, 6, Mode::Strict).unwrap().into(),
            "sliding_counter: { limit: 7, window: 60s, buckets: 6, mode: strict }",
        ),
        (
            BurstCredits::new(rate, Rate::per_second(50).unwrap(), 100).unwrap().into(),
            "burst_credits: { rate: 5/s, peak: 50/s, credits: 100 }",
        ),
        (Concurrency::new(3, Some(MINUTE)).unwrap().into(), "concurrency: { limit: 3, lease: 60s }"),
    ]
}

#[test]
fn a_policy_from_limits_equals_one_from_a_file() {
    for (rule, text) in rules() {
        let limit = Limit::new("it", rule).key(["user | ip", "path"]);
        let file = format!("limits: [{{ name: it, key: [user|ip, path], {text} }}]");
        let policy = Policy::from_limits([limit]).unwrap();
        assert_eq!(policy, Policy::read(Path::new("test.yaml"), &file).unwrap());
        Engine::new(policy).unwrap();
    }
}

#[test]
fn a_limit_in_code_has_the_name_and_the_numbers_of_its_algorithm() {
    let shown = |rule: Rule| {
        let limit = Limit::new("it", rule);
        let numbers: Vec<String> =
            limit.numbers(None).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        format!("{}: {}", limit.algorithm_name(), numbers.join(", "))
    };
    let queue = |rate: Rate| shown(LeakyBucket::new(rate, 10).unwrap().into());
    assert_eq!(shown(Concurrency::new(3, None).unwrap().into()), "concurrency: limit 3");
    assert_eq!(queue(Rate::new(1, Duration::from_millis(200)).unwrap()), "leaky_bucket: rate 5/s, queue 10");
    assert_eq!(queue(Rate::new(3, Duration::from_secs(7)).unwrap()), "leaky_bucket: rate 3/7s, queue 10");
    assert_eq!(queue(Rate::per_hour(7).unwrap()), "leaky_bucket: rate 7/h, queue 10");
}

#[test]
fn a_request_is_charged_by_all_limits_or_by_none() {
    let bucket = |burst| TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap();
    let limits = [Limit::new("all", bucket(10)), Limit::new("per-user", bucket(1)).key(["user"])];
    let engine = Engine::new(Policy::from_limits(limits).unwrap()).unwrap();
    let ask = |user| {
        let (policy, now) = (engine.policy(), engine.clock().now());
        policy
            .check(&Request { attributes: &[("user", user)], cost: None }, now)
            .now()
            .unwrap()
            .unwrap()
            .is_allowed()
    };
    assert_eq!(["alice", "alice", "bob"].map(ask), [true, false, true]);
    let remaining = engine
        .policy()
        .key("all", &[], engine.clock().now())
        .now()
        .unwrap()
        .unwrap()
        .unwrap()
        .status
        .remaining;
    assert_eq!(remaining, 8);
}

#[test]
fn limits_in_code_have_the_faults_of_limits_in_a_file() {
    let limit = |name: &str, key: &[&str]| Limit::new(name, bucket()).key(key);
    let name = |name: &str| format!("{name:?}");
    for limits in [
        vec![limit("", &[])],
        vec![limit("a \"b\"", &[])],
        vec![limit(&"a".repeat(65), &[])],
        vec![limit("a", &["user|"])],
        vec![limit("a", &["user", ""])],
        vec![limit("a", &[]), limit("b", &[]), limit("a", &[])],
        vec![limit("é", &["|", "ip"]), limit("é", &[])],
    ] {
        let in_file = limits.iter().map(|limit| {
            let key: Vec<String> = limit.key.iter().map(|part| name(&part.to_string())).collect();
            let (name, key) = (name(&limit.name), key.join(", "));
            format!("  - {{ name: {name}, key: [{key}], token_bucket: {{ rate: 5/s, burst: 10 }} }}\n")
        });
        let file = format!("limits:\n{}", in_file.collect::<String>());
        let messages = |faults: &Faults| -> Vec<_> {
            let mut messages: Vec<_> =
                faults.iter().map(|fault| (fault.message.clone(), fault.help.clone())).collect();
            messages.sort();
            messages
        };
        let (in_file, in_code) = (Policy::read(Path::new("test.yaml"), &file), Policy::from_limits(limits));
        let (in_file, in_code) = (in_file.unwrap_err(), in_code.unwrap_err());
        let expected = messages(&in_file);
        assert!(!expected.is_empty());
        assert_eq!(messages(&in_code), expected, "{file}");
    }
}

#[test]
fn names_are_not_replaced_from_the_environment() {
    let faults = Policy::from_limits([Limit::new("${HOME}", bucket())]).unwrap_err();
    assert_eq!(faults.iter().next().unwrap().message, "`${HOME}` cannot be a name");
}

#[test]
fn faults_show_the_limit() {
    let limits = [Limit::new("a", bucket()), Limit::new("b", bucket()).key(["ip", "user|"])];
    let faults = Policy::from_limits(limits).unwrap_err();
    assert_eq!(
        faults.to_string(),
        "error: `user|` names an attribute without a name
 --> limits:2:31
  |
2 | Limit::new(\"b\", …).key([\"ip\", \"user|\"])
  |                               ^^^^^^^
  |
  = help: write an attribute such as `user`, or `user|ip` for the first that is there"
    );
}

#[test]
fn keys_start_again_under_another_algorithm() {
    let policy = |rule: Rule| Policy::from_limits([Limit::new("it", rule)]).unwrap();
    // What remains of a queue with `max_waiting` is less than its capacity.
    let counts_capacity = |rule: &Rule| !matches!(rule, Rule::LeakyBucketMaxWait(_));
    let rules: Vec<Rule> = rules().into_iter().map(|(rule, _)| rule).filter(counts_capacity).collect();
    let engine = Engine::new(policy(rules[0])).unwrap();
    let request = Request { attributes: &[], cost: None };
    for rule in rules.iter().chain(&rules).copied() {
        engine.reload(policy(rule)).unwrap();
        let (in_force, now) = (engine.policy(), engine.clock().now());
        let verdict = in_force.acquire(&request, now).now().unwrap().unwrap();
        assert!(verdict.is_allowed(), "{rule:?}");
        let found = in_force.key("it", &[], now).now().unwrap().unwrap().unwrap();
        assert_eq!(found.rule.capacity(), rule.capacity());
        assert!(found.status.remaining + 2 >= rule.capacity(), "{rule:?}: {found:?}");
    }
}
