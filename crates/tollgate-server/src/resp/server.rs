//! Speaks RESP on connections.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;
use super::pending::PendingBytes;
use super::session::Session;
use crate::connections::Activity;
use crate::listener::{self, Speak};
use crate::service::Service;

/// What answers Redis clients.
#[derive(Clone)]
pub(crate) struct Resp {
    service: Arc<Service>,
    ids: Arc<AtomicU64>, // of connections
    pending: Arc<PendingBytes>,
}

impl Resp {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self { service, ids: Arc::new(AtomicU64::new(1)), pending: Arc::default() }
    }
}

impl Speak for Resp {
    const NAME: &'static str = "resp";
    const WHEN_FULL: &'static [u8] = b"-ERR max number of clients reached\r\n";

    async fn speak<S>(
        self,
        stream: S,
        connection: listener::Connection,
        activity: Arc<Activity>,
        stop: impl Future<Output = ()> + Send,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let session = Session::new(id, connection.peer, &self.service);
        Connection::new(stream, session, activity, self.pending, self.service).run(stop).await;
    }
}
