//! When keys expire: not before they are as new, and not much later.

use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::adaptive::Pace;
use tollgate_core::{Action, Align, FixedWindow, Mode, Rate, Rule, SlidingCounter, TokenBucket};
use tollgate_policy::Ask;
use tollgate_testkit::{Random, RedisServer};

use super::{ask, decide, one_of_each, slow_pace, store};

#[tokio::test]
async fn keys_live_as_long_as_they_matter_and_not_for_ever() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (name, rule) in one_of_each() {
        for cost in [1, 40, 59] {
            let asked = Ask { action: Action::Hold, ..ask(name, "k", rule, cost) };
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
    let mut before = HashMap::new();
    for step in 0..STEPS {
        let alone = random.below(3) > 0;
        let mut asks = Vec::new();
        let first = random.below(rules.len() as u64) as usize;
        for (name, rule) in if alone { &rules[first..=first] } else { &rules[..] } {
            let action = if random.below(5) == 0 { Action::Refund } else { Action::Charge };
            let pace = paces[random.below(3) as usize];
            asks.push(Ask { action, pace, ..ask(name, "k", *rule, 1 + random.below(3)) });
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
