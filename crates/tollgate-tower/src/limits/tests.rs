use std::time::Duration;

use tollgate::{Align, Concurrency, FixedWindow, LeakyBucket, MaxWait, Rate, SlidingLog, TokenBucket};
use tollgate_policy::{Engine, Request};

use super::*;

fn rules() -> Vec<Rule> {
    let minute = Duration::from_secs(60);
    let bucket = TokenBucket::new(Rate::per_second(5).unwrap(), 10).unwrap();
    vec![
        bucket.into(),
        MaxWait::new(bucket, Duration::from_millis(500), 3).unwrap().into(),
        LeakyBucket::new(Rate::per_second(5).unwrap(), 10).unwrap().into(),
        FixedWindow::new(7, minute, Align::Epoch).unwrap().into(),
        SlidingLog::new(20_000, minute).unwrap().into(),
        Concurrency::new(3, Some(minute)).unwrap().into(),
    ]
}

#[test]
fn a_rule_is_kept_as_it_is() {
    for rule in rules() {
        let policy = Limits::new().limit("it", rule, &["user|ip", "path"]).policy().unwrap();
        assert_eq!(policy.limits[0].rule, rule);
        assert_eq!(
            policy.limits[0].key.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["user|ip", "path"]
        );
        Engine::new(policy).unwrap();
    }
}

#[test]
fn all_are_charged_or_none() {
    let bucket = |burst| TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap();
    let limits = Limits::new().limit("all", bucket(10), &[]).limit("per-user", bucket(1), &["user"]);
    let engine = Engine::new(limits.policy().unwrap()).unwrap();
    let ask = |user| {
        let (policy, now) = (engine.policy(), engine.clock().now());
        policy.check(&Request { attributes: &[("user", user)], cost: None }, now).unwrap().is_allowed()
    };
    assert_eq!(["alice", "alice", "bob"].map(ask), [true, false, true]);
    let left = engine.policy().key("all", &[], engine.clock().now()).unwrap().status.remaining;
    assert_eq!(left, 8);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let rule = Concurrency::new(1, None).unwrap();
    let fault = |limits: Limits| limits.policy().unwrap_err().iter().next().unwrap().message.clone();
    for (limits, message) in [
        (Limits::new().limit("", rule, &[]), "`` cannot be a name"),
        (Limits::new().limit("a \"b\"", rule, &[]), "`a \"b\"` cannot be a name"),
        (Limits::new().limit("${HOME}", rule, &[]), "`${HOME}` cannot be a name"),
        (Limits::new().limit("a", rule, &["user|"]), "`user|` names an attribute without a name"),
        (Limits::new().limit("a", rule, &[]).limit("a", rule, &[]), "two limits are called `a`"),
    ] {
        assert_eq!(fault(limits), message);
    }
}

#[test]
fn keys_start_afresh_under_another_algorithm() {
    let policy = |rule: Rule| Limits::new().limit("it", rule, &[]).policy().unwrap();
    let engine = Engine::new(policy(rules()[0])).unwrap();
    let request = Request { attributes: &[], cost: None };
    for rule in rules().into_iter().chain(rules()) {
        engine.reload(policy(rule)).unwrap();
        let (in_force, now) = (engine.policy(), engine.clock().now());
        let (verdict, _permits) = in_force.acquire(&request, now).unwrap();
        assert!(verdict.is_allowed(), "{rule:?}");
        let found = in_force.key("it", &[], now).unwrap();
        assert_eq!(found.rule.capacity(), rule.capacity());
        assert!(found.status.remaining + 2 >= rule.capacity(), "{rule:?}: {found:?}");
    }
}
