//! Requests that a limit allows with a delay.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::{Concurrency, LeakyBucket, Rate};
use tollgate_policy::Limit;
use tollgate_tower::TollgateLayer;
use tower::{Layer as _, ServiceExt as _};

use crate::{free_places, hello, is_pending, layer, layer_of, request, text};

#[tokio::test]
async fn a_request_waits_until_its_turn() {
    let (layer, clock) =
        layer("limits: [{ name: all, key: [], token_bucket: { rate: 10/s, burst: 1 }, max_wait: 200ms }]");
    let (service, calls) = hello();
    let calls = || calls.load(Ordering::Relaxed);
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
async fn requests_wait_by_the_real_time_too() {
    let layer = layer_of([Limit::new("all", LeakyBucket::new(Rate::per_second(200).unwrap(), 10).unwrap())]);
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
async fn a_client_that_leaves_while_delayed_releases_its_permit() {
    let layer = layer_of([
        Limit::new("queue", LeakyBucket::new(Rate::per_hour(1).unwrap(), 10).unwrap()),
        Limit::new("in-flight", Concurrency::new(2, None).unwrap()),
    ]);
    let (service, calls) = hello();
    let service = layer.layer(service);
    let _ = service.clone().oneshot(request()).await.unwrap();
    let mut delayed = Box::pin(service.oneshot(request()));
    assert!(is_pending(&mut delayed).await);
    assert_eq!(free_places(&layer), 1);
    drop(delayed);
    assert_eq!(free_places(&layer), 2);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_client_that_leaves_gives_its_turn_to_the_next() {
    let (layer, clock) = layer("limits: [{ name: all, key: [], leaky_bucket: { rate: 10/s, queue: 4 } }]");
    let (service, calls) = hello();
    let calls = || calls.load(Ordering::Relaxed);
    let service = layer.layer(service);
    let ask = || Box::pin(service.clone().oneshot(request()));
    ask().await.unwrap();
    let (mut second, mut third, mut fourth) = (ask(), ask(), ask());
    for delayed in [&mut second, &mut third, &mut fourth] {
        assert!(is_pending(delayed).await);
    }
    assert_eq!(ask().await.unwrap().status(), 429, "the queue is full");
    drop(second);
    let mut fifth = ask();
    assert!(is_pending(&mut fifth).await, "there is room for another request");
    for (number, mut delayed) in [third, fourth, fifth].into_iter().enumerate() {
        clock.advance(Duration::from_nanos(99_999_999));
        assert!(is_pending(&mut delayed).await);
        assert_eq!(calls(), 1 + number);
        clock.advance(Duration::from_nanos(1));
        assert_eq!(delayed.await.unwrap().status(), 200);
    }
    assert_eq!(calls(), 4);
}

#[tokio::test]
async fn a_request_that_was_never_polled_gives_its_turn_up() {
    let (layer, _clock) = layer("limits: [{ name: all, key: [], leaky_bucket: { rate: 10/s, queue: 2 } }]");
    let mut service = layer.layer(hello().0);
    let mut call = || tower::Service::call(&mut service, request());
    drop(call());
    drop(call());
    assert_eq!(free_slots(&layer), 1, "the first request had no delay");
}

/// How many requests the queue of `all` has room for.
fn free_slots(layer: &TollgateLayer) -> u64 {
    let (engine, now) = (layer.engine(), layer.engine().clock().now());
    engine.policy().key("all", &[], now).now().unwrap().unwrap().unwrap().status.remaining
}
