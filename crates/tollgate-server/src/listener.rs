//! Accepts connections, with TLS or without, and lets a protocol speak on each.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long what was sent may stay unread.
const STALLED: Duration = Duration::from_secs(20);

/// After how long the other side of a quiet connection is asked whether it is still there.
const QUIET: Duration = Duration::from_secs(60);

/// How long connections have to end when the process is to.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);

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
    /// As many connections are open at once.
    const MOST_CONNECTIONS: u32;
    /// What a connection beyond them is told before it is closed. Without it, it waits to be accepted.
    const WHEN_FULL: Option<&'static [u8]>;

    /// Speaks on a connection until it ends, or until `stop`: then only what is under way is finished.
    fn speak<S>(
        self,
        stream: S,
        connection: Connection,
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
    stop: impl Future<Output = ()>,
) {
    let is_loopback = listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let room = Arc::new(Semaphore::new(P::MOST_CONNECTIONS as usize));
    let (end, ended) = watch::channel(false);
    let mut stop = std::pin::pin!(stop);
    loop {
        let accept = async {
            if P::WHEN_FULL.is_none() {
                let _ = room.acquire().await; // nobody else takes a place
            }
            listener.accept().await
        };
        let accepted = tokio::select! {
            accepted = accept => accepted,
            () = &mut stop => break,
        };
        let (stream, peer) = match accepted.and_then(|(stream, peer)| Ok((prepare(stream)?, peer))) {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most often: others may be closed soon.
                tracing::warn!(%error, protocol = P::NAME, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            let _ = stream.try_write(P::WHEN_FULL.unwrap_or_default());
            continue;
        };
        let connection = Connection { peer, is_loopback, is_tls: tls.is_some() };
        let (protocol, tls, mut ended) = (protocol.clone(), tls.clone(), ended.clone());
        tokio::spawn(async move {
            let stop = async move { _ = ended.wait_for(|ended| *ended).await };
            match tls {
                None => protocol.speak(stream, connection, stop).await,
                Some(tls) => {
                    // A handshake that fails is the client's affair.
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await {
                        protocol.speak(stream, connection, stop).await;
                    }
                }
            }
            drop(place);
        });
    }
    drop(listener);
    let _ = end.send(true);
    // All places are free when all have ended.
    if tokio::time::timeout(DRAIN, room.acquire_many(P::MOST_CONNECTIONS)).await.is_err() {
        tracing::warn!(protocol = P::NAME, "connections were still open after 5 seconds");
    }
}

fn prepare(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    // A client that does not read what it asked for is not waited for, nor is one that is gone without a word.
    socket.set_tcp_user_timeout(Some(STALLED))?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(QUIET))?;
    Ok(stream)
}
