//! Clients that speak HTTP/2: hyper's, and curl over TLS.

use std::process::Command;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tollgate_testkit::program;

use super::backend::Backend;
use super::running::Gateway;
use crate::service::{Directory, eventually, self_signed_certificate};

async fn connect(gateway: &Gateway) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(method: &str, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    let uri = format!("http://site.example{path}");
    Request::builder().method(method).uri(uri).header("x-api-key", "acme").body(Full::new(body)).unwrap()
}

#[tokio::test]
async fn a_hundred_requests_at_once_pass_over_one_connection() {
    let backend = Backend::start();
    let limits = "identity: { tenant: header.x-api-key }\n\
                  limits: [{ name: per-tenant, key: [tenant], token_bucket: { rate: 1/hour, burst: 101 } }]";
    let gateway = Gateway::start(&backend, "", limits);
    let sender = connect(&gateway).await;
    let asked = (0..100).map(|number: usize| {
        let mut sender = sender.clone();
        async move {
            let size = number * 1000;
            let path = format!("/bytes/{size}");
            let response =
                sender.send_request(request("POST", &path, vec![b'y'; size].into())).await.unwrap();
            assert_eq!(response.status(), 200);
            assert!(response.headers()["ratelimit"].to_str().unwrap().starts_with("\"per-tenant\";r="));
            assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), size);
        }
    });
    futures_util::future::join_all(asked).await;
    let arrived = backend.arrived();
    assert_eq!(arrived.len(), 100);
    assert!(arrived.iter().all(|arrived| arrived.header("host") == Some("site.example")), "{:?}", arrived[0]);
    assert_eq!(arrived.iter().map(|arrived| arrived.body.len()).sum::<usize>(), 4950 * 1000);
    let mut sender = sender.clone();
    assert_eq!(sender.send_request(request("GET", "/last", Bytes::new())).await.unwrap().status(), 200);
    let denied = sender.send_request(request("GET", "/denied", Bytes::new())).await.unwrap();
    assert_eq!(
        (denied.status().as_u16(), &denied.headers()["content-type"]),
        (429, &"application/problem+json".parse().unwrap())
    );
    let chunks =
        sender.send_request(Request::get("http://site.example/chunks/3").body(Full::default()).unwrap());
    assert_eq!(chunks.await.unwrap().into_body().collect().await.unwrap().to_bytes().len(), 45);
}

#[tokio::test]
async fn a_request_that_is_called_off_leaves_its_slot() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "concurrency: { max: 1 }", "");
    let mut sender = connect(&gateway).await;
    let called_off = tokio::spawn({
        let mut sender = sender.clone();
        async move { sender.send_request(request("GET", "/sleep/20000", Bytes::new())).await }
    });
    tokio::task::spawn_blocking({
        let arrived = backend.watch();
        move || eventually("it has arrived", || arrived() == 1)
    })
    .await
    .unwrap();
    called_off.abort();
    let next = sender.send_request(request("GET", "/next", Bytes::new())).await.unwrap();
    assert_eq!(next.status(), 200);
}

/// HTTP/2 frames values, so that blanks at their ends arrive. An application behind HTTP/1.1 does not see them.
#[tokio::test]
async fn blanks_around_a_value_make_no_other_key() {
    let backend = Backend::start();
    let limits =
        "limits: [{ name: keyed, key: [header.x-api-key], token_bucket: { rate: 1/hour, burst: 9 } }]";
    let gateway = Gateway::start(&backend, "", limits);
    let mut sender = connect(&gateway).await;
    for (used, value) in ["k", "k ", " k", "\tk\t ", "k\t"].into_iter().enumerate() {
        let asked = Request::get("http://site.example/").header("x-api-key", value);
        let answer = sender.send_request(asked.body(Full::default()).unwrap()).await.unwrap();
        assert_eq!(answer.headers()["x-ratelimit-remaining"], (8 - used).to_string(), "{value:?}");
    }
}

/// RFC 9113, section 8.3.1: `:authority` and `host` are compared in their normal form.
#[tokio::test]
async fn host_and_authority_may_differ_in_case_and_default_port_only() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let mut sender = connect(&gateway).await;
    for (host, status) in [
        ("site.example", 200),
        ("Site.Example", 200),
        ("site.example:80", 200),
        ("site.example:", 200),
        ("site.example:8080", 400),
        ("other.example", 400),
    ] {
        let mut request = request("GET", "/", Bytes::new());
        request.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(sender.send_request(request).await.unwrap().status(), status, "{host}");
        if status == 200 {
            assert_eq!(backend.arrived().pop().unwrap().header("host"), Some("site.example"), "{host}");
        }
    }
}

/// HTTP/2 sends the pairs of a cookie apart; an application of HTTP/1.1 may read the first line only.
#[tokio::test]
async fn a_cookie_in_pieces_arrives_in_one() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let mut sender = connect(&gateway).await;
    let mut asked = request("GET", "/", Bytes::new());
    for cookie in ["a=1", "b=2", "c=3"] {
        asked.headers_mut().append("cookie", cookie.parse().unwrap());
    }
    assert_eq!(sender.send_request(asked).await.unwrap().status(), 200);
    let arrived = backend.arrived().pop().unwrap();
    let cookies: Vec<_> = arrived.headers.iter().filter(|(name, _)| name == "cookie").collect();
    assert_eq!(cookies, [&("cookie".to_owned(), "a=1; b=2; c=3".to_owned())]);
}

#[test]
fn curl_speaks_either_over_tls() {
    let directory = Directory::new();
    if program("curl").is_none() || !self_signed_certificate(&directory) {
        return;
    }
    let backend = Backend::start();
    let policy = format!(
        "tls: {{ cert_file: '{0}/cert.pem', key_file: '{0}/key.pem' }}",
        directory.path(".").display()
    );
    let gateway = Gateway::start(&backend, "", &policy);
    for (version, told) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let url = format!("https://{}/tls", gateway.address);
        let answer = Command::new("curl")
            .args(["-sk", version, "-d", "hello", "-w", " %{http_version}", &url])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&answer.stdout), format!("POST /tls 5 {told}"));
        assert_eq!(backend.arrived().pop().unwrap().header("x-forwarded-proto"), Some("https"));
    }
}
