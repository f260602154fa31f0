//! Requests that name one key twice.

use tollgate_core::Rule;
use tollgate_policy::{Ask, Decided, Does};
use tollgate_testkit::RedisServer;

use super::{ask, decide, hourly, one_of_each, store};

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
        assert_eq!(left[0], left[2], "{name}");
        let alone = decide(&store, &[ask(name, "k", rule, 0)]).await.each[0].decision.status.remaining;
        assert!(
            alone.abs_diff(40) <= 1 && left[0].abs_diff(40) <= 1,
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
    let refund = Ask { does: Does::Refund, ..ask("a", "k", hourly(10), 3) };
    let preview = Ask { does: Does::Preview, ..ask("a", "k", hourly(10), 4) };
    let left = |decided: Decided| decided.each[0].decision.status.remaining;
    assert_eq!(left(decide(&store, &[ask("a", "k", hourly(10), 0), refund]).await), 5);
    assert_eq!(left(decide(&store, &[preview, ask("a", "k", hourly(10), 1)]).await), 4);
}
