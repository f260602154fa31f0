//! A primary whose place sentinels know.

use std::time::Duration;

use tollgate_redis::link::{Link, LinkError, Settings, Topology};

use crate::servers::{Redis, free_port};
use crate::{PATIENCE, count, counting, settings, until};

async fn servers() -> (Redis, Redis, Redis) {
    let primary = Redis::start(&[]).await;
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &primary.port.to_string()]).await;
    until("the replica follows", async || {
        replica.ask_text(&["INFO", "replication"]).contains("master_link_status:up")
    })
    .await;
    let sentinel = Redis::sentinel(primary.port).await;
    until("the sentinel knows the replica", async || {
        let info = sentinel.try_ask(&["INFO", "sentinel"], Some("watching")).expect("it answers");
        let info: String = redis::from_redis_value(info).expect("a text");
        info.contains("status=ok") && info.contains("slaves=1")
    })
    .await;
    (primary, replica, sentinel)
}

fn watched(sentinel: &Redis, password: &str, master: &str) -> Settings {
    Settings {
        // The first is away: the next is asked, and comes first from then on.
        urls: vec![format!("redis://127.0.0.1:{}", free_port()), sentinel.url()],
        topology: Topology::Sentinel {
            master: master.to_owned(),
            username: None,
            password: Some(password.to_owned()),
        },
        ..settings("")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_promoted_is_found() {
    let (mut primary, replica, sentinel) = servers().await;
    let link = Link::new(watched(&sentinel, "watching", "main")).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    assert_eq!(link.health()[0].address, format!("127.0.0.1:{}", primary.port));
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    until("the replica has it", async || {
        replica.try_ask(&["GET", "a"], None) == primary.try_ask(&["GET", "a"], None)
    })
    .await;
    primary.kill();
    until("the end is noticed", async || !link.ready(Duration::ZERO).await).await;
    assert!(matches!(count(&link, &script, "a").await, Err(LinkError::Open { .. })));
    assert!(link.ready(PATIENCE).await, "{link:?}");
    assert_eq!(link.health()[0].address, format!("127.0.0.1:{}", replica.port));
    assert_eq!(count(&link, &script, "a").await, Ok(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_lives_on_is_left_when_the_sentinels_name_another() {
    let (primary, replica, mut sentinel) = servers().await;
    let link = Link::new(watched(&sentinel, "watching", "main")).unwrap();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    assert_eq!(count(&link, &counting(), "a").await, Ok(1));
    let was = link.health()[0].address.clone();
    // The old one is not told, as if it were cut off from the sentinels only.
    replica.ask(&["REPLICAOF", "NO", "ONE"]);
    let port = sentinel.port;
    sentinel.kill();
    let mut sentinel = Redis::sentinel_at(replica.port, port).await;
    until("the link moves", async || link.health()[0].address == format!("127.0.0.1:{}", replica.port)).await;
    assert_ne!(link.health()[0].address, was);
    assert!(count(&link, &counting(), "b").await.is_ok());
    // Without any sentinel, the primary that answers is kept.
    sentinel.kill();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert!(count(&link, &counting(), "b").await.is_ok());
    assert_eq!(link.health()[0].reconnects, 1);
    drop(primary);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_told_when_the_sentinels_do_not_know_us_or_the_primary() {
    let (_primary, _replica, sentinel) = servers().await;
    for (password, master, words) in
        [("wrong1", "main", "refuses the password"), ("watching", "other", "does not know it")]
    {
        let link = Link::new(watched(&sentinel, password, master)).unwrap();
        assert!(!link.ready(Duration::from_secs(1)).await);
        let error = count(&link, &counting(), "a").await.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("wrong1"), "{error}");
    }
}
