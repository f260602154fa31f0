//! Processes that start before their servers.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tollgate_policy::Source;
use tollgate_testkit::{RedisServer, free_port};

use super::load::{Line, Load};
use super::mode::{Mode, in_both_modes};
use super::{BACK_WITHIN, Node, PATIENCE, wait};

const LINE: Line = Line { name: "deny", attributes: &[("tenant", "acme")] };

fn policy(mode: Mode, servers: &str) -> String {
    format!(
        "store: {{ redis: {{ {servers}, deadline: 50ms, on_error: deny, {} }} }}\n\
         limits: [{{ name: deny, key: [tenant], token_bucket: {{ rate: 50/s, burst: 100 }} }}]",
        mode.settings()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_servers_everything_is_decided_at_once_whatever_they_are() {
    in_both_modes(|mode| async move {
        let away = format!("'redis://127.0.0.1:{}'", free_port());
        for servers in [
            format!("url: {away}"),
            format!("urls: [{away}], cluster: true"),
            format!("urls: [{away}], sentinel: {{ master: main }}"),
        ] {
            let node = Node::begin(&policy(mode, &servers));
            let began = Instant::now();
            // On another thread: one that waits for a lock cannot be told that its time is over.
            let asked = tokio::spawn(async move {
                for _ in 0..100 {
                    assert_eq!(node.ask(LINE.attributes).await, (false, Source::Fallback));
                }
            });
            timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("{servers}: no decision")).unwrap();
            assert!(began.elapsed() < Duration::from_secs(1), "{servers}: {:?}", began.elapsed());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_later_is_found() {
    in_both_modes(|mode| async move {
        let server = wait(RedisServer::start);
        wait(|| server.kill());
        let node = Node::begin(&policy(mode, &format!("url: '{}'", server.url())));
        let load = Load::start(&[node], &[LINE], 4, Duration::from_millis(10));
        tokio::time::sleep(Duration::from_millis(500)).await;
        wait(|| server.restart());
        let back = load.until_back(Instant::now()).await;
        load.until_denied().await;
        let log = load.stop().await;
        log.report(
            &mode.name("started before the server, deny"),
            log.over(50, 100),
            mode.excess(50, 100, 1),
            format_args!("found after {back:.0?}"),
        );
        assert!(back < BACK_WITHIN, "{back:?}");
    })
    .await;
}
