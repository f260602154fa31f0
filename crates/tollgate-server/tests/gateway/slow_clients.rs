//! Clients that send or read slowly, or give no window: none of them keeps a slot for longer than the grace and its rate allow. Streams
//! with long pauses stay open.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use hyper::Request;
use tollgate_testkit::http::Answer;

use super::application::application;
use super::backend::Backend;
use super::load::runtime;
use super::running::Gateway;
use crate::service::{eventually, pause};

/// A gateway with one slot. A client that moves nothing has a second; so fast that the bytes in the buffers of the kernel earn little.
const ONE_SLOT: &str = "concurrency: { max: 1 }, fair_queue: { by: tenant, max_wait: 20s }, \
     timeouts: { grace: 1s, min_upload_rate: 64MiB, min_download_rate: 64MiB }";

const SLOW_UPLOADS: &str = "tollgate_gateway_slow_clients_total{direction=\"upload\"}";
const SLOW_DOWNLOADS: &str = "tollgate_gateway_slow_clients_total{direction=\"download\"}";

fn metric(gateway: &Gateway, name: &str) -> Option<f64> {
    gateway.service.connect().metric(name)
}

fn slots_in_use(gateway: &Gateway) -> Option<f64> {
    metric(gateway, "tollgate_inflight")
}

/// A connection of HTTP/2 whose streams have this window to begin with.
pub(crate) async fn http2(address: SocketAddr, window: u32) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (sender, connection) = Builder::new()
        .initial_window_size(window)
        .initial_connection_window_size(1 << 20)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(connection); // which answers pings
    sender.ready().await.unwrap()
}

pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(format!("http://site.example{path}")).body(()).unwrap()
}

/// Sends bytes over a connection of their own.
fn send(gateway: &Gateway, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

fn post(framing: &str) -> Vec<u8> {
    format!("POST /upload HTTP/1.1\r\nhost: site\r\n{framing}\r\n\r\n").into_bytes()
}

fn status_of(mut stream: &TcpStream) -> u16 {
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    String::from_utf8_lossy(&head[9..]).parse().unwrap()
}

#[track_caller]
fn is_served(gateway: &Gateway) -> Answer {
    let answer = gateway.connect().send("GET", "/honest", &[], "");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer
}

#[test]
fn an_http2_client_that_gives_no_window_loses_its_slot() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, ONE_SLOT, "");
    runtime().block_on(async {
        let mut sender = http2(gateway.address, 0).await;
        let (response, _) = sender.send_request(get("/bytes/1000000"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(slots_in_use(&gateway), Some(1.0));
        let ended = body.data().await.unwrap().unwrap_err();
        assert_eq!(ended.reason(), Some(h2::Reason::CANCEL));
        // The connection goes on.
        assert_eq!(sender.send_request(get("/bytes/0"), true).unwrap().0.await.unwrap().status(), 200);
    });
    is_served(&gateway);
    assert_eq!((slots_in_use(&gateway), metric(&gateway, SLOW_DOWNLOADS)), (Some(0.0), Some(1.0)));
}

#[test]
fn an_answer_that_fits_the_buffer_frees_its_slot_before_it_is_read() {
    let backend = Backend::start();
    // Nobody is too slow here.
    let gateway = Gateway::start(&backend, "concurrency: { max: 1 }, timeouts: { grace: 1h }", "");
    runtime().block_on(async {
        let mut sender = http2(gateway.address, 0).await;
        let (response, _) = sender.send_request(get("/bytes/20000"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        is_served(&gateway);
        body.flow_control().release_capacity(0).unwrap();
        assert_eq!(slots_in_use(&gateway), Some(0.0));
    });
    // Over HTTP/1.1 what the kernel keeps is as good as sent.
    let stream = send(&gateway, b"GET /bytes/100000 HTTP/1.1\r\nhost: site\r\n\r\n");
    is_served(&gateway);
    assert_eq!(status_of(&stream), 200);
}

#[test]
fn a_small_body_takes_no_slot_before_it_has_come() {
    let backend = Backend::start();
    let gateway = Gateway::start(
        &backend,
        "concurrency: { max: 1 }, timeouts: { grace: 2s, min_upload_rate: 1KiB }",
        "",
    );
    let mut stream = send(&gateway, &post("content-length: 5"));
    stream.write_all(b"abc").unwrap();
    let answer = is_served(&gateway);
    assert_eq!(slots_in_use(&gateway), Some(0.0), "{answer:?}");
    stream.write_all(b"de").unwrap();
    assert_eq!(status_of(&stream), 200);
    assert_eq!(backend.arrived().pop().unwrap().body, "abcde");
    // And it does not wait for ever.
    let stream = send(&gateway, &post("content-length: 5"));
    assert_eq!(status_of(&stream), 408);
    assert_eq!(metric(&gateway, SLOW_UPLOADS), Some(1.0));
    assert_eq!(backend.arrived().len(), 2);
}

#[test]
fn a_body_that_waits_for_100_continue_takes_no_slot_before_it_has_come() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "concurrency: { max: 1 }", "");
    let mut stream = send(&gateway, &post("expect: 100-continue\r\ncontent-length: 5"));
    assert_eq!(status_of(&stream), 100);
    is_served(&gateway);
    stream.read_exact(&mut [0; b" Continue\r\n\r\n".len()]).unwrap();
    stream.write_all(b"abcde").unwrap();
    assert_eq!(status_of(&stream), 200);
    assert_eq!(backend.arrived().pop().unwrap().body, "abcde");
}

/// What stands between the pieces of a chunked body does not count.
#[test]
fn chunk_extensions_do_not_keep_a_slot() {
    let backend = Backend::start();
    let gateway = Gateway::start(
        &backend,
        "concurrency: { max: 1 }, fair_queue: { by: tenant, max_wait: 20s }, timeouts: { grace: 1s, min_upload_rate: 1KiB }",
        "",
    );
    let stream = send(&gateway, &post("transfer-encoding: chunked"));
    std::thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        let chunk = format!("1;{}\r\nx\r\n", "e".repeat(240));
        scope.spawn(move || {
            while writer.write_all(chunk.as_bytes()).is_ok() {
                pause(Duration::from_millis(20))
            }
        });
        assert_eq!(status_of(&stream), 408);
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    is_served(&gateway);
}

/// Thirty downloads share a connection that reads ten times the rate of one.
#[test]
fn streams_that_share_a_slow_connection_are_not_cut_off() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "timeouts: { grace: 1s, min_download_rate: 16KiB }", "");
    let size = 100_000;
    runtime().block_on(async {
        let mut sender = http2(gateway.address, 16_384).await;
        let mut bodies = Vec::new();
        for _ in 0..30 {
            sender = sender.ready().await.unwrap();
            let request = get(&format!("/bytes/{size}"));
            let (response, _) = sender.send_request(request, true).unwrap();
            bodies.push(response.await.unwrap().into_body());
        }
        // The client takes one after the other: the last waits for several times the grace.
        for mut body in bodies {
            let mut read = 0;
            while let Some(piece) = body.data().await {
                let length = piece.unwrap().len();
                body.flow_control().release_capacity(length).unwrap();
                read += length;
            }
            assert_eq!(read, size);
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    });
    assert_eq!(metric(&gateway, SLOW_DOWNLOADS), Some(0.0));
}

#[test]
fn a_body_that_comes_one_byte_at_a_time_loses_its_slot() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, ONE_SLOT, "");
    let large = [&post("content-length: 1000000")[..], &[b'x'; 80_000]].concat();
    let chunked = [&post("transfer-encoding: chunked")[..], b"ffff\r\n"].concat();
    for (count, begin) in (1..).zip([large, chunked]) {
        let mut stream = send(&gateway, &begin);
        eventually("it has the slot", || slots_in_use(&gateway) == Some(1.0));
        let mut writer = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            // A byte comes long before any idle time is over.
            scope.spawn(move || {
                while writer.write_all(b"x").is_ok() {
                    pause(Duration::from_millis(50))
                }
            });
            is_served(&gateway);
            assert_eq!(metric(&gateway, SLOW_UPLOADS), Some(f64::from(count)));
            assert_eq!(status_of(&stream), 408);
            let _ = stream.shutdown(std::net::Shutdown::Both);
        });
        let _ = stream.read(&mut [0]);
    }
}

#[test]
fn an_http2_body_that_comes_one_byte_at_a_time_loses_its_slot() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, ONE_SLOT, "");
    runtime().block_on(async {
        let mut sender = http2(gateway.address, 65_535).await;
        let request = Request::post("http://site.example/upload").body(()).unwrap();
        let (response, mut stream) = sender.send_request(request, false).unwrap();
        let dribbles = async {
            while stream.send_data(Bytes::from_static(b"x"), false).is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let answered = tokio::select! {
            answered = response => answered.unwrap(),
            () = dribbles => panic!("no answer"),
        };
        assert_eq!(answered.status(), 408);
    });
    is_served(&gateway);
    assert_eq!(metric(&gateway, SLOW_UPLOADS), Some(1.0));
}

#[test]
fn a_client_that_reads_slowly_loses_its_slot() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, ONE_SLOT, "");
    let stream = send(&gateway, b"GET /bytes/100000000 HTTP/1.1\r\nhost: site\r\n\r\n");
    eventually("it has the slot", || slots_in_use(&gateway) == Some(1.0));
    std::thread::scope(|scope| {
        let mut reader = &stream;
        // 128 KiB in a second.
        scope.spawn(move || {
            let mut piece = vec![0; 128 << 10];
            while reader.read(&mut piece).is_ok_and(|read| read > 0) {
                pause(Duration::from_secs(1));
            }
        });
        is_served(&gateway);
        assert_eq!(metric(&gateway, SLOW_DOWNLOADS), Some(1.0));
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
}

/// Server-sent events, a WebSocket and a stream in both directions, each silent for longer than the grace.
const PAUSE: Duration = Duration::from_millis(2500);

#[test]
fn server_sent_events_with_long_pauses_stay_open() {
    let address = application(|_, talk| {
        talk.say("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n");
        for _ in 0..3 {
            talk.say("9\r\ndata: 1\n\n\r\n");
            pause(PAUSE);
        }
        talk.say("0\r\n\r\n");
    });
    let gateway = Gateway::before(&format!("http://{address}"), ONE_SLOT, "");
    let answer = gateway.connect().send("GET", "/events", &[], "");
    assert_eq!((answer.status, &*answer.body), (200, &*"data: 1\n\n".repeat(3)));
    assert_eq!(metric(&gateway, SLOW_DOWNLOADS), Some(0.0));
}

#[test]
fn a_websocket_with_long_pauses_stays_open() {
    let address = application(|_, talk| {
        talk.say("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n");
        let received = String::from_utf8(talk.body(4)).unwrap();
        pause(PAUSE);
        talk.say(&received);
    });
    let gateway = Gateway::before(&format!("http://{address}"), ONE_SLOT, "");
    let mut stream = send(
        &gateway,
        b"GET /ws HTTP/1.1\r\nhost: site\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    );
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    pause(PAUSE);
    stream.write_all(b"ping").unwrap();
    let mut echo = [0; 4];
    stream.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"ping");
}

#[test]
fn a_stream_in_both_directions_with_long_pauses_stays_open() {
    // The application answers each message when it comes, and the client sends the next after a while: as gRPC streams do.
    let address = application(|_, talk| {
        talk.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        for _ in 0..2 {
            let chunk = String::from_utf8(talk.body(b"4\r\nping\r\n".len())).unwrap();
            talk.say(&chunk);
        }
        talk.body(b"0\r\n\r\n".len());
        talk.say("0\r\n\r\n");
    });
    let gateway = Gateway::before(&format!("http://{address}"), ONE_SLOT, "");
    runtime().block_on(async {
        let mut sender = http2(gateway.address, 65_535).await;
        let request = Request::post("http://site.example/stream").body(()).unwrap();
        let (response, mut stream) = sender.send_request(request, false).unwrap();
        let mut body = response.await.unwrap().into_body();
        for _ in 0..2 {
            tokio::time::sleep(PAUSE).await;
            stream.send_data(Bytes::from_static(b"ping"), false).unwrap();
            assert_eq!(body.data().await.unwrap().unwrap(), "ping");
        }
        stream.send_data(Bytes::new(), true).unwrap();
        assert!(body.data().await.is_none_or(|last| last.unwrap().is_empty()));
    });
}
