//! What every algorithm promises, whatever its numbers.

use tollgate_core::{Nanos, Outcome, PermitId, Retry, Rule, State, Timestamp};
use tollgate_testkit::{Random, Trace};

use super::refunds::Charges;
use super::rules::{KINDS, random_rule};

const NOBODY: PermitId = PermitId(0);

/// Walks a random trace over keys of every kind of rule, in which charges are also given back, and calls
/// `check` with the state before each step.
pub(crate) fn on_any_trace(runs: u64, mut check: impl FnMut(&str, &Rule, &State, u64, Timestamp)) {
    for seed in 0..runs * tollgate_testkit::effort() {
        let mut random = Random::new(seed);
        let (rule, scale) = random_rule(seed % KINDS, &mut random);
        let mut trace = Trace::new(seed, scale, rule.capacity()).longest_idle(1 << 55);
        let mut state = State::default();
        let mut charges = Charges::new(seed);
        for i in 0..500 {
            let step = trace.next().unwrap();
            let now = Timestamp::from_nanos(step.now);
            check(&format!("seed {seed}, step {i}: {step:?} on {rule:?}"), &rule, &state, step.cost, now);
            if let Some(charge) = charges.give_back() {
                rule.refund(&mut state, charge.cost, Timestamp::from_nanos(charge.now), now);
                continue;
            }
            match rule.test(&state, step.cost, now) {
                Outcome::Allow { .. } => {
                    rule.spend(&mut state, NOBODY, step.cost, now);
                    charges.add(step);
                }
                Outcome::Deny { retry: Retry::After(wait) } => trace.hint(wait.get()),
                Outcome::Deny { .. } => {}
            }
        }
    }
}

#[test]
fn retry_is_exact() {
    let mut denials = 0_u64;
    on_any_trace(2000, |at, rule, state, cost, now| {
        let Outcome::Deny { retry: Retry::After(wait) } = rule.test(state, cost, now) else {
            return;
        };
        denials += 1;
        let then = now.after(wait);
        let before = Timestamp::from_nanos(then.as_nanos() - 1);
        assert!(!wait.is_zero(), "{at}: denied for no time");
        assert!(rule.test(state, cost, then).is_allowed(), "{at}: still denied after {wait:?}");
        let early = rule.test(state, cost, before);
        let one = Outcome::Deny { retry: Retry::After(Nanos::new(1)) };
        assert_eq!(early, one, "{at}: a nanosecond before {wait:?} is over");
    });
    assert!(denials > 100_000, "{denials}");
}

#[test]
fn cost_zero_and_cost_above_capacity_are_settled() {
    on_any_trace(1000, |at, rule, state, _, now| {
        assert_eq!(rule.test(state, 0, now), Outcome::ALLOW, "{at}");
        let mut peeked = state.clone();
        rule.spend(&mut peeked, NOBODY, 0, now);
        // A peek may give an absent key a state, but not one that anybody could tell from none.
        assert_eq!(rule.status(&peeked, now), rule.status(state, now), "{at}");
        if *state != State::Unused {
            assert_eq!(peeked, *state, "{at}");
        }
        let never = Outcome::Deny { retry: Retry::Never };
        assert_eq!(rule.test(state, rule.capacity() + 1, now), never, "{at}");
        assert_eq!(rule.test(state, u64::MAX, now), never, "{at}");
    });
}

#[test]
fn nothing_breaks_at_the_ends_of_time_or_of_cost() {
    let ends = [0, 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let (rule, _) = random_rule(seed % KINDS, &mut random);
        let (other, _) = random_rule(seed % KINDS, &mut random);
        let mut state = State::default();
        for _ in 0..200 {
            let now = Timestamp::from_nanos(*random.pick(&ends));
            let cost = *random.pick(&[0, 1, 2, rule.capacity(), rule.capacity() + 1, u64::MAX]);
            if rule.test(&state, cost, now).is_allowed() {
                rule.spend(&mut state, NOBODY, cost, now);
            }
            assert!(rule.status(&state, now).remaining <= rule.capacity());
            // Whatever is asked, also by those who made no such charge.
            let (cost, charged) = (random.bits(), Timestamp::from_nanos(*random.pick(&ends)));
            rule.refund(&mut state, cost >> random.below(64), charged, now);
            assert!(rule.status(&state, now).remaining <= rule.capacity());
            let mut converted = state.clone();
            other.convert(&rule, &mut converted, now);
            assert!(other.status(&converted, now).remaining <= other.capacity());
        }
    }
}

#[test]
fn remaining_is_what_still_passes_at_once() {
    on_any_trace(1000, |at, rule, state, _, now| {
        let remaining = rule.status(state, now).remaining;
        assert!(remaining <= rule.capacity(), "{at}");
        // One request waits in one place, whatever it costs. And of a token bucket, those who may wait pass
        // beyond what remains.
        if matches!(rule, Rule::TokenBucketMaxWait(_) | Rule::LeakyBucketMaxWait(_)) {
            assert_eq!(remaining, passed_one_by_one(rule, state, now), "{at}");
            return;
        }
        assert!(rule.test(state, remaining, now).is_allowed(), "{at}: {remaining} remain");
        assert!(!rule.test(state, remaining + 1, now).is_allowed(), "{at}: {remaining} remain");
    });
}

/// How many requests of cost 1 pass, of a token bucket without having to wait.
fn passed_one_by_one(rule: &Rule, state: &State, now: Timestamp) -> u64 {
    let mut state = state.clone();
    let mut passes = || match rule.test(&state, 1, now) {
        Outcome::Allow { delay } if delay.is_zero() || matches!(rule, Rule::LeakyBucketMaxWait(_)) => {
            rule.spend(&mut state, NOBODY, 1, now);
            true
        }
        _ => false,
    };
    (0..).take_while(|_| passes()).count() as u64
}

#[test]
fn an_unused_key_is_as_an_absent_one() {
    let mut unused = 0;
    on_any_trace(1000, |at, rule, state, cost, now| {
        let later = now.after(rule.status(state, now).reset_after);
        for now in [now, later] {
            if rule.is_unused(state, now) {
                unused += 1;
                assert_eq!(rule.test(state, cost, now), rule.test(&State::default(), cost, now), "{at}");
                assert_eq!(rule.status(state, now), rule.status(&State::default(), now), "{at}");
            }
        }
        assert!(rule.is_unused(state, later), "{at}: used at {later:?}");
        if later > now {
            let before = Timestamp::from_nanos(later.as_nanos() - 1);
            assert!(!rule.is_unused(state, before), "{at}: unused before its reset");
        }
    });
    assert!(unused > 100_000, "{unused}");
}
