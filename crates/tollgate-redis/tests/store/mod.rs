//! What the store promises beyond single decisions: nothing is touched by a denial, keys live as long as they matter, hammered
//! keys cost nothing, and an ACL can say what it does.

mod denials;
mod dropped_holds;
mod expiry;
mod named_twice;
mod numbers;
mod permits;
mod reduced_rates;
mod shadow_of_a_key;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::adaptive::{Load, Pace, RateMultiplier};
use tollgate_core::lease::Draw;
use tollgate_core::{
    Action, Align, BurstCredits, Concurrency, FixedWindow, Group, LeakyBucket, MaxWait, Mode, Nanos, Outcome,
    Rate, Rule, SlidingCounter, SlidingLog, TokenBucket, Verdict,
};
use tollgate_policy::{
    Ask, Decisions, DrawCall, Drawn, LeaseStore as _, LeasedKey, LimitDecisions, ReturnCall, Source,
    Store as _,
};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::RedisServer;

fn settings(server: &RedisServer) -> Settings {
    Settings::single(server.url(), Duration::from_secs(5))
}

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::new(settings(server)).unwrap();
    assert!(store.ready(Duration::from_secs(10)).await);
    store
}

/// A store whose time stands still.
async fn store_at_a_time(server: &RedisServer) -> RedisStore {
    let store = RedisStore::with_manual_clock(settings(server)).unwrap();
    assert!(store.ready(Duration::from_secs(10)).await);
    store.set_time(1_800_000_000_000_000);
    store
}

fn ask<'a>(limit: &'a str, key: &'a str, rule: Rule, cost: u64) -> Ask<'a> {
    Ask {
        limit: limit.into(),
        key: std::iter::once(key.as_bytes()).collect(),
        tag: b"acme",
        rule,
        pace: Pace::FULL,
        cost,
        action: Action::Charge,
        group: Group::All,
        has_one_tier: false,
        is_denied: false,
    }
}

/// What a store has decided, with the verdict of all asks.
struct Decided {
    source: Source,
    verdict: Verdict,
    each: LimitDecisions,
}

async fn decide(store: &RedisStore, asks: &[Ask<'_>]) -> Decided {
    let Decisions { source, each, .. } = store.decide(asks).await.unwrap();
    let decisions = asks.iter().zip(&each).map(|(ask, each)| (ask.group, each.decision));
    Decided { source, verdict: Verdict::of(decisions), each }
}

/// A bucket of so many, an hour for each.
fn hourly(burst: u64) -> Rule {
    TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap().into()
}

/// One rule of every kind, which holds 100 and refills within minutes.
fn one_of_each() -> Vec<(&'static str, Rule)> {
    let (rate, minute) = (Rate::per_minute(100).unwrap(), Duration::from_secs(60));
    let (token, leaky) = (TokenBucket::new(rate, 100).unwrap(), LeakyBucket::new(rate, 100).unwrap());
    let counter = |buckets, mode| SlidingCounter::new(100, minute, buckets, mode).unwrap();
    vec![
        ("token_bucket", token.into()),
        ("token_bucket with max_wait", MaxWait::new(token, minute, 100).unwrap().into()),
        ("leaky_bucket", leaky.into()),
        ("fixed_window", FixedWindow::new(100, minute, Align::Epoch).unwrap().into()),
        ("fixed_window from the first", FixedWindow::new(100, minute, Align::First).unwrap().into()),
        ("sliding_log", SlidingLog::new(100, minute).unwrap().into()),
        ("sliding_counter", counter(1, Mode::Interpolate).into()),
        ("sliding_counter of 32", counter(32, Mode::Strict).into()),
        ("burst_credits", BurstCredits::new(rate, Rate::per_minute(200).unwrap(), 100).unwrap().into()),
        ("concurrency", Concurrency::new(100, Some(minute)).unwrap().into()),
    ]
}

/// Those that count up to 100, and neither hold places nor let requests wait.
fn counting_rules() -> impl Iterator<Item = (&'static str, Rule)> {
    let counts = |rule: &Rule| !matches!(rule, Rule::Concurrency(_) | Rule::TokenBucketMaxWait(_));
    one_of_each().into_iter().filter(move |(_, rule)| counts(rule))
}

/// The pace of a multiplier of 0.512.
fn slow_pace() -> Pace {
    pace_after(100, 3)
}

/// The pace after a number of intervals of high load. `floor` is in thousandths.
fn pace_after(floor: u32, high: usize) -> Pace {
    let mut multiplier = RateMultiplier::new(floor).unwrap();
    (0..high).for_each(|_| multiplier.observe(Load::High));
    multiplier.pace()
}

fn dump(server: &RedisServer) -> Vec<(Vec<u8>, Vec<u8>)> {
    let keys = server.command(&["KEYS", "tollgate:{acme}*"]);
    let mut keys: Vec<Vec<u8>> = keys.array().iter().map(|key| key.bytes().to_vec()).collect();
    keys.sort();
    keys.into_iter()
        .map(|key| {
            let dumped = server.command(&[b"DUMP".as_slice(), &key]).bytes().to_vec();
            (key, dumped)
        })
        .collect()
}

/// Usage that is reported after the work was done: counted in full, also beyond the limit, and then denied while it is above.
#[tokio::test]
async fn a_request_in_full_is_charged_also_where_the_plan_is_denied() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for (name, rule) in counting_rules() {
        let usage = |cost| Ask { action: Action::ChargeInFull, ..ask(name, "k", rule, cost) };
        let other = || ask("other", name, hourly(1), 1);
        let mut passes = Vec::new();
        for cost in [0, 90, 0, 30, 0] {
            let decided = decide(&store, &[usage(cost), other()]).await;
            passes.push(decided.each[0].decision.is_allowed());
            if cost == 90 {
                assert!(!decided.verdict.is_allowed(), "{name}: the other limit has room for one request");
            }
        }
        assert_eq!(passes, [true, true, true, false, false], "{name}");
    }
}

/// A limit of 0: denied for ever, charged only where it is charged in full, and then a peek in full is denied, too.
#[tokio::test]
async fn a_blocked_request_is_denied_whatever_its_rule_says() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let window = FixedWindow::new(1, Duration::from_secs(60), Align::Epoch).unwrap();
    for (name, rule) in counting_rules() {
        let blocked = |cost| Ask { is_denied: true, ..ask(name, "k", rule, cost) };
        let outcome = async |ask| decide(&store, &[ask]).await.verdict.outcome;
        assert_eq!(outcome(blocked(1)).await, Outcome::NEVER, "{name}");
        assert!(dump(&server).is_empty(), "{name}: a blocked request was charged");
        assert_eq!(outcome(blocked(0)).await, Outcome::ALLOW, "{name}: a peek");
    }
    for rule in [Rule::from(window), window.counting_denied().into()] {
        let blocked =
            |cost| Ask { is_denied: true, action: Action::ChargeInFull, ..ask("window", "k", rule, cost) };
        let outcome = async |ask| decide(&store, &[ask]).await.verdict.outcome;
        assert_eq!(outcome(blocked(0)).await, Outcome::ALLOW);
        assert_eq!(outcome(blocked(1)).await, Outcome::NEVER);
        assert!(!outcome(blocked(0)).await.is_allowed(), "it is above a limit of 0");
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_denial_leaves_every_key_byte_for_byte_as_it_was() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let rules = one_of_each();
    let holding =
        |limit: &'static str, rule, cost| Ask { action: Action::Hold, ..ask(limit, "k", rule, cost) };
    let all: Vec<Ask<'_>> = rules.iter().map(|(name, rule)| holding(name, *rule, 3)).collect();
    assert!(decide(&store, &all).await.verdict.is_allowed());
    let before = dump(&server);
    assert_eq!(before.len(), rules.len(), "a key for each limit");
    for (denies, (name, _)) in rules.iter().enumerate() {
        let mut plan = all.clone();
        // More than is left. The one with a max_wait would let it wait, so it asks for more than there ever is.
        plan[denies].cost = if name.contains("max_wait") { 101 } else { 99 };
        let decided = decide(&store, &plan).await;
        assert!(!decided.verdict.is_allowed(), "{name} denies");
        assert_eq!(decided.verdict.reported, Some(denies), "{name}");
        assert!(dump(&server) == before, "denied by {name}, something was written");
    }
}

#[tokio::test]
async fn one_of_several_is_enough_and_those_that_watch_decide_alone() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let rule = |burst| Rule::from(TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap());
    let one_of = |limit: &'static str, burst| Ask { group: Group::AnyOf, ..ask(limit, "k", rule(burst), 1) };
    let shadow = Ask { group: Group::Independent, ..ask("shadow", "k", rule(2), 1) };
    let plan = [ask("live", "k", rule(3), 1), one_of("small", 1), one_of("large", 9), shadow];
    let mut allowed = Vec::new();
    for _ in 0..5 {
        let decided = decide(&store, &plan).await;
        let left: Vec<u64> = decided.each.iter().map(|seen| seen.decision.status.remaining).collect();
        allowed.push((decided.verdict.is_allowed(), left));
    }
    assert_eq!(
        allowed,
        [
            (true, vec![2, 0, 8, 1]),
            (true, vec![1, 0, 7, 0]), // the small one is used up, the large one is enough
            (true, vec![0, 0, 6, 0]), // the shadow denies, and nobody minds
            (false, vec![0, 0, 6, 0]),
            (false, vec![0, 0, 6, 0]),
        ]
    );
}

#[tokio::test]
async fn what_is_denied_anyway_is_only_counted_where_denied_requests_count() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let window = FixedWindow::new(10, Duration::from_secs(3600), Align::Epoch).unwrap();
    let plan = [
        ask("plain", "k", window.into(), 3),
        ask("counting", "k", window.counting_denied().into(), 3),
        Ask { is_denied: true, ..ask("denied", "k", window.into(), 1) },
    ];
    let decided = decide(&store, &plan).await;
    let left: Vec<u64> = decided.each.iter().map(|seen| seen.decision.status.remaining).collect();
    assert_eq!(left, [10, 7, 10]);
    assert_eq!(dump(&server).len(), 1);
}

#[tokio::test]
async fn what_is_denied_gives_nothing_back_and_tells_so() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let window = FixedWindow::new(10, Duration::from_secs(3600), Align::Epoch).unwrap();
    let counting = Rule::from(window.counting_denied());
    for refund in [
        ask("counting", "k", counting, 3),
        Ask { group: Group::Independent, ..ask("alone", "k", counting, 3) },
    ] {
        decide(&store, &[Ask { cost: 8, ..refund.clone() }]).await;
        let refund = Ask { action: Action::Refund, ..refund };
        let left = |decided: &Decided| decided.each[0].decision.status.remaining;
        let denied = [refund.clone(), ask("small", "k", window.into(), 11)];
        assert_eq!(left(&decide(&store, &denied).await), 2);
        let denied_anyway = [refund.clone(), Ask { is_denied: true, ..ask("denied", "k", window.into(), 1) }];
        assert_eq!(left(&decide(&store, &denied_anyway).await), 2);
        assert_eq!(left(&decide(&store, &[Ask { cost: 0, ..refund.clone() }]).await), 2, "as it was told");
        assert_eq!(left(&decide(&store, &[refund]).await), 5, "and what passes does");
    }
}

#[tokio::test]
async fn an_acl_can_say_what_it_does() {
    let server = RedisServer::start();
    // As docs/redis.md has it.
    let documents =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md")).unwrap();
    let line = documents.lines().find(|line| line.starts_with("ACL SETUSER tollgate")).unwrap();
    let words: Vec<&str> =
        line.split(' ').map(|word| if word.starts_with('>') { ">secret" } else { word }).collect();
    assert_eq!(server.command(&words).text(), "OK");
    let who =
        Settings { username: Some("tollgate".into()), password: Some("secret".into()), ..settings(&server) };
    let store = RedisStore::new(who).unwrap();
    assert!(store.ready(Duration::from_secs(10)).await, "{:?}", store.health());
    for (name, rule) in one_of_each() {
        let asked = Ask { action: Action::Hold, ..ask(name, "k", rule, 3) };
        let decided = store.decide(&[asked]).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(store.release(&decided.permits).await.unwrap());
        let faster = match rule {
            Rule::SlidingLog(_) => SlidingLog::new(100, Duration::from_secs(30)).unwrap().into(),
            _ => rule,
        };
        store.decide(&[ask(name, "k", faster, 1)]).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        store.forget(&ask(name, "k", faster, 1)).await.unwrap();
        if store.require_lease(&rule).is_ok() {
            let key = Arc::new(LeasedKey::new(&ask(name, "leased", rule, 1)));
            let primary = store.primary(&key).unwrap();
            let draw = Draw { sync: Nanos::new(100_000_000), demand: 500, owed: 1, ..Draw::of_cost(1) };
            let call = DrawCall { key: Arc::clone(&key), draw, primary, deadline: Duration::from_secs(5) };
            let Drawn { grant, charged } =
                store.draw(call).await.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(grant.units > 0, "{name}: {grant:?}");
            let life = Nanos::new(500_000_000);
            let call = ReturnCall { key, grant: 1, units: grant.units, charged, life, primary };
            store.give_back(call).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[tokio::test]
async fn places_that_nobody_has_heard_of_are_given_back() {
    let server = RedisServer::start();
    let store = RedisStore::new(Settings::single(server.url(), Duration::from_millis(50))).unwrap();
    assert!(store.ready(Duration::from_secs(10)).await);
    let rule = Rule::from(Concurrency::new(5, Some(Duration::from_secs(600))).unwrap());
    let holding = || Ask { action: Action::Hold, ..ask("a", "k", rule, 1) };
    server.pause();
    for _ in 0..3 {
        assert!(store.decide(&[holding()]).await.is_err(), "the server does not answer");
    }
    server.resume();
    let start = Instant::now();
    loop {
        let free = store.decide(&[ask("a", "k", rule, 0)]).await;
        if free.is_ok_and(|decided| decided.each[0].decision.status.remaining == 5) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "places are still taken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
