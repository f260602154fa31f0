//! What is decided while the store gives no answer.

use super::caller::{Caller, MINUTE, NEVER, answer, hourly, limit, limit_answer};
use crate::answer::Retry;
use crate::asks::Action::{Charge, Refund};
use crate::asks::{Blocked, Fallback, Fresh, OnError, Rule, Subject};
use crate::conformance::Rule as Rate;

const UNAVAILABLE: Result<u64, Retry> = Err(Retry::After(Fallback::RETRY_AFTER));

/// One token per minute and process. Each has a burst of 4.
fn per_minute() -> Rule {
    Rule::Rate(Rate::TokenBucket { tokens: Fallback::NODES, period: MINUTE, burst: 4 * Fallback::NODES })
}

/// Also a peek, because nobody knows its answer. A refund asks for nothing.
pub fn on_error_deny_denies_until_the_store_is_tried_again<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10)).on_error(OnError::Deny)]);
    for cost in [0, 1, 11] {
        let reply = caller.check(&["a"], cost);
        assert_eq!((reply.outcome, limit_answer(&reply, "a").is_known), (UNAVAILABLE, false), "{cost}");
    }
    assert_eq!(caller.describe(&[("a", Refund, 3)]).outcome, Ok(0));
}

/// Nor does it take slots.
pub fn on_error_deny_charges_no_share<S: Subject>(fresh: Fresh<'_, S>) {
    let slots = Rule::Slots { limit: 3 * Fallback::NODES, lease: Some(MINUTE) };
    let limits = vec![
        limit("a", per_minute()).on_error(OnError::Local),
        limit("b", hourly(10)).on_error(OnError::Deny),
        limit("c", slots).on_error(OnError::Local),
    ];
    let mut caller = Caller::new(fresh, limits);
    for _ in 0..3 {
        assert_eq!(caller.check(&["a", "b"], 1).outcome, UNAVAILABLE);
        assert_eq!(caller.hold(&["a", "b", "c"], 2).outcome, UNAVAILABLE);
    }
    assert_eq!(caller.left(["a"]), [4]);
    let passed = [(); 4].map(|()| caller.hold(&["c"], 1).outcome.is_ok());
    assert_eq!(passed, [true, true, true, false]);
}

/// Whatever it was charged before.
pub fn on_error_allow_allows_any_cost<S: Subject>(fresh: Fresh<'_, S>) {
    let limits = vec![limit("a", hourly(10)), limit("b", per_minute()).on_error(OnError::Local)];
    let mut caller = Caller::new(fresh, limits);
    for cost in [10, 10, 11] {
        let reply = caller.check(&["a"], cost);
        assert_eq!((reply.outcome, limit_answer(&reply, "a").is_known), (Ok(0), false), "{cost}");
    }
    let reply = caller.check(&["a", "b"], 3);
    assert_eq!((reply.outcome, answer(&reply, "b").remaining), (Ok(0), 1));
    assert_eq!(caller.check(&["a", "b"], 3).outcome, Err(Retry::After(2 * MINUTE)));
}

/// It was empty when the outage began, and has refilled since.
pub fn a_share_starts_empty_and_refills<S: Subject>(fresh: Fresh<'_, S>) {
    let rare = Rule::Rate(Rate::FixedWindow { limit: Fallback::NODES, window: 60 * 24 * MINUTE });
    let limits =
        vec![limit("a", per_minute()).on_error(OnError::Local), limit("b", rare).on_error(OnError::Local)];
    let mut caller = Caller::new(fresh, limits);
    assert_eq!(caller.left(["a", "b"]), [4, 0], "in ten hours, not in a day");
    assert_eq!(caller.check(&["a"], 5).outcome, NEVER, "more than the burst of a share");
    assert_eq!(caller.check(&["a"], 4).outcome, Ok(0));
    assert_eq!(caller.check(&["a"], 1).outcome, Err(Retry::After(MINUTE)));
    caller.wait(MINUTE);
    assert_eq!(caller.check(&["a"], 1).outcome, Ok(0));
}

/// Each of two processes cannot have one of a single slot.
pub fn a_limit_without_a_share_is_denied<S: Subject>(fresh: Fresh<'_, S>) {
    let slots = Rule::Slots { limit: Fallback::NODES - 1, lease: Some(MINUTE) };
    let limits = vec![
        limit("a", slots).on_error(OnError::Local),
        limit("b", per_minute()).on_error(OnError::Local),
        limit("c", slots).on_error(OnError::Allow),
    ];
    let mut caller = Caller::new(fresh, limits);
    let reply = caller.hold(&["a", "b"], 1);
    assert_eq!((reply.outcome, limit_answer(&reply, "a").is_known), (UNAVAILABLE, false));
    assert_eq!(caller.left(["b"]), [4]);
    assert_eq!(caller.hold(&["b", "c"], 1).outcome, Ok(0));
}

/// A limit of 0, or a missing attribute.
pub fn a_fixed_denial_needs_no_store<S: Subject>(fresh: Fresh<'_, S>) {
    for on_error in [OnError::Allow, OnError::Deny, OnError::Local] {
        let limits = vec![
            limit("a", hourly(10)).blocked(Blocked::Always).on_error(on_error),
            limit("b", per_minute()).on_error(OnError::Local),
        ];
        let mut caller = Caller::new(fresh, limits);
        assert_eq!(caller.check(&["a", "b"], 1).outcome, NEVER, "{on_error:?}");
        assert_eq!(caller.describe(&[("b", Charge, 1), ("a", Charge, 1)]).outcome, NEVER, "{on_error:?}");
        assert_eq!(caller.left(["b"]), [4], "{on_error:?}");
    }
    let limits =
        vec![limit("b", per_minute()).on_error(OnError::Local), limit("m", hourly(10)).denies_missing()];
    let mut caller = Caller::new(fresh, limits);
    assert_eq!(caller.check(&["b"], 1).outcome, NEVER);
    assert_eq!(caller.check(&["b", "m"], 1).outcome, Ok(0));
    assert_eq!(caller.left(["b"]), [3]);
}
