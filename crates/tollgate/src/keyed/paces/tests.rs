use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::adaptive::Load;
use tollgate_core::{
    Action, Align, BurstCredits, Concurrency, Decision, FixedWindow, Group, LeakyBucket, MaxWait, Mode,
    Nanos, Outcome, Rate, Retry, Rule, SlidingCounter, SlidingLog, Timestamp, TokenBucket, Verdict,
};
use tollgate_testkit::Random;

use super::*;
use crate::{Clock, Numbers, Shed, Tier};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

const CLASSES: [Shed; 3] = [Shed::Exempt, Shed::Normal, Shed::First];

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn bucket(rate: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap()
}

/// After so many intervals of high load, then of low.
fn multiplier(high: usize, low: usize) -> RateMultiplier {
    let mut multiplier = RateMultiplier::new(100).unwrap();
    (0..high).for_each(|_| multiplier.observe(Load::High));
    (0..low).for_each(|_| multiplier.observe(Load::Low));
    multiplier
}

/// At exactly a half, and a half also for those who are slowed first.
fn half() -> RateMultiplier {
    let mut multiplier = RateMultiplier::new(500).unwrap();
    (0..9).for_each(|_| multiplier.observe(Load::High));
    multiplier
}

/// A limiter with a tier of this rule in each class.
fn classes(rule: impl Into<Rule>) -> (KeyedLimiter, [Tier; 3]) {
    let rule = rule.into();
    let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
    let tiers = CLASSES.map(|shed| limiter.add_tier(Numbers { rule, shed }));
    (limiter, tiers)
}

#[test]
fn ad_4_each_class_passes_at_its_pace() {
    let (limiter, tiers) = classes(bucket(100, 10));
    limiter.set_paces(&multiplier(3, 0));
    let mut admitted = [0_u64; 3];
    for _ in 0..100_000 {
        limiter.clock().advance(Duration::from_millis(1));
        for (class, admitted) in admitted.iter_mut().enumerate() {
            *admitted += u64::from(limiter.ask(&class).tier(&tiers[class]).check().is_allowed());
        }
    }
    // 100, 51.2 and 26.2144 a second, and the burst.
    for (admitted, due) in admitted.into_iter().zip([10_000, 5120, 2621]) {
        assert!((due..=due + 10).contains(&admitted), "{admitted} of {due}");
    }
}

#[test]
fn ad_4_a_change_hands_out_nothing() {
    let (limiter, [_, normal, _]) = classes(bucket(100, 10));
    let ask = || limiter.ask("acme").tier(&normal);
    assert_eq!(ask().cost(10).check().status.remaining, 0);
    limiter.set_paces(&half());
    let denied = ask().check();
    assert_eq!((denied.status.remaining, denied.retry_after()), (0, Some(Nanos::new(20 * MS))));
    assert_eq!(denied.status.reset_after, Nanos::new(200 * MS));
    // The burst is what it was, and what is saved up stays.
    limiter.clock().advance(Duration::from_millis(200));
    assert_eq!(ask().peek().remaining, 10);
    assert_eq!(ask().cost(7).check().status.remaining, 3);
    for multiplier in [multiplier(0, 0), multiplier(9, 0), multiplier(3, 2), half(), multiplier(0, 0)] {
        limiter.set_paces(&multiplier);
        assert_eq!(ask().peek().remaining, 3);
    }
    // At full pace again it fills up as ever, though its time stays behind.
    limiter.clock().advance(Duration::from_millis(69));
    assert_eq!(ask().peek().remaining, 9);
    assert_eq!(ask().peek().reset_after, Nanos::new(MS));
    assert_eq!(limiter.rule_of(&normal), bucket(100, 10).into());
}

#[test]
fn a_tenant_within_the_reduced_rate_sees_no_denial() {
    let (limiter, [_, normal, _]) = classes(bucket(100, 10));
    for i in 0..51 * 60 {
        if i < 3 {
            limiter.set_paces(&multiplier(i + 1, 0));
        }
        assert!(limiter.ask("modest").tier(&normal).check().is_allowed(), "request {i}");
        limiter.clock().advance(Nanos::new(S / 51));
    }
}

/// Every rule whose time is slowed.
fn schedules() -> Vec<Rule> {
    let rate = |n| Rate::per_second(n).unwrap();
    let queue = LeakyBucket::new(rate(7), 5).unwrap();
    vec![
        bucket(100, 10).into(),
        bucket(7, 3).into(),
        queue.into(),
        MaxWait::new(bucket(7, 3), Duration::from_millis(350), 3).unwrap().into(),
        MaxWait::new(queue, Duration::from_millis(350), 3).unwrap().into(),
        BurstCredits::new(rate(3), rate(11), 20).unwrap().into(),
    ]
}

#[test]
fn a_wait_is_exact_at_any_pace() {
    for (seed, rule) in schedules().into_iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let (limiter, tiers) = classes(rule);
        let (mut denied, mut held) = (0, 0);
        for i in 0..30_000 {
            limiter.clock().advance(Nanos::new(random.log_uniform(0, 200 * MS)));
            if random.chance(1, 20) {
                limiter.set_paces(&multiplier(random.below(6) as usize, random.below(4) as usize));
            }
            // Each key in a class of its own: in another it would go on at the old pace until it is next charged.
            let class = random.below(3) as usize;
            let request = limiter.ask(&class).tier(&tiers[class]).cost(random.below(4));
            let now = limiter.clock().now();
            let preview = request.preview_at(now);
            if let Some(wait) = preview.retry_after() {
                let later = |wait: u64| request.preview_at(now.after(Nanos::new(wait))).is_allowed();
                assert!(later(wait.get()), "step {i}: {rule:?} after {wait}");
                assert!(!later(wait.get() - 1), "step {i}: {rule:?} before {wait}");
                denied += 1;
            }
            let reset = preview.status.reset_after;
            assert!(request.peek_at(now.after(reset)).reset_after.is_zero(), "step {i}: {rule:?}");
            if !reset.is_zero() {
                let before = Nanos::new(reset.get() - 1);
                assert!(!request.peek_at(now.after(before)).reset_after.is_zero(), "step {i}: {rule:?}");
            }
            let decision = request.check();
            assert_eq!(decision.outcome, preview.outcome, "step {i}");
            if matches!(rule, Rule::TokenBucketMaxWait(_) | Rule::LeakyBucketMaxWait(_)) {
                // By the real clock, whatever the pace.
                assert!(decision.delay() <= Nanos::new(350 * MS), "step {i}: {rule:?}, {decision:?}");
                held += u64::from(!decision.delay().is_zero());
            }
        }
        assert!(denied > 1000 && (held > 1000 || !matches!(rule, Rule::TokenBucketMaxWait(_))), "{rule:?}");
    }
}

#[test]
fn whoever_is_held_is_held_no_longer_at_half_the_pace() {
    let rule = MaxWait::new(bucket(100, 1), Duration::from_millis(100), 20).unwrap();
    let (limiter, [_, normal, _]) = classes(rule);
    limiter.set_paces(&half());
    let outcomes = [(); 7].map(|()| limiter.ask("acme").tier(&normal).check().outcome);
    let delays = [0, 20, 40, 60, 80, 100].map(|ms| Outcome::Allow { delay: Nanos::new(ms * MS) });
    assert_eq!(outcomes[..6], delays);
    assert_eq!(outcomes[6].retry_after(), Some(Nanos::new(20 * MS)));
}

#[test]
fn windows_are_decided_by_what_is_left_of_their_limit() {
    let minute = Duration::from_secs(60);
    let rules: [Rule; 3] = [
        FixedWindow::new(100, minute, Align::First).unwrap().into(),
        SlidingLog::new(100, minute).unwrap().into(),
        SlidingCounter::new(100, minute, 6, Mode::Strict).unwrap().into(),
    ];
    for rule in rules {
        let (limiter, tiers) = classes(rule);
        let ask = |class: usize| limiter.ask(&class).tier(&tiers[class]);
        limiter.set_paces(&multiplier(3, 0));
        for (class, limit) in [100, 51, 26].into_iter().enumerate() {
            let passed = (0..200).filter(|_| ask(class).check().is_allowed()).count();
            assert_eq!(passed, limit, "{rule:?}");
        }
        // What would pass at full pace may yet, nobody knows when; what never would, never.
        let retry = |cost| ask(1).cost(cost).check().outcome;
        assert_eq!(retry(52), Outcome::Deny { retry: Retry::Unknown });
        assert_eq!(retry(101), Outcome::NEVER);
        // By the real clock, not by one that goes at half its pace.
        let wait = ask(1).preview_at(at(0)).retry_after().unwrap();
        assert!(wait <= Nanos::new(70 * S), "{wait}: {rule:?}");
        limiter.set_paces(&multiplier(0, 0));
        assert_eq!([0, 1, 2].map(|class| ask(class).peek().remaining), [0, 49, 74], "{rule:?}");
        // Lowered again, the limit is below what has been used.
        assert!(ask(1).cost(49).check().is_allowed());
        limiter.set_paces(&multiplier(6, 0));
        assert_eq!(ask(1).peek().remaining, 0);
        assert!(!ask(1).check().is_allowed());
        limiter.clock().advance(Duration::from_secs(71));
        assert_eq!(ask(1).check().status.remaining, 25, "{rule:?}");
    }
}

#[test]
fn places_are_as_many_at_any_pace() {
    let (limiter, tiers) = classes(Concurrency::new(10, Some(Duration::from_secs(1))).unwrap());
    limiter.set_paces(&half());
    let permits: Vec<_> = (0..10).map(|_| limiter.ask("a").tier(&tiers[2]).acquire().unwrap()).collect();
    assert_eq!(limiter.ask("a").tier(&tiers[2]).check().retry_after(), Some(Nanos::new(S)));
    drop(permits);
    assert_eq!(limiter.ask("a").tier(&tiers[2]).peek().remaining, 10);
}

/// By the real clock, a key of a slowed class would be full again long before it is.
#[test]
fn a_key_of_a_slowed_class_is_not_forgotten_early() {
    let rate = |n| Rate::per_second(n).unwrap();
    let credits = BurstCredits::new(rate(100), rate(1000), 10).unwrap();
    // Where there is room they might be swept, at the bound evicted.
    for (rule, max_keys) in
        [(bucket(100, 10).into(), 1000), (bucket(100, 10).into(), 100_000), (Rule::from(credits), 100_000)]
    {
        let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).max_keys(max_keys).build();
        let normal = limiter.add_tier(Numbers { rule, shed: Shed::Normal });
        limiter.set_paces(&multiplier(20, 0)); // at a tenth
        let slowed = |i: u64| limiter.ask(&("slowed", i)).tier(&normal);
        assert!((0..100).all(|i| slowed(i).cost(10).check().is_allowed()));
        // Half a second, in which everybody else comes and goes.
        for i in 0..50_000_u64 {
            limiter.clock().advance(Nanos::new(10_000));
            let _ = limiter.ask(&i).cost(3).check();
        }
        assert_eq!(limiter.clock().now(), at(S / 2));
        assert!(limiter.stats().keys < 20_000, "{:?}", limiter.stats());
        for i in 0..100 {
            assert_eq!(slowed(i).peek().remaining, 5, "key {i} of {rule:?}");
        }
        // In time they are forgotten as all others.
        limiter.clock().advance(Duration::from_secs(1));
        let keys = limiter.stats().keys;
        limiter.table.sweep(usize::MAX);
        assert_eq!(limiter.stats().keys, 0, "of {keys}");
    }
}

#[test]
fn another_class_keeps_the_tokens() {
    // What remains of a queue with a max_wait is who may still wait, of whom there are fewer in a slower class.
    for rule in schedules().into_iter().filter(|rule| !matches!(rule, Rule::LeakyBucketMaxWait(_))) {
        let (limiter, tiers) = classes(rule);
        limiter.set_paces(&multiplier(9, 0));
        limiter.clock().advance(Duration::from_secs(3600)); // their clocks are far apart now
        let _ = limiter.ask("moved").tier(&tiers[0]).cost(2).check();
        let _ = limiter.ask("stays").tier(&tiers[1]).cost(2).check();
        let left = |key: &str, tier: &Tier| limiter.ask(key).tier(tier).peek().remaining;
        let [moved, stays] = [left("moved", &tiers[0]), left("stays", &tiers[1])];
        assert!(tiers.iter().all(|tier| left("moved", tier) == moved), "{rule:?}");
        // Charged by each in turn, it has what is left at every turn.
        for (i, class) in [1, 2, 0, 2, 1].into_iter().enumerate() {
            let before = limiter.ask("moved").tier(&tiers[class]).peek();
            let decision = limiter.ask("moved").tier(&tiers[class]).check();
            let due = before.remaining - u64::from(decision.is_allowed()).min(before.remaining);
            assert_eq!(decision.status.remaining, due, "turn {i} of {rule:?}");
        }
        // Nor does it change anything that a tier is put into another class.
        for shed in [Shed::First, Shed::Exempt, Shed::Normal] {
            KeyedLimiter::set_tiers(&[(&limiter, &tiers[1], Numbers { rule, shed })]);
            assert_eq!(left("stays", &tiers[1]), stays, "{shed:?}, {rule:?}");
        }
    }
}

#[test]
fn a_plan_asks_each_limit_at_its_own_time() {
    let users = KeyedLimiter::builder(bucket(100, 10)).clock(Clock::manual()).build();
    let tenants = users.another(bucket(10, 10));
    let windows = users.another(FixedWindow::new(100, Duration::from_secs(60), Align::First).unwrap());
    let flights = users.another(Concurrency::new(5, None).unwrap());
    let tier = |limiter: &KeyedLimiter, shed| {
        let rule = limiter.rule_of(limiter.base_tier());
        limiter.add_tier(Numbers { rule, shed })
    };
    let normal = tier(&users, Shed::Normal);
    let first = tier(&tenants, Shed::First);
    let window = tier(&windows, Shed::Normal);
    users.set_paces(&multiplier(3, 0)); // 0.512 and 0.262144
    users.clock().advance(Duration::from_secs(100));
    let plan = |cost| {
        let requests = [
            users.ask("exempt"),
            users.ask("alice").tier(&normal).cost(cost),
            tenants.ask("acme").tier(&first).cost(cost),
            windows.ask("acme").tier(&window),
            flights.ask("acme"),
        ];
        let mut decisions = [Decision::default(); 5];
        let requests = requests.into_iter().map(|request| request.action(Action::Hold));
        let permits =
            KeyedLimiter::decide_at(requests, users.clock().now(), |i, decision| decisions[i] = decision);
        let verdict = Verdict::of(decisions.into_iter().map(|decision| (Group::All, decision)));
        (verdict, decisions, permits)
    };
    let (verdict, _, permits) = plan(10);
    assert!(verdict.is_allowed() && permits.len() == 1);
    let (verdict, decisions, _) = plan(1);
    assert_eq!((verdict.is_allowed(), verdict.reported), (false, Some(2)));
    let waits = decisions.map(|decision| decision.retry_after().map(Nanos::get));
    assert_eq!(waits, [None, Some(19_531_250), Some(381_469_727), None, None]);
    assert_eq!(decisions.map(|decision| decision.status.remaining), [9, 0, 0, 50, 4]);
    users.clock().advance(Nanos::new(381_469_726));
    assert!(!plan(1).0.is_allowed());
    users.clock().advance(Nanos::new(1));
    assert!(plan(1).0.is_allowed());
}

#[test]
fn whoever_waits_hears_of_another_pace() {
    use futures_lite::future::{block_on, poll_once};
    use std::pin::pin;

    let (limiter, [_, normal, _]) = classes(bucket(1, 1));
    limiter.set_paces(&multiplier(20, 0)); // at a tenth
    block_on(async {
        let request = limiter.ask("acme").tier(&normal);
        assert!(request.check().is_allowed());
        let mut waits = pin!(request.until_ready());
        assert!(poll_once(waits.as_mut()).await.is_none());
        limiter.clock().advance(Duration::from_secs(5)); // half a token
        assert!(poll_once(waits.as_mut()).await.is_none());
        limiter.set_paces(&multiplier(0, 0));
        assert!(poll_once(waits.as_mut()).await.is_none());
        limiter.clock().advance(Duration::from_millis(499));
        assert!(poll_once(waits.as_mut()).await.is_none());
        limiter.clock().advance(Duration::from_millis(1));
        assert!(poll_once(waits.as_mut()).await.is_some());
    });
}

#[test]
fn what_is_given_back_is_what_was_taken() {
    let (limiter, [_, normal, _]) = classes(bucket(100, 10));
    let ask = |cost| limiter.ask("acme").tier(&normal).cost(cost);
    limiter.set_paces(&half());
    limiter.clock().advance(Duration::from_secs(100));
    let charged = limiter.clock().now();
    assert_eq!(ask(8).check().status.remaining, 2);
    limiter.clock().advance(Duration::from_millis(100)); // five have come back
    assert_eq!((ask(3).refund(charged), ask(0).peek().remaining), (3, 10));
    // After the time that a whole burst takes at this pace it is too late, whatever came in between.
    let charged = limiter.clock().now();
    assert!(ask(10).check().is_allowed());
    limiter.clock().advance(Duration::from_millis(199));
    assert!(ask(9).check().is_allowed());
    limiter.clock().advance(Duration::from_millis(1));
    assert_eq!(ask(10).refund(charged), 0);
}

#[test]
fn a_pace_that_is_told_again_changes_nothing() {
    let (limiter, [_, normal, _]) = classes(bucket(100, 10));
    limiter.set_paces(&multiplier(0, 5));
    let paced = || limiter.table.are_paced();
    assert!(!paced()); // full pace is how it was
    limiter.set_paces(&multiplier(1, 0));
    assert!(paced());
    let _ = limiter.ask("acme").tier(&normal).cost(10).check();
    for _ in 0..100 {
        limiter.clock().advance(Nanos::new(123_457));
        limiter.set_paces(&multiplier(1, 0));
    }
    assert_eq!(limiter.ask("acme").tier(&normal).peek().reset_after, Nanos::new(125 * MS - 12_345_700));
}

/// A token bucket kept as its tokens, in 10^-18, that grow by `rate * pace * dt`. It shares nothing with the clocks and
/// schedules that it judges.
struct Tokens {
    left: i128,
    class: usize, // of the tier that last charged it
    at: u64,
}

const TOKEN: i128 = 1_000_000_000_000_000_000;
const RATE: i128 = 100;
const BURST: i128 = 10;

#[test]
fn paces_equal_a_bucket_that_is_filled_step_by_step() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let (limiter, tiers) = classes(bucket(RATE as u64, BURST as u64));
        let mut keys: HashMap<u64, Tokens> = HashMap::new();
        // 0.512 and the like, and their squares: whole nanoseconds in every millisecond, so that nothing is rounded.
        let mut paces = [1_000_000_000_i128; 3];
        let (mut denied, mut changes) = (0, 0);
        for i in 0..100_000 {
            let passed = random.log_uniform(0, 40);
            limiter.clock().advance(Duration::from_millis(passed));
            let now = limiter.clock().now().as_nanos();
            if random.chance(1, 50) {
                // Whoever is filled step by step must be before the pace changes.
                fill(&mut keys, now, &paces);
                let multiplier = multiplier(random.below(4) as usize, random.below(10) as usize);
                limiter.set_paces(&multiplier);
                paces = [0, 1, 2].map(|shed| multiplier.pace_of(shed).billionths().into());
                changes += 1;
            }
            let (key, cost, class) = (random.below(4), random.below(7), random.below(3) as usize);
            fill(&mut keys, now, &paces);
            let tokens = keys.entry(key).or_insert(Tokens { left: BURST * TOKEN, class, at: now });
            let missing = i128::from(cost) * TOKEN - tokens.left;
            let expected = if missing <= 0 {
                tokens.left -= i128::from(cost) * TOKEN;
                if cost > 0 {
                    tokens.class = class;
                }
                Outcome::ALLOW
            } else {
                denied += 1;
                let gained = RATE * paces[class];
                let wait = (missing + gained - 1) / gained;
                Outcome::Deny { retry: Retry::After(Nanos::new(wait.try_into().unwrap())) }
            };
            let decision = limiter.ask(&key).tier(&tiers[class]).cost(cost).check();
            assert_eq!(decision.outcome, expected, "seed {seed}, step {i}: key {key}, class {class}");
            let left = keys[&key].left / TOKEN;
            assert_eq!(i128::from(decision.status.remaining), left, "seed {seed}, step {i}: key {key}");
        }
        assert!(denied > 1000 && changes > 1000, "{denied} denied, {changes} changes");
    }
}

fn fill(keys: &mut HashMap<u64, Tokens>, now: u64, paces: &[i128; 3]) {
    for tokens in keys.values_mut() {
        let gained = RATE * paces[tokens.class] * i128::from(now - tokens.at);
        tokens.left = (tokens.left + gained).min(BURST * TOKEN);
        tokens.at = now;
    }
}
