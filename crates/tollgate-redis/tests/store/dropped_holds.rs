//! Holds whose caller leaves before the server has answered.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tollgate_core::{Action, Concurrency, Rule};
use tollgate_policy::{Ask, Store as _};
use tollgate_redis::RedisStore;
use tollgate_testkit::RedisServer;

use super::{ask, decide, hourly, store};

const SLOTS: u64 = 3;
const BURST: u64 = 10;

/// A lease that does not end within the test.
fn slots() -> Rule {
    Concurrency::new(SLOTS, Some(Duration::from_secs(3600))).unwrap().into()
}

fn hold(limit: &'static str, rule: Rule, cost: u64) -> Ask<'static> {
    Ask { action: Action::Hold, ..ask(limit, "k", rule, cost) }
}

/// What remains of the slots and of the bucket.
async fn remaining(store: &RedisStore) -> [u64; 2] {
    let decided = decide(store, &[ask("slots", "k", slots(), 0), ask("rate", "k", hourly(BURST), 0)]).await;
    [0, 1].map(|limit| decided.each[limit].decision.status.remaining)
}

/// Waits until this remains.
async fn wait_for(store: &RedisStore, expected: [u64; 2]) {
    let start = Instant::now();
    loop {
        let found = remaining(store).await;
        if found == expected {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{found:?} remain, and not {expected:?}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The server decides the request after its caller has left. The charge of the bucket shows that it did.
#[tokio::test]
async fn a_hold_whose_caller_leaves_keeps_no_slot() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let asks = [hold("slots", slots(), 2), hold("rate", hourly(BURST), 4)];
    assert_eq!(remaining(&store).await, [SLOTS, BURST]);
    server.pause();
    let answer = timeout(Duration::from_millis(100), store.decide(&asks)).await;
    assert!(answer.is_err(), "a server that is paused has answered: {answer:?}");
    server.resume();
    wait_for(&store, [SLOTS, BURST - 4]).await;
    let decided = decide(&store, &[hold("slots", slots(), SLOTS)]).await;
    assert!(decided.verdict.is_allowed(), "all slots are free");
}

/// A caller that waits for the answer has the slots until it releases them.
#[tokio::test]
async fn a_hold_whose_caller_stays_keeps_its_slots() {
    let server = RedisServer::start();
    let store = store(&server).await;
    let asks = [hold("slots", slots(), 2), hold("rate", hourly(BURST), 4)];
    let decided = store.decide(&asks).await.unwrap();
    assert_eq!(remaining(&store).await, [SLOTS - 2, BURST - 4]);
    assert!(store.release(&decided.permits).await.unwrap(), "the slots are still held");
    assert_eq!(remaining(&store).await, [SLOTS, BURST - 4]);
}
