//! One key of the core beside one key of an oracle.

use tollgate_core::{Algorithm, Decision, Outcome, Timestamp};
use tollgate_testkit::oracle::Oracle;
use tollgate_testkit::{Trace, answer};

use super::plain::answer;
use super::refunds::Charges;

/// Steps that each algorithm is compared on: a million in all, in runs of a thousand, each on a new key with
/// new numbers. A run that comes to the end of what its word can tell apart is followed by another.
pub(crate) const RUNS: u64 = 1000;
pub(crate) const STEPS: usize = 1000;

/// Compares step by step on `runs` keys, each with a rule, an oracle and a trace made from its seed; then as
/// many steps again, of which a quarter are refunds.
pub(crate) fn compare<A, O>(runs: u64, make: impl Fn(u64) -> (A, O, Trace, u64))
where
    A: Algorithm + std::fmt::Debug,
    O: Oracle,
{
    for refunds in [false, true] {
        let steps = runs * STEPS as u64 * tollgate_testkit::effort();
        let mut made = 0;
        for seed in 0.. {
            if made >= steps {
                break;
            }
            made += run(seed, refunds, make(seed));
        }
    }
}

/// Compares on one key; how many steps were made before the horizon was reached.
fn run<A, O>(seed: u64, refunds: bool, (rule, mut oracle, mut trace, horizon): (A, O, Trace, u64)) -> u64
where
    A: Algorithm + std::fmt::Debug,
    O: Oracle,
{
    let mut state = A::State::default();
    let mut charges = Charges::new(seed);
    for i in 0..STEPS {
        let step = trace.next().unwrap();
        if step.now > horizon {
            return i as u64;
        }
        let now = Timestamp::from_nanos(step.now);
        let before = state.clone();
        if refunds && let Some(charge) = charges.give_back() {
            let given = rule.refund(&mut state, charge.cost, Timestamp::from_nanos(charge.now), now);
            let expected = oracle.refund(step.now, charge.cost, charge.now);
            let at = format!("seed {seed}, step {i}: {charge:?} given back at {now:?} on {rule:?}");
            assert_eq!(given, expected, "{at}");
            let status = answer(Decision { outcome: Outcome::ALLOW, status: rule.status(&state, now) });
            assert_eq!(status, oracle.would(step.now, 0), "{at}");
            if rule.is_unused(&before, now) {
                assert_eq!(state, before, "{at} changed an unused key");
            }
            continue;
        }
        let decision = answer(rule.decide(&mut state, step.cost, now));
        let expected = oracle.ask(step.now, step.cost);
        assert_eq!(decision, expected, "seed {seed}, step {i}: {step:?} on {rule:?}");
        if step.cost == 0 || (!expected.allowed && !rule.counts_denied()) {
            assert_eq!(state, before, "seed {seed}, step {i}: {step:?} changed the state on {rule:?}");
        }
        match expected.retry {
            None => charges.add(step),
            Some(answer::Retry::After(wait)) => trace.hint(wait),
            Some(_) => {}
        }
    }
    STEPS as u64
}
