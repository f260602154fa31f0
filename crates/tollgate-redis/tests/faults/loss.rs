//! A network that loses packets.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_testkit::{Lossy, skip};

use super::load::{Line, Load};
use super::mode::in_both_modes;
use super::{BACK_WITHIN, Node, wait};

const LINE: Line = Line { name: "deny", attributes: &[("tenant", "acme")] };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_packets_cost_answers_and_admit_nothing() {
    in_both_modes(|mode| async move {
        let network = match wait(Lossy::new) {
            Ok(network) => network,
            Err(reason) => {
                return skip(format_args!("this machine allows no network that loses packets: {reason}"));
            }
        };
        let server = wait(|| network.redis(&[]));
        let url = server.url();
        let policy = format!(
            "store: {{ redis: {{ url: '{url}', deadline: 100ms, on_error: deny, {} }} }}\n\
             limits: [{{ name: deny, key: [tenant], token_bucket: {{ rate: 100/s, burst: 100 }} }}]",
            mode.settings(),
        );
        let nodes = [Node::start(&policy).await, Node::start(&policy).await];
        let load = Load::start(&nodes, &[LINE], 2, Duration::from_millis(10));
        load.until_denied().await;
        wait(|| network.lose(10));
        sleep(Duration::from_secs(3)).await;
        wait(|| network.lose(0));
        let back = load.until_back(Instant::now()).await;
        let log = load.stop().await;
        let timed_out: u64 = nodes.iter().map(|node| node.errors("timed_out")).sum();
        log.report(
            &mode.name("10 % of packets lost, deny"),
            log.over(100, 100),
            mode.excess(100, 100, 2),
            format_args!(
                "{timed_out} timed out, the others while the breaker was open; back after {back:.0?}"
            ),
        );
        assert!(back < BACK_WITHIN, "{back:?}");
    })
    .await;
}
