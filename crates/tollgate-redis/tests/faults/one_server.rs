//! One server that is killed, or stands still.

use std::time::Duration;

use tollgate_testkit::RedisServer;

use super::mode::in_both_modes;
use super::modes::Outage;
use super::wait;

const OUTAGE: Outage =
    Outage { name: "", lasts: Duration::from_secs(2), deadline: Duration::from_millis(50), forgets: false };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back_empty_gives_one_burst_more() {
    in_both_modes(|mode| async move {
        let server = wait(RedisServer::start);
        Outage { name: "killed", forgets: true, ..OUTAGE }
            .measure(mode, &server.url(), || server.kill(), || server.restart())
            .await;
    })
    .await;
}

/// What was asked of it meanwhile runs when it goes on: that is charged, and nobody is let pass for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_gives_nothing_twice() {
    in_both_modes(|mode| async move {
        let server = wait(RedisServer::start);
        let outage = Outage { name: "paused", ..OUTAGE };
        outage.measure(mode, &server.url(), || server.pause(), || server.resume()).await;
    })
    .await;
}
