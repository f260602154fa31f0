//! Servers that forget their scripts.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_testkit::RedisServer;

use super::load::{Line, Load};
use super::mode::in_both_modes;
use super::{Node, unspent, wait};

const LINE: Line = Line { name: "exact", attributes: &[("tenant", "acme")] };

const LIMITS: [&str; 2] = ["window", "bucket"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_forgotten_again_and_again_cost_no_request() {
    in_both_modes(|mode| async move {
        let server = wait(RedisServer::start);
        let policy = format!(
            "store: {{ redis: {{ url: '{}', deadline: 900ms, on_error: deny, {} }} }}\n\
             limits:\n  \
             - {{ name: {}, key: [tenant], fixed_window: {{ limit: 100k, window: 1h, align: first }} }}\n  \
             - {{ name: {}, key: [tenant], token_bucket: {{ rate: 1/h, burst: 100k }} }}\n",
            server.url(),
            mode.settings(),
            LIMITS[0],
            LIMITS[1],
        );
        let nodes = [Node::start(&policy).await, Node::start(&policy).await];
        let load = Load::start(&nodes, &[LINE], 8, Duration::from_millis(10));
        let began = Instant::now();
        let mut client = server.client();
        while began.elapsed() < Duration::from_secs(2) {
            assert_eq!(wait(|| client.command(&["SCRIPT", "FLUSH"])).text(), "OK");
            sleep(Duration::from_millis(50)).await;
        }
        let log = load.stop().await;
        let asked = log.asked.len() as u64;
        let repairs: u64 = nodes.iter().flat_map(|node| node.store.health()).map(|shard| shard.repairs).sum();
        let charged: Vec<u64> =
            nodes[0].remaining(LINE.attributes).await.iter().map(|left| 100_000 - left).collect();
        log.report(
            &mode.name("SCRIPT FLUSH every 50 ms"),
            log.admitted().saturating_sub(charged[0]),
            0,
            format_args!("charged {charged:?}; {repairs} calls were sent again with the source"),
        );
        assert!(log.asked.iter().all(|one| one.is_allowed && one.is_answered()));
        assert_eq!(charged, LIMITS.map(|limit| asked + unspent(&nodes, limit)));
        assert!(repairs > 0);
    })
    .await;
}
