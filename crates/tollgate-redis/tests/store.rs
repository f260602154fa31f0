//! What the store promises beyond single decisions: nothing is touched by a denial, keys live as long as they matter, hammered
//! keys cost nothing, and an ACL can say what it does.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tokio::time::Instant;

use tollgate_core::adaptive::{Load, Pace, RateMultiplier};
use tollgate_core::{
    Align, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Mode, Nanos, Rate, Rule, RuleParts,
    SlidingCounter, SlidingLog, TokenBucket,
};
use tollgate_policy::{Ask, Decided, Does, Part, Source, Store as _};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::{Random, RedisServer};

fn settings(server: &RedisServer) -> Settings {
    Settings::single(server.url(), Duration::from_secs(5))
}

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::new(settings(server)).unwrap();
    assert!(store.ready(Duration::from_secs(10)).await);
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
        does: Does::Charge,
        part: Part::All,
    }
}

async fn decide(store: &RedisStore, asks: &[Ask<'_>]) -> Decided {
    store.decide(asks, false).await.unwrap()
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

/// That of a rate of 0.512.
fn slow_pace() -> Pace {
    let mut multiplier = RateMultiplier::new(100).unwrap();
    (0..3).for_each(|_| multiplier.observe(Load::High));
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

#[tokio::test]
async fn a_denial_leaves_every_key_byte_for_byte_as_it_was() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let rules = one_of_each();
    let holding = |limit: &'static str, rule, cost| Ask { does: Does::Hold, ..ask(limit, "k", rule, cost) };
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
        let holding = |rule, cost, does| Ask { does, ..ask(name, "k", rule, cost) };
        assert!(decide(&store, &[holding(rule, 10, Does::Hold)]).await.verdict.is_allowed());
        let before = dump(&server);
        for (cost, does) in [(0, Does::Charge), (1, Does::Preview), (1000, Does::Charge)] {
            let seen = decide(&store, &[holding(others(&rule), cost, does)]).await.each[0].decision;
            assert!(seen.status.remaining <= 90, "{name}: {seen:?}");
            assert!(dump(&server) == before, "{name}: {does:?} of {cost} has written something");
        }
        server.command(&["FLUSHALL"]);
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

#[tokio::test]
async fn keys_live_as_long_as_they_matter_and_not_for_ever() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (name, rule) in one_of_each() {
        for cost in [1, 40, 59] {
            let asked = Ask { does: Does::Hold, ..ask(name, "k", rule, cost) };
            let decided = decide(&store, &[asked]).await;
            let reset = Duration::from(decided.each[0].decision.status.reset_after);
            let keys = server.command(&["KEYS", "tollgate:{acme}*"]);
            let key = keys.array()[0].bytes().to_vec();
            let ttl = server.command(&[b"PTTL".as_slice(), &key]).integer();
            let ttl = Duration::from_millis(u64::try_from(ttl).unwrap());
            // The time it took to ask has passed.
            assert!(ttl + Duration::from_millis(500) > reset, "{name}: {ttl:?} is shorter than {reset:?}");
            // Plain buckets may linger: for as long as they take to fill, here a minute.
            let more = if name.ends_with("_bucket") { 60 } else { 0 };
            assert!(ttl < reset + Duration::from_secs(2 + more), "{name}: {ttl:?} is longer than {reset:?}");
        }
        server.command(&["FLUSHALL"]);
    }
}

/// When a key expires is said only where it changes. So it is looked at after each of many steps, by both scripts, at
/// several paces, whether that is late enough.
#[tokio::test]
async fn keys_never_expire_before_they_are_as_new() {
    const STEPS: u64 = 4000;
    let server = RedisServer::start();
    let (store, mut client) = (store(&server).await, server.client());
    let window = Duration::from_millis(20);
    let bucket = |rate, burst| Rule::from(TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap());
    let rules = [
        ("whole", bucket(1000, 20)),
        ("pieces", bucket(900, 20)),
        ("one", bucket(100, 1)),
        ("window", FixedWindow::new(40, window, Align::First).unwrap().into()),
        ("counter", SlidingCounter::new(40, window, 4, Mode::Interpolate).unwrap().into()),
    ];
    let paces = [Pace::FULL, Pace::FULL, slow_pace()];
    let mut random = Random::new(7);
    let (mut kept, mut looked) = (0, 0);
    let mut before = std::collections::HashMap::new();
    for step in 0..STEPS {
        let alone = random.below(3) > 0;
        let mut asks = Vec::new();
        let first = random.below(rules.len() as u64) as usize;
        for (name, rule) in if alone { &rules[first..=first] } else { &rules[..] } {
            let does = if random.below(5) == 0 { Does::Refund } else { Does::Charge };
            let pace = paces[random.below(3) as usize];
            asks.push(Ask { does, pace, ..ask(name, "k", *rule, 1 + random.below(3)) });
        }
        decide(&store, &asks).await;
        for (name, _) in &rules {
            let key = server.command(&["KEYS", &format!("tollgate:{{acme}}:{name}:*")]);
            let Some(key) = key.array().first() else { continue };
            // Both at one instant.
            let [key, script] =
                [key.bytes(), b"return { redis.call('GET', KEYS[1]), redis.call('PEXPIRETIME', KEYS[1]) }"];
            let found = client.command(&[b"EVAL".as_slice(), script, b"1", key]);
            let [held, expires] = found.array() else { panic!("{found:?}") };
            if held.is_null() {
                continue;
            }
            let text = String::from_utf8_lossy(held.bytes()).into_owned();
            let number: u64 = text.split([' ', '+']).next().unwrap().parse().unwrap();
            // The counter's is the number of its newest sub-window, of 5 ms.
            let new_at = if *name == "counter" { (number + 5) * 5_000 } else { number };
            let expires = u64::try_from(expires.integer()).unwrap() * 1000;
            assert!(expires >= new_at, "step {step}: {name} holds {text} and expires at {expires}");
            looked += 1;
            kept += u64::from(before.insert(*name, expires) == Some(expires));
        }
    }
    println!("{looked} looked at, {kept} of them said nothing new");
    assert!(kept > STEPS, "only {kept}");
}

#[tokio::test]
async fn what_is_named_twice_pays_twice() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (name, rule) in one_of_each().into_iter().filter(|(name, _)| *name != "concurrency") {
        let decided =
            decide(&store, &[ask(name, "k", rule, 30), ask("other", "k", rule, 1), ask(name, "k", rule, 30)])
                .await;
        assert!(decided.verdict.is_allowed(), "{name}");
        let left: Vec<u64> = decided.each.iter().map(|seen| seen.decision.status.remaining).collect();
        assert_eq!(left[0], left[2], "{name}");
        let alone = decide(&store, &[ask(name, "k", rule, 0)]).await.each[0].decision.status.remaining;
        assert!(
            alone.abs_diff(40) <= 1 && left[0].abs_diff(40) <= 1,
            "{name}: {alone} of 100 are left, told {left:?}"
        );
        let denied = decide(&store, &[ask(name, "k", rule, 30), ask(name, "k", rule, 30)]).await;
        let waits = matches!(rule, Rule::TokenBucketMaxWait(_));
        assert_eq!(denied.verdict.is_allowed(), waits, "{name}: 60 of 40");
    }
}

#[tokio::test]
async fn one_of_several_is_enough_and_those_that_watch_decide_alone() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let rule = |burst| Rule::from(TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap());
    let one_of = |limit: &'static str, burst| Ask { part: Part::OneOf, ..ask(limit, "k", rule(burst), 1) };
    let shadow = Ask { part: Part::Alone, ..ask("shadow", "k", rule(2), 1) };
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
    let plan =
        [ask("plain", "k", window.into(), 3), ask("counting", "k", window.counting_denied().into(), 3)];
    let decided = store.decide(&plan, true).await.unwrap();
    let left: Vec<u64> = decided.each.iter().map(|seen| seen.decision.status.remaining).collect();
    assert_eq!(left, [10, 7]);
    assert_eq!(dump(&server).len(), 1);
}

#[tokio::test]
async fn what_is_denied_gives_nothing_back_and_tells_so() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let window = FixedWindow::new(10, Duration::from_secs(3600), Align::Epoch).unwrap();
    let counting = Rule::from(window.counting_denied());
    for refund in
        [ask("counting", "k", counting, 3), Ask { part: Part::Alone, ..ask("alone", "k", counting, 3) }]
    {
        decide(&store, &[Ask { cost: 8, ..refund.clone() }]).await;
        let refund = Ask { does: Does::Refund, ..refund };
        let left = |decided: &Decided| decided.each[0].decision.status.remaining;
        let denied = [refund.clone(), ask("small", "k", window.into(), 11)];
        assert_eq!(left(&decide(&store, &denied).await), 2);
        assert_eq!(left(&store.decide(&denied, true).await.unwrap()), 2);
        assert_eq!(left(&decide(&store, &[Ask { cost: 0, ..refund.clone() }]).await), 2, "as it was told");
        assert_eq!(left(&decide(&store, &[refund]).await), 5, "and what passes does");
    }
}

#[tokio::test]
async fn a_hammered_key_costs_one_call_a_second() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let slow = Rule::from(TokenBucket::new(Rate::per_minute(1).unwrap(), 1).unwrap());
    let fast = Rule::from(TokenBucket::new(Rate::per_second(100_000).unwrap(), 100_000).unwrap());
    let calls = || store.health()[0].calls;
    assert!(decide(&store, &[ask("slow", "k", slow, 1)]).await.verdict.is_allowed());
    assert!(!decide(&store, &[ask("slow", "k", slow, 1)]).await.verdict.is_allowed());
    let (before, start) = (calls(), Instant::now());
    let mut hammering = tokio::task::JoinSet::new();
    for task in 0..16 {
        let store = store.clone();
        hammering.spawn(async move {
            let (mut asked, mut told) = (0_u64, 0_u64);
            while start.elapsed() < Duration::from_millis(3300) {
                // Beside it, keys that differ each time: what is known of one limit is enough.
                let user = format!("{task}-{asked}");
                let plan = [ask("fast", &user, fast, 1), ask("slow", "k", slow, 1)];
                let decided = store.decide(&plan, false).await.unwrap();
                assert!(!decided.verdict.is_allowed());
                let wait = Duration::from(decided.verdict.retry_after().unwrap());
                assert!(wait > Duration::from_secs(50) && wait <= Duration::from_secs(60), "{wait:?}");
                assert_eq!(decided.verdict.reported, Some(1));
                told += u64::from(decided.source == Source::DeniedCache);
                asked += 1;
                if asked % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            (asked, told)
        });
    }
    let (mut asked, mut told) = (0, 0);
    while let Some(done) = hammering.join_next().await {
        let (a, t) = done.unwrap();
        (asked, told) = (asked + a, told + t);
    }
    let (calls, seconds) = (calls() - before, start.elapsed().as_secs() + 1);
    assert!(asked - told <= seconds, "{} of {asked} requests in {seconds} s asked the store", asked - told);
    assert!(calls <= seconds + 2, "{calls} calls in {seconds} s: besides, each process says that it lives");
    println!("{asked} requests in {seconds} s cost {calls} calls");
}

#[tokio::test]
async fn what_is_reset_is_seen_at_once_here_and_within_a_second_elsewhere() {
    let server = RedisServer::start();
    let (here, elsewhere) = (store(&server).await, store(&server).await);
    let slow = Rule::from(TokenBucket::new(Rate::per_hour(1).unwrap(), 1).unwrap());
    let asked = || [ask("slow", "k", slow, 1)];
    for store in [&here, &here, &elsewhere] {
        let _ = decide(store, &asked()).await;
    }
    assert_eq!(decide(&elsewhere, &asked()).await.source, Source::DeniedCache);
    assert!(here.forget(&asked()[0]).await.unwrap());
    let start = Instant::now();
    assert_eq!(decide(&elsewhere, &asked()).await.source, Source::DeniedCache);
    assert!(decide(&here, &asked()).await.verdict.is_allowed());
    here.forget(&asked()[0]).await.unwrap();
    while !decide(&elsewhere, &asked()).await.verdict.is_allowed() {
        assert!(start.elapsed() < Duration::from_secs(5), "seen within a second");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn under_load_each_request_takes_up_more() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let pace = slow_pace();
    let rate = Rate::per_second(100).unwrap();
    let bucket = Rule::from(TokenBucket::new(rate, 100).unwrap());
    let window = Rule::from(FixedWindow::new(100, Duration::from_secs(3600), Align::Epoch).unwrap());
    for (rule, full, slow) in [(bucket, 100, 51), (window, 100, 51)] {
        let slowed = Ask { pace, ..ask("a", "k", rule, 0) };
        assert_eq!(decide(&store, &[ask("a", "k", rule, 0)]).await.each[0].decision.status.remaining, full);
        assert_eq!(decide(&store, &[slowed]).await.each[0].decision.status.remaining, slow);
    }
    // Drained at the pace, it refills 51.2 a second; and a change of the pace hands out nothing.
    let drained = Ask { pace, ..ask("b", "k", bucket, 51) };
    assert!(decide(&store, &[drained]).await.verdict.is_allowed());
    let one = Ask { pace, ..ask("b", "k", bucket, 1) };
    let wait = decide(&store, &[one]).await.verdict.retry_after().map_or(0, |wait| wait.get());
    assert!(wait <= 19_532_000, "T = 19_531_250 ns, and this is {wait}");
    let left = decide(&store, &[ask("b", "k", bucket, 0)]).await.each[0].decision.status.remaining;
    assert!(left <= 5, "{left} tokens are left at the full rate");
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
        let asked = Ask { does: Does::Hold, ..ask(name, "k", rule, 3) };
        let decided = store.decide(&[asked], false).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(store.release(&decided.permits).await.unwrap());
        let faster = match rule {
            Rule::SlidingLog(_) => SlidingLog::new(100, Duration::from_secs(30)).unwrap().into(),
            _ => rule,
        };
        store
            .decide(&[ask(name, "k", faster, 1)], false)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        store.forget(&ask(name, "k", faster, 1)).await.unwrap();
    }
}

/// A bucket of so many, an hour for each.
fn hourly(burst: u64) -> Rule {
    TokenBucket::new(Rate::per_hour(1).unwrap(), burst).unwrap().into()
}

/// Whether the store is asked, and what comes of it.
async fn told(store: &RedisStore, asked: Ask<'_>) -> (Source, bool) {
    let decided = decide(store, &[asked]).await;
    (decided.source, decided.verdict.is_allowed())
}

#[tokio::test]
async fn once_a_key_passes_again_its_denial_is_forgotten() {
    let server = RedisServer::start();
    let (here, elsewhere) = (store(&server).await, store(&server).await);
    let asked = || ask("a", "k", hourly(100), 1);
    decide(&elsewhere, &[ask("a", "k", hourly(100), 100)]).await;
    assert_eq!(told(&here, asked()).await, (Source::Store, false));
    assert_eq!(told(&here, asked()).await, (Source::DeniedCache, false));
    elsewhere.forget(&asked()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for _ in 0..50 {
        assert_eq!(told(&here, asked()).await, (Source::Store, true));
    }
}

#[tokio::test]
async fn a_denial_is_that_of_its_numbers_and_its_cost() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let window =
        |limit| Rule::from(FixedWindow::new(limit, Duration::from_secs(3600), Align::First).unwrap());
    decide(&store, &[ask("window", "k", window(5), 5)]).await;
    for source in [Source::Store, Source::DeniedCache] {
        assert_eq!(told(&store, ask("window", "k", window(5), 1)).await, (source, false));
    }
    assert_eq!(
        told(&store, ask("window", "k", window(100), 1)).await,
        (Source::Store, true),
        "a larger limit"
    );

    decide(&store, &[ask("bucket", "k", hourly(10), 10)]).await;
    for (cost, hours) in [(1, Some(1)), (1, Some(1)), (10, Some(10)), (11, None), (1, Some(1))] {
        let verdict = decide(&store, &[ask("bucket", "k", hourly(10), cost)]).await.verdict;
        let wait = verdict.retry_after().map(|wait| (wait.get() + 1_800_000_000_000) / 3_600_000_000_000);
        assert_eq!((verdict.is_allowed(), wait), (false, hours), "cost {cost}");
    }
    let never = [ask("bucket", "k", hourly(10), 1), ask("other", "k", hourly(10), 11)];
    assert_eq!(decide(&store, &never).await.verdict.retry_after(), None, "the other never lets it pass");
}

#[tokio::test]
async fn when_one_limit_is_to_be_asked_the_denial_of_another_is_not_all_that_is_told() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let second = Rule::from(TokenBucket::new(Rate::per_second(1).unwrap(), 1).unwrap());
    let both = || [ask("day", "k", hourly(1), 1), ask("second", "k", second, 1)];
    decide(&store, &[ask("day", "k", hourly(1), 1)]).await;
    decide(&store, &both()).await;
    // The denial of the first grows old, that of the second is new.
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        decide(&store, &[ask("second", "k", second, 1)]).await;
        let wait = Duration::from(decide(&store, &both()).await.verdict.retry_after().unwrap());
        assert!(wait > Duration::from_secs(3000), "{wait:?}");
    }
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
async fn what_is_given_back_or_forgotten_here_is_there_at_once() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let window = Rule::from(FixedWindow::new(3, Duration::from_secs(3600), Align::First).unwrap());
    let asked = || ask("a", "k", window, 1);
    decide(&store, &[ask("a", "k", window, 3)]).await;
    assert_eq!(told(&store, asked()).await, (Source::Store, false));
    decide(&store, &[Ask { does: Does::Refund, ..ask("a", "k", window, 2) }]).await;
    for expected in [(Source::Store, true), (Source::Store, true), (Source::Store, false)] {
        assert_eq!(told(&store, asked()).await, expected);
    }
    // Whoever forgets a key need not know its numbers.
    let other = Rule::from(FixedWindow::new(1, Duration::from_secs(1), Align::First).unwrap());
    assert!(store.forget(&ask("a", "k", other, 1)).await.unwrap());
    assert_eq!(told(&store, asked()).await, (Source::Store, true));
}

#[tokio::test]
async fn without_the_store_no_denial_is_remembered() {
    let server = RedisServer::start();
    let store = RedisStore::new(Settings::single(server.url(), Duration::from_millis(50))).unwrap();
    assert!(store.ready(Duration::from_secs(10)).await);
    let asked = || [ask("a", "k", hourly(1), 1)];
    decide(&store, &asked()).await;
    decide(&store, &asked()).await;
    server.kill();
    // What the last answer was is told for its second; from then on, nobody knows.
    let start = Instant::now();
    while store.decide(&asked(), false).await.is_ok() {
        assert!(start.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..50 {
        assert!(store.decide(&asked(), false).await.is_err());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn places_that_nobody_has_heard_of_are_given_back() {
    let server = RedisServer::start();
    let store = RedisStore::new(Settings::single(server.url(), Duration::from_millis(50))).unwrap();
    assert!(store.ready(Duration::from_secs(10)).await);
    let rule = Rule::from(Concurrency::new(5, Some(Duration::from_secs(600))).unwrap());
    let holding = || Ask { does: Does::Hold, ..ask("a", "k", rule, 1) };
    server.pause();
    for _ in 0..3 {
        assert!(store.decide(&[holding()], false).await.is_err(), "the server does not answer");
    }
    server.resume();
    let start = Instant::now();
    loop {
        let free = store.decide(&[ask("a", "k", rule, 0)], false).await;
        if free.is_ok_and(|decided| decided.each[0].decision.status.remaining == 5) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "places are still taken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn of_what_is_named_twice_one_that_only_looks_adds_nothing() {
    let server = RedisServer::start();
    let store = store(&server).await;
    decide(&store, &[ask("a", "k", hourly(10), 8)]).await;
    let refund = Ask { does: Does::Refund, ..ask("a", "k", hourly(10), 3) };
    let preview = Ask { does: Does::Preview, ..ask("a", "k", hourly(10), 4) };
    let left = |decided: Decided| decided.each[0].decision.status.remaining;
    assert_eq!(left(decide(&store, &[ask("a", "k", hourly(10), 0), refund]).await), 5);
    assert_eq!(left(decide(&store, &[preview, ask("a", "k", hourly(10), 1)]).await), 4);
}
