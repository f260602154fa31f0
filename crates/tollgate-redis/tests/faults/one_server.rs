//! One server that is killed, or stands still.

use std::time::Duration;

use tollgate_testkit::RedisServer;

use super::modes::Outage;
use super::wait;

const OUTAGE: Outage =
    Outage { name: "", lasts: Duration::from_secs(2), deadline: Duration::from_millis(50), forgets: false };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back_empty_gives_one_burst_more() {
    let server = wait(RedisServer::start);
    Outage { name: "killed", forgets: true, ..OUTAGE }
        .measure(&server.url(), || server.kill(), || server.restart())
        .await;
}

/// What was asked of it meanwhile runs when it goes on: that is charged, and nobody is let pass for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_gives_nothing_twice() {
    let server = wait(RedisServer::start);
    Outage { name: "paused", ..OUTAGE }.measure(&server.url(), || server.pause(), || server.resume()).await;
}
