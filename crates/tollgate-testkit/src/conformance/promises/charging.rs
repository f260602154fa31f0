//! Who is charged, and what the caller is told.

use super::{START, as_new, ask};
use crate::answer::Retry;
use crate::conformance::rule::one_of_each;
use crate::conformance::{Line, OracleStore, Rule, Store};

/// Whichever limit of a plan denies, and wherever it stands, the others keep what they had.
pub fn a_refusal_at_one_level_spends_nothing_at_the_others(mut store: impl Store) {
    let rules = one_of_each();
    for (number, denying) in rules.iter().enumerate() {
        for place in 0..=rules.len() {
            let key = format!("key-{number}-{place}");
            let denies = Line::new(&format!("denies-{number}"), &key, *denying, 1);
            assert!(ask(&mut store, START, &denies.limit, &key, *denying, 10).allowed);
            let mut plan: Vec<_> = (0..)
                .zip(&rules)
                .map(|(other, rule)| Line::new(&format!("limit-{other}"), &key, *rule, 3))
                .collect();
            plan.insert(place, denies);
            let verdict = store.decide(START, &plan);
            assert!(!verdict.allowed, "{denying:?} has nothing left");
            assert_eq!((verdict.reported, verdict.delay), (place, 0), "the limit that denies is reported");
            plan.remove(place);
            for line in plan {
                let answer = ask(&mut store, START, &line.limit, &key, line.rule, 0);
                let found = as_new(answer);
                assert_eq!(found, (10, 0), "a refusal by {denying:?} at {place} spends {:?}", line.rule);
            }
        }
    }
}

/// Asking in vain makes nobody wait longer.
pub fn a_denied_request_changes_nothing(mut store: impl Store) {
    for (number, rule) in one_of_each().into_iter().enumerate() {
        let limit = format!("limit-{number}");
        ask(&mut store, START, &limit, "alice", rule, 8);
        let before = ask(&mut store, START, &limit, "alice", rule, 3);
        for _ in 0..7 {
            let again = ask(&mut store, START, &limit, "alice", rule, 3);
            assert_eq!(again, before, "a denied request changes something: {rule:?}");
        }
        assert!(
            ask(&mut store, START, &limit, "alice", rule, 2).allowed,
            "a denied request is charged: {rule:?}"
        );
    }
}

/// Cost 0 looks and does not touch: always allowed, and everything after it is as if it had not
/// been.
pub fn cost_zero_creates_and_changes_nothing(mut store: impl Store) {
    for (number, rule) in one_of_each().into_iter().enumerate() {
        let mut untouched = rule.oracle();
        let (limit, key) = (format!("limit-{number}"), format!("alice-{number}"));
        let requests = [(0, 4), (50, 4), (50, 4), (300, 1), (700, 3), (1900, 10), (9000, 2)];
        for (after, cost) in requests {
            // An unused key that is looked at in the future must not be put there, nor open a
            // window.
            let times = if after == 0 { [START + 5000, START] } else { [START + after; 2] };
            for now in times {
                let peek = ask(&mut store, now, &limit, &key, rule, 0);
                assert_eq!(peek, untouched.would(now, 0), "cost 0 is not a plain look: {rule:?}");
            }
            let now = START + after;
            let answer = ask(&mut store, now, &limit, &key, rule, cost);
            assert_eq!(answer, untouched.ask(now, cost), "cost 0 creates or changes something: {rule:?}");
        }
    }
}

/// What can never pass is told so, and nobody pays for it.
pub fn cost_over_capacity_is_never_and_charges_nobody(mut store: impl Store) {
    for (number, rule) in one_of_each().into_iter().enumerate() {
        for place in 0..2 {
            let (limit, key) = (format!("limit-{number}"), format!("key-{place}"));
            let large = Rule::TokenBucket { tokens: 1, period: 100, burst: 100 };
            let mut plan = vec![Line::new("large", &key, large, 1)];
            plan.insert(place, Line::new(&limit, &key, rule, 11));
            let verdict = store.decide(START, &plan);
            let answer = (verdict.allowed, verdict.retry, verdict.reported);
            assert_eq!(
                answer,
                (false, Some(Retry::Never), place),
                "cost over capacity is not never: {rule:?}"
            );
            for (limit, rule, full) in [(&*limit, rule, 10), ("large", large, 100)] {
                let answer = ask(&mut store, START, limit, &key, rule, 0);
                assert_eq!(as_new(answer), (full, 0), "cost over capacity charges {limit}: {rule:?}");
            }
        }
    }
}

/// The longest wait, the smallest remaining, the largest delay, and the limit they come from.
pub fn several_limits_give_one_answer(mut store: impl Store) {
    let bucket = |period, burst| Rule::TokenBucket { tokens: 1, period, burst };
    let queue = Rule::LeakyQueue { tokens: 1, period: 50, capacity: 10 };
    let plans = [
        // Denied: the longest retry, wherever it stands.
        vec![bucket(200, 1), bucket(3000, 1), bucket(1000, 1)],
        vec![bucket(3000, 1), bucket(200, 1), queue],
        // Equal retries: the longest reset. Equal resets too: the first.
        vec![bucket(500, 2), bucket(1000, 1), bucket(200, 7)],
        vec![bucket(200, 7), bucket(300, 2), bucket(300, 2)],
        // Admitted: the smallest remaining and the largest delay.
        vec![bucket(200, 9), queue, bucket(200, 5), bucket(300, 5)],
    ];
    let mut oracles = OracleStore::default();
    for (number, rules) in (0..).zip(&plans) {
        let lines = |cost| -> Vec<Line> {
            let lines = (0..).zip(rules).map(|(place, rule): (u32, _)| {
                Line::new(&format!("limit-{number}-{place}"), "alice", *rule, cost)
            });
            lines.collect()
        };
        for step in 0..6 {
            let now = START + 10 * step;
            let (found, expected) = (store.decide(now, &lines(1)), oracles.decide(now, &lines(1)));
            let summary = |verdict: &crate::Verdict| {
                (verdict.allowed, verdict.delay, verdict.retry, verdict.remaining, verdict.reported)
            };
            let told = "several limits do not give one answer";
            assert_eq!(summary(&found), summary(&expected), "{told}: plan {number}, step {step}: {rules:?}");
            assert_eq!(found.answers.len(), rules.len(), "{told}: an answer of each");
        }
    }
}
