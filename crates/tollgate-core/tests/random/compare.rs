//! One key of the core beside one key of an oracle.

use tollgate_core::{Algorithm, Timestamp};
use tollgate_testkit::oracle::Oracle;
use tollgate_testkit::{Trace, answer};

use crate::plain::answer;

/// Steps that each algorithm is compared on: a million, in runs on a new key with new numbers.
pub(crate) const RUNS: u64 = 1000;
pub(crate) const STEPS: usize = 1000;

/// Compares step by step on `runs` keys, each with a rule, an oracle and a trace made from its seed.
pub(crate) fn compare<A, O>(runs: u64, make: impl Fn(u64) -> (A, O, Trace, u64))
where
    A: Algorithm + std::fmt::Debug,
    O: Oracle,
{
    for seed in 0..runs * crate::effort() {
        let (rule, mut oracle, mut trace, horizon) = make(seed);
        let mut state = A::State::default();
        for i in 0..STEPS {
            let step = trace.next().unwrap();
            if step.now > horizon {
                break;
            }
            let decision = answer(rule.decide(&mut state, step.cost, Timestamp::from_nanos(step.now)));
            let expected = oracle.ask(step.now, step.cost);
            assert_eq!(decision, expected, "seed {seed}, step {i}: {step:?} on {rule:?}");
            if let Some(answer::Retry::After(wait)) = expected.retry {
                trace.hint(wait);
            }
        }
    }
}
