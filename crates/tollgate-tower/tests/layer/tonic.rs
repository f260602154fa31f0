//! tonic: a real server and a real client.

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt as _;
use tokio_stream::wrappers::TcpListenerStream;
use tollgate_tower::TollgateLayer;
use tonic::Code;
use tonic::transport::Channel;
use tonic::transport::server::TcpConnectInfo;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer as _, ServiceExt as _};

use crate::{free_places, hello, layer, one_in_flight, text};

/// A client of a health service behind the layer.
async fn health(layer: TollgateLayer) -> HealthClient<Channel> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, service) = tonic_health::server::health_reporter();
    let server = tonic::transport::Server::builder().layer(layer).add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    HealthClient::new(channel)
}

fn anything() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

#[tokio::test]
async fn a_denied_call_is_told_that_a_resource_is_exhausted() {
    let (layer, _) = layer(
        "limits: [{ name: per-address, key: [ip], match: { path: /grpc.health.v1.Health/Check }, \
         token_bucket: { rate: 1/min, burst: 1 } }]",
    );
    let layer = layer.peer(|request| {
        request.extensions.get::<TcpConnectInfo>()?.remote_addr().as_ref().map(SocketAddr::ip)
    });
    let mut client = health(layer.clone()).await;
    let answer = client.check(anything()).await.unwrap();
    assert_eq!(answer.metadata().get("ratelimit").unwrap(), r#""per-address";r=0;t=60"#);
    assert_eq!(answer.into_inner().status, 1); // serving
    let denied = client.check(anything()).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(denied.message(), "Limit `per-address` is spent. Try again in 60 seconds.");
    for (name, value) in [
        ("retry-after", "60"),
        ("ratelimit", r#""per-address";r=0;t=60"#),
        ("ratelimit-policy", r#""per-address";q=1;w=60"#),
    ] {
        assert_eq!(denied.metadata().get(name).unwrap(), value);
    }
    // It was the address of the connection that was counted by.
    let now = layer.engine().clock().now();
    let key = layer
        .engine()
        .policy()
        .key("per-address", &[("ip", "127.0.0.1")], now)
        .now()
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(key.status.remaining, 0);
}

#[tokio::test]
async fn a_place_is_held_while_a_stream_is_open() {
    let layer = one_in_flight();
    let mut client = health(layer.clone()).await;
    let mut watch = client.watch(anything()).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    assert_eq!(client.check(anything()).await.unwrap_err().code(), Code::ResourceExhausted);
    drop(watch);
    let free = async {
        while free_places(&layer) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), free).await.expect("the place is given back");
    // A call that has been answered, trailers and all, holds nothing any more.
    for _ in 0..20 {
        client.check(anything()).await.unwrap();
    }
}

#[tokio::test]
async fn a_denial_is_trailers_only_for_grpc_and_nobody_else() {
    let (layer, _) = layer("limits: [{ name: all, key: [], fixed_window: { limit: 1, window: 1h } }]");
    let service = layer.layer(hello().0);
    let asks = |content_type: &str| Request::builder().header("content-type", content_type).body(()).unwrap();
    service.clone().oneshot(asks("application/grpc")).await.unwrap();
    for (content_type, is_grpc) in [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("application/grpc-web+proto", true),
        ("application/grpcish", false),
        ("application/json", false),
    ] {
        let denied = service.clone().oneshot(asks(content_type)).await.unwrap();
        let (status, grpc_status) = if is_grpc { (200, Some("8")) } else { (429, None) };
        assert_eq!(denied.status(), status, "{content_type}");
        assert_eq!(text(denied.headers(), "grpc-status"), grpc_status, "{content_type}");
        let kind = if is_grpc { content_type } else { "application/problem+json" };
        assert_eq!(text(denied.headers(), "content-type"), Some(kind));
        assert!(denied.headers().contains_key("retry-after"));
        assert_eq!(denied.into_body().collect().await.unwrap().to_bytes().is_empty(), is_grpc);
    }
}
