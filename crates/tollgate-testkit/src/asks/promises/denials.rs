//! Who denies, for how long, and what a denial charges.

use super::caller::{Caller, HALF_AN_HOUR, MINUTE, NEVER, answer, counting, hourly, limit, limit_answer};
use crate::answer::Retry;
use crate::asks::Action::Charge;
use crate::asks::{Blocked, Fresh, Rule, Subject};
use crate::conformance::Rule as Rate;

/// Neither the limit that lacks its attribute nor any other. A peek passes.
pub fn a_missing_attribute_charges_nobody<S: Subject>(fresh: Fresh<'_, S>) {
    let limits =
        vec![limit("a", hourly(10)), limit("m", hourly(10)).denies_missing(), limit("b", hourly(10))];
    let mut caller = Caller::new(fresh, limits);
    for _ in 0..3 {
        let reply = caller.check(&["a", "b"], 1);
        assert_eq!((reply.outcome, reply.reported), (NEVER, Some(1)));
        assert_eq!((answer(&reply, "a").allowed, limit_answer(&reply, "a").is_charged), (true, Some(false)));
        assert_eq!(answer(&reply, "m").retry, Some(Retry::Never));
    }
    assert_eq!(caller.check(&["a", "b"], 0).outcome, Ok(0), "a peek passes");
    assert_eq!(caller.check(&["a", "b", "m"], 1).outcome, Ok(0));
    assert_eq!(caller.left(["a", "b", "m"]), [9, 9, 9]);
    let shadow = vec![limit("a", hourly(10)), limit("m", hourly(10)).denies_missing().shadow()];
    let mut caller = Caller::new(fresh, shadow);
    let reply = caller.check(&["a"], 1);
    assert_eq!((reply.outcome, answer(&reply, "m").retry), (Ok(0), Some(Retry::Never)));
    assert_eq!((answer(&reply, "m").remaining, limit_answer(&reply, "m").is_charged), (10, Some(false)));
}

/// For everybody, or for one tenant.
pub fn blocked_charges_nobody<S: Subject>(fresh: Fresh<'_, S>) {
    let limits = vec![
        limit("a", hourly(10)),
        limit("b", hourly(10)).blocked(Blocked::Always),
        limit("tenant", hourly(10)).blocked(Blocked::Tenant),
    ];
    let mut caller = Caller::new(fresh, limits);
    for (names, passes) in [
        (&["a", "b"][..], false),
        (&["a", "tenant=banned"], false),
        (&["a", "tenant=acme"], true),
        (&["a"], true),
    ] {
        let reply = caller.check(names, 1);
        assert_eq!(reply.outcome, if passes { Ok(0) } else { NEVER }, "{names:?}");
        assert_eq!(limit_answer(&reply, "a").is_charged, Some(passes), "{names:?}");
    }
    assert_eq!(caller.left(["a", "b", "tenant=acme", "tenant=banned"]), [8, 0, 9, 0]);
    assert_eq!(caller.check(&["b"], 0).outcome, Ok(0), "a peek passes");
}

/// A denial by itself, by another limit, for a missing attribute, or of a blocked limit.
pub fn count_denied_counts_on_every_denial<S: Subject>(fresh: Fresh<'_, S>) {
    let limits = vec![
        limit("a", counting(10)),
        limit("b", hourly(1)),
        limit("c", hourly(5)).blocked(Blocked::Always),
        limit("s", counting(10)).shadow(),
    ];
    let mut caller = Caller::new(fresh, limits);
    for (name, left) in [("b", 7), ("c", 4)] {
        let reply = caller.check(&["a", name, "s"], 3);
        assert_eq!((reply.outcome, limit_answer(&reply, "a").is_charged), (NEVER, Some(true)));
        assert_eq!(answer(&reply, "a").remaining, left);
    }
    assert_eq!(caller.check(&["a"], 5).outcome, HALF_AN_HOUR);
    assert_eq!(caller.left(["a", "b", "s"]), [0, 1, 4]);
    let limits = vec![limit("a", counting(10)), limit("m", hourly(10)).denies_missing()];
    let mut caller = Caller::new(fresh, limits);
    assert_eq!(caller.check(&["a"], 4).outcome, NEVER);
    assert_eq!(caller.left(["a", "m"]), [6, 10]);
}

/// No limit is charged for it.
pub fn cost_above_the_capacity_is_denied_for_ever<S: Subject>(fresh: Fresh<'_, S>) {
    let bucket = Rule::Rate(Rate::TokenBucket { tokens: 1, period: MINUTE, burst: 4 });
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10)), limit("b", bucket)]);
    for (cost, passes) in [(5, false), (11, false), (4, true)] {
        let reply = caller.check(&["a", "b"], cost);
        assert_eq!(reply.outcome, if passes { Ok(0) } else { NEVER }, "{cost}");
    }
    assert_eq!(caller.left(["a", "b"]), [6, 0]);
    assert_eq!(caller.check(&["a", "b"], 5).outcome, NEVER, "also of a bucket in use");
}

/// Of two that deny, the one that denies for longer explains the denial.
pub fn the_longest_wait_is_reported<S: Subject>(fresh: Fresh<'_, S>) {
    let minutes = |minutes: u64| Rule::Rate(Rate::FixedWindow { limit: 2, window: minutes * MINUTE });
    let mut caller =
        Caller::new(fresh, vec![limit("a", minutes(40)), limit("b", hourly(2)), limit("c", hourly(9))]);
    let reply = caller.check(&["a", "b", "c"], 2);
    assert_eq!(
        (reply.outcome, reply.reported),
        (Ok(0), Some(1)),
        "the least remaining, then the longest reset"
    );
    let reply = caller.check(&["a", "b", "c"], 1);
    assert_eq!((reply.outcome, reply.reported), (HALF_AN_HOUR, Some(1)));
    assert_eq!(answer(&reply, "a").retry, Some(Retry::After(10 * MINUTE)));
    assert_eq!(caller.describe(&[("a", Charge, 0)]).outcome, Ok(0));
}

/// All limits delay it, and it goes once.
pub fn the_longest_delay_is_the_delay<S: Subject>(fresh: Fresh<'_, S>) {
    let queue = |period| Rule::Rate(Rate::LeakyQueue { tokens: 1, period, capacity: 9 });
    let limits =
        vec![limit("a", queue(MINUTE)), limit("b", queue(3 * MINUTE)), limit("c", queue(2 * MINUTE))];
    let mut caller = Caller::new(fresh, limits);
    let delays = [(); 3].map(|()| caller.check(&["a", "b", "c"], 1).outcome);
    assert_eq!(delays, [Ok(0), Ok(3 * MINUTE), Ok(6 * MINUTE)]);
}
