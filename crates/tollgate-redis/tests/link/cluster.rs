//! A cluster.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_redis::link::{Call, Link, LinkError, Script, Settings, Topology};
use tollgate_testkit::{RedisCluster, RedisServer};

use super::logs::lines;
use super::{DEADLINE, PATIENCE, count, counting, settings, until};

fn clustered(servers: &[&RedisServer]) -> Settings {
    Settings {
        urls: servers.iter().map(|server| server.url()).collect(),
        topology: Topology::Cluster,
        ..settings("")
    }
}

fn redirects(link: &Link) -> u64 {
    link.health().iter().map(|shard| shard.redirects).sum()
}

// "foo" is in slot 12182, of the third server; "bar" in 5061, of the first; "hello" in 866, of the first.

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_go_where_their_keys_are_and_follow_them() {
    let cluster = RedisCluster::start();
    let link = Link::new(clustered(&[cluster.node(1)])).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    // The map is asked for once more when its servers were reached. The next time is when a call is sent on.
    sleep(Duration::from_millis(500)).await;
    for number in 0..100 {
        assert_eq!(count(&link, &script, &format!("key{number}")).await, Ok(1));
    }
    assert_eq!((link.health().len(), redirects(&link)), (3, 0));

    // A slot is on its way: keys that have arrived are asked for there, and the map stays.
    assert_eq!(count(&link, &script, "{foo}old").await, Ok(1));
    let migration = cluster.migrate_slot(12182, 2, 0);
    assert_eq!(count(&link, &script, "{foo}old").await, Ok(2));
    assert_eq!(redirects(&link), 0);
    assert_eq!(count(&link, &script, "{foo}new").await, Ok(1));
    assert_eq!(count(&link, &script, "{foo}new").await, Ok(2));
    assert_eq!(redirects(&link), 2);

    // Of two keys one has arrived: nobody can decide about both, so the call is refused after some attempts.
    let both = Script::new("return redis.call('MGET', KEYS[1], KEYS[2])");
    let call = Call { script: &both, keys: &[b"{foo}old", b"{foo}new"], args: &[] };
    let began = Instant::now();
    let error = link.call(call).await.unwrap_err();
    assert!(matches!(&error, LinkError::Server(text) if text.starts_with("TRYAGAIN")), "{error}");
    assert!(!error.may_have_run() && began.elapsed() < DEADLINE + Duration::from_millis(150));

    // It has arrived: the first call is sent on, the later ones go there.
    migration.finish();
    let before = redirects(&link);
    assert_eq!(count(&link, &script, "{foo}old").await, Ok(3));
    assert_eq!(redirects(&link), before + 1);
    until("the map is new", async || {
        let before = redirects(&link);
        count(&link, &script, "{foo}old").await.unwrap();
        redirects(&link) == before
    })
    .await;
    assert_eq!(link.health().iter().map(|shard| shard.reconnects).sum::<u64>(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_promoted_replica_is_found_and_the_other_shards_never_notice() {
    let cluster = RedisCluster::start();
    let link = Link::new(clustered(&[cluster.node(0), cluster.node(2)])).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    assert_eq!(count(&link, &script, "hello").await, Ok(1));
    let replica = cluster.node(3);
    until("the replica has it", async || replica.command(&["DBSIZE"]).integer() == 1).await;
    cluster.kill(0);
    until("the end is noticed", async || {
        matches!(count(&link, &script, "hello").await, Err(LinkError::Open { .. }))
    })
    .await;
    let mut others = 0;
    until("the replica takes over", async || {
        others += 1;
        assert_eq!(count(&link, &script, "foo").await, Ok(others));
        count(&link, &script, "hello").await.is_ok()
    })
    .await;
    assert_eq!(count(&link, &script, "hello").await, Ok(3));
    assert!(link.ready(PATIENCE).await, "{link:?}");
    let health = link.health();
    let is_known =
        |server: &RedisServer| health.iter().any(|shard| shard.address == server.address().to_string());
    assert!(is_known(replica) && !is_known(cluster.node(0)), "{health:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_new_is_reached_by_the_call_that_is_sent_there() {
    let cluster = RedisCluster::start();
    let link = Link::new(clustered(&[cluster.node(0)])).unwrap();
    let script = counting();
    link.learn(&script);
    assert!(link.ready(PATIENCE).await, "{link:?}");
    let (new, old) = (join(&cluster).await, cluster.node(2));
    old.command(&["CLUSTER", "SETSLOT", "12182", "MIGRATING", &id(&new)]);
    new.command(&["CLUSTER", "SETSLOT", "12182", "IMPORTING", &id(old)]);
    assert_eq!(count(&link, &script, "foo").await, Ok(1));
    assert_eq!((link.health().len(), redirects(&link)), (4, 1));
    for server in [&new, old] {
        server.command(&["CLUSTER", "SETSLOT", "12182", "NODE", &id(&new)]);
    }
    assert_eq!(count(&link, &script, "foo").await, Ok(2));
    assert_eq!(link.health().iter().map(|shard| shard.repairs).sum::<u64>(), 0, "it was told the script");
}

/// A server more, that has no slots.
async fn join(cluster: &RedisCluster) -> RedisServer {
    let new = RedisServer::with(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]);
    new.command(&["CLUSTER", "MEET", "127.0.0.1", &cluster.node(0).port().to_string()]);
    let known = format!("cluster_known_nodes:{}", cluster.nodes().len() + 1);
    until("all know it", async || {
        cluster.nodes().iter().chain([&new]).all(|server| {
            let info = server.command(&["CLUSTER", "INFO"]);
            info.text().contains(&known) && info.text().contains("cluster_state:ok")
        })
    })
    .await;
    new
}

fn id(server: &RedisServer) -> String {
    server.command(&["CLUSTER", "MYID"]).text().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_in_no_cluster_is_told_clearly() {
    let lines = lines();
    let server = RedisServer::start();
    let link = Link::new(clustered(&[&server])).unwrap();
    assert!(!link.ready(Duration::from_millis(500)).await);
    let error = count(&link, &counting(), "a").await.unwrap_err().to_string();
    assert!(
        error.contains("this server is not in a cluster: `cluster: true` must not stand there"),
        "{error}"
    );
    assert_eq!(link.health()[0].address, format!("127.0.0.1:{}", server.port()));
    let told = lines.with(&format!("127.0.0.1:{}: this server is not in a cluster", server.port()));
    assert!(told.len() == 1 && told[0].contains("WARN"), "{told:?}");
}
