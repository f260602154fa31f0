//! Leases: what the store grants to a draw, what it takes back, and over which connection.

mod primaries;
mod returns;
mod same_as_core;

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::adaptive::Pace;
use tollgate_core::lease::{Draw, Grant};
use tollgate_core::{Nanos, Rate, Rule, Timestamp, TokenBucket};
use tollgate_policy::{DrawCall, Drawn, LeaseStore as _, LeasedKey, PrimaryId, ReturnCall, Unavailable};
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::RedisServer;

const DEADLINE: Duration = Duration::from_secs(10);
const SYNC: Nanos = Nanos::new(100_000_000);
const LIFE: Nanos = Nanos::new(500_000_000);

async fn connected(store: RedisStore) -> RedisStore {
    assert!(store.ready(DEADLINE).await, "{:?}", store.health());
    store
}

/// A store whose time stands still.
async fn store_at_a_time(server: &RedisServer) -> RedisStore {
    let settings = Settings::single(server.url(), DEADLINE);
    let store = connected(RedisStore::with_manual_clock(settings).unwrap()).await;
    store.set_time(1_800_000_000_000_000);
    store
}

fn key(key: &str, rule: Rule) -> Arc<LeasedKey> {
    Arc::new(LeasedKey {
        limit: "leased".into(),
        key: Box::new([key.as_bytes().into()]),
        tag: b"acme".as_slice().into(),
        rule,
        pace: Pace::FULL,
    })
}

/// A bucket of 1000 with a rate of 1000/s.
fn bucket() -> Rule {
    TokenBucket::new(Rate::per_second(1000).unwrap(), 1000).unwrap().into()
}

/// What a node asks for that has 500 requests per second: 50 units.
const DRAW: Draw = Draw { sync: SYNC, demand: 500, ..Draw::of_cost(0) };

/// Draws from the primary of the moment.
async fn draw(store: &RedisStore, key: &Arc<LeasedKey>, draw: Draw) -> Result<Drawn, Unavailable> {
    draw_from(store, key, draw, store.primary(key)?).await
}

async fn draw_from(
    store: &RedisStore,
    key: &Arc<LeasedKey>,
    draw: Draw,
    primary: PrimaryId,
) -> Result<Drawn, Unavailable> {
    store.draw(DrawCall { key: Arc::clone(key), draw, primary, deadline: DEADLINE }).await
}

/// A return of units to the primary of the moment.
fn return_of(
    store: &RedisStore,
    key: &Arc<LeasedKey>,
    grant: u64,
    units: u64,
    charged: Timestamp,
) -> ReturnCall {
    let primary = store.primary(key).unwrap();
    ReturnCall { key: Arc::clone(key), grant, units, charged, life: LIFE, primary }
}

/// What remains of a key, as a draw of nothing reports it.
async fn remaining(store: &RedisStore, key: &Arc<LeasedKey>) -> u64 {
    let Grant { units, status, .. } = draw(store, key, Draw::of_cost(0)).await.unwrap().grant;
    assert_eq!(units, 0);
    status.remaining
}
