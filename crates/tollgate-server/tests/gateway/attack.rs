//! Hostile clients of every kind at once: zero windows, slow bodies, slow readers, idle connections. An honest client is served all the same.
//!
//! The figures in `docs/benchmarks.md` are what this prints:
//! `cargo test --package tollgate-server --test integration gateway::attack -- --nocapture`.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tokio::time::Instant;
use tollgate_testkit::{Http, is_long};

use super::backend::Backend;
use super::load::{percentile, runtime};
use super::running::Gateway;
use super::slow_clients::{get, http2};
use crate::service::{eventually, pause};

const SLOTS: usize = 64;

/// Connections of each kind.
const HOSTILE: usize = 4;

/// How long a client may move nothing.
const GRACE: Duration = Duration::from_secs(1);

const GATEWAY: &str = "concurrency: { max: 64 }, fair_queue: { by: tenant, per_key: 200, max_wait: 30s }, \
     timeouts: { grace: 1s, idle: 2s, min_upload_rate: 64MiB, min_download_rate: 64MiB }";

const POLICY: &str = "identity: { tenant: header.x-api-key }";

/// How long hostile clients come back.
fn time() -> Duration {
    Duration::from_secs(if is_long() { 600 } else { 5 })
}

/// Clients that do not come back once this is set.
struct Attack {
    gateway: SocketAddr,
    is_over: AtomicBool,
}

impl Attack {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn connect(&self, request: &[u8]) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap(); // or the kernel would take the answer
        socket.connect(&self.gateway.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let _ = stream.write_all(request);
        stream
    }

    /// Opens streams without a window, and comes back when they are reset.
    fn give_no_window(&self, streams: usize) {
        runtime().block_on(async {
            let mut streams = streams;
            while !self.is_over() {
                let mut sender = http2(self.gateway, 0).await;
                let mut bodies = Vec::new();
                for _ in 0..streams {
                    sender = sender.ready().await.unwrap();
                    let (response, _) = sender.send_request(get("/bytes/1000000"), true).unwrap();
                    bodies.push(response);
                }
                for response in bodies {
                    if let Ok(response) = response.await {
                        let _ = response.into_body().data().await; // until it is reset
                    }
                }
                streams = 1;
            }
        });
    }

    /// Sends a body one byte at a time.
    fn send_slowly(&self, begin: &[u8]) {
        while !self.is_over() {
            let mut stream = self.connect(begin);
            while !self.is_over() && stream.write_all(b"x").is_ok() && is_quiet(&mut stream) {}
        }
    }

    /// Reads 128 KiB in a second.
    fn read_slowly(&self) {
        let mut piece = vec![0; 13 << 10];
        while !self.is_over() {
            let request = b"GET /bytes/4000000 HTTP/1.1\r\nhost: site\r\nx-api-key: reader\r\n\r\n";
            let mut stream = self.connect(request);
            while !self.is_over() && stream.read(&mut piece).is_ok_and(|read| read > 0) {
                pause(Duration::from_millis(100));
            }
        }
    }

    /// Holds a connection of HTTP/2 and asks nothing.
    fn stay_idle(&self, address: SocketAddr) {
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        while !self.is_over() {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let _ = stream.write_all(preface);
            while !self.is_over() && is_quiet_or_reads(&mut stream) {}
        }
    }
}

/// Whether the other side neither answers nor closes for a moment.
fn is_quiet(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 64]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Whether the other side does not close.
fn is_quiet_or_reads(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 64]) {
        Ok(read) => read > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    }
}

/// What an honest client saw.
#[derive(Debug, Default)]
struct Honest {
    served: usize,
    took: Vec<Duration>,
}

/// Asks for a while. Every request is answered with 200.
fn ask(gateway: &Gateway, time: Duration) -> Honest {
    let (mut honest, mut client, until) =
        (Honest::default(), Http::connect(gateway.address), Instant::now() + time);
    while Instant::now() < until {
        let began = Instant::now();
        let answer = client.send("GET", "/sleep/5", &[("x-api-key", "honest")], "");
        honest.took.push(began.elapsed());
        assert_eq!(answer.status, 200, "{answer:?}");
        honest.served += 1;
    }
    honest
}

#[test]
fn an_honest_client_is_served_while_hostile_ones_hold_what_they_can() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, GATEWAY, POLICY);
    let calm = ask(&gateway, Duration::from_secs(if is_long() { 20 } else { 2 }));
    let attack = Attack { gateway: gateway.address, is_over: AtomicBool::new(false) };
    let metric = |name: &str| gateway.service.connect().metric(name).unwrap();
    let sized = b"POST /up HTTP/1.1\r\nhost: site\r\nx-api-key: sized\r\ncontent-length: 1000000\r\n\r\n";
    let sized = [&sized[..], &[b'x'; 70_000]].concat();
    let chunked = b"POST /up HTTP/1.1\r\nhost: site\r\nx-api-key: chunked\r\ntransfer-encoding: chunked\r\n\r\nfffff\r\n";
    // Together they take every slot at first.
    let streams = SLOTS / HOSTILE - 3;
    let attacked = std::thread::scope(|scope| {
        for _ in 0..HOSTILE {
            scope.spawn(|| attack.give_no_window(streams));
            scope.spawn(|| attack.send_slowly(&sized));
            scope.spawn(|| attack.send_slowly(chunked));
            scope.spawn(|| attack.read_slowly());
            scope.spawn(|| attack.stay_idle(gateway.address));
        }
        let over = Over(&attack);
        eventually("they have every slot", || metric("tollgate_inflight") >= SLOTS as f64);
        pause(2 * GRACE);
        let attacked = ask(&gateway, time());
        drop(over);
        attacked
    });
    let freed = ["upload", "download"].map(|direction| {
        metric(&format!("tollgate_gateway_slow_clients_total{{direction=\"{direction}\"}}"))
    });
    eventually("no slot is taken", || metric("tollgate_inflight") == 0.0);
    eventually("idle connections are closed", || metric("tollgate_connections") <= 3.0);
    println!(
        "honest requests: calm {} served, p50 {:?}, p99 {:?}; attacked {} served, p50 {:?}, p99 {:?}; slots freed: {} uploads, {} downloads",
        calm.served,
        percentile(&calm.took, 500),
        percentile(&calm.took, 990),
        attacked.served,
        percentile(&attacked.took, 500),
        percentile(&attacked.took, 990),
        freed[0],
        freed[1],
    );
    assert!(attacked.served >= 10, "{}", attacked.served);
    // Each has lost its slot at least once, the streams of the first wave among them.
    assert!(freed[0] >= (2 * HOSTILE) as f64, "{freed:?}");
    assert!(freed[1] >= (HOSTILE * streams + HOSTILE) as f64, "{freed:?}");
}

/// Ends an attack, also where a test fails.
struct Over<'a>(&'a Attack);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}
