//! States in a store that has to be waited for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tollgate::{Clock, Decision, Nanos, Outcome, Retry, Rule, Status};
use tollgate_policy::{
    Ask, Decisions, Engine, KeyState, Later, LimitDecision, Policy, Source, Store, StoredPermit, Unavailable,
};
use tollgate_tower::TollgateLayer;
use tower::{Layer as _, Service as _, ServiceExt as _};

use crate::readiness::Strict;
use crate::{is_pending, request, text};

/// A store of permits that answers when `answers` lets it.
#[derive(Debug)]
struct Slow {
    answers: Semaphore,
    places: AtomicU64,
    delay: Nanos, // of requests that it allows
}

impl Store for Slow {
    fn decide<'a>(&'a self, asks: &'a [Ask<'_>]) -> Later<'a, Result<Decisions, Unavailable>> {
        Box::pin(async move {
            self.answers.acquire().await.unwrap().forget();
            let taken =
                self.places.try_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1));
            let outcome = match taken {
                Ok(_) => Outcome::Allow { delay: self.delay },
                Err(_) => Outcome::Deny { retry: Retry::Unknown },
            };
            let status = Status { remaining: self.places.load(Ordering::Relaxed), ..Status::default() };
            let decision = Decision { outcome, status };
            assert_eq!(asks.len(), 1);
            let key_state = KeyState::Stored { more_after: None };
            Ok(Decisions {
                source: Source::Store,
                each: std::iter::once(LimitDecision { decision, key_state }).collect(),
                permits: taken
                    .iter()
                    .map(|_| StoredPermit { key: b"in-flight".into(), id: b"1".into() })
                    .collect(),
            })
        })
    }

    fn release<'a>(&'a self, permits: &'a [StoredPermit]) -> Later<'a, Result<bool, Unavailable>> {
        self.release_later(permits.to_vec());
        Box::pin(async { Ok(true) })
    }

    fn release_later(&self, permits: Vec<StoredPermit>) {
        self.places.fetch_add(permits.len() as u64, Ordering::Relaxed);
    }

    fn forget<'a>(&'a self, _: &'a Ask<'_>) -> Later<'a, Result<bool, Unavailable>> {
        Box::pin(async { Ok(false) })
    }

    fn require(&self, _: &Rule) -> Result<(), String> {
        Ok(())
    }

    fn nodes(&self) -> u32 {
        1
    }
}

/// A layer whose store has one place.
fn layer() -> (TollgateLayer, Arc<Slow>) {
    layer_over(Slow { answers: Semaphore::new(0), places: AtomicU64::new(1), delay: Nanos::ZERO })
}

fn layer_over(store: Slow) -> (TollgateLayer, Arc<Slow>) {
    let store = Arc::new(store);
    let policy = "limits: [{ name: in-flight, key: [], concurrency: { limit: 1, lease: 1h } }]";
    let policy = Policy::read(Path::new("test.yaml"), policy).unwrap();
    let engine = Engine::with_store(policy, Clock::manual(), Arc::clone(&store) as Arc<dyn Store>).unwrap();
    (TollgateLayer::new(engine), store)
}

#[tokio::test]
async fn a_store_is_waited_for() {
    let (layer, store) = layer();
    let (strict, reserved) = Strict::new("hello");
    let mut service = layer.layer(strict);
    let mut first = Box::pin(service.ready().await.unwrap().call(request()));
    let mut second = Box::pin(service.ready().await.unwrap().call(request()));
    assert!(is_pending(&mut first).await && is_pending(&mut second).await);
    store.answers.add_permits(2);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 429));
    assert_eq!(text(second.headers(), "content-type"), Some("application/problem+json"));
    assert_eq!(reserved.load(Ordering::Relaxed), 0);
    assert_eq!(store.places.load(Ordering::Relaxed), 0);
    drop(first);
    assert_eq!(store.places.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn whoever_leaves_before_the_store_answers_holds_nothing() {
    let (layer, store) = layer();
    let (strict, reserved) = Strict::new("hello");
    let mut service = layer.layer(strict);
    let mut left = Box::pin(service.ready().await.unwrap().call(request()));
    assert!(is_pending(&mut left).await);
    drop(left);
    assert_eq!((reserved.load(Ordering::Relaxed), store.places.load(Ordering::Relaxed)), (0, 1));
}

#[tokio::test]
async fn with_a_shared_store_a_request_waits_for_its_whole_delay() {
    let delay = Nanos::new(100_000_000);
    let (layer, _) = layer_over(Slow { answers: Semaphore::new(2), places: AtomicU64::new(2), delay });
    let clock = layer.engine().clock().clone();
    let (strict, _) = Strict::new("hello");
    let mut service = layer.layer(strict);
    let mut first = Box::pin(service.ready().await.unwrap().call(request()));
    let mut second = Box::pin(service.ready().await.unwrap().call(request()));
    assert!(is_pending(&mut first).await && is_pending(&mut second).await);
    drop(first);
    clock.advance(Duration::from_nanos(99_999_999));
    assert!(is_pending(&mut second).await);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(second.await.unwrap().status(), 200);
}
