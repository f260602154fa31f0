//! Accepts connections, with TLS or without, and lets a protocol speak on each.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::connections::Activity;
use crate::service::Service;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long what was sent may stay unread.
const STALLED: Duration = Duration::from_secs(20);

/// The most unsent bytes that the kernel keeps per connection.
const UNSENT: u32 = 64 << 10;

/// After how long the other side of a quiet connection is asked whether it is still there.
const QUIET: Duration = Duration::from_secs(60);

/// How long connections have to end when the process is to.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);

/// The shortest time between two log lines about connections that could not be accepted, per listener.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// What a request came over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) is_loopback: bool, // whether the listener is bound to the loopback only
    pub(crate) is_tls: bool,
}

/// A protocol.
pub(crate) trait Speak: Clone + Send + Sync + 'static {
    /// What it is called in the log.
    const NAME: &'static str;
    /// What is sent to a connection for which there is no place, before it is closed.
    const WHEN_FULL: &'static [u8] = b"";

    /// Speaks on a connection until it ends, or until `stop`: then only what is under way is finished.
    fn speak<S>(
        self,
        stream: S,
        connection: Connection,
        activity: Arc<Activity>,
        stop: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = ()> + Send
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static;
}

/// Serves a listener until `stop`, then lets connections finish what they are at.
pub(crate) async fn serve<P: Speak>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    protocol: P,
    service: Arc<Service>,
    stop: impl Future<Output = ()>,
) {
    let is_loopback = listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let (end, ended) = watch::channel(false);
    let (is_open, mut all_closed) = mpsc::channel::<()>(1); // every connection has a sender
    let mut stop = std::pin::pin!(stop);
    let mut failures = AcceptFailures::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted.and_then(|(stream, peer)| Ok((prepare(stream)?, peer))) {
            Ok(accepted) => accepted,
            Err(error) => {
                service.connections.count_failed();
                if let Some(not_logged) = failures.next(tokio::time::Instant::now()) {
                    tracing::warn!(%error, protocol = P::NAME, not_logged, "a connection could not be accepted");
                }
                // The usual cause is that the process has no file descriptor left. Another connection may be closed soon.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let is_exempt = service.engine.policy().identity.client_ip.lists(peer.ip());
        let Ok(guard) = service.connections.admit(peer.ip(), is_exempt).await else {
            let _ = stream.try_write(P::WHEN_FULL);
            continue;
        };
        let is_open = is_open.clone();
        let connection = Connection { peer, is_loopback, is_tls: tls.is_some() };
        let (protocol, tls, mut ended) = (protocol.clone(), tls.clone(), ended.clone());
        tokio::spawn(async move {
            let (activity, closing) = (Arc::clone(&guard.activity), Arc::clone(&guard.activity));
            let stop = async move {
                tokio::select! {
                    _ = ended.wait_for(|ended| *ended) => {}
                    () = closing.closing() => {}
                }
            };
            match tls {
                None => protocol.speak(stream, connection, activity, stop).await,
                Some(tls) => {
                    // A handshake that fails is the client's affair.
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                        protocol.speak(stream, connection, activity, stop).await;
                    }
                }
            }
            drop((guard, is_open));
        });
    }
    drop((listener, is_open));
    let _ = end.send(true);
    if tokio::time::timeout(DRAIN, all_closed.recv()).await.is_err() {
        tracing::warn!(protocol = P::NAME, "connections were still open after 5 seconds");
    }
}

/// Decides which failures to accept a connection are logged.
#[derive(Debug, Default)]
struct AcceptFailures {
    logged_at: Option<tokio::time::Instant>,
    not_logged: u64, // since then
}

impl AcceptFailures {
    /// Counts a failure. If it is to be logged, returns how many before it were not.
    fn next(&mut self, now: tokio::time::Instant) -> Option<u64> {
        if self.logged_at.is_some_and(|logged_at| now.duration_since(logged_at) < FAILURE_LOG_INTERVAL) {
            self.not_logged += 1;
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.not_logged))
    }
}

fn prepare(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    // A client that does not read what it asked for is not waited for, nor is one that is gone without a word.
    socket.set_tcp_user_timeout(Some(STALLED))?;
    // What waits for a client waits here, where it is seen, and not in the kernel.
    socket.set_tcp_notsent_lowat(UNSENT)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(QUIET))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_accept_failure_per_second_is_logged_with_the_number_of_others() {
        let (mut failures, start) = (AcceptFailures::default(), tokio::time::Instant::now());
        let mut at = |milliseconds| failures.next(start + Duration::from_millis(milliseconds));
        assert_eq!([0, 10, 20, 999].map(&mut at), [Some(0), None, None, None]);
        assert_eq!([1000, 1010, 5000, 9000].map(&mut at), [Some(3), None, Some(1), Some(0)]);
    }
}
