//! Slots of concurrency limits.

use super::caller::{Caller, MINUTE, NEVER, answer, hourly, limit, limit_answer};
use crate::answer::Retry;
use crate::asks::{Fresh, Rule, Subject};

const LEASE: u64 = 5 * MINUTE;

fn slots(limit: u64) -> Rule {
    Rule::Slots { limit, lease: Some(LEASE) }
}

/// And a denied hold waits for the first lease that ends.
pub fn a_hold_takes_as_many_slots_as_it_costs<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", slots(5)), limit("b", hourly(10))]);
    let outcomes = [0, 3, 3, 6, 2].map(|cost| caller.hold(&["a", "b"], cost).outcome);
    assert_eq!(outcomes, [Ok(0), Ok(0), Err(Retry::After(LEASE)), NEVER, Ok(0)]);
    assert_eq!((caller.slots("a"), caller.left(["b"])), (0, [5]));
}

/// The rate limits stay charged.
pub fn a_release_gives_the_slots_back<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", slots(2)), limit("b", hourly(10))]);
    for _ in 0..3 {
        assert_eq!(caller.hold(&["a", "b"], 2).outcome, Ok(0));
        caller.release();
    }
    assert_eq!((caller.slots("a"), caller.left(["b"])), (2, [4]));
}

/// Exactly when the lease ends.
pub fn a_lease_gives_the_slots_back<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", slots(1))]);
    assert_eq!(caller.hold(&["a"], 1).outcome, Ok(0));
    caller.wait(LEASE - 1000);
    assert_eq!(caller.hold(&["a"], 1).outcome, Err(Retry::After(1000)));
    caller.wait(1000);
    assert_eq!(caller.hold(&["a"], 1).outcome, Ok(0));
}

/// The caller could not release it.
pub fn a_check_takes_no_slot<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", slots(1)), limit("b", hourly(10))]);
    for _ in 0..3 {
        let reply = caller.check(&["a", "b"], 1);
        assert_eq!((reply.outcome, reply.answers.len()), (Ok(0), 1));
    }
    assert_eq!((caller.slots("a"), caller.left(["b"])), (1, [7]));
}

/// Denied by another limit, or for a missing attribute.
pub fn a_hold_of_a_denied_request_keeps_no_slot<S: Subject>(fresh: Fresh<'_, S>) {
    let limits = vec![limit("a", slots(3)), limit("b", hourly(1)), limit("m", hourly(9)).denies_missing()];
    let mut caller = Caller::new(fresh, limits);
    for names in [&["a", "b", "m"][..], &["a", "b"]] {
        let reply = caller.hold(names, 2);
        assert_eq!((reply.outcome, answer(&reply, "a").allowed), (NEVER, true), "{names:?}");
        assert_eq!(limit_answer(&reply, "a").is_charged, Some(false), "{names:?}");
    }
    assert_eq!((caller.slots("a"), caller.left(["m"])), (3, [9]));
}

/// It never denies the request.
pub fn a_shadow_hold_keeps_a_slot_only_if_the_request_passes<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", slots(3)).shadow(), limit("b", hourly(2))]);
    assert_eq!(caller.hold(&["a", "b"], 3).outcome, NEVER);
    assert_eq!((caller.slots("a"), caller.left(["b"])), (3, [2]), "a denied request");
    let mut caller = Caller::new(fresh, vec![limit("a", slots(1)).shadow(), limit("b", hourly(2))]);
    for allows in [true, false] {
        let reply = caller.hold(&["a", "b"], 1);
        assert_eq!((reply.outcome, answer(&reply, "a").allowed), (Ok(0), allows));
    }
    assert_eq!((caller.slots("a"), caller.left(["b"])), (0, [0]));
}
