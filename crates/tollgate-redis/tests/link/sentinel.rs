//! A primary whose place sentinels know.

use std::time::Duration;

use tollgate_redis::link::{Link, LinkError, Settings, Topology};
use tollgate_testkit::redis::SentinelSecrets;
use tollgate_testkit::{Sentinels, free_port};

use super::{PATIENCE, count, counting, settings, until};

fn servers() -> Sentinels {
    Sentinels::with(SentinelSecrets { servers: None, sentinels: Some("watching") })
}

fn watched(servers: &Sentinels, password: &str, master: &str) -> Settings {
    // The first is away: the next is asked, and comes first from then on.
    let away = format!("redis://127.0.0.1:{}", free_port());
    Settings {
        urls: [away].into_iter().chain(servers.urls()).collect(),
        topology: Topology::Sentinel {
            master: master.to_owned(),
            username: None,
            password: Some(password.into()),
        },
        ..settings("")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_promoted_is_found() {
    let servers = servers();
    let link = Link::new(watched(&servers, "watching", servers.master_name())).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    let primary = servers.primary();
    assert_eq!(link.health()[0].address, primary.address().to_string());
    assert_eq!(link.health()[0].name, servers.master_name());
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    until("the replicas have it", async || {
        servers.servers().iter().all(|server| server.command(&["GET", "a"]) == primary.command(&["GET", "a"]))
    })
    .await;
    servers.kill_primary();
    until("the end is noticed", async || !link.ready(Duration::ZERO).await).await;
    assert!(matches!(count(&link, &script, "a").await, Err(LinkError::Open { .. })));
    assert!(link.ready(PATIENCE).await, "{link:?}");
    assert_eq!(link.health()[0].address, servers.wait_for_failover().address().to_string());
    assert_eq!(link.health()[0].name, servers.master_name());
    assert_eq!(count(&link, &script, "a").await, Ok(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_lives_on_is_left_when_the_sentinels_name_another() {
    let servers = servers();
    let name = servers.master_name();
    let link = Link::new(watched(&servers, "watching", name)).unwrap();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    assert_eq!(count(&link, &counting(), "a").await, Ok(1));
    let was = link.health()[0].address.clone();
    // The old one is not told, as if it were cut off from the sentinels only.
    for sentinel in servers.sentinels() {
        assert_eq!(sentinel.command(&["SENTINEL", "REMOVE", name]).text(), "OK");
    }
    let other = &servers.servers()[1];
    other.command(&["REPLICAOF", "NO", "ONE"]);
    let (host, port) = (other.address().ip().to_string(), other.port().to_string());
    for sentinel in servers.sentinels() {
        assert_eq!(sentinel.command(&["SENTINEL", "MONITOR", name, &host, &port, "2"]).text(), "OK");
    }
    until("the link moves", async || link.health()[0].address == other.address().to_string()).await;
    assert_ne!(link.health()[0].address, was);
    assert!(count(&link, &counting(), "b").await.is_ok());
    // Without any sentinel, the primary that answers is kept.
    servers.sentinels().iter().for_each(|sentinel| sentinel.kill());
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(count(&link, &counting(), "b").await.is_ok());
    assert_eq!(link.health()[0].reconnects, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_told_when_the_sentinels_do_not_know_us_or_the_primary() {
    let servers = servers();
    for (password, master, words) in
        [("wrong1", servers.master_name(), "refuses the password"), ("watching", "other", "does not know it")]
    {
        let link = Link::new(watched(&servers, password, master)).unwrap();
        assert!(!link.ready(Duration::from_secs(1)).await);
        let error = count(&link, &counting(), "a").await.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("wrong1"), "{error}");
    }
}
