//! Requests that are held back, and places that are held for as long as an answer takes.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::{Concurrency, LeakyBucket, Rate};
use tollgate_policy::Engine;
use tollgate_tower::{Limits, TollgateLayer};
use tower::{Layer as _, ServiceExt as _};

use crate::{free_places, hello, is_pending, layer, one_in_flight, request, text};

#[tokio::test]
async fn a_request_is_held_until_its_time() {
    let (layer, clock) =
        layer("limits: [{ name: all, key: [], token_bucket: { rate: 10/s, burst: 1 }, max_wait: 200ms }]");
    let (service, calls) = hello();
    let calls = || calls.load(std::sync::atomic::Ordering::Relaxed);
    let service = layer.layer(service);
    service.clone().oneshot(request()).await.unwrap();
    let mut second = Box::pin(service.clone().oneshot(request()));
    let mut third = Box::pin(service.clone().oneshot(request()));
    assert!(is_pending(&mut second).await && is_pending(&mut third).await);
    let fourth = service.oneshot(request()).await.unwrap();
    assert_eq!((fourth.status().as_u16(), text(fourth.headers(), "retry-after")), (429, Some("1")));
    clock.advance(Duration::from_nanos(99_999_999));
    assert!(is_pending(&mut second).await);
    assert_eq!(calls(), 1);
    clock.advance(Duration::from_nanos(1));
    let answer = second.await.unwrap();
    assert_eq!((answer.status().as_u16(), text(answer.headers(), "x-ratelimit-remaining")), (200, Some("0")));
    assert!(is_pending(&mut third).await);
    assert_eq!(calls(), 2);
    clock.advance(Duration::from_millis(100));
    assert_eq!(third.await.unwrap().status(), 200);
}

#[tokio::test]
async fn requests_are_held_by_the_real_time_too() {
    let limits =
        Limits::new().limit("all", LeakyBucket::new(Rate::per_second(200).unwrap(), 10).unwrap(), &[]);
    let layer = TollgateLayer::new(Engine::new(limits.policy().unwrap()).unwrap());
    let clock = layer.engine().clock().clone();
    let (service, began) = (layer.layer(hello().0), clock.now());
    let answers = (0..4).map(|_| service.clone().oneshot(request()));
    for answer in futures_util::future::join_all(answers).await {
        assert_eq!(answer.unwrap().status(), 200);
    }
    let took = Duration::from(clock.now().since(began));
    assert!(took >= Duration::from_millis(15), "four at 200 a second: {took:?}");
}

#[tokio::test]
async fn whoever_leaves_while_held_leaves_no_place_behind() {
    let limits = Limits::new()
        .limit("queue", LeakyBucket::new(Rate::per_hour(1).unwrap(), 10).unwrap(), &[])
        .limit("in-flight", Concurrency::new(2, None).unwrap(), &[]);
    let layer = TollgateLayer::new(Engine::new(limits.policy().unwrap()).unwrap());
    let (service, calls) = hello();
    let service = layer.layer(service);
    let _ = service.clone().oneshot(request()).await.unwrap();
    let mut held = Box::pin(service.oneshot(request()));
    assert!(is_pending(&mut held).await);
    assert_eq!(free_places(&layer), 1);
    drop(held);
    assert_eq!(free_places(&layer), 2);
    assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_place_is_held_while_the_service_works() {
    let layer = one_in_flight();
    let (finish, finished) = tokio::sync::oneshot::channel::<()>();
    let finished = std::sync::Arc::new(tokio::sync::Mutex::new(Some(finished)));
    let service = layer.layer(tower::service_fn(move |_: Request<()>| {
        let finished = std::sync::Arc::clone(&finished);
        async move {
            let finished = finished.lock().await.take();
            finished.expect("one call").await.unwrap();
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    }));
    let mut first = Box::pin(service.clone().oneshot(request()));
    assert!(is_pending(&mut first).await);
    let second = service.oneshot(request()).await.unwrap();
    assert_eq!(second.status(), 429);
    assert_eq!(second.headers().get("retry-after"), None); // nobody knows
    finish.send(()).unwrap();
    let answer = first.await.unwrap();
    assert_eq!(
        text(answer.headers(), "ratelimit-policy"),
        Some(r#""in-flight";q=1;qu="concurrent-requests""#)
    );
    assert_eq!(free_places(&layer), 1); // of an empty answer there is nothing to wait for
}

#[tokio::test]
async fn an_error_of_the_service_is_passed_on_and_frees_the_place() {
    let layer = one_in_flight();
    let service = layer.layer(tower::service_fn(async |_: Request<()>| {
        Err::<Response<Full<Bytes>>, _>(io::Error::other("broken"))
    }));
    for _ in 0..2 {
        assert_eq!(service.clone().oneshot(request()).await.unwrap_err().to_string(), "broken");
    }
    assert_eq!(free_places(&layer), 1);
}
