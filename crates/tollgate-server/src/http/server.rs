//! Speaks HTTP/1.1 on a connection.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, Version, header};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service as _;

use super::events::EVENTS;
use super::playground::PLAYGROUND;
use super::problem::Problem;
use super::{playground_router, router};
use crate::connections::Activity;
use crate::cross_site::require_own_site;
use crate::listener::{Connection, Speak};
use crate::service::Service;

/// How long the head of a request may take to come.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest head of a request.
const HEAD_BYTES: usize = 64 << 10;

/// Answers calls of the HTTP API.
#[derive(Clone)]
pub(crate) struct Http {
    router: Router,
    service: Arc<Service>,
}

impl Http {
    pub(crate) fn new(service: Arc<Service>) -> Self {
        Self { router: router(Arc::clone(&service)), service }
    }

    /// Serves the playground only.
    pub(crate) fn playground(service: Arc<Service>) -> Self {
        Self { router: playground_router(Arc::clone(&service)), service }
    }

    /// Why a request is refused before anybody looks at what it asks for.
    fn refusal(&self, request: &Request<Incoming>, connection: Connection) -> Option<Problem> {
        if !has_one_host(request) {
            return Some(Problem::bad_request("HTTP/1.1 asks for one Host header"));
        }
        let is_listed = |name: &str| {
            self.service.engine.policy().hosts.iter().any(|host| host.eq_ignore_ascii_case(name))
        };
        let refused = require_own_site(request, connection.is_loopback, is_listed).err()?;
        Some(Problem::new(StatusCode::FORBIDDEN, refused.to_string()))
    }
}

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
        let aborted = Arc::clone(&activity);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(connection);
            if [EVENTS, PLAYGROUND].contains(&request.uri().path()) {
                request.extensions_mut().insert(Arc::clone(&activity));
            }
            let refusal = self.refusal(&request, connection);
            let mut router = self.router.clone();
            let in_flight = activity.begin();
            async move {
                let _in_flight = in_flight;
                if let Some(refusal) = refusal {
                    return Ok::<_, Infallible>(refusal.into_response());
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
            () = aborted.aborted() => {}
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
