use std::time::Duration;

use tollgate_core::{
    Align, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Mode, Nanos, Outcome, Rate,
    SlidingCounter, SlidingLog, TokenBucket,
};
use tollgate_testkit::Random;

use super::*;

const MS: u64 = 1_000_000;

fn rate(per_second: u64) -> Rate {
    Rate::per_second(per_second).unwrap()
}

fn bucket(per_second: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(rate(per_second), burst).unwrap()
}

/// One rule of each kind that is charged without a permit.
fn rules() -> Vec<Rule> {
    let second = Duration::from_secs(1);
    vec![
        bucket(5, 10).into(),
        bucket(3, 7).into(),
        LeakyBucket::new(rate(5), 10).unwrap().into(),
        MaxWait::new(bucket(5, 10), second, 20).unwrap().into(),
        FixedWindow::new(10, second, Align::Epoch).unwrap().into(),
        SlidingLog::new(10, second).unwrap().into(),
        SlidingCounter::new(10, second, 4, Mode::Strict).unwrap().into(),
        BurstCredits::new(rate(5), rate(50), 40).unwrap().into(),
    ]
}

/// Also while the rule in force changes, to others of its kind and to all other kinds.
#[test]
fn decides_as_the_rule_would_alone() {
    let rules = rules();
    for (seed, &first) in rules.iter().enumerate() {
        let mut random = Random::new(seed as u64);
        let limiter = Limiter::with_clock(first, Clock::manual());
        let (mut rule, mut state) = (first, State::Unused);
        for i in 0..200_000 {
            limiter.clock().advance(Nanos::new(random.log_uniform(0, 500 * MS)));
            let (cost, now) = (random.below(4), limiter.clock().now());
            // The first rule is left in force for long, so that the way without a lock is taken too.
            if i > 100_000 && random.below(10) == 0 {
                let new = rules[random.below(rules.len() as u64) as usize];
                new.convert(&rule, &mut state, now);
                rule = new;
                limiter.set_rule(new);
            }
            let expected = rule.decide(&mut state, PermitId(0), cost, now);
            assert_eq!(limiter.check_n(cost), expected, "step {i}: cost {cost} at {now:?}, {rule:?}");
            assert_eq!(limiter.peek(), rule.status(&state, now), "step {i}");
            if random.below(10) == 0 {
                let (cost, charged) =
                    (random.below(4), Timestamp::from_nanos(now.as_nanos().saturating_sub(MS)));
                let expected = rule.refund(&mut state, cost, charged, now);
                assert_eq!(limiter.refund(cost, charged), expected, "step {i}");
            }
            if random.below(1000) == 0 {
                state = State::Unused;
                limiter.reset();
            }
        }
    }
}

#[test]
fn setting_the_same_rule_changes_nothing() {
    let limiter = Limiter::with_clock(bucket(5, 10), Clock::manual());
    let _ = limiter.check_n(4);
    limiter.set_rule(bucket(5, 10));
    assert_eq!(limiter.remaining(), 6);
}

#[test]
fn zero_full_late_and_never_are_settled() {
    let limiter = Limiter::with_clock(bucket(1, 2), Clock::manual());
    limiter.clock().advance(Nanos::new(1000 * MS));
    assert!(limiter.check_n(0).is_allowed());
    assert_eq!(limiter.peek().reset_after, Nanos::ZERO);
    assert_eq!(limiter.check_n(3).outcome, Outcome::NEVER);
    assert_eq!(limiter.check_n(u64::MAX).outcome, Outcome::NEVER);
    assert!(limiter.check_n(2).is_allowed());
    assert!(limiter.check_n(0).is_allowed());
    // A clock behind by a second waits for it, and gains nothing.
    let late = limiter.check_at(Timestamp::from_nanos(0));
    assert_eq!(late.outcome.retry_after().unwrap().get(), 2000 * MS);
    assert_eq!(limiter.check().outcome.retry_after().unwrap().get(), 1000 * MS);
}

#[test]
fn a_permit_counts_until_it_is_dropped_or_its_lease_ends() {
    let rule = Concurrency::new(2, Some(Duration::from_secs(30))).unwrap();
    let limiter = Limiter::with_clock(rule, Clock::manual());
    let (first, second) = (limiter.acquire().unwrap(), limiter.acquire().unwrap());
    let denied = limiter.acquire().unwrap_err();
    assert_eq!(denied.outcome.retry_after().unwrap().get(), 30_000 * MS);
    assert!(!limiter.check().is_allowed()); // and looking at it holds nothing
    drop(first);
    assert_eq!(limiter.remaining(), 1);
    // A lease that has ended is somebody else's by now: giving it back late frees nobody.
    limiter.clock().advance(Nanos::new(30_000 * MS));
    let _others = limiter.acquire_n(2).unwrap();
    drop(second);
    assert_eq!(limiter.remaining(), 0);
    // Nor does a permit of a rule that is gone.
    limiter.set_rule(bucket(1, 1));
    drop(limiter.acquire().unwrap());
    assert_eq!(limiter.remaining(), 0);
}

#[test]
fn a_word_that_means_sealed_is_never_stored() {
    let limiter = Limiter::new(bucket(1, 1));
    // One nanosecond a piece, a second ahead: the schedule would end on the very word.
    let now = Timestamp::from_nanos(u64::MAX - 1 - 1000 * MS);
    assert!(limiter.check_at(now).is_allowed());
    let denied = limiter.check_at(now);
    assert_eq!(denied.outcome.retry_after().unwrap().get(), 1000 * MS + 1);
}

#[test]
fn a_permit_is_not_given_for_later() {
    let limiter = Limiter::with_clock(LeakyBucket::new(rate(1), 5).unwrap(), Clock::manual());
    assert!(limiter.acquire().is_ok());
    let denied = limiter.acquire().unwrap_err();
    assert_eq!(denied.retry_after(), Some(Nanos::new(1000 * MS)));
    assert_eq!(limiter.peek().reset_after, Nanos::new(1000 * MS)); // and no place is taken
}
