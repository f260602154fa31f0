use super::{Line, OracleStore, Rule, Store, conforms, promises, random_plans_equal_the_oracles};
use crate::answer::{Answer, Retry, Verdict};
use crate::oracle::{Oracle, Several};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn the_oracle_store_conforms() {
    conforms(OracleStore::default);
}

/// A store on microseconds: whatever is finer than its tick it would cut off.
struct Coarse(OracleStore);

impl Store for Coarse {
    fn tick(&self) -> u64 {
        1000
    }

    fn decide(&mut self, now: u64, plan: &[Line]) -> Verdict {
        let whole = |nanos: u64| {
            assert_eq!(nanos % 1000, 0, "asked with a time its clock cannot tell");
            nanos
        };
        let mut verdict = self.0.decide(whole(now), plan);
        let up = |nanos: u64| nanos.div_ceil(1000) * 1000;
        let retry = |retry| match retry {
            Some(Retry::After(wait)) => Some(Retry::After(up(wait))),
            other => other,
        };
        verdict.delay = up(verdict.delay);
        verdict.retry = retry(verdict.retry);
        for answer in &mut verdict.answers {
            *answer = Answer {
                delay: up(answer.delay),
                retry: retry(answer.retry),
                reset: up(answer.reset),
                ..*answer
            };
        }
        verdict
    }
}

#[test]
fn a_store_with_a_coarser_clock_conforms() {
    conforms(|| Coarse(OracleStore::default()));
}

/// What can be wrong with a store.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    ChargesUntilRefused,
    ForgetsTheLimit,
    RunsNamesTogether,
    ChargesForLooking,
    CountsDenials,
    ReportsTheFirstDenial,
    ComesBackEarly,
    ForgetsKeys,
    TrustsTheClock,
    TruncatesIntervals,
}

/// A store that conforms, but for its fault.
struct Faulty {
    fault: Option<Fault>,
    keys: HashMap<String, Box<dyn Oracle>>,
}

impl Faulty {
    fn new(fault: Option<Fault>) -> Self {
        Self { fault, keys: HashMap::new() }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn name(&self, line: &Line) -> String {
        match self.fault {
            Some(Fault::ForgetsTheLimit) => line.key.clone(),
            Some(Fault::RunsNamesTogether) => format!("{}:{}", line.limit, line.key),
            _ => format!("{:?} {:?}", line.limit, line.key),
        }
    }

    fn oracle(&mut self, line: &Line) -> &mut dyn Oracle {
        let mut rule = line.rule;
        if let Rule::TokenBucket { tokens, period, .. } = &mut rule
            && self.has(Fault::TruncatesIntervals)
        {
            (*tokens, *period) = (1, *period / *tokens);
        }
        let name = self.name(line);
        &mut **self.keys.entry(name).or_insert_with(|| rule.oracle())
    }
}

impl Store for Faulty {
    fn decide(&mut self, now: u64, plan: &[Line]) -> Verdict {
        if self.has(Fault::ForgetsKeys) && self.keys.len() > 30 {
            self.keys.clear();
        }
        let looking = u64::from(self.has(Fault::ChargesForLooking));
        let cost = |line: &Line| line.cost.max(looking);
        let mut answers: Vec<_> = plan.iter().map(|line| self.oracle(line).would(now, cost(line))).collect();
        let refused = answers.iter().position(|answer| !answer.allowed);
        let charged = match refused {
            None => plan.len(),
            Some(place) if self.has(Fault::ChargesUntilRefused) => place,
            Some(_) => 0,
        };
        for (place, (line, answer)) in plan.iter().zip(&mut answers).enumerate() {
            if place < charged || self.oracle(line).counts_denied() {
                *answer = self.oracle(line).ask(now, cost(line));
            }
        }
        if self.has(Fault::CountsDenials) && refused.is_some() {
            for line in plan {
                let left = self.oracle(line).would(now, 0).remaining;
                self.oracle(line).ask(now, left);
            }
        }
        if self.has(Fault::TrustsTheClock) && now < 1_000_000 {
            self.keys.clear();
        }
        let mut verdict = Several::summary(answers);
        if let Some(place) = refused.filter(|_| self.has(Fault::ReportsTheFirstDenial)) {
            (verdict.reported, verdict.retry) = (place, verdict.answers[place].retry);
        }
        if let Some(Retry::After(wait)) = verdict.retry.filter(|_| self.has(Fault::ComesBackEarly)) {
            let early = Some(Retry::After(wait.saturating_sub(1)));
            let place = verdict.reported;
            (verdict.retry, verdict.answers[place].retry) = (early, early);
        }
        verdict
    }
}

#[test]
fn broken_stores_are_rejected_for_what_is_broken() {
    let breaks: [(Fault, fn(Faulty)); 10] = [
        (Fault::ChargesUntilRefused, promises::a_refusal_at_one_level_spends_nothing_at_the_others),
        (Fault::ForgetsTheLimit, promises::the_same_key_under_two_limits_is_two_counters),
        (Fault::RunsNamesTogether, promises::names_and_keys_are_not_run_together),
        (Fault::ChargesForLooking, promises::cost_zero_creates_and_changes_nothing),
        (Fault::CountsDenials, promises::a_denied_request_changes_nothing),
        (Fault::ReportsTheFirstDenial, promises::several_limits_give_one_answer),
        (Fault::ComesBackEarly, promises::a_retry_is_exact),
        (Fault::ForgetsKeys, promises::a_key_in_use_is_not_forgotten),
        (Fault::TrustsTheClock, promises::a_clock_that_steps_back_mints_nothing),
        (Fault::TruncatesIntervals, promises::a_fractional_rate_is_never_early),
    ];
    for (fault, promise) in breaks {
        let holds = |check: &dyn Fn()| catch_unwind(AssertUnwindSafe(check)).is_ok();
        assert!(!holds(&|| promise(Faulty::new(Some(fault)))), "its promise accepts a store that {fault:?}");
        assert!(
            !holds(&|| conforms(|| Faulty::new(Some(fault)))),
            "the suite accepts a store that {fault:?}"
        );
    }
}

#[test]
fn random_plans_alone_find_most_faults() {
    // Those left out need texts, intervals or clocks that random plans do not have.
    for fault in [
        Fault::ChargesUntilRefused,
        Fault::ForgetsTheLimit,
        Fault::ChargesForLooking,
        Fault::CountsDenials,
        Fault::ReportsTheFirstDenial,
        Fault::ComesBackEarly,
        Fault::ForgetsKeys,
    ] {
        let run = || random_plans_equal_the_oracles(Faulty::new(Some(fault)), 1, 10_000);
        assert!(catch_unwind(run).is_err(), "random plans accept a store that {fault:?}");
    }
}

#[test]
fn without_its_fault_the_same_store_conforms() {
    conforms(|| Faulty::new(None));
}
