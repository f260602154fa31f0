//! Accepts connections and speaks HTTP/1.1 on them.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Version, header};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::Connection;
use super::problem::Problem;

/// As many connections are open at once; more wait to be accepted.
const MOST_CONNECTIONS: usize = 10_000;

/// How long the head of a request, or a TLS handshake, may take to come.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long what was sent may stay unread.
const STALLED: Duration = Duration::from_secs(20);

/// The largest head of a request.
const HEAD_BYTES: usize = 64 << 10;

/// How long connections have to end when the process is to.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);

/// Serves a listener until `stop`, then lets connections finish what they are at.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    stop: impl Future<Output = ()>,
) {
    let is_loopback = listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut stop = std::pin::pin!(stop);
    loop {
        let accept = async {
            let place = Arc::clone(&room).acquire_owned().await.expect("nobody closes it");
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accept => accepted,
            () = &mut stop => break,
        };
        let (stream, connection) = match accepted.and_then(|(stream, peer)| Ok((prepare(stream)?, peer))) {
            Ok((stream, peer)) => (stream, Connection { peer, is_loopback }),
            Err(error) => {
                // Out of file descriptors, most often: others may be closed soon.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let (router, watcher, tls) = (router.clone(), graceful.watcher(), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => speak(stream, connection, router, watcher).await,
                Some(tls) => {
                    // A handshake that fails is the client's affair.
                    if let Ok(Ok(stream)) = tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                        speak(stream, connection, router, watcher).await;
                    }
                }
            }
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
        tracing::warn!("connections were still open after 5 seconds");
    }
}

fn prepare(stream: TcpStream) -> std::io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    // A client that does not read what it asked for is not waited for.
    SockRef::from(&stream).set_tcp_user_timeout(Some(STALLED))?;
    Ok(stream)
}

/// Speaks HTTP on a connection until it ends.
async fn speak<S>(stream: S, connection: Connection, router: Router, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection);
        let mut router = router.clone();
        async move {
            if !has_one_host(&request) {
                return Ok::<_, Infallible>(
                    Problem::bad_request("HTTP/1.1 asks for one Host header").into_response(),
                );
            }
            Ok(answer(router.call(request.map(Body::new))).await)
        }
    });
    let conversation = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES)
        .writev(false) // answers are small: to copy one beside its head is cheaper than to send two pieces
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong on a connection is the client's affair: it hung up, or sent no HTTP.
    let _ = watcher.watch(conversation).await;
}

/// RFC 9112, section 3.2: without it, or with two, nobody knows what was meant.
fn has_one_host(request: &Request<Incoming>) -> bool {
    request.version() != Version::HTTP_11 || request.headers().get_all(header::HOST).iter().count() == 1
}

async fn answer<R>(called: impl Future<Output = Result<R, Infallible>>) -> R {
    match called.await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
