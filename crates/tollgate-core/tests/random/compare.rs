//! One key of the core beside one key of an oracle.

use tollgate_core::{Algorithm, Timestamp};
use tollgate_testkit::oracle::Oracle;
use tollgate_testkit::{Trace, answer};

use crate::plain::answer;

/// Steps that each algorithm is compared on: a million in all, in runs of a thousand, each on a new key with
/// new numbers. A run that comes to the end of what its word can tell apart is followed by another.
pub(crate) const RUNS: u64 = 1000;
pub(crate) const STEPS: usize = 1000;

/// Compares step by step on `runs` keys, each with a rule, an oracle and a trace made from its seed.
pub(crate) fn compare<A, O>(runs: u64, make: impl Fn(u64) -> (A, O, Trace, u64))
where
    A: Algorithm + std::fmt::Debug,
    O: Oracle,
{
    let steps = runs * STEPS as u64 * crate::effort();
    let mut made = 0;
    for seed in 0.. {
        if made >= steps {
            return;
        }
        let (rule, mut oracle, mut trace, horizon) = make(seed);
        let mut state = A::State::default();
        for i in 0..STEPS {
            let step = trace.next().unwrap();
            if step.now > horizon {
                break;
            }
            made += 1;
            let before = state.clone();
            let decision = answer(rule.decide(&mut state, step.cost, Timestamp::from_nanos(step.now)));
            let expected = oracle.ask(step.now, step.cost);
            assert_eq!(decision, expected, "seed {seed}, step {i}: {step:?} on {rule:?}");
            if step.cost == 0 || !expected.allowed {
                assert_eq!(state, before, "seed {seed}, step {i}: {step:?} changed the state on {rule:?}");
            }
            if let Some(answer::Retry::After(wait)) = expected.retry {
                trace.hint(wait);
            }
        }
    }
}
