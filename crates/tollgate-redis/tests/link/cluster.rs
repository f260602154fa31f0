//! A cluster.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_redis::link::{Call, Link, LinkError, Script, Settings, Topology};

use crate::servers::Redis;
use crate::{DEADLINE, PATIENCE, count, counting, settings, until};

/// Three primaries, each with a third of the slots, and as many replicas of the first.
async fn servers(replicas: usize) -> Vec<Redis> {
    let mut servers = Vec::new();
    for _ in 0..3 + replicas {
        servers.push(Redis::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]).await);
    }
    for (index, slots) in [["0", "5460"], ["5461", "10922"], ["10923", "16383"]].iter().enumerate() {
        servers[index].ask(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]);
        servers[index].ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
    }
    for server in &servers[1..] {
        server.ask(&["CLUSTER", "MEET", "127.0.0.1", &servers[0].port.to_string()]);
    }
    let known = format!("cluster_known_nodes:{}", servers.len());
    until("the servers know each other", async || {
        servers.iter().all(|server| server.ask_text(&["CLUSTER", "INFO"]).contains(&known))
    })
    .await;
    let first = id(&servers[0]);
    for replica in &servers[3..] {
        until("the replica is told", async || {
            replica.try_ask(&["CLUSTER", "REPLICATE", &first], None).is_ok()
        })
        .await;
    }
    until("the cluster is up", async || {
        let is_up = |server: &Redis| server.ask_text(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
        let follows =
            |server: &Redis| server.ask_text(&["INFO", "replication"]).contains("master_link_status:up");
        servers.iter().all(is_up) && servers[3..].iter().all(follows)
    })
    .await;
    servers
}

fn id(server: &Redis) -> String {
    server.ask_text(&["CLUSTER", "MYID"])
}

fn clustered(servers: &[&Redis]) -> Settings {
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
    let servers = servers(0).await;
    let link = Link::new(clustered(&[&servers[1]])).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    for number in 0..100 {
        assert_eq!(count(&link, &script, &format!("key{number}")).await, Ok(1));
    }
    assert_eq!((link.health().len(), redirects(&link)), (3, 0));

    // A slot is on its way: keys that have arrived are asked for there, and the map stays.
    let (from, to) = (&servers[2], &servers[0]);
    assert_eq!(count(&link, &script, "{foo}old").await, Ok(1));
    to.ask(&["CLUSTER", "SETSLOT", "12182", "IMPORTING", &id(from)]);
    from.ask(&["CLUSTER", "SETSLOT", "12182", "MIGRATING", &id(to)]);
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
    from.ask(&["MIGRATE", "127.0.0.1", &to.port.to_string(), "{foo}old", "0", "1000"]);
    for server in [to, from, &servers[1]] {
        server.ask(&["CLUSTER", "SETSLOT", "12182", "NODE", &id(to)]);
    }
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
    let mut servers = servers(1).await;
    let link = Link::new(clustered(&[&servers[0], &servers[2]])).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    assert_eq!(count(&link, &script, "hello").await, Ok(1));
    until("the replica has it", async || servers[3].ask_text(&["INFO", "keyspace"]).contains("keys=1")).await;
    servers[0].kill();
    until("the end is noticed", async || {
        matches!(count(&link, &script, "hello").await, Err(LinkError::Open { .. }))
    })
    .await;
    let mut others = 0;
    until("the replica takes over", async || {
        // While the cluster is short of a primary its others refuse too, unless it need not be whole.
        others += i32::from(count(&link, &script, "foo").await.is_ok());
        count(&link, &script, "hello").await.is_ok()
    })
    .await;
    assert!(others > 0);
    assert_eq!(count(&link, &script, "hello").await, Ok(3));
    assert!(link.ready(PATIENCE).await, "{link:?}");
    let health = link.health();
    assert!(
        health.iter().all(|shard| shard.address != format!("127.0.0.1:{}", servers[0].port)),
        "{health:?}"
    );
    assert!(
        health.iter().any(|shard| shard.address == format!("127.0.0.1:{}", servers[3].port)),
        "{health:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_new_is_reached_by_the_call_that_is_sent_there() {
    let servers = servers(0).await;
    let link = Link::new(clustered(&[&servers[0]])).unwrap();
    let script = counting();
    link.learn(&script);
    assert!(link.ready(PATIENCE).await, "{link:?}");
    let new = join(&servers).await;
    servers[2].ask(&["CLUSTER", "SETSLOT", "12182", "MIGRATING", &id(&new)]);
    new.ask(&["CLUSTER", "SETSLOT", "12182", "IMPORTING", &id(&servers[2])]);
    assert_eq!(count(&link, &script, "foo").await, Ok(1));
    assert_eq!((link.health().len(), redirects(&link)), (4, 1));
    for server in [&new, &servers[2]] {
        server.ask(&["CLUSTER", "SETSLOT", "12182", "NODE", &id(&new)]);
    }
    assert_eq!(count(&link, &script, "foo").await, Ok(2));
    assert_eq!(link.health().iter().map(|shard| shard.repairs).sum::<u64>(), 0, "it was told the script");
}

/// A server more, that has no slots.
async fn join(servers: &[Redis]) -> Redis {
    let new = Redis::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"]).await;
    new.ask(&["CLUSTER", "MEET", "127.0.0.1", &servers[0].port.to_string()]);
    let known = format!("cluster_known_nodes:{}", servers.len() + 1);
    until("all know it", async || {
        servers.iter().chain([&new]).all(|server| {
            let info = server.ask_text(&["CLUSTER", "INFO"]);
            info.contains(&known) && info.contains("cluster_state:ok")
        })
    })
    .await;
    new
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_in_no_cluster_is_told_clearly() {
    let server = Redis::start(&[]).await;
    let link = Link::new(clustered(&[&server])).unwrap();
    assert!(!link.ready(Duration::from_millis(500)).await);
    let error = count(&link, &counting(), "a").await.unwrap_err().to_string();
    assert!(error.contains("cluster support disabled"), "{error}");
    assert_eq!(link.health()[0].address, format!("127.0.0.1:{}", server.port));
}
