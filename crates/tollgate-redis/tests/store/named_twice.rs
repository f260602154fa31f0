//! Requests that name one key twice.

use tollgate_core::{Action, Rule};
use tollgate_policy::Ask;
use tollgate_testkit::RedisServer;

use super::{Decided, ask, counting_rules, decide, hourly, one_of_each, store, store_at_a_time};

#[tokio::test]
async fn what_is_named_twice_pays_twice() {
    let server = RedisServer::start();
    let store = store(&server).await;
    for (name, rule) in one_of_each().into_iter().filter(|(name, _)| *name != "concurrency") {
        let decided =
            decide(&store, &[ask(name, "k", rule, 30), ask("other", "k", rule, 1), ask(name, "k", rule, 30)])
                .await;
        assert!(decided.verdict.is_allowed(), "{name}");
        let left: Vec<u64> = decided.each.iter().map(|seen| seen.decision.status.remaining).collect();
        let alone = decide(&store, &[ask(name, "k", rule, 0)]).await.each[0].decision.status.remaining;
        assert!(
            alone.abs_diff(40) <= 1 && left[0].abs_diff(70) <= 1 && left[2].abs_diff(40) <= 1,
            "{name}: {alone} of 100 are left, told {left:?}"
        );
        let denied = decide(&store, &[ask(name, "k", rule, 30), ask(name, "k", rule, 30)]).await;
        let waits = matches!(rule, Rule::TokenBucketMaxWait(_));
        assert_eq!(denied.verdict.is_allowed(), waits, "{name}: 60 of 40");
    }
}

#[tokio::test]
async fn of_what_is_named_twice_one_that_only_looks_adds_nothing() {
    let server = RedisServer::start();
    let store = store(&server).await;
    decide(&store, &[ask("a", "k", hourly(10), 8)]).await;
    let refund = Ask { action: Action::Refund, ..ask("a", "k", hourly(10), 3) };
    let preview = Ask { action: Action::Peek, ..ask("a", "k", hourly(10), 4) };
    let left = |decided: Decided| decided.each[0].decision.status.remaining;
    let given_back = decide(&store, &[ask("a", "k", hourly(10), 0), refund]).await;
    assert_eq!(given_back.each[1].decision.status.remaining, 5);
    assert_eq!(left(given_back), 2, "it is decided before the refund that comes after it");
    // It is decided before the charge that comes after it.
    let charged = decide(&store, &[preview, ask("a", "k", hourly(10), 1)]).await;
    assert_eq!(charged.each[1].decision.status.remaining, 4);
    assert_eq!(left(charged), 5);
}

/// As in memory: each ask is decided after those before it that name the same key.
#[tokio::test]
async fn asks_that_name_one_key_are_decided_one_after_the_other() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for (name, rule) in counting_rules() {
        let of = |decided: &Decided| {
            let each =
                decided.each.iter().map(|seen| (seen.decision.is_allowed(), seen.decision.status.remaining));
            (decided.verdict.is_allowed(), decided.verdict.reported, each.collect::<Vec<_>>())
        };
        let twice = |costs: [u64; 2]| costs.map(|cost| ask(name, "k", rule, cost));
        assert_eq!(
            of(&decide(&store, &twice([60, 60])).await),
            (false, Some(1), vec![(true, 100), (false, 100)]),
            "{name}"
        );
        assert_eq!(
            of(&decide(&store, &twice([60, 30])).await),
            (true, Some(1), vec![(true, 40), (true, 10)]),
            "{name}"
        );
        let in_full = twice([8, 8]).map(|ask| Ask { action: Action::ChargeInFull, ..ask });
        assert_eq!(
            of(&decide(&store, &in_full).await),
            (false, Some(1), vec![(true, 2), (false, 0)]),
            "{name}"
        );
    }
}
