//! Clients that ask the gateway, many at once.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// A runtime for clients, on this thread.
pub(crate) fn runtime() -> Runtime {
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
        body.collect().await.unwrap();
        let took = began.elapsed();
        Told { status: head.status.as_u16(), headers: head.headers, began, took }
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
