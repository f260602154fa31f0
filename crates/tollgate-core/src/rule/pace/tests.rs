#![allow(clippy::unwrap_used)]

use tollgate_testkit::Random;

use super::*;
use crate::adaptive::{Load, RateMultiplier, VirtualClock};
use crate::table::*;
use crate::{
    Align, BucketParts, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Outcome, PermitId,
    Rate, Retry, SlidingLog, Status, TokenBucket, WaitParts,
};

fn bucket(rate: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(per_second(rate), burst).unwrap()
}

/// The pace after intervals of high load, then intervals of low load. `floor` is in thousandths.
fn pace(floor: u32, high: u64, low: u64) -> Pace {
    let mut multiplier = RateMultiplier::new(floor).unwrap();
    (0..high).for_each(|_| multiplier.observe(Load::High));
    (0..low).for_each(|_| multiplier.observe(Load::Low));
    multiplier.pace()
}

fn random_pace(floor: u32, random: &mut Random) -> Pace {
    pace(floor, random.below(12), random.below(6))
}

/// One rule of each kind that has a schedule.
fn schedules() -> Vec<Rule> {
    let queue = LeakyBucket::new(per_second(7), 5).unwrap();
    vec![
        bucket(100, 10).into(),
        bucket(7, 3).into(),
        bucket(997, 50).into(),
        queue.into(),
        MaxWait::new(bucket(7, 3), span(350 * MS), 3).unwrap().into(),
        MaxWait::new(queue, span(350 * MS), 3).unwrap().into(),
        BurstCredits::new(per_second(3), per_second(11), 20).unwrap().into(),
    ]
}

#[test]
fn ad_4_a_reduced_rate_keeps_the_burst() {
    let rule = Rule::from(bucket(100, 10));
    for (pace, interval) in [(pace(100, 3, 0), 19_531_250), (pace(500, 9, 0), 20 * MS), (Pace::FULL, 10 * MS)]
    {
        let (rule, mut key) = (rule.at_reduced_rate(pace), State::default());
        assert_eq!(rule.capacity(), 10);
        rule.spend(&mut key, PermitId(0), 10, at(0));
        assert_eq!(rule.test(&key, 1, at(0)), deny(interval), "{pace:?}");
        assert_eq!(rule.status(&key, at(0)).reset_after, Nanos::new(10 * interval));
        assert!(!rule.test(&key, 1, at(interval - 1)).is_allowed());
        assert_eq!(rule.test(&key, 1, at(interval)), ALLOW);
    }
}

#[test]
fn ad_4_a_change_of_the_rate_hands_out_nothing() {
    let full = Rule::from(bucket(100, 10));
    let half = full.at_reduced_rate(pace(500, 9, 0));
    let mut key = State::default();
    full.spend(&mut key, PermitId(0), 10, at(0));
    half.change_rate(&full, &mut key, at(0));
    assert_eq!((half.status(&key, at(0)).remaining, half.test(&key, 1, at(0))), (0, deny(20 * MS)));
    full.change_rate(&half, &mut key, at(0));
    assert_eq!((full.status(&key, at(0)).remaining, full.test(&key, 1, at(0))), (0, deny(10 * MS)));
    // Time that passes at a rate counts at this rate: five tokens, and half of the next one.
    half.change_rate(&full, &mut key, at(0));
    full.change_rate(&half, &mut key, at(110 * MS));
    assert_eq!(full.status(&key, at(110 * MS)).remaining, 5);
    assert_eq!(full.test(&key, 6, at(110 * MS)), deny(5 * MS));
}

#[test]
fn a_debt_stays_the_same_number_of_tokens_at_another_rate() {
    let full = Rule::from(bucket(100, 10));
    let half = full.at_reduced_rate(pace(500, 9, 0));
    let mut key = State::default();
    full.spend_in_full(&mut key, 14, at(0));
    half.change_rate(&full, &mut key, at(0));
    assert_eq!(half.test(&key, 1, at(0)), deny(5 * 20 * MS));
    // Five requests wait. At half the rate the last of them has twice the wait, which is longer than a new one may have.
    let full = Rule::from(MaxWait::new(bucket(100, 1), span(50 * MS), 9).unwrap());
    let half = full.at_reduced_rate(pace(500, 9, 0));
    let mut key = State::default();
    full.spend(&mut key, PermitId(0), 1, at(0));
    (0..5).for_each(|_| full.spend(&mut key, PermitId(0), 1, at(0)));
    half.change_rate(&full, &mut key, at(0));
    assert_eq!(half.test(&key, 1, at(0)), deny(70 * MS)); // 120 ms until its turn, of which it may wait 50
}

#[test]
fn windows_have_a_smaller_limit_and_permits_stay() {
    let minute = span(MIN);
    let half = pace(500, 9, 0);
    for (rule, limit) in [
        (Rule::from(FixedWindow::new(100, minute, Align::Epoch).unwrap()), 50),
        (Rule::from(SlidingLog::new(1, minute).unwrap()), 1),
        (Rule::from(Concurrency::new(100, None).unwrap()), 100),
    ] {
        let reduced = rule.at_reduced_rate(half);
        assert_eq!((reduced.capacity(), reduced), (limit, rule.at_pace(half)));
        let mut key = State::default();
        rule.spend(&mut key, PermitId(0), 1, at(0));
        let before = key.clone();
        reduced.change_rate(&rule, &mut key, at(0));
        assert_eq!(key, before);
    }
}

/// A store that keeps real times decides as one whose clock is slowed, if each key is carried over when the pace changes.
#[test]
fn a_reduced_rate_decides_as_a_slowed_clock_does() {
    // Rounding of at most some nanoseconds per step, of which all go against the caller.
    const OFF: u64 = 20_000;
    for (seed, rule) in schedules().into_iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let (mut clock, mut slowed, mut reduced) = (VirtualClock::default(), rule, rule);
        let (mut virtual_key, mut key, mut now) = (State::default(), State::default(), 1000 * S);
        let (mut denied, mut passed) = (0, 0);
        for step in 0..20_000 {
            now += random.log_uniform(0, 300 * MS);
            if random.chance(1, 10) {
                let pace = random_pace(100, &mut random);
                clock.set_pace(at(now), pace);
                slowed = rule.at_pace(pace);
                let old = std::mem::replace(&mut reduced, rule.at_reduced_rate(pace));
                reduced.change_rate(&old, &mut key, at(now));
            }
            let real = |wait: Nanos| clock.real_wait(at(now), wait).get();
            let is_near = |one: u64, other: u64| one.abs_diff(other) <= OFF;
            let cost = random.between(1, rule.capacity().div_ceil(3).max(3).min(rule.capacity()));
            let expected = slowed.test(&virtual_key, cost, clock.at(at(now)));
            let found = reduced.test(&key, cost, at(now));
            let context = format!("{rule:?}, step {step}: {found:?}, by the slowed clock {expected:?}");
            let is_same = match (found, expected) {
                (Outcome::Allow { delay }, Outcome::Allow { delay: expected }) => {
                    assert!(is_near(delay.get(), real(expected)), "{context}");
                    true
                }
                (
                    Outcome::Deny { retry: Retry::After(wait) },
                    Outcome::Deny { retry: Retry::After(expected) },
                ) => {
                    assert!(is_near(wait.get(), real(expected)), "{context}");
                    denied += 1;
                    true
                }
                // Within what is rounded, one may allow and the other deny. Such a step is not charged.
                (Outcome::Deny { retry: Retry::After(wait) }, Outcome::Allow { .. }) => {
                    assert!(wait.get() <= OFF, "{context}");
                    false
                }
                (Outcome::Allow { .. }, Outcome::Deny { retry: Retry::After(wait) }) => {
                    assert!(real(wait) <= OFF, "{context}");
                    false
                }
                (found, expected) => {
                    assert_eq!(found, expected, "{context}");
                    true
                }
            };
            let left = |now: u64| -> Status { slowed.status(&virtual_key, clock.at(at(now))) };
            let status = reduced.status(&key, at(now));
            let near = left(now - OFF).remaining..=left(now + OFF).remaining;
            assert!(near.contains(&status.remaining), "{context}: {status:?} is not in {near:?}");
            assert!(is_near(status.reset_after.get(), real(left(now).reset_after)), "{context}: {status:?}");
            if is_same && found.is_allowed() {
                reduced.spend(&mut key, PermitId(0), cost, at(now));
                slowed.spend(&mut virtual_key, PermitId(0), cost, clock.at(at(now)));
                passed += 1;
            }
        }
        assert!(denied > 500 && passed > 500, "{rule:?}: {denied} denied, {passed} passed");
    }
}

/// Two processes whose paces differ charge one key in turns.
#[test]
fn two_processes_at_two_paces_admit_no_more_than_the_faster_and_no_less_than_the_slower() {
    for (seed, rule) in schedules().into_iter().enumerate() {
        let mut random = Random::new(100 + seed as u64);
        for _ in 0..20 {
            let rules =
                [0, 1].map(|_| random_pace(1, &mut random)).map(|pace| (pace, rule.at_reduced_rate(pace)));
            let [slow, fast] = if rules[0].0 < rules[1].0 { rules } else { [rules[1], rules[0]] };
            let (mut key, mut written_by, mut now) = (State::default(), fast.1, S);
            let (mut only_fast, mut only_slow) = (State::default(), State::default());
            let mut admitted = [0_u64; 3]; // by the slow one alone, by both, by the fast one alone
            for step in 0..2000 {
                now += random.log_uniform(0, 500 * MS);
                let (_, process) = if random.chance(1, 2) { slow } else { fast };
                process.change_rate(&written_by, &mut key, at(now));
                written_by = process;
                // Each takes all it can get.
                for (i, (rule, key)) in
                    [(slow.1, &mut only_slow), (process, &mut key), (fast.1, &mut only_fast)]
                        .into_iter()
                        .enumerate()
                {
                    while rule.decide(key, PermitId(0), 1, at(now)).is_allowed() {
                        admitted[i] += 1;
                    }
                }
                let [at_slow, of_both, at_fast] = admitted;
                // A `max_wait` lets the faster one owe more units.
                let owed = if matches!(rule, Rule::TokenBucketMaxWait(_)) { 3 } else { 0 };
                assert!(of_both <= at_fast + owed, "{rule:?}, step {step}: {admitted:?}");
                assert!(of_both + 1 + owed >= at_slow, "{rule:?}, step {step}: {admitted:?}");
            }
        }
    }
}

/// However slow a pace and however large a bucket: the rule is valid, has the same burst, and is never faster.
#[test]
fn a_rate_is_reduced_as_far_as_a_schedule_can_hold_it() {
    let mut random = Random::new(3);
    for i in 0..20_000 {
        let per_nano = random.between(1, 64);
        let interval = random.log_uniform(1, 1 << 62);
        let capacity = random.log_uniform(1, (1 << 62) / interval);
        let bucket = BucketParts { interval, per_nano, capacity };
        let room = ((1_u64 << 62) - interval * capacity) / per_nano;
        let waits = (room > 0 && random.chance(1, 3))
            .then(|| WaitParts { max_wait: Nanos::new(random.log_uniform(1, room)), max_waiting: 3 });
        let parts = RuleParts::TokenBucket { bucket, keeps_arrival_time: false, waits };
        let rule = Rule::from_parts(&parts).unwrap();
        let pace = random_pace(1, &mut random);
        let reduced = rule.at_reduced_rate(pace);
        let RuleParts::TokenBucket { bucket: found, waits: found_waits, .. } = reduced.parts() else {
            panic!("{reduced:?}")
        };
        assert_eq!((found.capacity, found_waits), (capacity, waits));
        // found.interval / found.per_nano >= interval / per_nano / pace, in 128 bits.
        let billion = u128::from(Pace::FULL.billionths());
        let [is, was] = [(found.interval, per_nano), (interval, found.per_nano)]
            .map(|(interval, pieces)| u128::from(interval) * u128::from(pieces));
        let is_slow_enough = is * u128::from(pace.billionths()) >= was * billion;
        let years_146 = u128::from(found.interval + 1) * u128::from(capacity)
            + u128::from(waits.map_or(0, |waits| waits.max_wait.get()));
        assert!(
            is_slow_enough || (is >= was && years_146 > 1 << 62),
            "{i}: {parts:?} at {pace:?}: {found:?}"
        );
        // Less than a piece of the finest that fits is lost.
        if is_slow_enough && u128::from(interval) * u128::from(capacity) < 1 << 40 {
            let slack = u128::from(per_nano) * u128::from(pace.billionths());
            assert!(is * u128::from(pace.billionths()) <= was * billion + slack, "{i}: {found:?}");
        }
        let mut key = State::default();
        rule.spend_in_full(&mut key, 2 * capacity, at(S));
        reduced.change_rate(&rule, &mut key, at(S));
        assert_eq!(reduced.status(&key, at(S)).remaining, 0, "{i}: {parts:?} at {pace:?}: {found:?}");
    }
    let day = Rule::from(TokenBucket::new(Rate::new(1, span(DAY)).unwrap(), 50_000).unwrap());
    let least = day.at_reduced_rate(pace(1, 99, 0));
    assert_eq!(least.period().unwrap().as_secs_ceil() / (365 * 86_400), 146); // not 137 000 years
}
