//! Processes that share a store, as users run them, while its servers fail: what is decided meanwhile, how much passes that
//! should not have, how long a decision takes, and how soon everything is exact again. Each fault is made twice: while the store
//! decides every request, and while processes decide by grants ([`mode::Mode`]).
//!
//! Each test prints what it measured beside its bound (`cargo test -p tollgate-redis --test integration faults:: -- --nocapture`);
//! docs/redis.md has the table.

mod clock;
mod cluster;
mod engines;
mod grants;
mod load;
mod loss;
mod mode;
mod modes;
mod network;
mod one_server;
mod permits;
mod plans;
mod processes;
mod scripts;
mod sentinel;
mod starting;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::Clock;
use tollgate_policy::{Engine, Policy, Request, Source, StoreSettings};
use tollgate_redis::RedisStore;

/// Nothing takes longer on any machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How soon after the store's return it decides again.
const BACK_WITHIN: Duration = Duration::from_secs(2);

/// One process: an engine with a store of its own.
#[derive(Clone)]
struct Node {
    engine: Arc<Engine>,
    store: RedisStore,
}

impl Node {
    /// Starts one by a policy file, and waits until it reaches its servers.
    async fn start(policy: &str) -> Self {
        let node = Self::begin(policy);
        assert!(node.store.ready(PATIENCE).await, "{:?}", node.store.health());
        node
    }

    /// Starts one, whether or not its servers are there.
    fn begin(policy: &str) -> Self {
        let policy =
            Policy::read(Path::new("tollgate.yaml"), policy).unwrap_or_else(|faults| panic!("{faults}"));
        let StoreSettings::Redis(redis) = &policy.store else { panic!("the policy has no store") };
        let store = RedisStore::open(redis).unwrap();
        let engine = Engine::with_store(policy, Clock::new(), Arc::new(store.clone())).unwrap();
        Self { engine: Arc::new(engine), store }
    }

    async fn ask(&self, attributes: &[(&str, &str)]) -> (bool, Source) {
        let (policy, request) = (self.engine.policy(), Request { attributes, cost: None });
        let verdict = policy.check(&request, self.engine.clock().now()).wait().await.unwrap();
        (verdict.is_allowed(), verdict.source())
    }

    /// What remains of each limit, as the store has it.
    async fn remaining(&self, attributes: &[(&str, &str)]) -> Vec<u64> {
        let (policy, request) = (self.engine.policy(), Request { attributes, cost: Some(0) });
        let verdict = policy.check(&request, self.engine.clock().now()).wait().await.unwrap();
        assert_eq!(verdict.source(), Source::Store);
        verdict.limits().map(|limit| limit.decision().status.remaining).collect()
    }

    /// How many calls failed in a way, over all shards.
    fn errors(&self, kind: &str) -> u64 {
        let errors = self.store.health().into_iter().flat_map(|shard| shard.errors);
        errors.filter(|(name, _)| *name == kind).map(|(_, count)| count).sum()
    }
}

/// The units of a limit that these processes have drawn and not spent.
fn unspent(nodes: &[Node], limit: &str) -> u64 {
    let stats = nodes.iter().flat_map(|node| node.engine.lease_stats());
    stats.filter(|stats| stats.limit == limit).map(|stats| stats.held + stats.lapsed).sum()
}

/// Waits until it is so.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(5)).await;
    }
    began.elapsed()
}

/// Action what makes its thread wait, such as to start a server.
fn wait<T>(what: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(what)
}
