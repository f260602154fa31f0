//! Which requests pass, and what they are told.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use http::{Method, Request, StatusCode, Version};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tollgate::{Nanos, Rate, TokenBucket};
use tollgate_policy::Limit;
use tollgate_tower::TollgateLayer;
use tower::{Layer as _, ServiceExt as _};

use crate::{hello, layer, layer_of, request, text};

/// The statuses of requests, one after the other.
async fn statuses(layer: &TollgateLayer, requests: impl IntoIterator<Item = Request<()>>) -> Vec<u16> {
    let service = layer.layer(hello().0);
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(service.clone().oneshot(request).await.unwrap().status().as_u16());
    }
    statuses
}

fn from(peer: &str, forwarded_for: &str) -> Request<()> {
    let mut request = Request::builder().header("x-forwarded-for", forwarded_for).body(()).unwrap();
    request.extensions_mut().insert(SocketAddr::new(peer.parse().unwrap(), 4000));
    request
}

#[tokio::test]
async fn an_answer_tells_how_the_limits_stand() {
    let (layer, _) = layer("limits: [{ name: all, key: [], token_bucket: { rate: 1/s, burst: 10 } }]");
    let answer = layer.layer(hello().0).oneshot(request()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(text(answer.headers(), "ratelimit-policy"), Some(r#""all";q=10;w=10"#));
    assert_eq!(text(answer.headers(), "ratelimit"), Some(r#""all";r=9;t=1"#));
    assert_eq!(text(answer.headers(), "x-ratelimit-remaining"), Some("9"));
    assert_eq!(answer.headers().get("retry-after"), None);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
}

#[tokio::test]
async fn a_denied_request_gets_a_problem_and_does_not_reach_the_service() {
    let (layer, clock) = layer("limits: [{ name: all, key: [], token_bucket: { rate: 1/min, burst: 1 } }]");
    let (service, calls) = hello();
    let service = layer.layer(service);
    service.clone().oneshot(request()).await.unwrap();
    clock.advance(Nanos::new(500_000_000));
    let answer = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(text(answer.headers(), "retry-after"), Some("60"));
    assert_eq!(text(answer.headers(), "cache-control"), Some("no-store"));
    assert_eq!(text(answer.headers(), "content-type"), Some("application/problem+json"));
    assert_eq!(text(answer.headers(), "ratelimit"), Some(r#""all";r=0;t=60"#));
    let problem: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    assert_eq!(problem["error"], "rate_limit_exceeded");
    assert_eq!(problem["retry_after"], 59.5);
    assert_eq!(problem["violated-policies"], serde_json::json!(["all"]));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    clock.advance(Nanos::new(59_500_000_000));
    assert_eq!(service.oneshot(request()).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn a_denied_head_request_gets_no_body() {
    let (layer, _) = layer("limits: [{ name: all, key: [], fixed_window: { limit: 1, window: 1h } }]");
    let head = || Request::builder().method(Method::HEAD).body(()).unwrap();
    let service = layer.layer(hello().0);
    service.clone().oneshot(head()).await.unwrap();
    let answer = service.oneshot(head()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(answer.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn more_limits_than_can_be_decided_are_named() {
    let rule = TokenBucket::new(Rate::per_second(1).unwrap(), 1).unwrap();
    let layer = layer_of((0..33).map(|n| Limit::new(format!("limit-{n}"), rule)));
    let (service, calls) = hello();
    let answer = layer.layer(service).oneshot(request()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(text(answer.headers(), "content-type"), Some("application/problem+json"));
    let problem: Value =
        serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.starts_with("33 limits apply to this request, and 32 is the most: limit-0,"), "{detail}");
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

const PER_ADDRESS: &str =
    "limits: [{ name: per-address, key: [ip], fixed_window: { limit: 1, window: 1h } }]";

#[tokio::test]
async fn nobody_but_a_trusted_proxy_tells_of_other_addresses() {
    let (untrusting, _) = layer(PER_ADDRESS);
    let requests = [from("10.0.0.1", "1.1.1.1"), from("10.0.0.1", "2.2.2.2"), from("10.0.0.2", "1.1.1.1")];
    assert_eq!(statuses(&untrusting, requests).await, [200, 429, 200]);
    let identity = "identity: { client_ip: { trusted_proxies: [10.0.0.1/32], header: xff } }";
    let (trusting, _) = layer(&format!("{identity}\n{PER_ADDRESS}"));
    let requests = [from("10.0.0.1", "1.1.1.1"), from("10.0.0.1", "2.2.2.2"), from("10.0.0.2", "3.3.3.3")];
    assert_eq!(statuses(&trusting, requests).await, [200; 3]);
    let requests = [from("10.0.0.1", "1.1.1.1"), from("10.0.0.2", "4.4.4.4")];
    assert_eq!(statuses(&trusting, requests).await, [429; 2]);
}

#[tokio::test]
async fn the_application_says_who_is_at_the_other_end() {
    let (of_extensions, _) = layer(PER_ADDRESS);
    let with = |address: &str| {
        let mut request = request();
        request.extensions_mut().insert(address.parse::<IpAddr>().unwrap());
        request
    };
    let requests = [with("10.0.0.1"), with("10.0.0.1"), with("10.0.0.2")];
    assert_eq!(statuses(&of_extensions, requests).await, [200, 429, 200]);
    let (of_header, _) = layer(PER_ADDRESS);
    let of_header = of_header.peer(|request| request.headers.get("peer")?.to_str().ok()?.parse().ok());
    let with = |address: &str| Request::builder().header("peer", address).body(()).unwrap();
    let requests = [with("10.0.0.1"), with("10.0.0.1"), with("10.0.0.2")];
    assert_eq!(statuses(&of_header, requests).await, [200, 429, 200]);
}

#[tokio::test]
async fn requests_from_nowhere_share_one_key() {
    let (layer, _) = layer(PER_ADDRESS);
    let unspecified = || from("0.0.0.0", "1.1.1.1");
    assert_eq!(statuses(&layer, [request(), request(), unspecified()]).await, [200, 429, 429]);
}

#[derive(Clone)]
struct User(&'static str);

#[tokio::test]
async fn what_the_application_knows_counts_before_what_headers_say() {
    let (layer, _) = layer(
        "identity: { user: header.x-user }\n\
         limits: [{ name: per-user, key: [user], fixed_window: { limit: 1, window: 1h } }]",
    );
    let layer = layer.attribute("user", |request| request.extensions.get::<User>().map(|user| user.0.into()));
    let says = |header: &str, user: Option<&'static str>| {
        let mut request = Request::builder().header("x-user", header).body(()).unwrap();
        user.map(|user| request.extensions_mut().insert(User(user)));
        request
    };
    let requests = [says("a", Some("alice")), says("b", Some("alice")), says("c", None), says("c", None)];
    assert_eq!(statuses(&layer, requests).await, [200, 429, 200, 429]);
}

#[tokio::test]
async fn of_several_attributes_of_one_name_the_first_counts() {
    let (layer, _) =
        layer("limits: [{ name: per-user, key: [user], fixed_window: { limit: 1, window: 1h } }]");
    let layer = layer
        .attribute("user", |request| request.extensions.get::<User>().map(|user| user.0.into()))
        .attribute("user", |_| Some("guest".into()));
    let with = |user: &'static str| {
        let mut request = request();
        request.extensions_mut().insert(User(user));
        request
    };
    let requests = [with("alice"), with("bob"), with("bob"), request(), request(), with("guest")];
    assert_eq!(statuses(&layer, requests).await, [200, 200, 429, 200, 429, 429]);
}

#[tokio::test]
async fn the_application_says_what_a_request_costs() {
    let (layer, _) = layer(
        "costs: [{ match: { path: /export/* }, cost: 3 }]\n\
         limits: [{ name: all, key: [], token_bucket: { rate: 1/h, burst: 10 } }]",
    );
    let layer = layer.cost(|request| request.headers.get("cost")?.to_str().ok()?.parse().ok());
    let asks = |path: &str, cost: Option<&str>| {
        let request = Request::builder().uri(path);
        cost.iter().fold(request, |request, cost| request.header("cost", *cost)).body(()).unwrap()
    };
    let service = layer.layer(hello().0);
    for (path, cost, remaining) in
        [("/", None, "9"), ("/export/all", None, "6"), ("/export/all", Some("5"), "1"), ("/", Some("0"), "1")]
    {
        let answer = service.clone().oneshot(asks(path, cost)).await.unwrap();
        assert_eq!(text(answer.headers(), "x-ratelimit-remaining"), Some(remaining), "{path} {cost:?}");
    }
}

#[tokio::test]
async fn the_host_of_http_2_is_a_host() {
    let (layer, _) =
        layer("limits: [{ name: per-host, key: [host], fixed_window: { limit: 1, window: 1h } }]");
    let h1 = |host: &str| Request::builder().header("host", host).body(()).unwrap();
    let h2 = |host: &str| {
        let uri = format!("http://{host}/");
        Request::builder().uri(uri).version(Version::HTTP_2).body(()).unwrap()
    };
    let requests = [h1("a.example"), h2("a.example"), h2("b.example"), h1("b.example"), h2("c.example")];
    assert_eq!(statuses(&layer, requests).await, [200, 429, 200, 429, 200]);
}

#[tokio::test]
async fn a_reload_changes_what_the_layer_decides() {
    let (layer, _) = layer(PER_ADDRESS);
    assert_eq!(statuses(&layer, [request(), request()]).await, [200, 429]);
    layer.engine().reload(tollgate_policy::Policy::default()).unwrap();
    assert_eq!(statuses(&layer, [request()]).await, [200]);
}
