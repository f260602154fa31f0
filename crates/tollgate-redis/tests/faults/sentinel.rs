//! A primary that is replaced by its sentinels.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_testkit::Sentinels;

use super::load::{Line, Load};
use super::mode::in_both_modes;
use super::{BACK_WITHIN, Node, wait};

const RATE: u64 = 50;
const BURST: u64 = 200;

/// Replication is behind by less.
const LAG: Duration = Duration::from_secs(1);

const LINE: Line = Line { name: "deny", attributes: &[("tenant", "acme")] };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_the_sentinels_replace_loses_its_last_moments_at_most() {
    in_both_modes(|mode| async move {
        let servers = wait(Sentinels::start);
        let urls: Vec<String> = servers.urls().iter().map(|url| format!("'{url}'")).collect();
        let policy = format!(
            "store: {{ redis: {{ urls: [{}], sentinel: {{ master: {} }}, deadline: 100ms, on_error: deny, {} }} }}\n\
             limits: [{{ name: deny, key: [tenant], token_bucket: {{ rate: {RATE}/s, burst: {BURST} }} }}]",
            urls.join(", "),
            servers.master_name(),
            mode.settings(),
        );
        let nodes = [Node::start(&policy).await, Node::start(&policy).await];
        let load = Load::start(&nodes, &[LINE], 2, Duration::from_millis(10));
        load.until_denied().await;
        let killed = Instant::now();
        wait(|| servers.kill_primary());
        wait(|| servers.wait_for_failover());
        let took_over = killed.elapsed();
        let back = load.until_back(Instant::now()).await;
        sleep(Duration::from_millis(500)).await;
        let log = load.stop().await;
        let last = log.count(|one| one.is_allowed && one.sent < killed + LAG && one.received() + LAG > killed);
        log.report(
            &mode.name("sentinels, primary killed, deny"),
            log.over(RATE, BURST),
            last.min(BURST + RATE * LAG.as_secs()) + mode.excess(RATE, BURST, 2),
            format_args!(
                "another was chosen after {took_over:.1?}, {:.1?} without an answer; back after {back:.0?}",
                log.silence()
            ),
        );
        assert!(log.fell_back() > 0 && back < BACK_WITHIN, "{back:?}");
    })
    .await;
}
