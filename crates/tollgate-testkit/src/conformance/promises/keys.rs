//! A counter belongs to one key of one limit, as long as it is in use.

use super::{START, as_new, ask};
use crate::conformance::rule::one_of_each;
use crate::conformance::{Rule, Store};

/// Draining one key leaves every other as it was.
pub fn one_key_does_not_spend_anothers_budget(mut store: impl Store) {
    for (number, rule) in one_of_each().into_iter().enumerate() {
        let limit = format!("limit-{number}");
        let key = format!("alice-{number}");
        assert!(ask(&mut store, START, &limit, &key, rule, 10).allowed);
        for other in [&format!("bob-{number}"), "", "alice", &format!("{key} "), &key.to_uppercase()] {
            let answer = ask(&mut store, START, &limit, other, rule, 0);
            assert_eq!(as_new(answer), (10, 0), "one key spends another's budget: {other:?} under {rule:?}");
        }
    }
}

/// The key belongs to its limit.
pub fn the_same_key_under_two_limits_is_two_counters(mut store: impl Store) {
    for (number, rule) in one_of_each().into_iter().enumerate() {
        let (one, other, key) =
            (format!("one-{number}"), format!("other-{number}"), format!("alice-{number}"));
        assert!(ask(&mut store, START, &one, &key, rule, 10).allowed);
        let answer = ask(&mut store, START, &other, &key, rule, 0);
        assert_eq!(as_new(answer), (10, 0), "the same key under two limits is one counter: {rule:?}");
    }
}

/// No text in a limit's name or a key can stand for the border between them.
pub fn names_and_keys_are_not_run_together(mut store: impl Store) {
    let rule = Rule::TokenBucket { tokens: 1, period: 1000, burst: 10 };
    let pairs = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc", ""),
        ("a:b", "c"),
        ("a", "b:c"),
        ("a|b", "c"),
        ("a", "b|c"),
        ("a/b", "c"),
        ("a", "b/c"),
        ("{a}", "b"),
        ("a", "{b}"),
        ("a%3Ab", "c"),
        ("a\0b", "c"),
        ("a", "b\0c"),
        ("a", "\u{fc}"),
        ("a", "u\u{308}"),
    ];
    for (limit, key) in pairs {
        let answer = ask(&mut store, START, limit, key, rule, 10);
        assert!(answer.allowed, "names and keys are run together: {limit:?} {key:?} was used before");
    }
}

/// Other keys coming does not make a store forget one that is in use.
pub fn a_key_in_use_is_not_forgotten(mut store: impl Store) {
    let rules = one_of_each();
    let keys = || (0..300).map(|number: usize| (number % rules.len(), format!("key-{number}")));
    for (rule, key) in keys() {
        assert!(ask(&mut store, START, &format!("limit-{rule}"), &key, rules[rule], 10).allowed);
    }
    for (rule, key) in keys() {
        let answer = ask(&mut store, START + 10, &format!("limit-{rule}"), &key, rules[rule], 10);
        assert!(!answer.allowed, "a key in use is forgotten: {key} under {:?}", rules[rule]);
    }
}
