//! Accepts connections and speaks RESP on them.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::connection::{Connection, REQUEST_TIMEOUT};
use crate::service::Service;

/// As many connections are open at once; more are told so and closed.
const MOST_CONNECTIONS: u32 = 20_000;

/// How long the other side may be silent about what was sent to it.
const UNREACHABLE: Duration = Duration::from_secs(20);

/// How long connections have to end when the process is to.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves a listener until `stop`, then lets connections answer what has come.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    stop: impl Future<Output = ()>,
) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS as usize));
    let (end, ended) = watch::channel(false);
    let mut stop = std::pin::pin!(stop);
    for id in 1.. {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let stream = match accepted.and_then(|(stream, _)| prepare(stream)) {
            Ok(stream) => stream,
            Err(error) => {
                // Out of file descriptors, most often: others may be closed soon.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
            continue;
        };
        let (service, tls, mut ended) = (Arc::clone(&service), tls.clone(), ended.clone());
        tokio::spawn(async move {
            let stop = async move { _ = ended.wait_for(|ended| *ended).await };
            match tls {
                None => Connection::new(stream, id, service).run(stop).await,
                Some(tls) => {
                    // A handshake that fails is the client's affair.
                    if let Ok(Ok(stream)) = tokio::time::timeout(REQUEST_TIMEOUT, tls.accept(stream)).await {
                        Connection::new(stream, id, service).run(stop).await;
                    }
                }
            }
            drop(place);
        });
    }
    drop(listener);
    let _ = end.send(true);
    // All places are free when all have ended.
    if tokio::time::timeout(DRAIN, room.acquire_many(MOST_CONNECTIONS)).await.is_err() {
        tracing::warn!("RESP connections were still open after 5 seconds");
    }
}

fn prepare(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_user_timeout(Some(UNREACHABLE))?;
    Ok(stream)
}
