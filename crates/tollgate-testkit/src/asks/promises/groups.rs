//! Which asks decide the outcome.

use super::caller::{Caller, HALF_AN_HOUR, MINUTE, NEVER, answer, bucket, hourly, limit, limit_answer};
use crate::asks::Action::{Charge, Refund};
use crate::asks::{Fresh, Policy, Rule, Scope, Subject};
use crate::conformance::Rule as Rate;

/// A shadow that is full denies nothing, and charges no live limit.
pub fn a_shadow_denies_nothing<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10)), limit("b", hourly(1)).shadow()]);
    for allows in [true, false, false] {
        let reply = caller.check(&["a", "b"], 1);
        assert_eq!((reply.outcome, answer(&reply, "b").allowed), (Ok(0), allows));
        assert_eq!(limit_answer(&reply, "b").is_charged, Some(allows));
    }
    assert_eq!(caller.check(&["b"], 1).outcome, Ok(0));
    assert_eq!(caller.left(["a", "b"]), [7, 0]);
}

/// Although a live limit denies the request.
pub fn a_shadow_is_charged_by_itself<S: Subject>(fresh: Fresh<'_, S>) {
    let limits =
        vec![limit("a", hourly(1)), limit("b", hourly(10)).shadow(), limit("c", hourly(10)).shadow()];
    let mut caller = Caller::new(fresh, limits);
    for _ in 0..3 {
        let reply = caller.check(&["a", "b", "c"], 1);
        assert_eq!(limit_answer(&reply, "b").is_charged, Some(true));
    }
    assert_eq!(caller.left(["a", "b", "c"]), [0, 7, 7]);
}

/// A refund is done only if the request passes.
pub fn a_shadow_of_a_denied_request_gives_nothing_back<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10)).shadow(), limit("b", hourly(1))]);
    caller.check(&["a"], 7);
    assert_eq!(caller.describe(&[("a", Refund, 5), ("b", Charge, 2)]).outcome, NEVER);
    assert_eq!(caller.left(["a"]), [3]);
    assert_eq!(caller.describe(&[("a", Refund, 5), ("b", Charge, 1)]).outcome, Ok(0));
    assert_eq!(caller.left(["a"]), [8]);
}

/// One is enough.
pub fn any_of_charges_only_those_that_allow<S: Subject>(fresh: Fresh<'_, S>) {
    for rule in [hourly, bucket] {
        let limits = vec![limit("a", rule(1)).described(true), limit("b", rule(3)).described(true)];
        let mut caller = Caller::new(fresh, limits);
        for (passes, allows) in [(true, true), (true, false), (true, false), (false, false)] {
            let reply = caller.describe(&[("a", Charge, 1), ("b", Charge, 1)]);
            assert_eq!((reply.outcome.is_ok(), answer(&reply, "a").allowed), (passes, allows));
            assert_eq!(limit_answer(&reply, "a").is_charged, Some(allows));
            assert_eq!(limit_answer(&reply, "b").is_charged, Some(passes));
        }
        assert_eq!(caller.left(["a", "b"]), [0, 0]);
        let limits = vec![limit("a", rule(3)).described(true), limit("b", rule(9)).described(true)];
        let mut caller = Caller::new(fresh, limits);
        for left in [[1, 7], [1, 5], [1, 3]] {
            assert_eq!(caller.describe(&[("a", Charge, 2), ("b", Charge, 2)]).outcome, Ok(0));
            assert_eq!(caller.left(["a", "b"]), left, "a limit that denies keeps what remains");
        }
    }
}

/// The first of them that would allow the request again ends the denial.
pub fn any_of_denies_with_the_shortest_wait<S: Subject>(fresh: Fresh<'_, S>) {
    let daily = Rule::Rate(Rate::FixedWindow { limit: 1, window: 24 * 60 * MINUTE });
    let limits = vec![
        limit("a", daily).described(true),
        limit("b", hourly(1)).described(true),
        limit("c", daily).described(true),
    ];
    let mut caller = Caller::new(fresh, limits);
    let all = [("a", Charge, 1), ("b", Charge, 1), ("c", Charge, 1)];
    assert_eq!(caller.describe(&all).outcome, Ok(0));
    assert_eq!(caller.describe(&all).outcome, HALF_AN_HOUR);
    assert_eq!(caller.left(["a", "b", "c"]), [0, 0, 0]);
}

/// The others must all allow the request, too.
pub fn any_of_is_not_charged_if_another_denies<S: Subject>(fresh: Fresh<'_, S>) {
    let limits = vec![
        limit("a", hourly(9)).described(true),
        limit("b", hourly(1)).described(true),
        limit("c", hourly(2)).described(false),
    ];
    let mut caller = Caller::new(fresh, limits);
    let all = [("a", Charge, 1), ("b", Charge, 1), ("c", Charge, 1)];
    assert_eq!([(); 4].map(|()| caller.describe(&all).outcome.is_ok()), [true, true, false, false]);
    assert_eq!(caller.left(["a", "b", "c"]), [7, 0, 0]);
}

/// The others are not charged for a request that every one of these denies.
pub fn no_limit_is_charged_if_every_any_of_denies<S: Subject>(fresh: Fresh<'_, S>) {
    for rule in [hourly, bucket] {
        let limits = vec![
            limit("a", rule(1)).described(true),
            limit("b", rule(2)).described(true),
            limit("c", rule(9)).described(false),
        ];
        let mut caller = Caller::new(fresh, limits);
        let all = [("a", Charge, 1), ("b", Charge, 1), ("c", Charge, 1)];
        assert_eq!([(); 4].map(|()| caller.describe(&all).outcome.is_ok()), [true, true, false, false]);
        assert_eq!(caller.left(["a", "b", "c"]), [0, 0, 7]);
    }
}

/// With it, no other quota denies the request.
pub fn a_shadow_quota_counts_as_one_that_allows<S: Subject>(fresh: Fresh<'_, S>) {
    let limits = vec![limit("a", hourly(1)).described(true), limit("b", hourly(1)).described(true).shadow()];
    let mut caller = Caller::new(fresh, limits);
    for allows in [true, false, false] {
        let reply = caller.describe(&[("a", Charge, 1), ("b", Charge, 1)]);
        assert_eq!(
            (reply.outcome, answer(&reply, "a").allowed, answer(&reply, "b").allowed),
            (Ok(0), allows, allows)
        );
    }
    assert_eq!(caller.describe(&[("a", Charge, 1)]).outcome, HALF_AN_HOUR);
}

/// Each limit is charged for what it allows.
pub fn shadow_mode_denies_nothing<S: Subject>(fresh: Fresh<'_, S>) {
    let limits = vec![limit("a", hourly(1)).described(false), limit("b", hourly(10)).described(true)];
    let mut caller = Caller::with(fresh, &Policy { shadow_mode: true, ..Policy::new(limits) });
    for allows in [true, false, false] {
        let reply = caller.describe(&[("a", Charge, 1), ("b", Charge, 1)]);
        assert_eq!((reply.outcome, answer(&reply, "a").allowed), (Ok(0), allows));
    }
    assert_eq!(caller.left(["a", "b"]), [0, 7]);
}

/// Another descriptor of the same request replaces it.
pub fn a_replaced_descriptor_is_not_charged<S: Subject>(fresh: Fresh<'_, S>) {
    let mut replacing = limit("b", hourly(10)).described(false);
    replacing.scope = Scope::Descriptor { is_quota: false, replaces: vec!["a".to_owned()] };
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10)).described(false), replacing]);
    let reply = caller.describe(&[("a", Charge, 1), ("b", Charge, 1)]);
    assert_eq!((reply.outcome, reply.answers.len()), (Ok(0), 1));
    assert_eq!(caller.left(["a", "b"]), [10, 9]);
}
