//! axum, served on a port.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, MatchedPath};
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollgate_tower::TollgateLayer;
use tower::Layer as _;

use crate::{free_places, layer, one_in_flight, text};

/// Serves an application on a free port.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn connect(address: SocketAddr) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn ask(
    client: &mut SendRequest<Empty<Bytes>>,
    path: &str,
    headers: &[(&str, &str)],
) -> Response<Incoming> {
    let request = Request::builder().uri(path).header("host", "test");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    client.ready().await.unwrap();
    client.send_request(request.body(Empty::new()).unwrap()).await.unwrap()
}

fn by_connection(layer: TollgateLayer) -> TollgateLayer {
    layer.peer(|request| request.extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()))
}

/// Waits until a place is free again: that a client has left is seen a moment later.
async fn until_free(layer: &TollgateLayer) {
    let free = async {
        while free_places(layer) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), free).await.expect("the place is given back");
}

#[tokio::test]
async fn an_application_is_limited_by_the_address_of_the_connection() {
    let (layer, _) =
        layer("limits: [{ name: per-address, key: [ip], token_bucket: { rate: 1/min, burst: 2 } }]");
    let calls = Arc::new(AtomicUsize::new(0));
    let handler = {
        let calls = Arc::clone(&calls);
        move || {
            calls.fetch_add(1, Ordering::Relaxed);
            async { "hello" }
        }
    };
    let address = serve(Router::new().route("/", get(handler)).layer(by_connection(layer))).await;
    let mut client = connect(address).await;
    // What a client says of itself makes no other of it.
    for (forwarded_for, status, left) in [("1.1.1.1", 200, "1"), ("2.2.2.2", 200, "0"), ("3.3.3.3", 429, "0")]
    {
        let answer = ask(&mut client, "/", &[("x-forwarded-for", forwarded_for)]).await;
        assert_eq!(answer.status(), status);
        assert_eq!(text(answer.headers(), "x-ratelimit-remaining"), Some(left));
        let is_denied = status == 429;
        assert_eq!(text(answer.headers(), "retry-after"), is_denied.then_some("60"));
        let kind = if is_denied { "application/problem+json" } else { "text/plain; charset=utf-8" };
        assert_eq!(text(answer.headers(), "content-type"), Some(kind));
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.starts_with(b"{\"type\":"), is_denied, "{body:?}");
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_route_can_be_counted_by() {
    let (layer, _) =
        layer("limits: [{ name: per-route, key: [route], fixed_window: { limit: 1, window: 1h } }]");
    let layer = layer.attribute("route", |request| {
        request.extensions.get::<MatchedPath>().map(|path| path.as_str().into())
    });
    let app = Router::new()
        .route("/users/{id}", get(|| async {}))
        .route("/orders/{id}", get(|| async {}))
        .layer(layer);
    let mut client = connect(serve(app).await).await;
    for (path, status) in [("/users/1", 200), ("/users/2", 429), ("/orders/1", 200), ("/orders/2", 429)] {
        let answer = ask(&mut client, path, &[]).await;
        assert_eq!(answer.status(), status, "{path}");
        answer.into_body().collect().await.unwrap();
    }
}

/// An application whose answer comes piece by piece, from a test.
fn piece_by_piece(layer: &TollgateLayer) -> (Router, mpsc::Sender<Result<Bytes, Infallible>>) {
    let (sender, receiver) = mpsc::channel(1);
    let receiver = Arc::new(std::sync::Mutex::new(Some(receiver)));
    let handler = move || {
        let receiver = receiver.lock().unwrap().take();
        async move {
            receiver.map(|receiver| Body::from_stream(ReceiverStream::new(receiver))).unwrap_or_default()
        }
    };
    (Router::new().route("/", get(handler)).layer(layer.clone()), sender)
}

#[tokio::test]
async fn a_place_is_held_while_an_answer_is_read() {
    let layer = one_in_flight();
    let (app, pieces) = piece_by_piece(&layer);
    let address = serve(app).await;
    let (mut first, mut second) = (connect(address).await, connect(address).await);
    let mut answer = ask(&mut first, "/", &[]).await;
    assert_eq!(answer.status(), 200);
    pieces.send(Ok(Bytes::from_static(b"piece"))).await.unwrap();
    assert_eq!(answer.frame().await.unwrap().unwrap().into_data().unwrap(), "piece");
    let denied = ask(&mut second, "/", &[]).await;
    assert_eq!(denied.status(), 429);
    denied.into_body().collect().await.unwrap();
    drop(pieces);
    assert!(answer.frame().await.is_none());
    // Whoever has the end of the answer finds the place free, at once.
    assert_eq!(free_places(&layer), 1);
    assert_eq!(ask(&mut second, "/", &[]).await.status(), 200);
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    let layer = one_in_flight();
    let (app, pieces) = piece_by_piece(&layer);
    let mut client = connect(serve(app).await).await;
    let mut answer = ask(&mut client, "/", &[]).await;
    pieces.send(Ok(Bytes::from_static(b"piece"))).await.unwrap();
    answer.frame().await.unwrap().unwrap();
    assert_eq!(free_places(&layer), 0);
    drop((answer, client));
    until_free(&layer).await;
}

#[tokio::test]
async fn a_client_that_leaves_while_it_is_held_never_reaches_the_application() {
    let (layer, clock) = layer(
        "limits:\n\
         - { name: queue, key: [], leaky_bucket: { rate: 1/s, queue: 10 } }\n\
         - { name: in-flight, key: [], concurrency: { limit: 1 } }",
    );
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let handler = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        async {}
    };
    let address = serve(Router::new().route("/", get(handler)).layer(layer.clone())).await;
    let mut client = connect(address).await;
    assert_eq!(ask(&mut client, "/", &[]).await.status(), 200);
    let held = tokio::spawn(async move { ask(&mut client, "/", &[]).await });
    let is_held = async {
        while free_places(&layer) == 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), is_held).await.expect("it is held");
    held.abort();
    until_free(&layer).await;
    clock.advance(Duration::from_secs(10));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn plain_hyper_serves_it_too() {
    let (layer, _) = layer("limits: [{ name: all, key: [], fixed_window: { limit: 1, window: 1h } }]");
    let hello = tower::service_fn(async |_: Request<Incoming>| {
        Ok::<_, Infallible>(Response::new(http_body_util::Full::<Bytes>::from("hello")))
    });
    let service = TowerToHyperService::new(layer.layer(hello));
    let (near, far) = tokio::io::duplex(4096);
    let builder = hyper::server::conn::http1::Builder::new();
    tokio::spawn(builder.serve_connection(TokioIo::new(far), service));
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    for (status, has_length) in [(200, true), (429, true)] {
        let answer = ask(&mut client, "/", &[]).await;
        assert_eq!(
            (answer.status().as_u16(), answer.headers().contains_key("content-length")),
            (status, has_length)
        );
        assert_eq!(text(answer.headers(), "x-ratelimit-remaining"), Some("0"));
        answer.into_body().collect().await.unwrap();
    }
}
