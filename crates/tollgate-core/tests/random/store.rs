//! Plans of several limits: the smallest store there is passes the suite that every store must.

use std::collections::HashMap;

use tollgate_core::{Charge, Decision, PermitId, Rule, State, Timestamp, decide_all};
use tollgate_testkit::conformance::{self, Line, conforms};
use tollgate_testkit::oracle::Several;

use super::plain::{answer, rule_of};

/// States by limit and key.
#[derive(Default)]
struct Memory(HashMap<(String, String), State>);

impl conformance::Store for Memory {
    fn decide(&mut self, now: u64, plan: &[Line]) -> tollgate_testkit::Verdict {
        let key = |line: &Line| (line.limit.clone(), line.key.clone());
        // Taken out of the memory for the time of the decision.
        let take = |line: &Line| (rule_of(line.rule), self.0.remove(&key(line)).unwrap_or_default());
        let mut states: Vec<(Rule, State)> = plan.iter().map(take).collect();
        let mut charges: Vec<Charge<'_>> = Vec::new();
        for ((rule, state), line) in states.iter_mut().zip(plan) {
            charges.push(Charge { rule, state, cost: line.cost, permit: PermitId(0) });
        }
        let mut decisions = vec![Decision::default(); plan.len()];
        let now = Timestamp::from_nanos(now);
        let verdict = decide_all(&mut charges[..], now, &mut decisions);
        for (line, (rule, state)) in plan.iter().zip(states) {
            // An unused state need not be kept.
            if !rule.is_unused(&state, now) {
                self.0.insert(key(line), state);
            }
        }
        // The oracle's summary says what the answers come to; the core must have said the same.
        let summary = Several::summary(decisions.iter().copied().map(answer).collect());
        let own = answer(Decision { outcome: verdict.outcome, ..decisions[0] });
        let own = (own.allowed, own.delay, own.retry, verdict.remaining, verdict.reported);
        let due =
            (summary.allowed, summary.delay, summary.retry, Some(summary.remaining), Some(summary.reported));
        assert_eq!(own, due, "{plan:?} at {now:?}");
        summary
    }
}

#[test]
fn the_smallest_store_conforms() {
    conforms(Memory::default);
}

#[test]
fn random_plans_equal_the_oracles() {
    for seed in 100..100 + 20 * tollgate_testkit::effort() {
        conformance::random_plans_equal_the_oracles(Memory::default(), seed, 50_000);
    }
}
