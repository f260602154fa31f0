//! Denials that are told without a call: only for what was asked, and only while they hold.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_core::{Action, Align, FixedWindow, Rate, Rule, TokenBucket};
use tollgate_policy::{Ask, Source, Store as _};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::RedisServer;

use super::{ask, decide, hourly, store};

/// Whether the store is asked, and what comes of it.
async fn told(store: &RedisStore, asked: Ask<'_>) -> (Source, bool) {
    let decided = decide(store, &[asked]).await;
    (decided.source, decided.verdict.is_allowed())
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
                let decided = decide(&store, &plan).await;
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
async fn what_is_given_back_or_forgotten_here_is_there_at_once() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let window = Rule::from(FixedWindow::new(3, Duration::from_secs(3600), Align::First).unwrap());
    let asked = || ask("a", "k", window, 1);
    decide(&store, &[ask("a", "k", window, 3)]).await;
    assert_eq!(told(&store, asked()).await, (Source::Store, false));
    decide(&store, &[Ask { action: Action::Refund, ..ask("a", "k", window, 2) }]).await;
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
    while store.decide(&asked()).await.is_ok() {
        assert!(start.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..50 {
        assert!(store.decide(&asked()).await.is_err());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A charge in full lengthens the wait, so a denial that was told before it is no longer true.
#[tokio::test]
async fn a_charge_in_full_ends_what_is_known_of_denials() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let rule = Rule::from(TokenBucket::new(Rate::per_minute(1).unwrap(), 10).unwrap());
    let report = |cost| Ask { action: Action::ChargeInFull, ..ask("a", "k", rule, cost) };
    let minutes = async || {
        let decided = decide(&store, &[ask("a", "k", rule, 1)]).await;
        decided.verdict.retry_after().map(|wait| wait.as_secs_ceil().div_ceil(60))
    };
    decide(&store, &[report(10)]).await;
    assert_eq!(minutes().await, Some(1));
    decide(&store, &[report(5)]).await;
    assert_eq!(minutes().await, Some(6));
}
