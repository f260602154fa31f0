//! Servers that let us in and answer calls with errors: all of them, or some.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_redis::link::{BreakerState, Call, Link, Script, Settings, Topology};
use tollgate_testkit::{RedisCluster, RedisServer};

use super::logs::lines;
use super::{PATIENCE, count, counting, settings, until};

/// Long enough for several attempts to see that a server is back.
const A_WHILE: Duration = Duration::from_millis(1500);

fn charging() -> Script {
    Script::new("return redis.call('SET', KEYS[1], 1)")
}

async fn charge(link: &Link, key: &str) -> Result<(), String> {
    let call = Call { script: &charging(), keys: &[key.as_bytes()], args: &[] };
    link.call(call).await.map(|_| ()).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_charges_is_left_alone_until_it_does() {
    let lines = lines();
    let server = RedisServer::start();
    assert_eq!(server.command(&["ACL", "SETUSER", "me", "on", ">mine", "~tollgate:*", "+@all"]).text(), "OK");
    let (username, password) = (Some("me".to_owned()), Some("mine".into()));
    let link = Link::new(Settings { username, password, ..settings(&server.url()) }).unwrap();
    for (refuse, take, words) in [
        (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"], "OOM command not allowed"),
        (
            ["CONFIG", "SET", "min-replicas-to-write", "1"],
            ["CONFIG", "SET", "min-replicas-to-write", "0"],
            "NOREPLICAS",
        ),
        (
            ["ACL", "SETUSER", "me", "-evalsha"],
            ["ACL", "SETUSER", "me", "+evalsha"],
            "run the 'evalsha' command",
        ),
        (["ACL", "SETUSER", "me", "-set"], ["ACL", "SETUSER", "me", "+set"], "can't run this command"),
        (["ACL", "SETUSER", "me", "resetkeys"], ["ACL", "SETUSER", "me", "~tollgate:*"], "access"),
    ] {
        assert!(link.ready(PATIENCE).await, "{words}: {link:?}");
        assert_eq!(charge(&link, "tollgate:a").await, Ok(()), "{words}");
        assert_eq!(server.command(&refuse).text(), "OK");
        let error = charge(&link, "tollgate:a").await.unwrap_err();
        assert!(error.contains(words), "{error}");
        until(words, async || link.health()[0].state == BreakerState::Open).await;
        let began = Instant::now();
        while began.elapsed() < A_WHILE {
            let health = &link.health()[0];
            let reason = health.reason.clone().unwrap_or_default();
            assert!(health.state == BreakerState::Open && reason.contains(words), "{health:?}");
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(server.command(&take).text(), "OK");
    }
    assert!(link.ready(PATIENCE).await, "{link:?}");
    assert_eq!(server.command(&["KEYS", "*"]).array().len(), 1, "what was tried leaves nothing");
    let told = lines.with(&format!("shard=127.0.0.1:{}", server.port()));
    let opened = told.iter().filter(|line| line.contains("WARN") && line.contains("cannot be used")).count();
    assert_eq!(opened, 5, "{told:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_of_one_key_are_told_once_and_leave_the_others_alone() {
    let lines = lines();
    let server = RedisServer::start();
    let link = Link::new(settings(&server.url())).unwrap();
    assert!(link.ready(PATIENCE).await);
    server.command(&["RPUSH", "list", "1"]);
    let (script, began, mut times) = (counting(), Instant::now(), 0);
    while began.elapsed() < A_WHILE {
        times += 1;
        let error = count(&link, &script, "list").await.unwrap_err().to_string();
        assert!(error.contains("WRONGTYPE"), "{error}");
        assert_eq!(count(&link, &script, "a").await, Ok(times));
    }
    assert_eq!((link.health()[0].state, link.health()[0].reconnects), (BreakerState::Closed, 0));
    let told = lines.with(&format!("shard=127.0.0.1:{}", server.port()));
    let [first, error] = &told[..] else { panic!("{told:#?}") };
    assert!(
        first.contains("can be used") && error.contains("WARN") && error.contains("WRONGTYPE"),
        "{told:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_cluster_only_the_server_that_takes_no_charges_is_left_alone() {
    let cluster = RedisCluster::start();
    let link =
        Link::new(Settings { urls: cluster.urls(), topology: Topology::Cluster, ..settings("") }).unwrap();
    let script = counting();
    assert!(link.ready(PATIENCE).await, "{link:?}");
    // "hello" is in slot 866, of the first server; "foo" in 12182, of the third.
    cluster.node(0).command(&["CONFIG", "SET", "maxmemory", "1"]);
    count(&link, &script, "hello").await.unwrap_err();
    until("it is found out", async || !link.ready(Duration::ZERO).await).await;
    let (began, mut times) = (Instant::now(), 0);
    while began.elapsed() < A_WHILE {
        times += 1;
        assert_eq!(count(&link, &script, "foo").await, Ok(times));
        let health = link.health();
        let open: Vec<_> = health.iter().filter(|shard| shard.state == BreakerState::Open).collect();
        let [open] = &open[..] else { panic!("{health:?}") };
        assert_eq!(open.address, cluster.node(0).address().to_string());
        assert!(open.reason.as_ref().is_some_and(|reason| reason.contains("OOM")), "{open:?}");
    }
    cluster.node(0).command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(link.ready(PATIENCE).await, "{link:?}");
    assert_eq!(count(&link, &script, "hello").await, Ok(1));
    assert_eq!(cluster.node(0).command(&["DBSIZE"]).integer(), 1);
}
