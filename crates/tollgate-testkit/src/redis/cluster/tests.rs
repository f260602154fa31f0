use super::*;
use crate::redis::{Reply, slot_of};

#[test]
fn a_slot_is_where_the_cluster_says() {
    // Longer than any hiccup of the machine: nobody is to take over here.
    let cluster = RedisCluster::with(Duration::from_secs(5), &[]);
    assert_eq!(cluster.urls().len(), 6);
    let slots = [0, 5461, 5462, 10_923, 10_924, 16_383];
    assert_eq!(slots.map(|slot| cluster.primary_of(slot)), [0, 0, 1, 1, 2, 2]);
    for key in ["a", "b", "{user1000}.following"] {
        let slot = slot_of(key);
        assert_eq!(cluster.node(5).command(&["CLUSTER", "KEYSLOT", key]).integer(), i64::from(slot), "{key}");
        let home = cluster.primary_of(slot);
        assert_eq!(cluster.node(home).command(&["SET", key, "1"]).text(), "OK");
        let elsewhere = cluster.node((home + 1) % 3).command(&["GET", key]);
        let moved = format!("MOVED {slot} 127.0.0.1:{}", cluster.node(home).port());
        assert_eq!(elsewhere, Reply::Error(moved));
    }
}

#[test]
fn a_replica_takes_over_when_its_primary_is_killed_and_the_primary_comes_back_as_its_replica() {
    let cluster = RedisCluster::start();
    let slot = slot_of("key");
    let before = cluster.primary_of(slot);
    let mut client = cluster.node(before).client();
    client.command(&["SET", "key", "value"]);
    assert_eq!(client.command(&["WAIT", "1", "10000"]).integer(), 1);
    cluster.kill(before);

    let after = cluster.primary_of(slot);
    assert_eq!(after, before + 3);
    cluster.wait_ok();
    assert_eq!(cluster.node(after).command(&["GET", "key"]).text(), "value");

    cluster.restart(before);
    cluster.wait_ok();
    assert_eq!(cluster.primary_of(slot), after);
    assert_eq!(cluster.node(before).info("replication", "role").as_deref(), Some("slave"));
}

#[test]
fn a_slot_on_its_way_asks_and_lets_try_again() {
    let cluster = RedisCluster::with(Duration::from_secs(5), &["--requirepass", "pw", "--masterauth", "pw"]);
    let slot = slot_of("{tag}");
    let from = cluster.primary_of(slot);
    let to = (from + 1) % 3;
    let (mut old, mut new) = (cluster.node(from).client(), cluster.node(to).client());
    old.command(&["MSET", "{tag}a", "1", "{tag}b", "2"]);

    let migration = cluster.migrate_slot(slot, from, to);
    assert_eq!(old.command(&["GET", "{tag}a"]).text(), "1", "it was not moved yet");
    migration.move_these(&["{tag}a"]);
    assert_eq!(migration.keys_left(10), [b"{tag}b"]);

    let ask = Reply::Error(format!("ASK {slot} 127.0.0.1:{}", cluster.node(to).port()));
    assert_eq!(old.command(&["GET", "{tag}a"]), ask);
    let moved = Reply::Error(format!("MOVED {slot} 127.0.0.1:{}", cluster.node(from).port()));
    assert_eq!(new.command(&["GET", "{tag}a"]), moved, "it was not asked first");
    new.command(&["ASKING"]);
    assert_eq!(new.command(&["GET", "{tag}a"]).text(), "1");
    new.command(&["ASKING"]);
    let split = new.command(&["MGET", "{tag}a", "{tag}b"]);
    assert!(split.error().is_some_and(|error| error.starts_with("TRYAGAIN")), "{split:?}");

    migration.finish();
    assert_eq!(cluster.primary_of(slot), to);
    assert_eq!(new.command(&["MGET", "{tag}a", "{tag}b"]).array().len(), 2);
    let moved = Reply::Error(format!("MOVED {slot} 127.0.0.1:{}", cluster.node(to).port()));
    assert_eq!(old.command(&["GET", "{tag}a"]), moved);
}
