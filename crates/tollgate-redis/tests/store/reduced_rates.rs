//! Keys while rates are reduced: bursts and tokens stay, and rates go down (AD-4).

use std::time::Duration;

use tollgate_core::adaptive::Pace;
use tollgate_core::{
    Action, Align, BurstCredits, FixedWindow, LeakyBucket, MaxWait, Mode, Nanos, Outcome, Rate, Retry, Rule,
    RuleParts, SlidingCounter, SlidingLog, State, Tat, Timestamp, TokenBucket,
};
use tollgate_policy::Ask;
use tollgate_redis::RedisStore;
use tollgate_testkit::{Random, RedisServer, is_long};

use super::{ask, decide, dump, hourly, one_of_each, pace_after, slow_pace, store, store_at_a_time};

/// What `store_at_a_time` begins with, in microseconds.
const START: u64 = 1_800_000_000_000_000;
const MS: u64 = 1_000_000;

fn half_pace() -> Pace {
    pace_after(500, 9)
}

/// 100 per second, ten at once.
fn bucket() -> Rule {
    TokenBucket::new(Rate::per_second(100).unwrap(), 10).unwrap().into()
}

/// What remains, and the wait of a denial in nanoseconds.
async fn left(store: &RedisStore, asked: &Ask<'_>) -> (u64, Option<u64>) {
    let decision = decide(store, std::slice::from_ref(asked)).await.each[0].decision;
    (decision.status.remaining, decision.retry_after().map(Nanos::get))
}

/// The only state there is.
fn text(server: &RedisServer) -> String {
    let keys = server.command(&["KEYS", "tollgate:{acme}*"]);
    let [key] = keys.array() else { panic!("{keys:?}") };
    String::from_utf8(server.command(&[b"GET".as_slice(), key.bytes()]).bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn ad_4_a_reduced_rate_keeps_the_burst() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for (name, pace, interval) in [("slow", slow_pace(), 19_532_000), ("half", half_pace(), 20 * MS)] {
        let asked = |cost| Ask { pace, ..ask(name, "k", bucket(), cost) };
        assert_eq!(left(&store, &asked(10)).await, (0, None), "the whole burst passes");
        assert_eq!(left(&store, &asked(1)).await, (0, Some(interval)), "T, in whole microseconds");
        store.set_time(START + interval / 1000 - 1);
        assert!(!decide(&store, &[asked(1)]).await.verdict.is_allowed());
        store.set_time(START + interval / 1000);
        assert!(decide(&store, &[asked(1)]).await.verdict.is_allowed());
        store.set_time(START);
    }
}

#[tokio::test]
async fn ad_4_a_change_of_the_multiplier_hands_out_nothing() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let asked = |pace, cost| Ask { pace, has_one_tier: true, ..ask("a", "k", bucket(), cost) };
    let (full, half) = (Pace::FULL, half_pace());
    assert_eq!(left(&store, &asked(full, 10)).await, (0, None));
    assert_eq!(left(&store, &asked(half, 1)).await, (0, Some(20 * MS)));
    assert_eq!(left(&store, &asked(full, 1)).await, (0, Some(10 * MS)));
    assert_eq!(left(&store, &asked(slow_pace(), 1)).await, (0, Some(19_532_000)));
    assert_eq!(left(&store, &asked(half, 1)).await, (0, Some(20 * MS)));
    store.set_time(START + 200_000);
    assert_eq!(left(&store, &asked(half, 7)).await, (3, None));
    for pace in [full, half, slow_pace(), pace_after(1, 99), full] {
        assert_eq!(left(&store, &asked(pace, 0)).await, (3, None), "{pace:?}");
    }
}

/// A rule of each kind that is kept as one text, and its state after a charge of 2 at full and at half rate.
fn rules_and_states() -> [(Rule, &'static str, &'static str); 6] {
    let second = Duration::from_secs(1);
    let rate = Rate::per_second(100).unwrap();
    let (token, leaky) = (TokenBucket::new(rate, 10).unwrap(), LeakyBucket::new(rate, 10).unwrap());
    let counter = SlidingCounter::new(10, second, 2, Mode::Strict).unwrap();
    let window = FixedWindow::new(10, second, Align::Epoch).unwrap();
    let credits = BurstCredits::with_peak_burst(rate, Rate::per_second(1000).unwrap(), 10, 5).unwrap();
    [
        (Rule::from(token), "1800000000020000 t10000000/1x10", "1800000000040000 t10000000/1x10@20000000/1"),
        (leaky.into(), "1800000000020000 l10000000/1x10", "1800000000040000 l10000000/1x10@20000000/1"),
        (
            MaxWait::new(token, second, 5).unwrap().into(),
            "1800000000020000 t10000000/1x10+1000000000x5",
            "1800000000040000 t10000000/1x10+1000000000x5@20000000/1",
        ),
        (
            credits.into(),
            "1800000000020000 0 1800000000002000 0 d10000000/1x10,1000000/1x5",
            "1800000000040000 0 1800000000004000 0 d10000000/1x10,1000000/1x5@20000000/1,2000000/1",
        ),
        (window.into(), "1800000001000000 2 f1000000000e", "1800000001000000 2 f1000000000e"),
        (counter.into(), "3600000000 2 0 0 s1000000000/2s", "3600000000 2 0 0 s1000000000/2s"),
    ]
}

async fn state_after_charge(server: &RedisServer, store: &RedisStore, rule: Rule, pace: Pace) -> String {
    server.command(&["FLUSHALL"]);
    assert!(decide(store, &[Ask { pace, ..ask("a", "k", rule, 2) }]).await.verdict.is_allowed());
    text(server)
}

#[tokio::test]
async fn a_state_at_full_rate_is_written_without_a_rate() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for (rule, full, _) in rules_and_states() {
        assert_eq!(state_after_charge(&server, &store, rule, Pace::FULL).await, full);
    }
}

#[tokio::test]
async fn a_state_at_a_reduced_rate_is_written_with_its_intervals() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for (rule, _, reduced) in rules_and_states() {
        assert_eq!(state_after_charge(&server, &store, rule, half_pace()).await, reduced);
    }
}

#[tokio::test]
async fn a_state_without_a_rate_was_written_at_full_rate() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let asked = |cost| Ask { pace: half_pace(), ..ask("a", "k", bucket(), cost) };
    let name = "tollgate:{acme}:a:t:k";
    server.command(&["SET", name, &format!("{} t10000000/1x10", START + 70_000)]);
    assert_eq!(left(&store, &asked(0)).await, (3, None));
    assert_eq!(left(&store, &asked(4)).await, (3, Some(20 * MS)));
    // A rate that no rule can have is that of nobody.
    for nonsense in
        ["@0/1", "@20000000/0", "@20000000/65", "@", "@20000000", "@x/1", "@20000000/1@20000000/1"]
    {
        server.command(&["SET", name, &format!("{} t10000000/1x10{nonsense}", START + 70_000)]);
        let asked = Ask { pace: Pace::FULL, ..asked(10) };
        assert_eq!(left(&store, &asked).await, (0, None), "{nonsense}: a key that is unused");
    }
    // So is a state whose numbers cannot be read, whatever its rate is.
    server.command(&["SET", name, "x t10000000/1x10@40000000/1"]);
    assert_eq!(left(&store, &asked(10)).await, (0, None));
}

/// Two processes may have two paces for as long as the load lasts. So a key must not need a second call each time.
#[tokio::test]
async fn a_key_of_another_pace_is_decided_in_one_call() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for (name, rule) in one_of_each() {
        for pace in [half_pace(), slow_pace(), pace_after(100, 99), half_pace()] {
            let before = store.health()[0].calls;
            let asked = Ask { pace, action: Action::Hold, ..ask(name, "k", rule, 1) };
            assert!(decide(&store, &[asked]).await.verdict.is_allowed());
            assert_eq!(store.health()[0].calls, before + 1, "{name} at {pace:?}");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_asked_at_several_paces_at_once_gives_its_burst_and_no_more() {
    let server = RedisServer::start();
    let (one, two) = (store(&server).await, store(&server).await);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let store = if task % 2 == 0 { one.clone() } else { two.clone() };
        let pace = [Pace::FULL, half_pace(), slow_pace(), half_pace()][task / 4];
        tasks.spawn(async move {
            let mut passed = 0;
            for round in 0..150 {
                let key = (round / 30).to_string();
                let asked = Ask { pace, has_one_tier: true, ..ask("a", &key, hourly(50), 1) };
                passed += u64::from(decide(&store, &[asked]).await.verdict.is_allowed());
            }
            passed
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<u64>(), 5 * 50);
}

#[tokio::test]
async fn a_denial_at_another_pace_is_exact_and_leaves_a_key_of_several_tiers_unchanged() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let (slow, fast) = (Rate::per_second(10).unwrap(), Rate::per_second(20).unwrap());
    for (name, rule) in [
        ("token", Rule::from(TokenBucket::new(slow, 10).unwrap())),
        ("leaky", LeakyBucket::new(slow, 10).unwrap().into()),
        ("credits", BurstCredits::new(slow, fast, 10).unwrap().into()),
    ] {
        for (from, to) in [(Pace::FULL, half_pace()), (half_pace(), Pace::FULL), (half_pace(), slow_pace())] {
            store.set_time(START);
            let asked = |pace, cost, has_one_tier| Ask { pace, has_one_tier, ..ask(name, "k", rule, cost) };
            assert!(decide(&store, &[asked(from, 10, true)]).await.verdict.is_allowed());
            let before = dump(&server);
            for (cost, is_denied) in [(0, false), (3, true)] {
                let verdict = decide(&store, &[asked(to, cost, false)]).await.verdict;
                assert_eq!(verdict.is_allowed(), !is_denied);
                assert!(dump(&server) == before, "{name}: {cost} at {to:?} has written something");
            }
            let wait = left(&store, &asked(to, 3, true)).await.1.unwrap() / 1000;
            store.set_time(START + wait - 1);
            assert!(
                !decide(&store, &[asked(to, 3, true)]).await.verdict.is_allowed(),
                "{name}: before {wait}"
            );
            store.set_time(START + wait);
            assert!(decide(&store, &[asked(to, 3, true)]).await.verdict.is_allowed(), "{name}: after {wait}");
            server.command(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn a_key_keeps_its_tokens_when_numbers_and_pace_change_at_once() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let larger = Rule::from(TokenBucket::new(Rate::per_second(200).unwrap(), 50).unwrap());
    let paces = [Pace::FULL, half_pace(), slow_pace()];
    for (from, to) in paces.iter().flat_map(|from| paces.map(|to| (*from, to))) {
        assert!(
            decide(&store, &[Ask { pace: from, ..ask("a", "k", bucket(), 7) }]).await.verdict.is_allowed()
        );
        assert_eq!(left(&store, &Ask { pace: to, ..ask("a", "k", larger, 2) }).await, (1, None));
        assert!(left(&store, &Ask { pace: from, ..ask("a", "k", bucket(), 0) }).await.0 <= 1);
        server.command(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn a_cost_above_the_reduced_limit_of_a_window_may_pass_later() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let minute = Duration::from_secs(60);
    for (name, rule) in [
        ("window", Rule::from(FixedWindow::new(100, minute, Align::First).unwrap())),
        ("log", SlidingLog::new(100, minute).unwrap().into()),
        ("counter", SlidingCounter::new(100, minute, 4, Mode::Strict).unwrap().into()),
    ] {
        for (cost, retry) in [(51, None), (60, Some(Retry::Unknown)), (101, Some(Retry::Never))] {
            let asked = Ask { pace: slow_pace(), ..ask(name, "k", rule, cost) };
            let expected = retry.map_or(Outcome::ALLOW, |retry| Outcome::Deny { retry });
            assert_eq!(decide(&store, &[asked]).await.verdict.outcome, expected, "{name}: {cost}");
        }
        // What was counted stays, and the limit is what it was when the load has gone.
        assert_eq!(left(&store, &ask(name, "k", rule, 0)).await, (49, None), "{name}");
    }
}

/// A usage report is kept up to twice the limit of the policy, not up to twice what is left of it.
#[tokio::test]
async fn usage_in_full_is_not_cut_by_a_reduced_limit() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let rule = Rule::from(SlidingLog::new(100, Duration::from_secs(60)).unwrap());
    for (pace, kept) in [(Pace::FULL, 200), (slow_pace(), 200), (slow_pace(), 200)] {
        let usage = |cost| Ask { pace, action: Action::ChargeInFull, ..ask("log", "k", rule, cost) };
        for (cost, entries) in [(90, 90), (90, 180), (90, kept), (500, kept)] {
            decide(&store, &[usage(cost)]).await;
            let length = server.command(&["LLEN", "tollgate:{acme}:log:w:k"]).integer();
            assert_eq!(length, 1 + entries, "{cost} at {pace:?}"); // and the tag
        }
        server.command(&["FLUSHALL"]);
    }
}

/// The conversion exists in a script and in the core. Both give the same state, to the piece of a microsecond.
#[tokio::test]
async fn a_script_converts_a_key_exactly_as_the_rule_does() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let mut random = Random::new(11);
    for _ in 0..30 {
        let rate =
            Rate::new(random.between(1, 2000), Duration::from_millis(random.between(1, 5000))).unwrap();
        let rule = Rule::from(TokenBucket::new(rate, random.log_uniform(2, 500)).unwrap());
        let mut now = START;
        store.set_time(now);
        // Not at full pace, which the short script charges without a conversion.
        let mut reduced = rule.at_reduced_rate(half_pace());
        let asked = |pace| Ask { pace, has_one_tier: true, ..ask("a", "k", rule, rule.capacity()) };
        assert!(decide(&store, &[asked(half_pace())]).await.verdict.is_allowed());
        for _ in 0..20 {
            let before = state_of(&text(&server), &reduced);
            now += random.log_uniform(1, 1000);
            store.set_time(now);
            let pace = pace_after(random.between(100, 900) as u32, random.below(9) as usize);
            if decide(&store, &[asked(pace)]).await.verdict.is_allowed() {
                break;
            }
            let (mut expected, old) = (before, reduced);
            reduced = rule.at_reduced_rate(pace);
            reduced.change_rate(&old, &mut expected, Timestamp::from_nanos(now * 1000));
            assert_eq!(
                state_of(&text(&server), &reduced),
                expected,
                "{rule:?} at {pace:?}: {}",
                text(&server)
            );
        }
        server.command(&["FLUSHALL"]);
    }
}

/// A state of a token bucket as the core has it.
fn state_of(text: &str, rule: &Rule) -> State {
    let RuleParts::TokenBucket { bucket, .. } = rule.parts() else { panic!("{rule:?}") };
    let (tat, _) = text.split_once(' ').unwrap();
    let (whole, part) = tat.split_once('+').unwrap_or((tat, "0"));
    let [whole, part] = [whole, part].map(|number| number.parse::<u64>().unwrap());
    State::Bucket(Tat::from_bits(whole.wrapping_mul(bucket.per_nano * 1000).wrapping_add(part)))
}

/// Such a schedule cannot be scaled exactly by a script. It is rounded against the caller, and never beyond what the store counts.
#[tokio::test]
async fn a_bucket_that_fills_in_a_century_is_decided_at_every_pace() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let daily = Rate::new(1, Duration::from_secs(86_400)).unwrap();
    for (name, rule) in [
        ("token", Rule::from(TokenBucket::new(daily, 36_500).unwrap())),
        ("leaky", LeakyBucket::new(daily, 36_500).unwrap().into()),
        (
            "credits",
            BurstCredits::with_peak_burst(daily, Rate::per_hour(1).unwrap(), 36_500, 36_500).unwrap().into(),
        ),
    ] {
        assert!(decide(&store, &[ask(name, "k", rule, 36_000)]).await.verdict.is_allowed());
        let paces = [half_pace(), pace_after(1, 99), slow_pace(), Pace::FULL, pace_after(1, 99)];
        for (changes, pace) in paces.into_iter().enumerate() {
            let asked = |action, cost| Ask { pace, action, has_one_tier: true, ..ask(name, "k", rule, cost) };
            let (remaining, _) = left(&store, &asked(Action::Charge, 1)).await;
            let most = 499 - changes as u64;
            assert!((most - 2..=most).contains(&remaining), "{name} at {pace:?}: {remaining} of {most}");
        }
        for pace in paces {
            let asked = |action, cost| Ask { pace, action, has_one_tier: true, ..ask(name, "k", rule, cost) };
            decide(&store, &[asked(Action::ChargeInFull, 100_000)]).await;
            assert!(left(&store, &asked(Action::Charge, 1)).await.1.is_some(), "{name} at {pace:?}");
        }
    }
}

/// Two processes charge one key in turns, each at its own pace. Both together admit at most what the faster one alone action, and
/// the key loses nothing: they admit at least what the slower one alone does.
#[tokio::test]
async fn two_processes_at_two_paces_hand_out_nothing() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    let steps = if is_long() { 30_000 } else { 1500 };
    let mut random = Random::new(9);
    let rate = Rate::per_second(1000).unwrap();
    for (name, rule) in [
        ("token", Rule::from(TokenBucket::new(rate, 20).unwrap())),
        ("credits", BurstCredits::new(rate, Rate::per_second(1500).unwrap(), 30).unwrap().into()),
    ] {
        for (slow, fast) in [(pace_after(100, 7), slow_pace()), (half_pace(), Pace::FULL)] {
            let (mut now, mut admitted) = (START, [0_u64; 3]);
            for step in 0..steps / 2 {
                now += random.log_uniform(1, 4000);
                store.set_time(now);
                let taken = *random.pick(&[slow, fast]);
                let cost = random.between(1, 3);
                let keys = [("slow", slow), ("both", taken), ("fast", fast)];
                for (i, (key, pace)) in keys.into_iter().enumerate() {
                    let asked = Ask { pace, has_one_tier: true, ..ask(name, key, rule, cost) };
                    if decide(&store, &[asked]).await.verdict.is_allowed() {
                        admitted[i] += cost;
                    }
                }
                let [by_slow, by_both, by_fast] = admitted;
                // A request that one of them has just charged may not fit the other: at most the largest cost.
                assert!(
                    by_both <= by_fast + 2 && by_slow <= by_both + 2,
                    "{name}, step {step}: {admitted:?}"
                );
            }
            server.command(&["FLUSHALL"]);
        }
    }
}
