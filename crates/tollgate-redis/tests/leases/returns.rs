//! What a return gives back.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::adaptive::{Load, RateMultiplier};
use tollgate_core::lease::Draw;
use tollgate_core::{
    Align, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Mode, Rate, Rule, SlidingCounter,
    SlidingLog, Timestamp, TokenBucket,
};
use tollgate_policy::{Ask, LeaseStore as _, LeasedKey, ReturnCall, Source, Store as _};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::RedisServer;

use super::{DEADLINE, DRAW, bucket, connected, draw, key, remaining, return_of, store_at_a_time};

const NOW: u64 = 1_800_000_000_000_000;

/// Rules of 1000 per second, of every kind that can be leased.
fn rules() -> [(&'static str, Rule); 5] {
    let (rate, second) = (Rate::per_second(1000).unwrap(), Duration::from_secs(1));
    let peak = Rate::per_second(2000).unwrap();
    let window = |align| FixedWindow::new(1000, second, align).unwrap();
    [
        ("token_bucket", bucket()),
        ("burst_credits", BurstCredits::with_peak_burst(rate, peak, 1000, 1000).unwrap().into()),
        ("fixed_window", window(Align::Epoch).into()),
        ("fixed_window from the first", window(Align::First).into()),
        ("sliding_counter", SlidingCounter::new(1000, second, 1, Mode::Strict).unwrap().into()),
    ]
}

async fn give_back(store: &RedisStore, call: ReturnCall) {
    store.give_back(call).await.unwrap();
}

#[tokio::test]
async fn a_return_counts_once() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for (name, rule) in rules() {
        let leased = key(name, rule);
        let drawn = draw(&store, &leased, DRAW).await.unwrap();
        assert_eq!((drawn.grant.units, drawn.charged), (50, Timestamp::from_nanos(NOW * 1000)), "{name}");
        draw(&store, &leased, DRAW).await.unwrap();
        assert_eq!(remaining(&store, &leased).await, 900, "{name}");
        let call = return_of(&store, &leased, 1, 30, drawn.charged);
        give_back(&store, call.clone()).await;
        assert_eq!(remaining(&store, &leased).await, 930, "{name}");
        give_back(&store, call.clone()).await;
        assert_eq!(remaining(&store, &leased).await, 930, "{name}: the second return counted");
        // Another grant, and a grant of another process that has the same number.
        give_back(&store, ReturnCall { grant: 2, ..call.clone() }).await;
        assert_eq!(remaining(&store, &leased).await, 960, "{name}");
        let other = store_at_a_time(&server).await;
        let call = ReturnCall { primary: other.primary(&leased).unwrap(), ..call };
        give_back(&other, call).await;
        assert_eq!(remaining(&store, &leased).await, 990, "{name}");
    }
}

#[tokio::test]
async fn a_return_counts_until_the_life_of_its_grant_ends() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    // None of these gains anything in the life of a grant.
    let hour = Duration::from_secs(3600);
    let [one, two] = [1, 2].map(|tokens| Rate::new(tokens, hour).unwrap());
    for (name, rule) in [
        ("token_bucket", Rule::from(TokenBucket::new(one, 1000).unwrap())),
        ("burst_credits", BurstCredits::with_peak_burst(one, two, 1000, 1000).unwrap().into()),
        ("fixed_window", FixedWindow::new(1000, hour, Align::First).unwrap().into()),
        ("sliding_counter", SlidingCounter::new(1000, hour, 1, Mode::Strict).unwrap().into()),
    ] {
        for (micros, expected) in [(499_999, 1000), (500_000, 990), (3_000_000, 990)] {
            store.set_time(NOW);
            let leased = key(&format!("{name} {micros}"), rule);
            let charged = draw(&store, &leased, Draw::of_cost(10)).await.unwrap().charged;
            store.set_time(NOW + micros);
            give_back(&store, return_of(&store, &leased, micros, 10, charged)).await;
            assert_eq!(remaining(&store, &leased).await, expected, "{name} after {micros} us");
        }
    }
}

/// In a window of 100 ms, the life of a grant is longer than the window.
#[tokio::test]
async fn a_return_to_a_later_window_counts_nothing() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let window = Duration::from_millis(100);
    let counter = |mode| Rule::from(SlidingCounter::new(1000, window, 2, mode).unwrap());
    // A sub-window of a counter counts for as long as the window after it ended, or shorter where it is lenient.
    for (name, rule, last) in [
        ("epoch", FixedWindow::new(1000, window, Align::Epoch).unwrap().into(), 99),
        ("first", FixedWindow::new(1000, window, Align::First).unwrap().into(), 99),
        ("strict", counter(Mode::Strict), 149),
        ("lenient", counter(Mode::Lenient), 99),
    ] {
        for (millis, expected) in [(last, 1000), (last + 1, 900)] {
            store.set_time(NOW);
            let leased = key(&format!("{name} {millis}"), rule);
            let charged = draw(&store, &leased, Draw::of_cost(100)).await.unwrap().charged;
            store.set_time(NOW + millis * 1000);
            // Something of the present window, which must not be returned in place of the grant.
            draw(&store, &leased, Draw::of_cost(100)).await.unwrap();
            let before = remaining(&store, &leased).await;
            give_back(&store, return_of(&store, &leased, millis, 100, charged)).await;
            let given = remaining(&store, &leased).await - before;
            assert_eq!(given, expected - 900, "{name} after {millis} ms");
        }
    }
}

#[tokio::test]
async fn a_return_to_other_numbers_counts_nothing() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for (name, rule) in rules() {
        let old = key(name, rule);
        let charged = draw(&store, &old, DRAW).await.unwrap().charged;
        let new = key(
            name,
            match rule {
                Rule::TokenBucket(_) => {
                    TokenBucket::new(Rate::per_second(1000).unwrap(), 900).unwrap().into()
                }
                Rule::BurstCredits(_) => {
                    let [rate, peak] = [1000, 3000].map(|rate| Rate::per_second(rate).unwrap());
                    BurstCredits::with_peak_burst(rate, peak, 1000, 1000).unwrap().into()
                }
                Rule::SlidingCounter(_) => {
                    SlidingCounter::new(1000, Duration::from_secs(2), 1, Mode::Strict).unwrap().into()
                }
                _ => FixedWindow::new(1000, Duration::from_secs(2), Align::Epoch).unwrap().into(),
            },
        );
        let before = draw(&store, &new, DRAW).await.unwrap().grant.status.remaining;
        give_back(&store, return_of(&store, &old, 1, 50, charged)).await;
        assert_eq!(remaining(&store, &new).await, before, "{name}");
    }
}

/// A key at a reduced rate has a tag of its own.
#[tokio::test]
async fn a_return_to_a_reduced_rate_counts_nothing() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let mut multiplier = RateMultiplier::new(100).unwrap();
    multiplier.observe(Load::High);
    for (name, rule) in rules().into_iter().take(2) {
        let leased = key(name, rule);
        let charged = draw(&store, &leased, DRAW).await.unwrap().charged;
        let slow = |cost| Ask { pace: multiplier.pace(), ..leased.ask(cost) };
        store.decide(&[slow(100)]).await.unwrap();
        give_back(&store, return_of(&store, &leased, 1, 50, charged)).await;
        let left = store.decide(&[slow(0)]).await.unwrap().each[0].decision.status.remaining;
        assert_eq!(left, 850, "{name}");
        // The next draw finds the key at the reduced rate, and carries it over.
        let grant = draw(&store, &leased, DRAW).await.unwrap().grant;
        assert_eq!((grant.units, grant.status.remaining), (50, 800), "{name}");
    }
}

#[tokio::test]
async fn a_return_ends_a_denial_that_is_remembered() {
    let server = RedisServer::start();
    let settings = Settings::single(server.url(), DEADLINE);
    let store = connected(RedisStore::new(settings).unwrap()).await;
    let hourly: Rule = TokenBucket::new(Rate::per_hour(1).unwrap(), 100).unwrap().into();
    let leased: Arc<LeasedKey> = key("k", hourly);
    let charged = draw(&store, &leased, Draw::of_cost(100)).await.unwrap().charged;
    let decide = async || {
        let decided = store.decide(&[leased.ask(1)]).await.unwrap();
        (decided.source, decided.each[0].decision.is_allowed())
    };
    assert_eq!(decide().await, (Source::Store, false));
    assert_eq!(decide().await, (Source::DeniedCache, false));
    give_back(&store, return_of(&store, &leased, 1, 10, charged)).await;
    assert_eq!(decide().await, (Source::Store, true));
}

#[tokio::test]
async fn a_guard_expires_with_the_life_of_its_grant() {
    let server = RedisServer::start();
    let settings = Settings::single(server.url(), DEADLINE);
    let store = connected(RedisStore::new(settings).unwrap()).await;
    let leased = key("k", bucket());
    let charged = draw(&store, &leased, DRAW).await.unwrap().charged;
    give_back(&store, return_of(&store, &leased, 7, 50, charged)).await;
    let guards = server.command(&["KEYS", "tollgate:{acme}:leased:return:*-7:t:k"]);
    let [guard] = guards.array() else { panic!("{guards:?}") };
    let left = server.command(&[b"PTTL".as_slice(), guard.bytes()]).integer();
    assert!((1..=502).contains(&left), "{left} ms");
}

#[tokio::test]
async fn rules_whose_grants_cannot_be_counted_exactly_are_refused() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let (rate, second) = (Rate::per_second(1000).unwrap(), Duration::from_secs(1));
    let hourly = Rate::per_hour(1).unwrap();
    let bucket = TokenBucket::new(rate, 100).unwrap();
    // 2^52 ns are 1250 hours and 59 minutes.
    for (rule, words) in [
        (Rule::from(TokenBucket::new(hourly, 1250).unwrap()), None),
        (TokenBucket::new(hourly, 1251).unwrap().into(), Some("takes longer than 4503597 s to fill")),
        (
            BurstCredits::with_peak_burst(hourly, rate, 1251, 1000).unwrap().into(),
            Some("takes longer than 4503597 s"),
        ),
        (LeakyBucket::new(rate, 100).unwrap().into(), Some("cannot be leased")),
        (MaxWait::new(bucket, second, 9).unwrap().into(), Some("cannot be leased")),
        (SlidingLog::new(100, second).unwrap().into(), Some("cannot be leased")),
        (Concurrency::new(100, Some(second)).unwrap().into(), Some("cannot be leased")),
        (
            FixedWindow::new(9, second, Align::Epoch).unwrap().counting_denied().into(),
            Some("cannot be leased"),
        ),
        (FixedWindow::new(9, Duration::from_nanos(1500), Align::Epoch).unwrap().into(), Some("1500 ns")),
    ] {
        let refused = store.require_lease(&rule).err();
        match words {
            None => assert_eq!(refused, None, "{rule:?}"),
            Some(words) => assert!(refused.as_ref().is_some_and(|text| text.contains(words)), "{refused:?}"),
        }
        let drawn = draw(&store, &key("refused", rule), DRAW).await;
        assert_eq!(drawn.is_ok(), words.is_none(), "{rule:?}: {drawn:?}");
    }
}
