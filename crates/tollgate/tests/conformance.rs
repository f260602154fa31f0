//! The table keeps every promise of a store.

use std::collections::HashMap;

use tollgate::{Clock, Decision, KeyedLimiter, Request, Timestamp};
use tollgate_testkit::Verdict;
use tollgate_testkit::conformance::{Line, Store, conforms, random_plans_equal_the_oracles};
use tollgate_testkit::oracle::Several;

#[path = "../../tollgate-core/tests/random/plain.rs"]
mod plain;

/// Limiters of one table, by the name of the limit.
#[derive(Default)]
struct Table {
    first: Option<KeyedLimiter>,
    limiters: HashMap<String, KeyedLimiter>,
}

impl Table {
    fn add(&mut self, line: &Line) {
        if self.limiters.contains_key(&line.limit) {
            return;
        }
        let rule = plain::rule_of(line.rule);
        let limiter = match &self.first {
            Some(first) => first.another(rule),
            None => KeyedLimiter::builder(rule).clock(Clock::manual()).build(),
        };
        self.first.get_or_insert_with(|| limiter.clone());
        self.limiters.insert(line.limit.clone(), limiter);
    }
}

impl Store for Table {
    fn decide(&mut self, now: u64, plan: &[Line]) -> Verdict {
        plan.iter().for_each(|line| self.add(line));
        let ask = |line: &Line| self.limiters[&line.limit].ask(&line.key).cost(line.cost);
        let now = Timestamp::from_nanos(now);
        // One limit takes another way through the table than several.
        if let [line] = plan {
            return Several::summary(vec![plain::answer(ask(line).check_at(now))]);
        }
        let requests: Vec<Request<'_>> = plan.iter().map(ask).collect();
        let mut decisions = vec![Decision::default(); plan.len()];
        let verdict = KeyedLimiter::check_all_at(&requests, now, &mut decisions);
        let summary = Several::summary(decisions.into_iter().map(plain::answer).collect());
        assert_eq!((verdict.is_allowed(), verdict.reported), (summary.allowed, Some(summary.reported)));
        summary
    }
}

#[test]
fn the_table_conforms() {
    conforms(Table::default);
}

#[test]
fn random_plans_on_the_table_equal_the_oracles() {
    for seed in 200..210 {
        random_plans_equal_the_oracles(Table::default(), seed, 50_000);
    }
}
