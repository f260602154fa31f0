//! Speaks gRPC on a connection: HTTP/2 from the first byte.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::http::{Request, Response};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::server::NamedService as _;
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tower_service::Service as _;

use super::RateLimits;
use super::generated::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use super::health::Health;
use crate::listener::{Connection, Speak};
use crate::service::Service;

/// What the messages look like, for whoever asks by reflection.
const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// The largest message that is read.
const MOST_BYTES: usize = 1 << 20;

/// As many requests may be under way on one connection.
const MOST_STREAMS: u32 = 1024;

/// How often the other side of a quiet connection is asked whether it is still there, and how long it may take.
const PING: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));

/// The three services of the port.
pub(crate) struct Grpc<R: ServerReflection> {
    rate_limits: RateLimitServiceServer<RateLimits>,
    health: HealthServer<Health>,
    reflection: ServerReflectionServer<R>,
}

/// The services of the port, which are well as long as `is_serving` says so.
pub(crate) fn grpc(service: Arc<Service>, is_serving: watch::Receiver<bool>) -> Grpc<impl ServerReflection> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1();
    let rate_limits = RateLimitServiceServer::new(RateLimits(service));
    Grpc {
        rate_limits: rate_limits.max_decoding_message_size(MOST_BYTES),
        health: HealthServer::new(Health(is_serving)),
        reflection: reflection.expect("made from proto/, and tried in tests"),
    }
}

impl<R: ServerReflection> Clone for Grpc<R> {
    fn clone(&self) -> Self {
        let Self { rate_limits, health, reflection } = self;
        Self { rate_limits: rate_limits.clone(), health: health.clone(), reflection: reflection.clone() }
    }
}

impl<R: ServerReflection> Grpc<R> {
    async fn call(mut self, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        if service == HealthServer::<Health>::NAME {
            self.health.call(request).await
        } else if service == ServerReflectionServer::<R>::NAME {
            self.reflection.call(request).await
        } else {
            self.rate_limits.call(request).await // which says so itself where nobody has it
        }
    }
}

impl<R: ServerReflection> Speak for Grpc<R> {
    const NAME: &'static str = "grpc";
    const MOST_CONNECTIONS: u32 = 10_000;
    const WHEN_FULL: Option<&'static [u8]> = None;

    async fn speak<S>(self, stream: S, _: Connection, stop: impl Future<Output = ()> + Send)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(move |request| self.clone().call(request));
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .keep_alive_interval(PING.0)
            .keep_alive_timeout(PING.1)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = &mut connection => {}
            () = stop => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
}
