//! What the user of docs/redis.md may do is enough, wherever the servers are. (tests/store.rs asks all scripts of it.)

use tollgate_redis::link::{Call, Link, Script, Settings, Topology};
use tollgate_testkit::{RedisCluster, RedisServer};

use super::{PATIENCE, settings};

/// Makes the user on a server.
fn grant(server: &RedisServer) {
    let documents = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/redis.md"));
    let documents = documents.expect("it is there");
    let line = documents.lines().find(|line| line.starts_with("ACL SETUSER tollgate"));
    let words: Vec<&str> = line
        .expect("it has the ACL")
        .split(' ')
        .map(|word| if word.starts_with('>') { ">secret" } else { word })
        .collect();
    assert_eq!(server.command(&words).text(), "OK");
}

fn granted(settings: Settings) -> Link {
    let (username, password) = (Some("tollgate".to_owned()), Some("secret".into()));
    Link::new(Settings { username, password, ..settings }).expect("they make sense")
}

async fn set(link: &Link, key: &str) {
    let script = Script::new("return redis.call('SET', KEYS[1], 1)");
    let call = Call { script: &script, keys: &[key.as_bytes()], args: &[] };
    link.call(call).await.unwrap_or_else(|error| panic!("{key}: {error}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_user_may_use_a_database() {
    let server = RedisServer::start();
    grant(&server);
    let link = granted(settings(&format!("{}/3", server.url())));
    assert!(link.ready(PATIENCE).await, "{link:?}");
    set(&link, "tollgate:a").await;
    assert!(server.command(&["INFO", "keyspace"]).text().contains("db3:keys=1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_user_may_use_a_cluster() {
    let cluster = RedisCluster::start();
    cluster.nodes().iter().for_each(grant);
    let link = granted(Settings { urls: cluster.urls(), topology: Topology::Cluster, ..settings("") });
    assert!(link.ready(PATIENCE).await, "{link:?}");
    for number in 0..20 {
        set(&link, &format!("tollgate:{{{number}}}")).await;
    }
    // "foo" is in slot 12182, of the third server, and on its way to the first.
    let migration = cluster.migrate_slot(12182, 2, 0);
    set(&link, "tollgate:{foo}").await;
    migration.finish();
    set(&link, "tollgate:{foo}").await;
    assert_eq!(link.health().iter().map(|shard| shard.redirects).sum::<u64>(), 2);
}
