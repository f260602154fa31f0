//! Asks that are decided together while the store gives no answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::{Clock, Rule};
use tollgate_policy::{Ask, Decisions, Engine, Later, Store, StoredPermit, Unavailable};
use tollgate_testkit::asks::{
    BackEnd, Fallback, Policy, known_differences_are_still_there, promises, random_calls_equal_the_model,
};
use tollgate_testkit::effort;

use super::adapter::{self, AtOnce, EngineSubject};

/// A store that has given no answer since the outage began.
#[derive(Debug, Default)]
struct Silent {
    now: AtomicU64,
}

impl Silent {
    fn no_answer<T: Send + 'static>(&self) -> Later<'_, Result<T, Unavailable>> {
        let now = self.now.load(Ordering::Relaxed);
        let unavailable = Unavailable {
            why: "it is silent".into(),
            out_for: Duration::from_nanos(now - Fallback::OUTAGE_START),
            retry_after: Duration::from_nanos(Fallback::RETRY_AFTER),
        };
        Box::pin(async move { Err(unavailable) })
    }
}

impl Store for Silent {
    fn decide<'a>(&'a self, _: &'a [Ask<'_>]) -> Later<'a, Result<Decisions, Unavailable>> {
        self.no_answer()
    }

    fn release<'a>(&'a self, _: &'a [StoredPermit]) -> Later<'a, Result<bool, Unavailable>> {
        self.no_answer()
    }

    fn release_later(&self, _: Vec<StoredPermit>) {}

    fn forget<'a>(&'a self, _: &'a Ask<'_>) -> Later<'a, Result<bool, Unavailable>> {
        self.no_answer()
    }

    fn require(&self, _: &Rule) -> Result<(), String> {
        Ok(())
    }

    fn nodes(&self) -> u32 {
        Fallback::NODES as u32
    }
}

fn fresh(policy: &Policy) -> EngineSubject<AtOnce> {
    let store = Arc::new(Silent::default());
    let engine = Engine::with_store(adapter::policy(policy), Clock::manual(), Arc::<Silent>::clone(&store));
    let set_time = move |now| store.now.store(now, Ordering::Relaxed);
    EngineSubject::new(engine.unwrap(), AtOnce, Box::new(set_time))
}

#[test]
fn random_calls_without_the_store_equal_the_model() {
    for seed in 0..effort() {
        random_calls_equal_the_model(BackEnd::Fallback, &mut fresh, seed, 100);
    }
}

#[test]
fn the_engine_without_the_store_keeps_every_promise_about_asks() {
    promises::without_a_store(&mut fresh);
}

#[test]
fn known_differences_without_the_store_are_still_there() {
    known_differences_are_still_there(BackEnd::Fallback, &mut fresh, 2000);
}
