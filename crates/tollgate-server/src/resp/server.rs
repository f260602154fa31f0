//! Speaks RESP on connections.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;
use crate::listener::{self, Speak};
use crate::service::Service;

/// What answers Redis clients.
#[derive(Clone)]
pub(crate) struct Resp {
    service: Arc<Service>,
    ids: Arc<AtomicU64>, // of connections
}

impl Resp {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self { service, ids: Arc::new(AtomicU64::new(1)) }
    }
}

impl Speak for Resp {
    const NAME: &'static str = "resp";
    const MOST_CONNECTIONS: u32 = 20_000;
    const WHEN_FULL: Option<&'static [u8]> = Some(b"-ERR max number of clients reached\r\n");

    async fn speak<S>(self, stream: S, _: listener::Connection, stop: impl Future<Output = ()> + Send)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        Connection::new(stream, id, self.service).run(stop).await;
    }
}
