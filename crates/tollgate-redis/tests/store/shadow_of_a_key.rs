//! A shadow and a charge that name one key.

use tollgate_core::{Group, Outcome};
use tollgate_policy::Ask;
use tollgate_testkit::RedisServer;

use super::{ask, counting_rules, decide, store_at_a_time};

/// The shadow comes first in the request. It is decided last, and what it costs is not tested with the charge.
#[tokio::test]
async fn a_shadow_is_decided_after_later_asks_of_its_key() {
    let server = RedisServer::start();
    let store = store_at_a_time(&server).await;
    for (name, rule) in counting_rules() {
        let shadow = Ask { group: Group::Independent, ..ask(name, "k", rule, 30) };
        let decided = decide(&store, &[shadow, ask(name, "k", rule, 80)]).await;
        assert!(decided.verdict.is_allowed(), "{name}: 80 of 100");
        let remaining = [0, 1].map(|ask| decided.each[ask].decision.status.remaining);
        assert_eq!(remaining, [20, 20], "{name}");
        assert!(!matches!(decided.each[0].decision.outcome, Outcome::Allow { .. }), "{name}: 30 of 20");
    }
}
