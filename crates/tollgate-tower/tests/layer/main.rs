//! The layer around services of tower, axum, tonic and plain hyper.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod axum;
mod bodies;
mod delayed_requests;
mod permits;
mod readiness;
mod readings;
mod requests;
mod shared;
mod tonic;

use std::convert::Infallible;
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use tollgate::{Clock, Concurrency};
use tollgate_policy::{Engine, Limit, Policy};
use tollgate_tower::TollgateLayer;

/// A layer by these limits, whose time stands still until the clock is moved.
fn layer(policy: &str) -> (TollgateLayer, Clock) {
    let policy = Policy::read(Path::new("test.yaml"), policy).unwrap_or_else(|faults| panic!("{faults}"));
    let clock = Clock::manual();
    (TollgateLayer::new(Engine::with_clock(policy, clock.clone()).unwrap()), clock)
}

/// A layer with these limits, by the real time.
fn layer_of(limits: impl IntoIterator<Item = Limit>) -> TollgateLayer {
    TollgateLayer::new(Engine::new(Policy::from_limits(limits).unwrap()).unwrap())
}

/// A layer that lets one request be in flight.
fn one_in_flight() -> TollgateLayer {
    layer_of([Limit::new("in-flight", Concurrency::new(1, None).unwrap())])
}

/// How many places of `in-flight` are free.
fn free_places(layer: &TollgateLayer) -> u64 {
    let (engine, now) = (layer.engine(), layer.engine().clock().now());
    engine.policy().key("in-flight", &[], now).now().unwrap().unwrap().unwrap().status.remaining
}

/// A request of nobody in particular.
fn request() -> Request<()> {
    Request::new(())
}

/// A service that counts its calls and answers `hello`.
fn hello() -> (
    impl tower::Service<Request<()>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send> + Clone,
    Arc<AtomicUsize>,
) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let service = tower::service_fn(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok(Response::new(Full::from("hello"))) }
    });
    (service, calls)
}

/// Whether a future has something to wait for.
async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *future).poll(context).is_pending())).await
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).map(|value| value.to_str().unwrap())
}
