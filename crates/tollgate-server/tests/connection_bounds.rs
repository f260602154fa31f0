//! How many connections there may be, and how long an idle one stays open.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use hyper::Request;
use tollgate_testkit::{Http, address_in};

use crate::gateway::load::runtime;
use crate::service::{Service, eventually, pause};

const TOTAL: &str = "tollgate_connections_refused_total{reason=\"total\"}";
const ADDRESS: &str = "tollgate_connections_refused_total{reason=\"address\"}";
const CLOSED_IDLE: &str = "tollgate_connections_closed_idle_total";

type Http2 = (SendRequest<Bytes>, Connection<tokio::net::TcpStream, Bytes>);

async fn http2(address: SocketAddr) -> Http2 {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    Builder::new().handshake(stream).await.unwrap()
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// Whether the other side closes a connection, without a word.
fn is_closed(mut stream: TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Ok(0))
}

fn is_open(stream: &mut TcpStream) -> bool {
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0)
}

#[test]
fn one_address_cannot_take_all_connections() {
    let service = Service::start_listening(
        "listen: { http: '127.0.0.1:0', max_connections: 20, max_connections_per_address: 4 }",
    );
    let mut open: Vec<TcpStream> = (0..4).map(|_| connect(service.address)).collect();
    assert!(open.iter_mut().all(is_open));
    assert!((0..3).all(|_| is_closed(connect(service.address))));
    // Another address is served meanwhile.
    let other = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    other.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    other.connect(&service.address.into()).unwrap();
    let mut other: TcpStream = other.into();
    other.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert!(is_open(&mut other));
    drop(open);
    eventually("their places are free", || {
        let mut stream = connect(service.address);
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").is_ok()
            && stream.read(&mut [0; 1024]).is_ok_and(|read| read > 0)
    });
    let refused = service.connect().metric(ADDRESS).unwrap();
    assert!(refused >= 3.0, "{refused}");
    assert_eq!(service.connect().metric(TOTAL), Some(0.0));
}

#[test]
fn a_trusted_proxy_is_exempt_from_the_bound_per_address() {
    let service = Service::start_listening(
        "listen: { http: '127.0.0.1:0', max_connections: 20, max_connections_per_address: 2 }\n\
         identity: { client_ip: { trusted_proxies: [127.0.0.1/32] } }",
    );
    let mut open: Vec<TcpStream> = (0..10).map(|_| connect(service.address)).collect();
    assert!(open.iter_mut().all(is_open));
}

#[test]
fn when_all_connections_are_taken_idle_ones_are_closed() {
    let service = Service::start_listening(
        "listen: { http: '127.0.0.1:0', resp: '127.0.0.1:0', max_connections: 8, max_connections_per_address: 100 }",
    );
    let mut idle: Vec<TcpStream> = (0..8).map(|_| connect(service.address)).collect();
    assert!(idle.iter_mut().all(is_open));
    // Twice as many come: each takes the place of one that is idle.
    for _ in 0..16 {
        idle.push(connect(service.address));
        assert!(is_open(idle.last_mut().unwrap()));
    }
    let mut seen = service.connect();
    assert!(seen.metric(CLOSED_IDLE).unwrap() >= 16.0);
    assert_eq!(seen.metric(TOTAL), Some(0.0));
    assert!(seen.metric("tollgate_connections").unwrap() <= 8.0);
}

#[test]
fn a_connection_too_many_is_refused_and_counted() {
    let mut service = Service::start_listening(
        "listen: { http: '127.0.0.1:0', resp: '127.0.0.1:0', max_connections: 2, max_connections_per_address: 100 }\n\
         limits: [{ name: slow, match: { path: /held }, key: [], leaky_bucket: { rate: 1/min, queue: 1000 } }]\n\
         identity: { client_ip: { trusted_proxies: [127.0.0.1/32] } }",
    );
    let resp = address_in(&service.process.line_with("listens on redis"));
    // A request that is held keeps its connection busy.
    let ask = b"GET /v1/forward-auth HTTP/1.1\r\nhost: localhost\r\nx-forwarded-uri: /held\r\n\r\n";
    eventually("two are busy, and a third is refused", || {
        // Again, if one of them was answered at once, or not yet read when the third came.
        let _busy = [(); 2].map(|()| {
            let mut connection = connect(service.address);
            connection.write_all(ask).unwrap();
            connection
        });
        pause(Duration::from_millis(200));
        let mut why = String::new();
        let mut refused = connect(resp);
        refused.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let _ = refused.read_to_string(&mut why);
        why == "-ERR max number of clients reached\r\n"
    });
}

#[test]
fn an_idle_grpc_connection_is_closed() {
    let mut service =
        Service::start_listening("listen: { http: '127.0.0.1:0', grpc: '127.0.0.1:0', idle: 1s }");
    let address = address_in(&service.process.line_with("grpc://"));
    runtime().block_on(async {
        let (_sender, connection) = http2(address).await;
        let ended = tokio::time::timeout(Duration::from_secs(10), connection).await;
        ended.expect("it is closed").unwrap();
    });
}

#[test]
fn an_idle_http2_connection_to_the_gateway_is_closed_and_a_busy_one_is_not() {
    let backend = crate::gateway::backend::Backend::start();
    let gateway = crate::gateway::running::Gateway::start(&backend, "timeouts: { idle: 1s }", "");
    runtime().block_on(async {
        let (_sender, connection) = http2(gateway.address).await;
        let ended = tokio::time::timeout(Duration::from_secs(10), connection).await;
        ended.expect("it is closed").unwrap();
        let (sender, connection) = http2(gateway.address).await;
        let connection = tokio::spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        let request = Request::get("http://site.example/sleep/3000").body(()).unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200, "idle is a connection without a request");
        let ended = tokio::time::timeout(Duration::from_secs(10), connection).await;
        ended.expect("it is closed").unwrap().unwrap();
    });
}

/// A client that answers neither pings nor GOAWAY.
#[test]
fn an_idle_http2_connection_is_closed_also_if_its_client_does_not_answer() {
    let mut service =
        Service::start_listening("listen: { http: '127.0.0.1:0', grpc: '127.0.0.1:0', idle: 1s }");
    let address = address_in(&service.process.line_with("grpc://"));
    let mut silent = connect(address);
    silent.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut all = Vec::new();
    silent.read_to_end(&mut all).expect("it is closed");
}

#[test]
fn pairs_of_a_cookie_count_as_one_header() {
    let backend = crate::gateway::backend::Backend::start();
    let gateway = crate::gateway::running::Gateway::start(&backend, "", "");
    runtime().block_on(async {
        let (sender, connection) = http2(gateway.address).await;
        tokio::spawn(connection);
        let mut sender = sender.ready().await.unwrap();
        let request = Request::get("http://site.example/");
        let request =
            (0..200).fold(request, |request, number| request.header("cookie", format!("c{number}=1")));
        let (response, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
        assert_eq!(response.await.unwrap().status(), 200);
    });
}

#[test]
fn connections_have_no_more_tokens_and_headers_than_documented() {
    let backend = crate::gateway::backend::Backend::start();
    let gateway = crate::gateway::running::Gateway::start(&backend, "", "");
    let tokens = |count: usize| vec!["x-a"; count].join(",");
    for (count, status) in [(32, 200), (33, 400), (15_000, 400)] {
        let answer = Http::connect(gateway.address).send("GET", "/", &[("connection", &tokens(count))], "");
        assert_eq!(answer.status, status, "{count} tokens: {}", answer.body);
    }
    runtime().block_on(async {
        let (mut sender, connection) = http2(gateway.address).await;
        tokio::spawn(connection);
        for (count, status) in [(90, 200), (101, 431), (1000, 431)] {
            sender = sender.ready().await.unwrap();
            let request = Request::get("http://site.example/");
            let request =
                (0..count).fold(request, |request, number| request.header(format!("x-{number}"), "1"));
            let (response, _) = sender.send_request(request.body(()).unwrap(), true).unwrap();
            assert_eq!(response.await.unwrap().status(), status, "{count} headers");
        }
    });
}
