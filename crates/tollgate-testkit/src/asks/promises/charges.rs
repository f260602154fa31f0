//! What is charged, and what is given back.

use super::caller::{
    Caller, HALF_AN_HOUR, NEVER, answer, attributes, bucket, counting, hourly, limit, limit_answer, sent,
};
use crate::asks::Action::{Charge, ChargeInFull, Refund};
use crate::asks::{Blocked, Call, Fresh, Rule, Subject};
use crate::conformance::Rule as Rate;

/// First, because the other promises look with it.
pub fn a_peek_writes_nothing<S: Subject>(fresh: Fresh<'_, S>) {
    for rule in [hourly(10), counting(10)] {
        let mut caller = Caller::new(
            fresh,
            vec![limit("a", rule), limit("b", rule).shadow(), limit("c", rule).described(true)],
        );
        for _ in 0..3 {
            assert_eq!(caller.check(&["a", "b"], 0).outcome, Ok(0));
            assert_eq!(
                caller.describe(&[("c", Charge, 0), ("a", ChargeInFull, 0), ("b", Charge, 0)]).outcome,
                Ok(0)
            );
            for cost in [0, 4, 11] {
                let reply = caller.call(&Call::Explain { attributes: attributes(&["a", "b"]), cost });
                assert_eq!(answer(&reply, "a").allowed, cost < 11, "{rule:?}");
                assert_eq!(answer(&reply, "b").remaining, 10, "{rule:?}");
            }
        }
        assert_eq!(caller.left(["a", "b", "c"]), [10, 10, 10], "{rule:?}");
    }
}

/// A limit that denies keeps the others from being charged.
pub fn all_limits_are_charged_or_none<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller =
        Caller::new(fresh, vec![limit("a", hourly(10)), limit("b", hourly(2)), limit("c", hourly(10))]);
    for passed in [true, true, false, false] {
        let reply = caller.check(&["a", "b", "c"], 1);
        assert_eq!(reply.outcome.is_ok(), passed);
        for name in ["a", "b", "c"] {
            assert_eq!(limit_answer(&reply, name).is_charged, Some(passed), "{name}");
        }
    }
    assert_eq!(caller.left(["a", "b", "c"]), [8, 0, 8]);
}

/// Each ask is tested with the costs of those before it.
pub fn the_same_key_twice_is_charged_twice<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10))]);
    let reply = caller.describe(&[("a", Charge, 3), ("a", Charge, 4)]);
    let remaining: Vec<u64> = reply.answers.iter().map(|answer| answer.answer.remaining).collect();
    assert_eq!((reply.outcome, remaining), (Ok(0), vec![7, 3]));
    let reply = caller.describe(&[("a", Charge, 2), ("a", Charge, 2)]);
    let allowed: Vec<bool> = reply.answers.iter().map(|answer| answer.answer.allowed).collect();
    assert_eq!((reply.outcome, allowed), (HALF_AN_HOUR, vec![true, false]));
    assert_eq!(caller.left(["a"]), [3]);
}

/// Together with a charge of another key, and at most what was charged.
pub fn a_refund_is_done_if_the_request_passes<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10)), limit("b", hourly(10))]);
    caller.check(&["a"], 7);
    let reply = caller.describe(&[("a", Refund, 5), ("b", Charge, 1)]);
    assert_eq!((reply.outcome, answer(&reply, "a").remaining), (Ok(0), 8));
    assert_eq!(caller.left(["a", "b"]), [8, 9]);
    assert_eq!(caller.describe(&[("a", Refund, 50)]).outcome, Ok(0));
    assert_eq!(caller.left(["a"]), [10]);
}

/// A denial by another limit, for a missing attribute, or of a blocked limit.
pub fn a_refund_is_not_done_on_a_denial<S: Subject>(fresh: Fresh<'_, S>) {
    let limits =
        vec![limit("a", hourly(10)), limit("b", hourly(1)), limit("c", hourly(5)).blocked(Blocked::Always)];
    let mut caller = Caller::new(fresh, limits);
    caller.check(&["a"], 7);
    assert_eq!(caller.describe(&[("a", Refund, 5), ("b", Charge, 2)]).outcome, NEVER);
    assert_eq!(caller.describe(&[("c", Charge, 1), ("a", Refund, 5)]).outcome, NEVER);
    assert_eq!(caller.left(["a", "b"]), [3, 1]);
}

/// It is also charged beyond the limit, and whichever limit denies.
pub fn in_full_is_charged_on_every_denial<S: Subject>(fresh: Fresh<'_, S>) {
    let limits = vec![
        limit("a", hourly(10)),
        limit("b", hourly(1)),
        limit("c", hourly(5)).blocked(Blocked::Always),
        limit("d", hourly(9)).shadow(),
    ];
    let mut caller = Caller::new(fresh, limits);
    assert_eq!(caller.describe(&[("a", ChargeInFull, 3), ("b", Charge, 2)]).outcome, NEVER);
    assert_eq!(caller.describe(&[("a", ChargeInFull, 2), ("c", Charge, 1)]).outcome, NEVER);
    assert_eq!(caller.left(["a", "b"]), [5, 1]);
    let reply = caller.describe(&[("a", ChargeInFull, 8), ("d", ChargeInFull, 20)]);
    assert_eq!((reply.outcome, limit_answer(&reply, "a").is_charged), (HALF_AN_HOUR, Some(true)));
    assert_eq!(caller.describe(&[("a", Refund, 4)]).outcome, Ok(0));
    assert_eq!(caller.left(["a", "d"]), [1, 0]);
}

/// Also beyond the burst, beside a bucket that is charged only if the request passes.
pub fn in_full_is_charged_to_a_bucket_on_every_denial<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", bucket(10)), limit("b", bucket(10))]);
    assert_eq!(caller.describe(&[("a", ChargeInFull, 1), ("b", Charge, 1)]).outcome, Ok(0));
    assert_eq!(caller.describe(&[("a", ChargeInFull, 2), ("b", Charge, 11)]).outcome, NEVER);
    assert_eq!(caller.left(["a", "b"]), [7, 9]);
    assert_eq!(caller.describe(&[("a", ChargeInFull, 12), ("b", Charge, 1)]).outcome, NEVER);
    assert_eq!(caller.left(["a", "b"]), [0, 9]);
}

/// At exactly the limit, nothing was exceeded.
pub fn in_full_of_cost_0_is_denied_above_the_limit<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10))]);
    let passed = [0, 10, 0, 1, 0].map(|cost| caller.describe(&[("a", ChargeInFull, cost)]).outcome);
    assert_eq!(passed, [Ok(0), Ok(0), Ok(0), HALF_AN_HOUR, HALF_AN_HOUR]);
    assert_eq!(caller.describe(&[("a", Charge, 0)]).outcome, Ok(0), "a peek passes");
}

/// Its keys are its own.
pub fn a_sent_rule_is_one_charge<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10))]);
    let rule = Rule::Rate(Rate::FixedWindow { limit: 3, window: 60 * super::caller::MINUTE });
    let outcomes = [2, 2, 0, 1, 4].map(|cost| {
        let reply = caller.call(&Call::Sent { key: "x".to_owned(), rule, cost });
        (reply.outcome, reply.answers[0].answer.remaining)
    });
    assert_eq!(outcomes, [(Ok(0), 1), (HALF_AN_HOUR, 1), (Ok(0), 1), (Ok(0), 0), (NEVER, 0)]);
    let outcomes = [2, 2, 0, 4].map(|cost| {
        let key = "x".to_owned();
        let reply = caller.call(&Call::Cell { key, max_burst: 2, count: 1, period_seconds: 60, cost });
        (reply.outcome.is_ok(), reply.answers[0].answer.remaining)
    });
    assert_eq!(outcomes, [(true, 1), (false, 1), (true, 1), (false, 1)]);
    assert_eq!(caller.left(["a"]), [10]);
}

/// With a limit of 0, it blocks the descriptor.
pub fn a_sent_limit_replaces_the_limits_of_the_policy<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10)), limit("b", hourly(10))]);
    for passed in [true, true, false] {
        let reply = caller.call(&Call::Describe(vec![sent("a", 2, Charge, 1)]));
        assert_eq!(reply.outcome, if passed { Ok(0) } else { HALF_AN_HOUR });
    }
    let blocked = Call::Describe(vec![sent("b", 0, Charge, 1), super::caller::descriptor("a", Charge, 1)]);
    assert_eq!(caller.call(&blocked).outcome, NEVER);
    assert_eq!(caller.left(["a", "b"]), [10, 10]);
}

/// For one key and window. Each descriptor is charged.
pub fn the_strictest_sent_limit_of_a_call_holds<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10))]);
    for order in [[3, 9], [9, 3]] {
        let name = format!("a={order:?}");
        let call = Call::Describe(order.map(|limit| sent(&name, limit, Charge, 1)).to_vec());
        let reply = caller.call(&call);
        let remaining: Vec<u64> = reply.answers.iter().map(|answer| answer.answer.remaining).collect();
        assert_eq!((reply.outcome, remaining), (Ok(0), vec![2, 1]), "{order:?}");
        assert_eq!(caller.call(&call).outcome, HALF_AN_HOUR, "{order:?}");
    }
}

/// Nor does a refund charge anything.
pub fn a_peek_is_not_reported_as_a_charge<S: Subject>(fresh: Fresh<'_, S>) {
    let mut caller = Caller::new(fresh, vec![limit("a", hourly(10)), limit("b", hourly(10)).shadow()]);
    for (action, cost, is_charged) in [(Charge, 2, true), (Charge, 0, false), (Refund, 1, false)] {
        let reply = caller.describe(&[("a", action, cost), ("b", action, cost)]);
        for name in ["a", "b"] {
            assert_eq!(limit_answer(&reply, name).is_charged, Some(is_charged), "{name} {action:?} {cost}");
        }
    }
}
