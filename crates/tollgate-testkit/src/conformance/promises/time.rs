//! When a request passes: not before its time, and not after.

use super::{START, ask};
use crate::answer::Retry;
use crate::conformance::rule::one_of_each;
use crate::conformance::{Rule, Store};

/// One tick before the retry the same request is denied, at the retry it is admitted.
pub fn a_retry_is_exact(mut store: impl Store) {
    for (number, rule) in one_of_each().into_iter().enumerate() {
        for cost in [1, 4, 10] {
            let (limit, key) = (format!("limit-{number}"), format!("key-{cost}"));
            assert!(ask(&mut store, START + 130, &limit, &key, rule, 10).allowed);
            let now = START + 150;
            let denied = ask(&mut store, now, &limit, &key, rule, cost);
            let Some(Retry::After(wait)) = denied.retry else {
                panic!("a retry is not exact: {rule:?} answers cost {cost} with {denied:?}");
            };
            let early = ask(&mut store, now + wait - 1, &limit, &key, rule, cost);
            assert_eq!(
                early.retry,
                Some(Retry::After(1)),
                "a retry is not exact: {rule:?}, cost {cost}, early"
            );
            let on_time = ask(&mut store, now + wait, &limit, &key, rule, cost);
            assert!(on_time.allowed, "a retry is not exact: {rule:?}, cost {cost}, on time");
        }
    }
}

/// After its reset a key cannot be told from one that was never used; one tick before, it can.
pub fn an_unused_key_is_as_new(mut store: impl Store) {
    for (number, rule) in one_of_each().into_iter().enumerate() {
        let limit = format!("limit-{number}");
        let used = ask(&mut store, START + 130, &limit, "used", rule, 7);
        let reset = START + 130 + used.reset;
        let still = ask(&mut store, reset - 1, &limit, "used", rule, 0);
        assert_eq!(still.reset, 1, "a key is unused before its reset: {rule:?}");
        for (after, cost) in [(0, 0), (0, 10), (10, 1), (700, 5)] {
            let old = ask(&mut store, reset + after, &limit, "used", rule, cost);
            let new = ask(&mut store, reset + after, &limit, "new", rule, cost);
            assert_eq!(old, new, "an unused key is not as new: {rule:?}, {after} after its reset");
        }
    }
}

/// A drained key stays drained when the clock steps back, and when it comes forward again.
pub fn a_clock_that_steps_back_mints_nothing(mut store: impl Store) {
    for (number, rule) in one_of_each().into_iter().enumerate() {
        let (limit, mut oracle) = (format!("limit-{number}"), rule.oracle());
        for (now, cost) in [(0, 6), (-300, 2), (-700, 2), (0, 4), (-1, 10), (0, 1), (-999_999, 1), (0, 1)] {
            let now = START.saturating_add_signed(now);
            let found = ask(&mut store, now, &limit, "alice", rule, cost);
            let expected = oracle.ask(now, cost);
            assert_eq!(found, expected, "a clock that steps back to {now} mints something: {rule:?}");
        }
    }
}

/// A rate whose interval is not a whole number of ticks may be late, though no more than a tick for
/// each token; it is never early.
pub fn a_fractional_rate_is_never_early(mut store: impl Store) {
    let rule = Rule::TokenBucket { tokens: 3, period: 1000, burst: 3 };
    assert!(ask(&mut store, START, "thirds", "alice", rule, 3).allowed);
    let (mut now, mut admitted) = (START, 0);
    while admitted < 300 {
        let answer = ask(&mut store, now, "thirds", "alice", rule, 1);
        if answer.allowed {
            admitted += 1;
            let due = START + (admitted * 1000u64).div_ceil(3);
            assert!(now >= due, "a fractional rate is early: token {admitted} at {now}, due at {due}");
            assert!(
                now <= due + admitted,
                "a fractional rate is late: token {admitted} at {now}, due at {due}"
            );
        } else if let Some(Retry::After(wait)) = answer.retry {
            now += wait.max(1);
        } else {
            panic!("a fractional rate has no retry: {answer:?}");
        }
    }
}
