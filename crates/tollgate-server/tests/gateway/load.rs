//! Clients that ask the gateway, many at once.

#![allow(dead_code, reason = "each test uses some of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// A runtime for clients, on this thread. Clients are elsewhere, really: they give way to the gateway and the application.
pub(crate) fn runtime() -> Runtime {
    let thread = rustix::thread::gettid();
    rustix::process::setpriority_process(Some(thread), 15).unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A client with one connection.
pub(crate) struct Asker {
    sender: SendRequest<Full<Bytes>>,
}

/// What it was told.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) began: Instant,
    pub(crate) took: Duration,
}

impl Told {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl Asker {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    pub(crate) async fn ask(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> Told {
        let mut request = Request::builder().method(method).uri(target).header("host", "site");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::new())).unwrap();
        let began = Instant::now();
        self.sender.ready().await.unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let took = began.elapsed();
        Told { status: head.status.as_u16(), headers: head.headers, body, began, took }
    }
}

/// The value that so many of a thousand are not above.
pub(crate) fn percentile(times: &[Duration], thousandths: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let place = (times.len() * thousandths / 1000).min(times.len().saturating_sub(1));
    times.get(place).copied().unwrap_or_default()
}

/// Jain's index of fairness: 1 where all have the same, 1/n where one has all.
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    sum * sum / (shares.len() as f64 * squares)
}

/// Watches whether the machine lets programs run: by how much a thread that sleeps for a millisecond oversleeps at most.
pub(crate) struct Stalls {
    worst: Arc<AtomicU64>, // microseconds
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let (worst, end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (seen, ended) = (Arc::clone(&worst), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                let (took, ()) = crate::service::timed(|| crate::service::pause(Duration::from_millis(1)));
                seen.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
            }
        });
        Self { worst, end, thread: Some(thread) }
    }

    pub(crate) fn worst(mut self) -> Duration {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        Duration::from_micros(self.worst.load(Ordering::Relaxed))
    }
}

/// What was measured, and whether the machine let it be measured.
pub(crate) struct Measured<T> {
    pub(crate) result: T,
    pub(crate) is_undisturbed: bool,
}

/// Measures until a run was not disturbed by the machine, so many times at most. What is said about time can be held against the
/// last of them only if that was not.
pub(crate) fn undisturbed<T>(
    longest_stall: Duration,
    runs: u32,
    mut measure: impl FnMut() -> T,
) -> Measured<T> {
    for run in 1.. {
        let stalls = Stalls::watch();
        let result = measure();
        let worst = stalls.worst();
        let is_undisturbed = worst <= longest_stall;
        if is_undisturbed || run == runs {
            return Measured { result, is_undisturbed };
        }
        eprintln!("the machine stood still for {worst:?}: measured again");
    }
    unreachable!()
}
