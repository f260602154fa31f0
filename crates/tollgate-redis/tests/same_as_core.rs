//! The scripts decide as the rules of `tollgate-core` do, step by step: every algorithm, at random times that also step
//! back, with peeks, refunds and numbers that change.
//!
//! The store counts in microseconds: the rules are asked at the same times, and what they say is rounded up to them.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::{KeyedLimiter, Numbers, Shed};
use tollgate_core::adaptive::{Load, Pace, RateMultiplier};
use tollgate_core::{
    Action, AlgorithmKind, Align, BurstCredits, Concurrency, Decision, FixedWindow, Group, LeakyBucket, Log,
    MaxWait, Mode, Nanos, Outcome, PermitId, Permits, Rate, Retry, Rule, SlidingCounter, SlidingLog, State,
    Status, Timestamp, TokenBucket,
};
use tollgate_policy::{Ask, Store as _, StoredPermit};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::{Random, RedisServer, is_long};

/// Steps for each algorithm.
fn steps() -> usize {
    if is_long() { 1_000_000 } else { 20_000 }
}

/// Keys that are asked at each moment.
const KEYS: usize = 100;

async fn store(server: &RedisServer) -> RedisStore {
    let store = RedisStore::with_manual_clock(Settings::single(server.url(), Duration::from_secs(10)));
    let store = store.unwrap();
    assert!(store.ready(Duration::from_secs(10)).await);
    store
}

/// Makes a rule of random numbers.
type Make = fn(&mut Random) -> Rule;

fn rate(random: &mut Random) -> Rate {
    // Also some that are not exact in the core.
    let tokens = if random.below(4) == 0 { random.between(1, 10_000) } else { random.between(1, 64) };
    Rate::new(tokens, Duration::from_nanos(random.log_uniform(100_000, 10_000_000_000))).unwrap()
}

fn span(random: &mut Random) -> Duration {
    Duration::from_micros(random.log_uniform(1, 5_000_000))
}

const ALGORITHMS: [(&str, Make); 10] = [
    ("token_bucket", |random| TokenBucket::new(rate(random), random.log_uniform(1, 500)).unwrap().into()),
    ("leaky_bucket", |random| LeakyBucket::new(rate(random), random.log_uniform(1, 500)).unwrap().into()),
    ("token_bucket max_wait", |random| {
        let bucket = TokenBucket::new(rate(random), random.log_uniform(1, 50)).unwrap();
        MaxWait::new(bucket, span(random), random.log_uniform(1, 20) as u32).unwrap().into()
    }),
    ("leaky_bucket max_wait", |random| {
        let bucket = LeakyBucket::new(rate(random), random.log_uniform(1, 50)).unwrap();
        MaxWait::new(bucket, span(random), random.log_uniform(1, 20) as u32).unwrap().into()
    }),
    ("fixed_window", |random| {
        let align = *random.pick(&[Align::Epoch, Align::First]);
        FixedWindow::new(random.log_uniform(1, 500), span(random), align).unwrap().into()
    }),
    ("fixed_window count_denied", |random| {
        let rule = FixedWindow::new(random.log_uniform(1, 500), span(random), Align::Epoch).unwrap();
        rule.counting_denied().into()
    }),
    ("sliding_log", |random| SlidingLog::new(random.log_uniform(1, 500), span(random)).unwrap().into()),
    ("sliding_counter", |random| counter(random, 1)),
    ("sliding_counter of many", |random| {
        let buckets = random.between(2, 40);
        counter(random, buckets as u32)
    }),
    ("burst_credits", |random| {
        let base = rate(random);
        let peak = Rate::new(base.tokens() * random.between(2, 9), base.period()).unwrap();
        let (credits, burst) = (random.log_uniform(1, 500), random.log_uniform(1, 500));
        BurstCredits::with_peak_burst(base, peak, credits, burst).unwrap().into()
    }),
];

#[test]
fn every_algorithm_without_permits_is_compared_with_the_core() {
    let mut random = Random::new(1);
    let compared: BTreeSet<AlgorithmKind> =
        ALGORITHMS.iter().map(|(_, make)| make(&mut random).kind()).collect();
    let without_permits = AlgorithmKind::ALL.iter().copied().filter(|kind| !kind.has_permits());
    assert_eq!(compared, without_permits.collect());
}

fn counter(random: &mut Random, buckets: u32) -> Rule {
    let mode = *random.pick(&[Mode::Interpolate, Mode::Strict, Mode::Lenient]);
    // Limits whose products with the window pass 2^53, too.
    let limit =
        if random.below(4) == 0 { random.between(1 << 30, 1 << 45) } else { random.log_uniform(1, 500) };
    let window = Duration::from_micros(random.log_uniform(buckets.into(), 5_000_000));
    SlidingCounter::new(limit, window, buckets, mode).unwrap().into()
}

/// What the rules say, as a store says it that counts in microseconds.
fn told(decision: Decision) -> Decision {
    let rounded = |span: Nanos| Nanos::new(span.get().div_ceil(1000) * 1000);
    let outcome = match decision.outcome {
        Outcome::Allow { delay } => Outcome::Allow { delay: rounded(delay) },
        Outcome::Deny { retry: Retry::After(wait) } => Outcome::Deny { retry: Retry::After(rounded(wait)) },
        denied @ Outcome::Deny { .. } => denied,
    };
    let Status { remaining, reset_after } = decision.status;
    Decision { outcome, status: Status { remaining, reset_after: rounded(reset_after) } }
}

struct Clock {
    now: u64,
    newest: u64,
}

impl Clock {
    /// Goes on, sometimes to where something is due, and sometimes back.
    fn tick(&mut self, random: &mut Random, due: Option<u64>) {
        let due = due.unwrap_or(0);
        self.now = match random.below(20) {
            0..=3 => self.now,
            4..=6 => self.now + due,
            7 => (self.now + due).saturating_sub(1).max(self.now),
            8..=12 => self.now + random.log_uniform(1, 1000),
            13..=17 => self.now + random.log_uniform(1, 3_000_000),
            18 => self.now - random.log_uniform(1, self.now / 2),
            _ => self.newest,
        };
        self.newest = self.newest.max(self.now);
    }
}

#[test]
fn the_scripts_decide_as_the_rules_do() {
    let (server, runtime) = (RedisServer::start(), tokio::runtime::Runtime::new().unwrap());
    runtime.block_on(async {
        let store = store(&server).await;
        for (number, (name, make)) in ALGORITHMS.into_iter().enumerate() {
            compare(&store, name, make, number as u64, steps()).await;
        }
    });
}

/// A state as the store keeps it. Entries of a log that were carried over to a shorter window may lie between two microseconds: the
/// store keeps the later one, against the caller. A second change of the window starts from there.
fn in_ticks(state: &State) -> State {
    let State::Log(log) = state else { return state.clone() };
    State::Log(Log::of_times(
        log.times().map(|time| Timestamp::from_nanos(time.as_nanos().next_multiple_of(1000))),
    ))
}

async fn compare(store: &RedisStore, name: &'static str, make: Make, seed: u64, steps: usize) {
    let mut random = Random::new(1000 + seed);
    // Each key has three sets of numbers: it was written by one, and may be asked by another.
    let rules: Vec<[Rule; 3]> = (0..KEYS).map(|_| std::array::from_fn(|_| make(&mut random))).collect();
    let mut states: Vec<(usize, State)> = vec![(0, State::default()); KEYS];
    let (mut clock, mut due) = (Clock { now: 10_000_000, newest: 10_000_000 }, None);
    for step in 0..steps.div_ceil(KEYS) {
        clock.tick(&mut random, due.take());
        store.set_time(clock.now);
        let mut asked = JoinSet::new();
        let mut expected = Vec::new();
        for (key, (written_by, kept)) in states.iter_mut().enumerate() {
            let now = Timestamp::from_nanos(clock.now * 1000);
            let before = rules[key][*written_by];
            // A turn is kept in whole microseconds, so that numbers which change while somebody waits may be late by one.
            let waits = matches!(before, Rule::TokenBucketMaxWait(_) | Rule::LeakyBucketMaxWait(_));
            let asked_by =
                if random.below(20) == 0 && !waits { random.below(3) as usize } else { *written_by };
            let rule = rules[key][asked_by];
            // A charge or a refund writes the state by the numbers of the request; for a key that has one set of numbers at a
            // time, so does a denial with a wait.
            let has_one_tier = key % 3 == 0;
            let state = &mut kept.clone();
            if rule != before {
                rule.convert(&before, state, now);
            }
            let most = rule.capacity();
            let cost = match random.below(20) {
                0 => 0,
                1 => most.saturating_add(random.between(1, 3)),
                2..=4 => random.between(1, most),
                5..=9 => random.between(1, most.min(5)),
                _ => 1,
            };
            let action = match random.below(20) {
                0 => Action::Peek,
                // The store does not know when a window was carried over, which matters to a clock that is behind.
                1 | 2 if !matches!(rule, Rule::SlidingLog(_)) && clock.now == clock.newest => Action::Refund,
                // The store counts up to 2^52, the core up to 2^62.
                3 | 4 if most < 1 << 30 => Action::ChargeInFull,
                _ => Action::Charge,
            };
            let (decision, is_written) = match action {
                Action::Charge | Action::Hold => {
                    let decision = rule.decide(state, PermitId(0), cost, now);
                    let carries_over = has_one_tier && decision.retry_after().is_some();
                    (decision, cost > 0 && (decision.is_allowed() || rule.counts_denied() || carries_over))
                }
                Action::ChargeInFull => {
                    let outcome = rule.test_in_full(state, cost, now);
                    rule.spend_in_full(state, cost, now);
                    (Decision { outcome, status: rule.status(state, now) }, cost > 0)
                }
                Action::Peek => {
                    let (outcome, status) = (rule.test(state, cost, now), rule.status(state, now));
                    (Decision { outcome, status }, false)
                }
                Action::Refund => {
                    let given = rule.refund(state, cost, now, now);
                    (
                        Decision { outcome: Outcome::ALLOW, status: rule.status(state, now) },
                        given > 0 || rule == before,
                    )
                }
            };
            if is_written {
                (*written_by, *kept) = (asked_by, in_ticks(state));
            }
            if let Some(wait) = decision.retry_after() {
                due = Some(wait.get().div_ceil(1000)).filter(|wait| *wait < 10_000_000).or(due);
            }
            expected.push((told(decision), cost, action, rule));
            let store = store.clone();
            asked.spawn(async move {
                let (limit, key_text) = (name.to_owned(), key.to_string());
                let ask = Ask {
                    limit: limit.into(),
                    key: std::iter::once(key_text.as_bytes()).collect(),
                    tag: b"",
                    rule,
                    pace: Pace::FULL,
                    cost,
                    action,
                    // Alone they take the long script, together some take the short one.
                    group: if key % 2 == 0 { Group::All } else { Group::Independent },
                    has_one_tier,
                    is_denied: false,
                };
                let decided = store.decide(&[ask]).await;
                (key, decided.unwrap_or_else(|error| panic!("{name}, key {key}: {error}")).each[0].decision)
            });
        }
        while let Some(answer) = asked.join_next().await {
            let (key, decision) = answer.unwrap();
            let (expected, cost, action, rule) = expected[key];
            assert_eq!(
                decision, expected,
                "{name}: step {step} at {}, key {key}, {action:?} of {cost} by {rule:?}",
                clock.now
            );
        }
    }
}

/// At paces that change at random, each key in Redis is decided as in memory, where the clock is slowed.
#[test]
fn at_random_paces_the_scripts_decide_as_memory_does() {
    let (server, runtime) = (RedisServer::start(), tokio::runtime::Runtime::new().unwrap());
    let (keys, steps) = if is_long() { (50, 1000) } else { (6, 120) };
    runtime.block_on(async {
        let store = store(&server).await;
        for (number, (name, make)) in ALGORITHMS.into_iter().enumerate() {
            let mut random = Random::new(2000 + number as u64);
            let mut denied = 0;
            for key in 0..keys {
                let rule = make(&mut random);
                denied += compare_paces(&store, name, &key.to_string(), rule, &mut random, steps).await;
            }
            assert!(denied > keys * steps / 20, "{name}: only {denied} were denied");
        }
    });
}

/// What is rounded when paces change, in nanoseconds: a piece of a nanosecond for each unit and each change, and a
/// microsecond for the turns of requests that wait.
const ROUNDED: u64 = 10_000;

/// Decides one key in both places, and returns how often it was denied.
async fn compare_paces(
    store: &RedisStore,
    name: &str,
    key: &str,
    rule: Rule,
    random: &mut Random,
    steps: usize,
) -> usize {
    let clock = tollgate::Clock::manual_from(Duration::ZERO);
    let limiter = KeyedLimiter::builder(rule).clock(clock).build();
    let tier = limiter.add_tier(Numbers { rule, shed: Shed::Normal });
    let (mut multiplier, mut micros, mut denied) = (RateMultiplier::new(100).unwrap(), 10_000_000, 0);
    limiter.clock().advance(Duration::from_micros(micros));
    let mut wait = 10_000_000;
    for step in 0..steps {
        let passed = match random.below(8) {
            0 => 0,
            1 => wait,
            2..=6 => random.log_uniform(1, wait.max(2)),
            _ => random.log_uniform(1, 3_000_000),
        };
        micros += passed;
        limiter.clock().advance(Duration::from_micros(passed));
        store.set_time(micros);
        let now = limiter.clock().now();
        assert_eq!(now.as_nanos(), micros * 1000);
        let changes = random.chance(1, 6);
        if changes {
            multiplier.observe(*random.pick(&[Load::High, Load::High, Load::Low]));
            limiter.set_paces(&multiplier);
        }
        let cost = if changes { 1 } else { random.between(1, rule.capacity().div_ceil(2)) };
        let pace = multiplier.pace();
        let ask = |action| Ask {
            limit: name.into(),
            key: std::iter::once(key.as_bytes()).collect(),
            tag: b"",
            rule,
            pace,
            cost,
            action,
            group: Group::All,
            has_one_tier: true,
            is_denied: false,
        };
        let asked = limiter.ask(key).tier(&tier).cost(cost);
        // A change meets a request that is charged in any case. So the key is carried over when the clock in memory changes.
        let (decided, expected) = if changes {
            (store.decide(&[ask(Action::ChargeInFull)]).await, asked.action(Action::ChargeInFull).check())
        } else {
            (store.decide(&[ask(Action::Peek)]).await, asked.preview_at(now))
        };
        let found = decided.unwrap_or_else(|error| panic!("{name}: {error}")).each[0].decision;
        let context = || {
            format!(
                "{name} {key}, step {step}: {cost} at {pace:?} by {rule:?}: {found:?}, in memory {expected:?}"
            )
        };
        let is_near = |one: Nanos, other: Nanos| one.get().abs_diff(other.get()) <= ROUNDED;
        let is_same = match (found.outcome, expected.outcome) {
            (Outcome::Allow { delay: one }, Outcome::Allow { delay: other })
            | (Outcome::Deny { retry: Retry::After(one) }, Outcome::Deny { retry: Retry::After(other) }) => {
                assert!(is_near(one, other), "{}", context());
                true
            }
            (Outcome::Deny { retry: Retry::After(wait) }, Outcome::Allow { .. })
            | (Outcome::Allow { .. }, Outcome::Deny { retry: Retry::After(wait) }) => {
                assert!(wait.get() <= ROUNDED, "{}", context());
                false
            }
            (one, other) => {
                assert_eq!(one, other, "{}", context());
                true
            }
        };
        assert!(is_near(found.status.reset_after, expected.status.reset_after), "{}", context());
        let left = |nanos: u64| limiter.ask(key).tier(&tier).peek_at(Timestamp::from_nanos(nanos)).remaining;
        let near = left(now.as_nanos().saturating_sub(ROUNDED))..=left(now.as_nanos() + ROUNDED);
        assert!(near.contains(&found.status.remaining), "{}: not in {near:?}", context());
        denied += usize::from(!found.is_allowed());
        wait = found.retry_after().map_or(wait, |wait| (wait.get() / 1000).clamp(1, 10_000_000));
        // Within what is rounded, one may allow what the other denies. That is not charged.
        if is_same && !changes {
            let charged = store.decide(&[ask(Action::Charge)]).await.unwrap().each[0].decision;
            assert_eq!(charged.outcome, found.outcome, "{}", context());
            assert_eq!(asked.check().outcome, expected.outcome, "{}", context());
        }
    }
    denied
}

#[test]
fn permits_are_held_as_the_rule_does() {
    let (server, runtime) = (RedisServer::start(), tokio::runtime::Runtime::new().unwrap());
    runtime.block_on(async {
        let store = store(&server).await;
        let mut random = Random::new(7);
        for key in 0..20 {
            compare_permits(&store, &mut random, key, steps() / 20).await;
        }
    });
}

async fn compare_permits(store: &RedisStore, random: &mut Random, key: u64, steps: usize) {
    // Every third key has large limits and costs of any size.
    let is_large = key.is_multiple_of(3);
    let rules: [Concurrency; 2] = std::array::from_fn(|_| {
        let lease = Duration::from_micros(random.log_uniform(1, 2_000_000));
        let most = if is_large { 100_000 } else { 30 };
        Concurrency::new(random.log_uniform(1, most), Some(lease)).unwrap()
    });
    let (mut state, mut held): (Permits, Vec<(PermitId, StoredPermit)>) = Default::default();
    let (mut clock, mut due) = (Clock { now: 10_000_000, newest: 10_000_000 }, None);
    let key = key.to_string();
    for step in 0..steps {
        clock.tick(random, due.take());
        store.set_time(clock.now);
        let now = Timestamp::from_nanos(clock.now * 1000);
        let rule = rules[usize::from(random.below(50) == 0)];
        if !held.is_empty() && random.below(3) == 0 {
            let (id, permit) = held.swap_remove(random.below(held.len() as u64) as usize);
            let released = store.release(&[permit]).await.unwrap();
            assert_eq!(released, rule.release(&mut state, id, now), "step {step}");
            continue;
        }
        let cost = match is_large && random.chance(4, 5) {
            true => random.log_uniform(1, rule.capacity()),
            false => *random.pick(&[0, 1, 1, 1, 2, rule.capacity(), rule.capacity() + 1]),
        };
        let ask = Ask {
            limit: "in-flight".into(),
            key: std::iter::once(key.as_bytes()).collect(),
            tag: b"",
            rule: rule.into(),
            pace: Pace::FULL,
            cost,
            action: if random.below(5) == 0 { Action::Charge } else { Action::Hold },
            group: Group::All,
            has_one_tier: false,
            is_denied: false,
        };
        let decided = store.decide(std::slice::from_ref(&ask)).await.unwrap();
        let outcome = rule.test(&state, cost, now);
        if outcome.is_allowed() && ask.action == Action::Hold && cost > 0 {
            let id = PermitId(step as u64);
            rule.acquire(&mut state, id, cost, now);
            held.push((id, decided.permits[0].clone()));
        } else {
            assert!(decided.permits.is_empty());
        }
        due = outcome.retry_after().map(|wait| wait.get().div_ceil(1000));
        // Of a permit given while the clock was behind, the end is told from the time it showed.
        let (status, found) = (rule.status(&state, now), decided.each[0].decision);
        let expected = told(Decision { outcome, status });
        assert_eq!(
            (found.outcome, found.status.remaining),
            (expected.outcome, expected.status.remaining),
            "step {step}"
        );
        if clock.now == clock.newest {
            assert_eq!(found, expected, "step {step} at {}", clock.now);
        }
        held.truncate(40);
    }
}
