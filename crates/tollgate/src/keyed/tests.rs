use std::collections::HashMap;
use std::time::Duration;

use tollgate_core::{
    Action, Align, BurstCredits, FixedWindow, Group, LeakyBucket, Mode, PermitId, Rate, SlidingCounter,
    SlidingLog, State, TokenBucket, Verdict,
};
use tollgate_testkit::Random;

use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn bucket(rate: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap()
}

/// One rule of each kind that a key can be charged by.
fn rules() -> Vec<Rule> {
    let minute = Duration::from_secs(60);
    vec![
        bucket(5, 10).into(),
        bucket(3, 7).into(),
        LeakyBucket::new(Rate::per_second(5).unwrap(), 10).unwrap().into(),
        FixedWindow::new(10, minute, Align::Epoch).unwrap().into(),
        SlidingLog::new(10, minute).unwrap().into(),
        SlidingCounter::new(10, minute, 1, Mode::Interpolate).unwrap().into(),
        SlidingCounter::new(10, minute, 6, Mode::Strict).unwrap().into(),
    ]
}

#[test]
fn a_table_decides_as_the_rule_would_for_each_key_alone() {
    for (seed, rule) in rules().into_iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
        let mut alone: HashMap<u64, State> = HashMap::new();
        let mut now = 0;
        for i in 0..200_000 {
            now += random.log_uniform(0, 50 * MS);
            let (key, cost) = (random.log_uniform(0, 20_000), random.below(4));
            let expected = rule.decide(alone.entry(key).or_default(), PermitId(0), cost, at(now));
            let decision = limiter.ask(&key).cost(cost).check_at(at(now));
            assert_eq!(decision, expected, "step {i}: key {key}, cost {cost}, at {now}, {rule:?}");
            if random.below(10) == 0 {
                // By a clock that stands at 0: what was charged since then counts as charged just now.
                let state = alone.get_mut(&key).unwrap();
                let expected = rule.refund(state, cost, at(now), at(0));
                assert_eq!(limiter.ask(&key).cost(cost).refund(at(now)), expected, "step {i}");
            }
        }
        assert!(limiter.stats().keys <= alone.len());
        assert_eq!(limiter.stats().evictions, 0);
    }
}

#[test]
fn a_key_under_other_numbers_keeps_its_tokens() {
    let limiter = KeyedLimiter::builder(bucket(1, 10)).clock(Clock::manual()).build();
    let pro = limiter.add_tier(bucket(100, 50));
    assert_eq!(limiter.ask("alice").cost(8).check().status.remaining, 2);
    // Promoted, she has what she had, and fills up faster. Demoted again, still.
    assert_eq!(limiter.ask("alice").tier(&pro).peek().remaining, 2);
    assert_eq!(limiter.ask("alice").tier(&pro).check().status.remaining, 1);
    assert_eq!(limiter.check("alice").status.remaining, 0);
    // Live changes are the same to her.
    limiter.set_rule(bucket(1, 5));
    assert!(!limiter.check("alice").is_allowed());
    assert_eq!(limiter.check("bob").status.remaining, 4);
    // Another algorithm starts afresh.
    limiter.set_rule(FixedWindow::new(3, Duration::from_secs(1), Align::First).unwrap());
    assert_eq!(limiter.check("alice").status.remaining, 2);
    assert_eq!(limiter.check("alice").status.remaining, 1);
}

/// The wait of a denial is that of the numbers in force, and the key passes when it is over. Without a conversion, the key
/// would refill by its old numbers until it is charged.
#[test]
fn a_denied_key_refills_by_the_numbers_in_force() {
    let hour = Duration::from_secs(3600);
    let second = Duration::from_secs(1);
    let per_hour = || Rate::per_hour(1).unwrap();
    let window = |limit, span| Rule::from(FixedWindow::new(limit, span, Align::First).unwrap());
    let log = |limit, span| Rule::from(SlidingLog::new(limit, span).unwrap());
    let counter = |limit, span| Rule::from(SlidingCounter::new(limit, span, 4, Mode::Strict).unwrap());
    let leaky = |rate, queue| Rule::from(LeakyBucket::new(rate, queue).unwrap());
    let credits = |rate: Rate, peak| Rule::from(BurstCredits::new(rate, peak, 10).unwrap());
    let pairs: [(Rule, Rule); 6] = [
        (TokenBucket::new(per_hour(), 10).unwrap().into(), bucket(10, 10).into()),
        // Requests that wait in a queue keep their turns, so the queue empties no sooner.
        (leaky(Rate::per_second(5).unwrap(), 10), leaky(Rate::per_second(10).unwrap(), 10)),
        (window(10, hour), window(10, second)),
        (log(10, hour), log(10, second)),
        (counter(10, hour), counter(10, second)),
        (
            credits(per_hour(), Rate::per_hour(10).unwrap()),
            credits(Rate::per_second(5).unwrap(), Rate::per_second(10).unwrap()),
        ),
    ];
    for (old, new) in pairs {
        for is_moved in [false, true] {
            let limiter = KeyedLimiter::builder(old).clock(Clock::manual()).build();
            limiter.clock().advance(hour); // counters are aligned: begin at the start of one
            let companion = limiter.another(bucket(1, 1));
            assert!(limiter.ask("acme").cost(10).check().is_allowed());
            let tier = if is_moved {
                limiter.add_tier(new)
            } else {
                limiter.set_rule(new);
                limiter.base_tier().clone()
            };
            let ask = || limiter.ask("acme").only_tier(&tier);
            // Looking, or being denied by another limit or for ever, converts nothing.
            let _ = (ask().cost(0).check(), ask().cost(11).check(), ask().peek());
            // In a plan, as most requests of a policy are.
            let (verdict, [decision, _]) = KeyedLimiter::check_all([ask(), companion.ask("acme")]);
            assert!(!verdict.is_allowed(), "{new:?}");
            let wait = Duration::from(decision.retry_after().unwrap());
            assert!(wait <= 2 * second, "{wait:?} by {new:?}");
            // Denials in between do not put it off.
            limiter.clock().advance(wait / 2);
            assert!(!ask().check().is_allowed(), "{new:?}");
            limiter.clock().advance(wait - wait / 2);
            assert!(ask().check().is_allowed(), "after {wait:?} by {new:?}, moved: {is_moved}");
        }
    }
}

/// A key that several tiers share stays with the tier that last charged it, also when the numbers of that tier have changed. A
/// denial under a short window would otherwise end a long one.
#[test]
fn a_denial_under_another_tier_does_not_take_a_key_whose_numbers_changed() {
    let window = |span| FixedWindow::new(2, span, Align::First).unwrap();
    let hour = Duration::from_secs(3600);
    let limiter = KeyedLimiter::builder(window(Duration::from_secs(2))).clock(Clock::manual()).build();
    let pro = limiter.add_tier(window(hour));
    assert!(limiter.ask("x").tier(&pro).cost(2).check().is_allowed());
    limiter.set_tier(&pro, window(2 * hour));
    assert!(!limiter.check("x").is_allowed());
    limiter.clock().advance(Duration::from_secs(3));
    assert!(!limiter.ask("x").tier(&pro).check().is_allowed());
}

/// Asking under numbers that a key has not been charged by must not leave it under them.
#[test]
fn a_peek_or_a_denial_under_another_tier_changes_nothing() {
    let hour = Duration::from_secs(3600);
    let second = Duration::from_secs(1);
    let window = |limit, span| FixedWindow::new(limit, span, Align::First).unwrap();
    let pairs: [(Rule, Rule); 4] = [
        (TokenBucket::new(Rate::per_hour(100).unwrap(), 100).unwrap().into(), bucket(10, 10).into()),
        (window(100, hour).into(), window(10, second).into()),
        (SlidingLog::new(100, hour).unwrap().into(), SlidingLog::new(10, second).unwrap().into()),
        (TokenBucket::new(Rate::per_hour(100).unwrap(), 100).unwrap().into(), window(10, second).into()),
    ];
    for (base, other) in pairs {
        let limiter = KeyedLimiter::builder(base).clock(Clock::manual()).build();
        let tier = limiter.add_tier(other);
        let companion = limiter.another(bucket(1, 1));
        assert!(companion.check("spent").is_allowed());
        let mut admitted = 0;
        while limiter.clock().now() < at(600 * S) {
            while limiter.check("alice").is_allowed() {
                admitted += 1;
            }
            let before = limiter.peek("alice");
            let _ = limiter.ask("alice").tier(&tier).cost(0).check();
            let _ = limiter.ask("alice").tier(&tier).cost(11).check();
            let (denied, _) =
                KeyedLimiter::check_all([limiter.ask("alice").tier(&tier), companion.ask("spent").cost(2)]);
            assert!(!denied.is_allowed());
            assert_eq!(limiter.peek("alice"), before, "{base:?}");
            limiter.clock().advance(Duration::from_secs(2));
        }
        assert!(admitted <= 100 + 17, "{admitted} by {base:?}");
    }
}

#[test]
fn a_key_named_under_two_tiers_in_one_plan_pays_for_both_under_the_first() {
    let window: Rule = FixedWindow::new(10, Duration::from_secs(60), Align::First).unwrap().into();
    for (first, second) in [(bucket(1, 10).into(), window), (window, bucket(1, 10).into()), (window, window)]
    {
        let limiter = KeyedLimiter::builder(first).clock(Clock::manual()).build();
        let tier = limiter.add_tier(second);
        let plan =
            || KeyedLimiter::check_all([limiter.ask("a"), limiter.ask("a").tier(&tier)]).0.is_allowed();
        assert_eq!((0..100).filter(|_| plan()).count(), 5);
        assert!(!limiter.check("a").is_allowed());
    }
}

#[test]
fn windows_begin_on_the_minute_of_the_day() {
    let minute = Duration::from_secs(60);
    let clock = Clock::manual_from(Duration::from_secs(1_000_000_015)); // 55 seconds into one
    let limiter =
        KeyedLimiter::builder(FixedWindow::new(10, minute, Align::Epoch).unwrap()).clock(clock).build();
    assert_eq!(limiter.check("a").status.reset_after, Duration::from_secs(5));
    let counter = limiter.add_tier(SlidingCounter::new(10, minute, 1, Mode::Interpolate).unwrap());
    assert_eq!(limiter.ask("b").tier(&counter).check().status.reset_after, Duration::from_secs(65));
    let first = limiter.add_tier(FixedWindow::new(10, minute, Align::First).unwrap());
    assert_eq!(limiter.ask("c").tier(&first).check().status.reset_after, minute);
    // Set again, as a reload would, it is the same rule.
    limiter.set_rule(FixedWindow::new(10, minute, Align::Epoch).unwrap());
    assert_eq!(limiter.peek("a").remaining, 9);
}

/// Looking through all rules after each change, for some that nobody uses, would take minutes here.
/// At its bound a table must not turn newcomers away for keys that nobody can ask for.
#[test]
fn debug_does_not_print_the_table() {
    let limiter = KeyedLimiter::new(bucket(1, 10));
    (0..10_000).for_each(|key| _ = limiter.check(&key));
    assert!(format!("{limiter:?}{:?}", limiter.ask("a")).len() < 1000);
}

#[test]
fn limiters_of_one_table_are_charged_together_or_not_at_all() {
    let users = KeyedLimiter::builder(bucket(1, 1)).clock(Clock::manual()).build();
    let tenants = users.another(bucket(10, 10));
    let ask = || [users.ask("alice"), tenants.ask("acme")];
    assert!(KeyedLimiter::check_all(ask()).0.is_allowed());
    for _ in 0..4 {
        let (verdict, [user, tenant]) = KeyedLimiter::check_all(ask());
        assert_eq!(verdict.reported, Some(0));
        assert!(!user.is_allowed() && tenant.is_allowed());
        assert_eq!(tenant.status.remaining, 9);
    }
    // The same key of both is two keys; the same key twice pays twice.
    assert!(KeyedLimiter::check_all([users.ask("acme"), tenants.ask("alice")]).0.is_allowed());
    // Each is decided after those before it.
    let twice = |costs: [u64; 2]| KeyedLimiter::check_all(costs.map(|cost| tenants.ask("acme").cost(cost)));
    let (verdict, decisions) = twice([5, 5]);
    assert!(!verdict.is_allowed());
    assert_eq!(decisions.map(|decision| decision.is_allowed()), [true, false]);
    let (verdict, decisions) = twice([5, 4]);
    assert!(verdict.is_allowed());
    assert_eq!(decisions.map(|decision| decision.status.remaining), [4, 0]);
}

/// A request that is charged in full is charged whatever the others say, and they are charged only together.
#[test]
fn a_request_in_full_is_charged_also_where_the_plan_is_denied() {
    let usage =
        KeyedLimiter::builder(FixedWindow::new(1000, Duration::from_secs(3600), Align::First).unwrap())
            .clock(Clock::manual())
            .build();
    let calls = usage.another(bucket(1, 2));
    let check = |cost| {
        let requests = [usage.ask("acme").cost(cost).action(Action::ChargeInFull), calls.ask("acme")];
        let (verdict, [usage, calls]) = KeyedLimiter::check_all(requests);
        (verdict.is_allowed(), usage.status.remaining, calls.status.remaining)
    };
    assert_eq!(check(900), (true, 100, 1));
    assert_eq!(check(300), (false, 0, 1)); // counted, though it goes beyond the limit
    assert_eq!(check(0), (false, 0, 1)); // above the limit
    usage.clock().advance(Duration::from_secs(3600));
    assert_eq!(check(1000), (true, 0, 1));
    assert_eq!(check(0), (true, 0, 0)); // at exactly the limit
    // The other denies, and this one is counted all the same; the same key twice, one after the other.
    assert_eq!(check(1), (false, 0, 0));
    let twice = [
        usage.ask("bob").cost(900).action(Action::ChargeInFull),
        usage.ask("bob").cost(300).action(Action::ChargeInFull),
    ];
    let (verdict, decisions) = KeyedLimiter::check_all(twice);
    assert!(!verdict.is_allowed());
    assert_eq!(decisions.map(|decision| decision.is_allowed()), [true, false]);
    let over = usage.ask("bob").cost(0).action(Action::ChargeInFull).check();
    assert_eq!(over.retry_after().map(Duration::from), Some(Duration::from_secs(3600)));
}

#[test]
fn a_batch_decides_as_its_requests_would_one_by_one() {
    let new = || {
        let first = KeyedLimiter::builder(bucket(5, 10)).clock(Clock::manual()).build();
        let second = first.another(FixedWindow::new(7, Duration::from_secs(1), Align::First).unwrap());
        [first, second]
    };
    let (batched, single) = (new(), new());
    let mut random = Random::new(6);
    let mut now = 0;
    for size in (0..100).cycle().take(5000) {
        now += random.log_uniform(0, 1000 * MS);
        // Few keys, so that many a batch names one several times.
        let asked: Vec<_> = (0..size).map(|_| (random.below(2), random.below(60), random.below(4))).collect();
        let requests: Vec<_> = asked
            .iter()
            .map(|(limiter, key, cost)| batched[*limiter as usize].ask(key).cost(*cost))
            .collect();
        let mut decisions = vec![Decision::default(); size];
        KeyedLimiter::check_each_at(&requests, at(now), &mut decisions);
        for ((limiter, key, cost), decision) in asked.iter().zip(decisions) {
            assert_eq!(decision, single[*limiter as usize].ask(key).cost(*cost).check_at(at(now)));
        }
    }
}

/// The order of locks, and what is done before the last of them, changes no decision.
#[test]
fn plans_decide_alike_whichever_shards_are_busy() {
    let hour = Duration::from_secs(3600);
    let new = || {
        let users = KeyedLimiter::builder(bucket(5, 10)).clock(Clock::manual()).build();
        let windows = users.another(FixedWindow::new(7, hour, Align::First).unwrap().counting_denied());
        let logs = users.another(SlidingLog::new(30, Duration::from_secs(1)).unwrap());
        let everybody = users.another(bucket(50, 100));
        [users, windows, logs, everybody]
    };
    let (busy, calm) = (new(), new());
    let mut random = Random::new(8);
    let (mut now, mut denied) = (0, 0);
    for step in 0..100_000 {
        now += random.log_uniform(0, 200 * MS);
        if random.below(10) == 0 {
            busy[0].table.mark_busy_at_random(|| random.below(2) == 0);
        }
        let len = 1 + random.below(6);
        let asked: Vec<_> =
            (0..len).map(|_| (random.below(4) as usize, random.below(5), 1 + random.below(3))).collect();
        let decide = |limiters: &[KeyedLimiter; 4]| {
            let ask = |(limiter, key, cost): &(usize, u64, u64)| match limiter {
                3 => limiters[3].ask("all").cost(*cost),
                limiter => limiters[*limiter].ask(key).cost(*cost),
            };
            let requests: Vec<_> = asked.iter().map(ask).collect();
            let mut decisions = vec![Decision::default(); requests.len()];
            let verdict = KeyedLimiter::check_all_at(&requests, at(now), &mut decisions);
            (verdict, decisions)
        };
        let expected = decide(&calm);
        assert_eq!(decide(&busy), expected, "step {step}: {asked:?}");
        denied += usize::from(!expected.0.is_allowed());
    }
    assert!((10_000..90_000).contains(&denied), "{denied} denied");
}

/// One request in 1024 looks at some keys beside its own.
#[test]
fn keys_that_are_no_longer_used_are_forgotten_while_only_others_are_asked_for() {
    let limiter = KeyedLimiter::builder(bucket(1, 10)).clock(Clock::manual()).build();
    (0..100_000).for_each(|key| _ = limiter.check(&key));
    let (keys, bytes) = (limiter.stats().keys, limiter.stats().bytes);
    assert_eq!(keys, 100_000);
    let mut requests = 0;
    while limiter.stats().keys > 100_000 / 10 {
        for known in 0..1000 {
            limiter.clock().advance(Duration::from_millis(100));
            let _ = limiter.check(&known);
        }
        requests += 1000;
        assert!(requests < 4_000_000, "{:?}", limiter.stats());
    }
    assert!(limiter.stats().bytes < bytes / 4, "{} bytes of {bytes}", limiter.stats().bytes);
    assert!(limiter.stats().most_touched <= 4096);
}

#[test]
fn a_batch_of_keys_is_a_batch_of_their_requests() {
    let limiter = KeyedLimiter::builder(bucket(1, 1)).clock(Clock::manual()).build();
    let keys = ["alice", "bob", "", "alice"];
    let decisions = KeyedLimiter::check_each(limiter.ask_each(keys));
    assert_eq!(decisions.map(|decision| decision.is_allowed()), [true, true, true, false]);
    assert!(keys.iter().all(|key| !limiter.check(*key).is_allowed()));
    assert!(KeyedLimiter::check_each([]).is_empty());
}

#[test]
#[should_panic = "must be of one table"]
fn limiters_of_different_tables_cannot_be_asked_together() {
    let (one, other) = (KeyedLimiter::new(bucket(1, 1)), KeyedLimiter::new(bucket(1, 1)));
    let _ = KeyedLimiter::check_all([one.ask("a"), other.ask("a")]);
}

#[test]
fn a_peek_and_a_denial_leave_no_trace() {
    let limiter = KeyedLimiter::builder(bucket(1, 5)).clock(Clock::manual()).build();
    assert_eq!(limiter.peek("alice").remaining, 5);
    assert!(limiter.ask("alice").cost(0).check().is_allowed());
    assert!(!limiter.ask("alice").cost(6).check().is_allowed());
    assert_eq!(limiter.stats().keys, 0);
    let _ = limiter.check("alice");
    assert_eq!(limiter.stats().keys, 1);
    assert!(limiter.reset("alice"));
    assert!(!limiter.reset("alice"));
    assert_eq!(limiter.peek("alice").remaining, 5);
}

#[test]
fn a_permit_is_given_back_when_dropped() {
    let clock = Clock::manual();
    let rule = tollgate_core::Concurrency::new(2, Some(Duration::from_secs(30))).unwrap();
    let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
    let (first, second) = (limiter.ask("a").acquire().unwrap(), limiter.ask("a").acquire().unwrap());
    assert!(limiter.ask("a").acquire().is_err());
    assert!(!limiter.check("a").is_allowed()); // and looking at it holds nothing
    drop(first);
    let third = limiter.ask("a").acquire().unwrap();
    // A lease that has ended is somebody else's by now: giving it back late frees nobody.
    clock.advance(tollgate_core::Nanos::new(30 * S));
    let (fourth, fifth) = (limiter.ask("a").acquire().unwrap(), limiter.ask("a").acquire().unwrap());
    drop((second, third));
    assert!(limiter.ask("a").acquire().is_err());
    drop((fourth, fifth));
    assert_eq!(limiter.peek("a").remaining, 2);
}

#[test]
fn a_permit_given_back_by_hand_tells_whether_it_was_held() {
    let clock = Clock::manual();
    let rule = tollgate_core::Concurrency::new(2, Some(Duration::from_secs(30))).unwrap();
    let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
    let acquire = || limiter.ask("a").acquire().unwrap();
    let (first, second) = (acquire(), acquire());
    assert!(first.release());
    assert_eq!(limiter.peek("a").remaining, 1);
    limiter.reset("a");
    assert!(!second.release());
    let third = acquire();
    clock.advance(tollgate_core::Nanos::new(30 * S));
    assert!(!third.release());
    let sole = crate::Limiter::with_clock(rule, clock);
    assert!(sole.acquire().unwrap().release());
    assert_eq!(sole.remaining(), 2);
}

#[test]
fn a_preview_answers_as_a_check_and_changes_nothing() {
    for (seed, rule) in rules().into_iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
        let other = limiter.add_tier(rules()[(seed + 1) % rules().len()]);
        let mut now = 0;
        for i in 0..20_000 {
            now += random.log_uniform(0, 500 * MS);
            let mut request = limiter.ask(&random.below(50)).cost(random.below(12));
            if random.below(5) == 0 {
                request = request.tier(&other);
            }
            let (before, keys) = (request.peek_at(at(now)), limiter.stats().keys);
            let preview = request.preview_at(at(now));
            assert_eq!((preview.status, request.peek_at(at(now))), (before, before), "step {i}");
            assert_eq!(limiter.stats().keys, keys);
            let decision = request.check_at(at(now));
            assert_eq!(preview.outcome, decision.outcome, "step {i}, {rule:?}");
        }
    }
}

#[test]
fn a_plan_holds_a_place_for_each_request_to_a_concurrency_limit() {
    let rates = KeyedLimiter::builder(bucket(1, 10)).clock(Clock::manual()).build();
    let flights = rates.another(tollgate_core::Concurrency::new(5, None).unwrap());
    let hold = |requests: &[Request<'_>]| {
        let mut decisions = vec![Decision::default(); requests.len()];
        let requests = requests.iter().map(|request| request.action(Action::Hold));
        let permits = KeyedLimiter::decide_at(requests, at(0), |i, decision| decisions[i] = decision);
        (Verdict::of(decisions.into_iter().map(|decision| (Group::All, decision))), permits)
    };
    // A key that is named twice holds two places, each given back by its own permit; a look holds none.
    let (verdict, permits) = hold(&[
        flights.ask("a").cost(0),
        rates.ask("a"),
        flights.ask("a").cost(2),
        flights.ask("b"),
        flights.ask("a"),
    ]);
    assert!(verdict.is_allowed());
    assert_eq!((permits.len(), flights.remaining("a"), flights.remaining("b")), (3, 2, 4));
    let left = permits.into_iter().map(|permit| {
        assert!(permit.release());
        (flights.remaining("a"), flights.remaining("b"))
    });
    assert_eq!(left.collect::<Vec<_>>(), [(4, 4), (4, 5), (5, 5)]);
    // Together they are too many: nothing is held, and the rate is not charged.
    let (verdict, permits) = hold(&[rates.ask("a"), flights.ask("a").cost(3), flights.ask("a").cost(3)]);
    assert!(!verdict.is_allowed() && permits.is_empty());
    assert_eq!((rates.remaining("a"), flights.remaining("a")), (9, 5));
    // What is only looked at holds nothing either.
    let (verdict, permits) = hold(&[flights.ask("a").cost(0)]);
    assert!(verdict.is_allowed() && permits.is_empty());
    let queue = rates.another(LeakyBucket::new(Rate::per_second(10).unwrap(), 3).unwrap());
    let (_, permits) = hold(&[queue.ask("q"), flights.ask("a")]);
    let (verdict, more) = hold(&[queue.ask("q"), flights.ask("a")]);
    assert_eq!((verdict.delay(), permits.len(), more.len()), (tollgate_core::Nanos::new(100 * MS), 1, 1));
}
