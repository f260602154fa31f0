//! The agreement between a service and its caller: asked whether it is ready, then called, once.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer as _, Service, ServiceExt as _};

use crate::{is_pending, layer, request};

/// A service that reserves a place when it is asked, and must not be called without. A clone has none.
pub(crate) struct Strict {
    has_place: bool,
    says: &'static str,
    places: Arc<AtomicUsize>, // reserved, by all clones
}

impl Strict {
    /// One that answers so, and how many places are reserved.
    pub(crate) fn new(says: &'static str) -> (Self, Arc<AtomicUsize>) {
        let places = Arc::<AtomicUsize>::default();
        (Self { has_place: false, says, places: Arc::clone(&places) }, places)
    }

    fn give_back(&mut self) {
        if std::mem::take(&mut self.has_place) {
            self.places.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { has_place: false, says: self.says, places: Arc::clone(&self.places) }
    }
}

impl Drop for Strict {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Service<Request<()>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !self.has_place {
            self.has_place = true;
            self.places.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.has_place, "it was not asked whether it is ready");
        self.give_back();
        ready(Ok(Response::new(Full::from(self.says))))
    }
}

const HOLDS_ONE: &str = "
limits: [{ name: all, key: [], token_bucket: { rate: 1/s, burst: 1 }, max_wait: 1s, max_waiting: 1 }]";

#[tokio::test]
async fn only_a_service_that_is_ready_is_called() {
    let (layer, clock) = layer(HOLDS_ONE);
    let (strict, places) = Strict::new("hello");
    let mut service = layer.layer(strict);
    let at_once = service.ready().await.unwrap().call(request());
    let mut held = Box::pin(service.ready().await.unwrap().call(request()));
    assert!(is_pending(&mut held).await);
    let denied = service.ready().await.unwrap().call(request());
    assert_eq!(at_once.await.unwrap().status(), 200);
    assert_eq!(denied.await.unwrap().status(), 429);
    clock.advance(Duration::from_secs(1));
    assert_eq!(held.await.unwrap().status(), 200);
    assert_eq!(places.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_denied_request_gives_back_the_place_it_reserved() {
    let (layer, _) = layer("limits: [{ name: none, key: [], token_bucket: { rate: 1/h, burst: 1 } }]");
    let (strict, places) = Strict::new("hello");
    let mut service = layer.layer(strict).clone();
    for _ in 0..3 {
        let _ = service.ready().await.unwrap().call(request()).await.unwrap();
        assert_eq!(places.load(Ordering::Relaxed), 0);
    }
}
