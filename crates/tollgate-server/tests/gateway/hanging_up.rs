//! Clients that leave while their request waits: nothing of it is left.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use tollgate_testkit::{StallWatch, real_time};

use super::backend::Backend;
use super::running::Gateway;
use crate::service::{eventually, timed};

/// How soon nothing is left: 100 ms, plus one step of `eventually`.
const SOON: Duration = Duration::from_millis(100).saturating_add(real_time::STEP);

/// Clients that have each sent a request, which waits.
fn waiting(gateway: &Gateway, count: usize, target: &str, metric: &str) -> Vec<TcpStream> {
    let clients: Vec<TcpStream> = (0..count)
        .map(|_| {
            let mut stream = TcpStream::connect(gateway.address).unwrap();
            write!(stream, "GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            stream
        })
        .collect();
    let mut seen = gateway.service.connect();
    // Of those who wait for their turn, it may have come for one or two.
    eventually("all wait", || seen.metric(metric) >= Some(count as f64 - 2.0));
    clients
}

#[test]
fn a_thousand_who_wait_for_a_slot_leave_nothing_behind() {
    let backend = Backend::start();
    let queue = "concurrency: { max: 1 }, fair_queue: { by: ip, per_key: 2000, max_wait: 60s }";
    let gateway = Gateway::start(&backend, queue, "");
    let mut busy = TcpStream::connect(gateway.address).unwrap();
    busy.write_all(b"GET /sleep/20000 HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    eventually("the slot is taken", || backend.arrived().len() == 1);
    let clients = waiting(&gateway, 1000, "/never", "tollgate_queue_length");
    let mut seen = gateway.service.connect();
    let watch = StallWatch::start();
    drop(clients);
    let (took, ()) =
        timed(|| eventually("nobody waits", || seen.metric("tollgate_queue_length") == Some(0.0)));
    let stalls = watch.stop();
    println!("1000 hung up: the queue was empty after {took:?}");
    drop(busy);
    assert_eq!(gateway.connect().send("GET", "/next", &[], "").status, 200);
    let arrived: Vec<String> = backend.arrived().into_iter().map(|arrived| arrived.request).collect();
    assert_eq!(arrived, ["GET /sleep/20000", "GET /next"]);
    assert_eq!(seen.metric("tollgate_gateway_requests_total{outcome=\"gone\"}"), Some(1001.0));
    assert!(took < SOON + stalls.total, "{took:?}; {stalls:?}");
}

#[test]
fn a_thousand_who_wait_for_their_turn_give_their_places_up() {
    let backend = Backend::start();
    let limits = "limits: [{ name: index, key: [], leaky_bucket: { rate: 12/min, queue: 1001 } }]";
    let gateway = Gateway::start(&backend, "", limits);
    assert_eq!(gateway.connect().send("GET", "/first", &[], "").status, 200);
    let clients = waiting(&gateway, 1000, "/never", "tollgate_held");
    let full = gateway.service.connect().metric("tollgate_gateway_requests_total{outcome=\"denied\"}");
    assert_eq!(full, Some(0.0));
    let mut seen = gateway.service.connect();
    let arrived = backend.arrived().len();
    let watch = StallWatch::start();
    drop(clients);
    let (took, ()) = timed(|| eventually("nobody is held", || seen.metric("tollgate_held") == Some(0.0)));
    let stalls = watch.stop();
    println!("1000 hung up: nobody was held after {took:?}");
    let (next, answer) = timed(|| gateway.connect().send("GET", "/next", &[], ""));
    assert_eq!(answer.status, 200);
    assert!(next < Duration::from_secs(7), "it waits for the one before it, not for a thousand: {next:?}");
    let late = backend.arrived().len() - arrived;
    assert!(late <= 3, "{late} went while others hung up");
    assert!(took < SOON + stalls.total, "{took:?}; {stalls:?}");
}
