//! Applications and clients that take their time, speak out of turn or leave in the middle.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use super::application::application;
use super::backend::Backend;
use super::running::Gateway;
use crate::service::{eventually, pause};

fn before(address: SocketAddr, gateway: &str, policy: &str) -> Gateway {
    Gateway::before(&format!("http://{address}"), gateway, policy)
}

/// Begins a request of so many bytes, of which one is sent.
fn begin_post(gateway: &Gateway, length: usize) -> TcpStream {
    let mut client = TcpStream::connect(gateway.address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\nx");
    client.write_all(head.as_bytes()).unwrap();
    client
}

/// Reads until what was read ends so.
fn read_until(client: &mut TcpStream, end: &str) -> String {
    let (mut read, mut byte) = (Vec::new(), [0]);
    while !read.ends_with(end.as_bytes()) {
        client.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    String::from_utf8(read).unwrap()
}

#[test]
fn an_application_that_answers_before_it_has_read_all_gets_the_rest() {
    const LENGTH: usize = 1_000_000;
    let address = application(|_, talk| {
        talk.say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nbegun");
        let body = talk.body(LENGTH);
        talk.say(if body.iter().all(|byte| *byte == b'x') { " done" } else { " else" });
    });
    let gateway = before(address, "", "");
    let mut client = begin_post(&gateway, LENGTH);
    let begun = read_until(&mut client, "begun");
    assert!(begun.starts_with("HTTP/1.1 200 OK\r\n"), "{begun}");
    client.write_all(&vec![b'x'; LENGTH - 1]).unwrap();
    assert_eq!(read_until(&mut client, "done"), " done");
}

#[test]
fn a_client_that_takes_its_time_is_not_held_against_the_application() {
    let address = application(|_, talk| {
        let _ = talk.body(2);
        talk.say("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
    let gateway = before(address, "timeouts: { answer: 200ms, idle: 10s }", "");
    let mut client = begin_post(&gateway, 2);
    pause(Duration::from_millis(600));
    client.write_all(b"y").unwrap();
    let answer = read_until(&mut client, "ok");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");

    let gateway = before(address, "timeouts: { answer: 10s, idle: 200ms }", "");
    let answer = read_until(&mut begin_post(&gateway, 2), "\r\n");
    assert_eq!(answer, "HTTP/1.1 408 Request Timeout\r\n", "but not without end");
}

/// The length in the head of a 304 is that of what is not sent.
#[test]
fn an_answer_that_only_tells_a_length_keeps_the_connection() {
    let (asked, connections) = mpsc::channel();
    let address = application(move |_, talk| {
        let _ = asked.send(());
        talk.say("HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\ncontent-length: 5000\r\n\r\n");
    });
    let gateway = before(address, "", "");
    let mut client = gateway.connect();
    for _ in 0..3 {
        let answer = client.send("GET", "/", &[], "");
        assert_eq!((answer.status, answer.header("connection")), (304, None), "{answer:?}");
    }
    assert_eq!(connections.try_iter().count(), 3);
}

/// Old applications end lines so.
#[test]
fn an_application_may_end_its_lines_with_lf_alone() {
    let address = application(|_, talk| {
        talk.say("HTTP/1.1 200 OK\ncontent-length: 2\nx-mine: yes\n\nok");
    });
    let gateway = before(address, "", "");
    let answer = gateway.connect().send("GET", "/", &[], "");
    assert_eq!((answer.status, answer.header("x-mine"), &*answer.body), (200, Some("yes"), "ok"));
}

#[test]
fn a_client_that_leaves_while_the_answer_stalls_gives_its_place_up() {
    let address = application(|head, talk| {
        if head.starts_with("GET /stalls") {
            talk.say("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nbegun");
            talk.until_closed();
        } else {
            talk.say("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let gateway = before(address, "", "limits: [{ name: one, key: [], concurrency: { limit: 1 } }]");
    let mut stalled = TcpStream::connect(gateway.address).unwrap();
    stalled.write_all(b"GET /stalls HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    read_until(&mut stalled, "begun");
    assert_eq!(gateway.connect().send("GET", "/", &[], "").status, 429);
    drop(stalled);
    eventually("its place is free", || gateway.connect().send("GET", "/", &[], "").status == 200);
}

/// Nobody knows where such a body ends: what follows it is not the next request.
#[test]
fn nothing_is_read_behind_a_body_that_is_broken() {
    let backend = Backend::start();
    let policy = "limits: [{ name: none, key: [], token_bucket: { rate: 1/hour, burst: 1 } }]";
    let gateway = Gateway::start(&backend, "", policy);
    assert_eq!(gateway.connect().send("GET", "/", &[], "").status, 200);
    // The limit refuses it without a look at its body.
    let mut client = TcpStream::connect(gateway.address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let broken = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n";
    let next = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(format!("{broken}{next}").as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

#[test]
fn who_finds_no_slot_is_told_how_long_requests_take() {
    let backend = Backend::start();
    let queue = "concurrency: { max: 1 }, fair_queue: { by: path, max_wait: 1ms }";
    let gateway = Gateway::start(&backend, queue, "");
    let mut slow = gateway.connect();
    assert_eq!(slow.send("GET", "/sleep/1200", &[], "").status, 200);
    let held = std::thread::spawn(move || slow.send("GET", "/sleep/1200", &[], "").status);
    eventually("it has its slot", || backend.arrived().len() == 2);
    let refused = gateway.connect().send("GET", "/", &[], "");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("2")), "{refused:?}");
    assert_eq!(held.join().unwrap(), 200);
}
