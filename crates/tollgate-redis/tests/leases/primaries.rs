//! Which connection draws and returns are sent over, and how long their answers may take.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tollgate_core::lease::Draw;
use tollgate_policy::{DrawCall, LeaseStore as _, LeasedKey, PrimaryId, Store as _};
use tollgate_redis::{BreakerState, RedisStore, Settings, Topology};
use tollgate_testkit::{FaultProxy, RedisCluster, RedisServer};

use super::{DEADLINE, DRAW, bucket, connected, draw, draw_from, key, remaining, return_of};

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draw_has_its_own_deadline() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    let deadline = Duration::from_millis(100);
    let settings = Settings::single(format!("redis://{}", proxy.address()), deadline);
    let store = connected(RedisStore::new(settings).unwrap()).await;
    assert_eq!(store.deadline(), deadline);
    let leased = key("k", bucket());
    assert_eq!(remaining(&store, &leased).await, 1000);
    let primary = store.primary(&leased).unwrap();
    proxy.delay(Duration::from_millis(100)); // each way
    // As many as would open the breaker, had they failed. Between them, a decision does fail.
    for number in 1..=10 {
        let began = Instant::now();
        let drawn = draw_from(&store, &leased, DRAW, primary).await;
        assert!(drawn.is_ok() && began.elapsed() >= 2 * deadline, "draw {number}: {drawn:?}");
        assert!(store.decide(&[leased.ask(1)]).await.is_err(), "a decision within {deadline:?}");
    }
    let short =
        DrawCall { key: Arc::clone(&leased), draw: DRAW, primary, deadline: Duration::from_millis(20) };
    let error = store.draw(short).await.unwrap_err();
    assert!(error.why.contains("did not answer within the deadline"), "{error}");
    assert_eq!(store.health()[0].state, BreakerState::Closed);
    // A return has the deadline of the settings.
    let charged = draw_from(&store, &leased, DRAW, primary).await.unwrap().charged;
    assert!(store.give_back(return_of(&store, &leased, 1, 50, charged)).await.is_err());
    assert_eq!(store.primary(&leased), Ok(primary));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draw_for_an_old_connection_is_not_sent() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    let settings = Settings::single(format!("redis://{}", proxy.address()), DEADLINE);
    let store = connected(RedisStore::new(settings).unwrap()).await;
    let leased = key("k", bucket());
    let (connections, old) = (store.connections(), store.primary(&leased).unwrap());
    let charged = draw_from(&store, &leased, DRAW, old).await.unwrap().charged;
    let late = return_of(&store, &leased, 1, 50, charged);
    tokio::task::block_in_place(|| proxy.cut());
    until("the loss is noticed", || store.primary(&leased).is_err()).await;
    assert!(store.connections() > connections);
    let away = store.primary(&leased).unwrap_err();
    assert!(away.why.contains("cannot be reached") && away.retry_after > Duration::ZERO, "{away:?}");
    let error = draw_from(&store, &leased, DRAW, old).await.unwrap_err();
    assert!(error.why.contains("cannot be reached"), "{error}");

    let connections = store.connections();
    tokio::task::block_in_place(|| proxy.heal());
    until("there is a connection", || store.primary(&leased).is_ok()).await;
    assert!(store.connections() > connections);
    let new = store.primary(&leased).unwrap();
    assert_ne!(new, old);
    let calls = store.health()[0].calls;
    let error = draw_from(&store, &leased, DRAW, old).await.unwrap_err();
    assert!(error.why.contains("has been replaced"), "{error}");
    let error = store.give_back(late).await.unwrap_err();
    assert!(error.why.contains("has been replaced"), "{error}");
    assert_eq!(store.health()[0].calls, calls, "nothing was sent");
    let drawn = draw_from(&store, &leased, Draw { mark: None, ..DRAW }, new).await.unwrap();
    assert_eq!(drawn.grant.units, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_process_have_different_numbers() {
    let [one, other] = [RedisServer::start(), RedisServer::start()];
    let leased = key("k", bucket());
    let mut numbers: Vec<PrimaryId> = Vec::new();
    for server in [&one, &other, &one] {
        let store = connected(RedisStore::new(Settings::single(server.url(), DEADLINE)).unwrap()).await;
        numbers.push(store.primary(&leased).unwrap());
        let connections = store.connections();
        draw(&store, &leased, DRAW).await.unwrap();
        assert_eq!(store.connections(), connections, "a draw changes no connection");
    }
    numbers.sort_by_key(|number| number.0);
    numbers.dedup();
    assert_eq!(numbers.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_script_that_was_forgotten_is_sent_again() {
    let server = RedisServer::start();
    let store = connected(RedisStore::new(Settings::single(server.url(), DEADLINE)).unwrap()).await;
    let leased = key("k", bucket());
    server.command(&["SCRIPT", "FLUSH"]);
    let drawn = draw(&store, &leased, DRAW).await.unwrap();
    assert_eq!((drawn.grant.units, store.health()[0].repairs), (50, 1));
    server.command(&["SCRIPT", "FLUSH"]);
    store.give_back(return_of(&store, &leased, 1, 50, drawn.charged)).await.unwrap();
    assert_eq!(store.health()[0].repairs, 2);
    assert_eq!(remaining(&store, &leased).await, 1000);
}

fn clustered(cluster: &RedisCluster) -> Settings {
    Settings { urls: cluster.urls(), topology: Topology::Cluster, ..Settings::single("", DEADLINE) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_a_draw_goes_to_the_owner_of_its_slot_or_nowhere() {
    let cluster = RedisCluster::start();
    let store = connected(RedisStore::new(clustered(&cluster)).unwrap()).await;
    // The slot of `foo` is 12182, which the third server has.
    let leased = Arc::new(LeasedKey { tag: b"foo".as_slice().into(), ..(*key("k", bucket())).clone() });
    let other = Arc::new(LeasedKey { tag: b"hello".as_slice().into(), ..(*leased).clone() });
    let (old, foreign) = (store.primary(&leased).unwrap(), store.primary(&other).unwrap());
    assert_ne!(old, foreign);
    let drawn = draw_from(&store, &leased, DRAW, old).await.unwrap();
    // The guard is in the slot of the key. Otherwise this would be CROSSSLOT.
    store.give_back(return_of(&store, &leased, 1, 20, drawn.charged)).await.unwrap();
    let guards = cluster.node(2).command(&["KEYS", "tollgate:{foo}:leased:return:*"]);
    assert_eq!(guards.array().len(), 1);
    let error = draw_from(&store, &leased, DRAW, foreign).await.unwrap_err();
    assert!(error.why.contains("has been replaced"), "{error}");

    // The slot is on its way. Keys that the old owner does not have are at the new one, or nowhere.
    let migration = cluster.migrate_slot(12182, 2, 0);
    let unused = Arc::new(LeasedKey { key: Box::new([b"unused".as_slice().into()]), ..(*leased).clone() });
    let error = draw_from(&store, &unused, DRAW, old).await.unwrap_err();
    assert!(error.why.contains("ASK"), "{error}");
    assert!(draw_from(&store, &leased, DRAW, old).await.is_ok());
    let charged = cluster.node(0).command(&["CLUSTER", "COUNTKEYSINSLOT", "12182"]);
    assert_eq!(charged.integer(), 0, "nothing was charged at the new owner");

    // The slot has moved. The first draw is refused, and the new owner is found out.
    let connections = store.connections();
    migration.finish();
    let redirects = || store.health().iter().map(|shard| shard.redirects).sum::<u64>();
    let before = redirects();
    let error = draw_from(&store, &leased, DRAW, old).await.unwrap_err();
    assert!(error.why.contains("MOVED"), "{error}");
    until("the new owner is known", || store.primary(&leased).is_ok_and(|primary| primary != old)).await;
    assert!(store.connections() > connections);
    assert_eq!(redirects(), before, "no draw was sent elsewhere");
    let new = store.primary(&leased).unwrap();
    assert_eq!(new, foreign, "the first server has the slot of `hello`, too");
    let error = draw_from(&store, &leased, DRAW, old).await.unwrap_err();
    assert!(error.why.contains("has been replaced"), "{error}");
    assert!(draw_from(&store, &leased, DRAW, new).await.is_ok());
}

#[test]
fn tasks_run_on_the_runtime_of_the_store() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = runtime.block_on(async {
        connected(RedisStore::new(Settings::single(server.url(), DEADLINE)).unwrap()).await
    });
    // Here, outside of the runtime, as in a process whose requests have another one.
    let (sender, receiver) = std::sync::mpsc::channel();
    let nap = store.sleep(Duration::from_millis(5));
    let sleeper = store.clone();
    store.spawn(Box::pin(async move {
        nap.await;
        timeout(DEADLINE, sleeper.sleep(Duration::from_millis(5))).await.unwrap();
        sender.send(()).unwrap();
    }));
    receiver.recv_timeout(DEADLINE).unwrap();
    assert!(Arc::new(store).leases().is_some());
}
