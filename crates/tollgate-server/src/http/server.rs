//! Speaks HTTP/1.1 on a connection.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service as _;

use super::problem::Problem;
use crate::connections::Activity;
use crate::listener::{Connection, Speak};

/// How long the head of a request may take to come.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest head of a request.
const HEAD_BYTES: usize = 64 << 10;

/// Answers by a router.
#[derive(Clone)]
pub(crate) struct Http(pub(crate) Router);

impl Speak for Http {
    const NAME: &'static str = "http";

    async fn speak<S>(
        self,
        stream: S,
        connection: Connection,
        activity: Arc<Activity>,
        stop: impl Future<Output = ()> + Send,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self(router) = self;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(connection);
            let mut router = router.clone();
            let in_flight = activity.begin();
            async move {
                let _in_flight = in_flight;
                if !has_one_host(&request) {
                    return Ok::<_, Infallible>(
                        Problem::bad_request("HTTP/1.1 asks for one Host header").into_response(),
                    );
                }
                Ok(answer(router.call(request.map(Body::new))).await)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_BYTES)
            .writev(false) // answers are small: to copy one beside its head is cheaper than to send two pieces
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        // What goes wrong on a connection is the client's affair: it hung up, or sent no HTTP.
        tokio::select! {
            _ = &mut connection => {}
            () = stop => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
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
