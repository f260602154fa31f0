//! Keys that are asked by other numbers than they were written by: of another tier or policy, or of nobody.

use std::time::Duration;

use tollgate_core::{
    Action, Align, BurstCredits, FixedWindow, LeakyBucket, Mode, Nanos, Rate, Rule, RuleParts,
    SlidingCounter, SlidingLog, TokenBucket,
};
use tollgate_policy::{Ask, Store as _};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::{FaultProxy, RedisServer};

use super::{ask, decide, dump, hourly, one_of_each, store};

/// The same with other numbers: those of another tier, for the same key.
fn others(rule: &Rule) -> Rule {
    let mut parts = rule.parts();
    match &mut parts {
        RuleParts::TokenBucket { bucket, .. } | RuleParts::LeakyBucket { bucket, .. } => bucket.capacity /= 2,
        RuleParts::BurstCredits { base, .. } => base.capacity /= 2,
        RuleParts::FixedWindow { window, .. }
        | RuleParts::SlidingLog { window, .. }
        | RuleParts::SlidingCounter { window, .. } => *window = Nanos::new(window.get() / 2),
        RuleParts::Concurrency { limit, .. } => *limit /= 2,
    }
    Rule::from_parts(&parts).unwrap()
}

#[tokio::test]
async fn who_looks_or_is_denied_under_other_numbers_changes_nothing() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (name, rule) in one_of_each() {
        let holding = |rule, cost, action| Ask { action, ..ask(name, "k", rule, cost) };
        assert!(decide(&store, &[holding(rule, 10, Action::Hold)]).await.verdict.is_allowed());
        let before = dump(&server);
        for (cost, action) in [(0, Action::Charge), (1, Action::Peek), (95, Action::Charge)] {
            let seen = decide(&store, &[holding(others(&rule), cost, action)]).await.each[0].decision;
            assert!(seen.status.remaining <= 90, "{name}: {seen:?}");
            assert!(dump(&server) == before, "{name}: {action:?} of {cost} has written something");
        }
        server.command(&["FLUSHALL"]);
    }
}

/// The wait of a denial is that of the numbers in force, and the key passes when it is over. Without that write, the key
/// would refill by its old numbers until it is charged.
#[tokio::test]
async fn a_denied_key_refills_by_the_numbers_in_force() {
    let server = RedisServer::start();
    let store =
        RedisStore::with_manual_clock(Settings::single(server.url(), Duration::from_secs(10))).unwrap();
    assert!(store.ready(Duration::from_secs(10)).await);
    let (hour, second) = (Duration::from_secs(3600), Duration::from_secs(1));
    let token = |rate| Rule::from(TokenBucket::new(rate, 10).unwrap());
    let leaky = |rate| Rule::from(LeakyBucket::new(rate, 10).unwrap());
    let window = |window| Rule::from(FixedWindow::new(10, window, Align::First).unwrap());
    let log = |window| Rule::from(SlidingLog::new(10, window).unwrap());
    let counter = |window| Rule::from(SlidingCounter::new(10, window, 4, Mode::Strict).unwrap());
    let credits = |rate, peak| Rule::from(BurstCredits::new(rate, peak, 10).unwrap());
    let (slow, fast) = (Rate::per_hour(1).unwrap(), Rate::per_second(10).unwrap());
    for (name, old, new) in [
        ("token", token(slow), token(fast)),
        // Requests that wait in a queue keep their turns, so the queue empties no sooner.
        ("leaky", leaky(Rate::per_second(5).unwrap()), leaky(fast)),
        ("window", window(hour), window(second)),
        ("log", log(hour), log(second)),
        ("counter", counter(hour), counter(second)),
        ("credits", credits(slow, Rate::per_hour(10).unwrap()), credits(Rate::per_second(5).unwrap(), fast)),
    ] {
        let mut now = 1_800_000_000_000_000; // counters are aligned: the start of an hour
        store.set_time(now);
        assert!(decide(&store, &[ask(name, "k", old, 10)]).await.verdict.is_allowed(), "{name}");
        let one = || Ask { has_one_tier: true, ..ask(name, "k", new, 1) };
        let wait = decide(&store, &[one()]).await.each[0].decision.retry_after().unwrap().get() / 1000;
        assert!(wait <= 2_000_000, "{name}: {wait} us");
        // A second denial finds the numbers in force and writes nothing.
        let before = dump(&server);
        now += wait / 2;
        store.set_time(now);
        assert!(!decide(&store, &[Ask { cost: 9, ..one() }]).await.verdict.is_allowed(), "{name}");
        assert!(dump(&server) == before, "{name}: the second denial has written something");
        now += wait - wait / 2;
        store.set_time(now);
        assert!(decide(&store, &[one()]).await.verdict.is_allowed(), "{name}: after {wait} us");
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_key_keeps_its_tokens_when_its_numbers_change() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let hour = Duration::from_secs(3600);
    let token = |burst| Rule::from(TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap());
    let leaky = |queue| Rule::from(LeakyBucket::new(Rate::per_hour(1).unwrap(), queue).unwrap());
    let window = |limit, window| Rule::from(FixedWindow::new(limit, window, Align::First).unwrap());
    let log = |limit, window| Rule::from(SlidingLog::new(limit, window).unwrap());
    let counter = |limit, n| Rule::from(SlidingCounter::new(limit, hour, n, Mode::Strict).unwrap());
    let credits = |credits| {
        let (rate, peak) = (Rate::per_hour(1).unwrap(), Rate::per_hour(100).unwrap());
        Rule::from(BurstCredits::new(rate, peak, credits).unwrap())
    };
    for (name, before, after, left) in [
        ("token", token(10), token(100), 3),
        ("leaky", leaky(10), leaky(100), 93),
        ("window", window(10, hour), window(100, hour / 2), 93),
        ("log", log(10, hour), log(100, hour / 2), 93),
        ("counter", counter(10, 1), counter(100, 8), 93),
        ("credits", credits(10), credits(50), 3),
    ] {
        assert!(decide(&store, &[ask(name, "k", before, 7)]).await.verdict.is_allowed(), "{name}");
        let now = decide(&store, &[ask(name, "k", after, 0)]).await.each[0].decision.status.remaining;
        assert_eq!(now, left, "{name}");
        let back = decide(&store, &[ask(name, "k", before, 0)]).await.each[0].decision.status.remaining;
        assert!(back <= 3, "{name}: {back} of 10 after a change there and back");
    }
}

#[tokio::test]
async fn a_key_that_is_asked_by_two_sets_of_numbers_at_once_always_has_an_answer() {
    let server = RedisServer::start();
    let (one, two) = (store(&server).await, store(&server).await);
    let rate = Rate::per_hour(1).unwrap();
    let [small, large] = [50, 60].map(|burst| Rule::from(TokenBucket::new(rate, burst).unwrap()));
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let store = if task % 2 == 0 { one.clone() } else { two.clone() };
        let rule = if task % 4 < 2 { small } else { large };
        tasks.spawn(async move {
            let mut passed = 0;
            for round in 0..150 {
                let key = (round / 30).to_string();
                passed += u64::from(decide(&store, &[ask("a", &key, rule, 1)]).await.verdict.is_allowed());
            }
            passed
        });
    }
    let passed: u64 = tasks.join_all().await.into_iter().sum();
    assert!((5 * 50..=5 * 60).contains(&passed), "{passed} passed");
}

#[tokio::test]
async fn a_long_log_whose_window_has_changed_is_decided_in_one_call() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let log = |seconds| Rule::from(SlidingLog::new(20_000, Duration::from_secs(seconds)).unwrap());
    assert!(decide(&store, &[ask("log", "k", log(600), 20_000)]).await.verdict.is_allowed());
    for seconds in [900, 300] {
        let before = (store.health()[0].calls, dump(&server));
        let decided = decide(&store, &[ask("log", "k", log(seconds), 1)]).await;
        let wait = Duration::from(decided.verdict.retry_after().unwrap());
        assert!(wait.as_secs().abs_diff(seconds) <= 30, "{wait:?} of {seconds} s");
        assert_eq!(store.health()[0].calls, before.0 + 1, "{seconds} s");
        assert!(dump(&server) == before.1, "{seconds} s: a denial has written something");
    }
}

#[tokio::test]
async fn a_key_of_other_numbers_takes_no_longer_than_the_deadline() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    let url = format!("redis://{}", proxy.address());
    let store = RedisStore::new(Settings::single(url, Duration::from_millis(200))).unwrap();
    assert!(store.ready(Duration::from_secs(10)).await);
    decide(&store, &[ask("a", "k", hourly(10), 1)]).await;
    // One round trip of 120 ms is in time, two are not.
    proxy.delay(Duration::from_millis(60));
    assert!(store.decide(&[ask("a", "k", hourly(20), 1)]).await.is_err());
}

#[tokio::test]
async fn what_nobody_can_read_is_taken_for_a_new_key() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let held = |name: &str| {
        let keys = server.command(&["KEYS", &format!("tollgate:{{acme}}:{name}:*")]);
        keys.array()[0].bytes().to_vec()
    };
    for (name, rule) in one_of_each() {
        if matches!(rule, Rule::SlidingLog(_) | Rule::Concurrency(_)) {
            continue; // not texts
        }
        let name = &name.replace(' ', "-");
        decide(&store, &[ask(name, "k", rule, 1)]).await;
        let key = held(name);
        let text = server.command(&[b"GET".as_slice(), &key]).bytes().to_vec();
        let tag = text.rsplit(|byte| *byte == b' ').next().unwrap().to_vec();
        for nonsense in [&b"a b c d "[..], b"", b"7,, "] {
            server.command(&[b"SET".as_slice(), &key, &[nonsense, &tag].concat()]);
            let decided = decide(&store, &[ask(name, "k", rule, 40)]).await;
            assert_eq!(decided.each[0].decision.status.remaining, 60, "{name}");
        }
    }
}
