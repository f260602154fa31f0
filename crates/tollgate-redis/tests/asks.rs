//! Asks that are decided together, on Redis.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::Clock;
use tollgate_policy::Engine;
use tollgate_redis::{RedisStore, Settings};
use tollgate_testkit::asks::{
    BackEnd, Policy, known_differences_are_still_there, promises, random_calls_equal_the_model,
};
use tollgate_testkit::{RedisServer, effort};

use adapter::{EngineSubject, Wait};

#[path = "../../tollgate-policy/tests/asks/adapter.rs"]
#[allow(dead_code, reason = "the engine in memory is used elsewhere")]
mod adapter;

/// Waits on a thread that drives the connection.
#[derive(Clone)]
struct OnRuntime(Arc<Runtime>);

impl Wait for OnRuntime {
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }
}

/// Makes engines on a server, which is emptied for each of them.
struct Redis {
    server: RedisServer,
    store: RedisStore,
    runtime: OnRuntime,
}

impl Redis {
    fn start() -> Self {
        let (server, runtime) = (RedisServer::start(), OnRuntime(Arc::new(Runtime::new().unwrap())));
        let store = {
            let _guard = runtime.0.enter();
            RedisStore::with_manual_clock(Settings::single(server.url(), Duration::from_secs(10))).unwrap()
        };
        assert!(runtime.wait(store.ready(Duration::from_secs(10))), "the server answers");
        Self { server, store, runtime }
    }

    fn fresh(&self, policy: &Policy) -> EngineSubject<OnRuntime> {
        self.server.command(&["FLUSHALL"]);
        let (store, policy) = (self.store.clone(), adapter::policy(policy));
        let engine = Engine::with_store(policy, Clock::manual(), Arc::new(store.clone())).unwrap();
        let set_time = move |now: u64| store.set_time(now / BackEnd::Redis.tick());
        EngineSubject::new(engine, self.runtime.clone(), Box::new(set_time))
    }
}

#[test]
fn random_calls_on_redis_equal_the_model() {
    let redis = Redis::start();
    for seed in 0..effort() {
        random_calls_equal_the_model(BackEnd::Redis, &mut |policy| redis.fresh(policy), seed, 200);
    }
}

#[test]
fn the_engine_on_redis_keeps_every_promise_about_asks() {
    let redis = Redis::start();
    promises::are_kept(&mut |policy: &Policy| redis.fresh(policy));
}

#[test]
fn known_differences_on_redis_are_still_there() {
    let redis = Redis::start();
    known_differences_are_still_there(BackEnd::Redis, &mut |policy| redis.fresh(policy), 2000);
}
