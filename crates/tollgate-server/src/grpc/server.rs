//! Speaks gRPC on a connection: HTTP/2 from the first byte.
//!
//! Nearly all requests are one small message that comes in one piece. All that have come together are decided in one go
//! and answered in one write, without a task for each: a third of the time that a general server of gRPC takes. Whatever
//! else comes goes to one, `tonic`, a task each; so does, without it, what a shared store has to be asked of.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection as H2, SendResponse};
use h2::{RecvStream, SendStream};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;
use hyper::http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tonic::server::NamedService as _;
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tonic_reflection::server::v1alpha;
use tower_service::Service as _;

use super::RateLimits;
use super::body::Incoming;
use super::generated::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use super::health::Health;
use super::message;
use crate::connections::Activity;
use crate::http2::{Upkeep, UpkeepAction};
use crate::listener::{Connection, Speak};
use crate::service::Service;

/// What the messages look like, for whoever asks by reflection.
const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// What Envoy calls.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// The largest message that is read: of Envoy's, and of those who ask about health or reflection.
const MOST_BYTES: usize = 128 << 10;
const MOST_OTHER_BYTES: usize = 16 << 10;

/// As many requests may be under way on one connection.
const MOST_STREAMS: u32 = 256;

/// The largest headers of a request.
const MOST_HEADER_BYTES: u32 = 16 << 10;

/// How long an answer may stay unread.
const STALLED: Duration = Duration::from_secs(20);

/// How long a connection may take to begin, and a request to come.
const PATIENCE: Duration = Duration::from_secs(10);

/// After how long a connection without a call is closed, by default.
const IDLE: Duration = Duration::from_secs(300);

/// The services of the port. Reflection has two versions: older tools ask for `v1alpha` only.
pub(crate) struct Grpc<R: ServerReflection, A: v1alpha::ServerReflection> {
    service: Arc<Service>,
    idle: Duration, // after which a connection without a call is closed
    rate_limits: RateLimitServiceServer<RateLimits>,
    health: HealthServer<Health>,
    reflection: ServerReflectionServer<R>,
    reflection_v1alpha: v1alpha::ServerReflectionServer<A>,
}

/// The services of the port, which are well as long as `is_serving` says so.
pub(crate) fn grpc(
    service: Arc<Service>,
    idle: Option<Duration>,
    is_serving: watch::Receiver<bool>,
) -> Grpc<impl ServerReflection, impl v1alpha::ServerReflection> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
            .include_reflection_service(false) // both are registered above
    };
    let rate_limits = RateLimitServiceServer::new(RateLimits(Arc::clone(&service)));
    Grpc {
        service,
        idle: idle.unwrap_or(IDLE),
        rate_limits: rate_limits.max_decoding_message_size(MOST_BYTES),
        health: HealthServer::new(Health(is_serving)).max_decoding_message_size(MOST_OTHER_BYTES),
        reflection: reflection()
            .build_v1()
            .expect("the descriptors are made from proto/, and tests read them")
            .max_decoding_message_size(MOST_OTHER_BYTES),
        reflection_v1alpha: reflection()
            .build_v1alpha()
            .expect("the same descriptors")
            .max_decoding_message_size(MOST_OTHER_BYTES),
    }
}

impl<R: ServerReflection, A: v1alpha::ServerReflection> Clone for Grpc<R, A> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            idle: self.idle,
            rate_limits: self.rate_limits.clone(),
            health: self.health.clone(),
            reflection: self.reflection.clone(),
            reflection_v1alpha: self.reflection_v1alpha.clone(),
        }
    }
}

impl<R: ServerReflection, A: v1alpha::ServerReflection> Speak for Grpc<R, A> {
    const NAME: &'static str = "grpc";

    async fn speak<S>(
        self,
        stream: S,
        _: Connection,
        activity: Arc<Activity>,
        stop: impl Future<Output = ()> + Send,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = Builder::new();
        builder.max_concurrent_streams(MOST_STREAMS).max_header_list_size(MOST_HEADER_BYTES);
        // What goes wrong on a connection is the client's affair: it hung up, or spoke something else.
        let Ok(Ok(mut connection)) = tokio::time::timeout(PATIENCE, builder.handshake(stream)).await else {
            return;
        };
        let mut upkeep = Upkeep::new(&mut connection, self.idle);
        let mut stop = std::pin::pin!(stop);
        let (mut calls, mut is_stopping) = (Vec::new(), false);
        loop {
            let next = poll_fn(|context| poll_calls(&mut connection, &mut calls, context));
            let (goes_on, is_due) = tokio::select! {
                goes_on = next => (goes_on, false),
                due = upkeep.due(&activity) => (due != UpkeepAction::Drop, true),
                () = &mut stop, if !is_stopping => (true, true),
            };
            if is_due && !is_stopping {
                is_stopping = true;
                connection.graceful_shutdown();
                upkeep.going_away();
            }
            for (request, respond) in calls.drain(..) {
                self.answer(request, respond, &activity);
            }
            if !goes_on {
                return;
            }
        }
    }
}

type Call = (Request<RecvStream>, SendResponse<Bytes>);

/// Reads what has come, sends what is ready, and takes all calls that have come together. False at the end of the
/// connection.
fn poll_calls<S>(
    connection: &mut H2<S, Bytes>,
    calls: &mut Vec<Call>,
    context: &mut Context<'_>,
) -> Poll<bool>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    while let Poll::Ready(call) = connection.poll_accept(context) {
        match call {
            Some(Ok(call)) => calls.push(call),
            Some(Err(_)) | None => return Poll::Ready(false),
        }
    }
    if calls.is_empty() { Poll::Pending } else { Poll::Ready(true) }
}

impl<R: ServerReflection, A: v1alpha::ServerReflection> Grpc<R, A> {
    /// Answers a call, at once if it is the usual one, is there, and nobody has to be waited for.
    fn answer(
        &self,
        mut request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        activity: &Arc<Activity>,
    ) {
        activity.touch();
        if !message::is_grpc(request.headers()) {
            return message::refuse_kind(respond);
        }
        let is_usual = request.uri().path() == SHOULD_RATE_LIMIT;
        let first = if is_usual { first_piece(request.body_mut()) } else { None };
        match first {
            Some(message) if request.body().is_end_stream() && message::is_whole(&message) => {
                let tracing = self.service.tracing(request.headers());
                let respond = message::answer_now(&self.service, &message, tracing, respond);
                let Some(respond) = respond else { return };
                // Other calls of the connection do not wait for this one.
                let (service, in_flight) = (Arc::clone(&self.service), activity.begin());
                tokio::spawn(async move {
                    message::answer_later(service, message, tracing, respond).await;
                    drop(in_flight);
                });
            }
            first => {
                let call = self.clone().call(request.map(|body| Incoming::new(first, body)), respond);
                let in_flight = activity.begin();
                tokio::spawn(async move {
                    call.await;
                    drop(in_flight);
                });
            }
        }
    }

    /// Answers a call of any kind, as it comes. A message that does not come is not waited for.
    async fn call(mut self, request: Request<Incoming>, respond: SendResponse<Bytes>) {
        let called = async {
            let service = request.uri().path().split('/').nth(1).unwrap_or_default();
            if service == HealthServer::<Health>::NAME {
                self.health.call(request).await
            } else if service == ServerReflectionServer::<R>::NAME {
                self.reflection.call(request).await
            } else if service == v1alpha::ServerReflectionServer::<A>::NAME {
                self.reflection_v1alpha.call(request).await
            } else {
                self.rate_limits.call(request).await // which says so itself where nobody has it
            }
        };
        if let Ok(Ok(response)) = tokio::time::timeout(PATIENCE, called).await {
            // A client that has gone does not hear it.
            let _ = send(response, respond).await;
        }
    }
}

/// What of a message has come already.
fn first_piece(body: &mut RecvStream) -> Option<Bytes> {
    // Nobody need be woken: what is not there now is waited for elsewhere.
    let Poll::Ready(Some(Ok(piece))) = body.poll_data(&mut Context::from_waker(Waker::noop())) else {
        return None;
    };
    let _ = body.flow_control().release_capacity(piece.len());
    Some(piece)
}

/// Sends an answer as it is made and as the client takes it, until the client has heard enough.
async fn send(
    response: Response<tonic::body::Body>,
    mut respond: SendResponse<Bytes>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (head, mut body) = response.into_parts();
    // What is refused is refused in the headers alone.
    let is_all = body.is_end_stream();
    let mut stream = respond.send_response(Response::from_parts(head, ()), is_all)?;
    if is_all {
        return Ok(());
    }
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = poll_fn(|context| stream.poll_reset(context)) => return Ok(()),
        };
        let Some(frame) = frame else { return Ok(stream.send_data(Bytes::new(), true)?) };
        match frame?.into_data() {
            Ok(data) => {
                if send_data(&mut stream, data).await?.is_none() {
                    return Ok(());
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return Ok(stream.send_trailers(trailers)?);
                }
            }
        }
    }
}

/// Sends data as the client takes it. None where it does not take it for long, or has gone: the stream is then dropped,
/// which tells it so.
pub(super) async fn send_data(
    stream: &mut SendStream<Bytes>,
    mut data: Bytes,
) -> Result<Option<()>, h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = tokio::time::timeout(STALLED, poll_fn(|context| stream.poll_capacity(context)));
        let Ok(Some(room)) = room.await else { return Ok(None) };
        let piece = data.split_to(room?.min(data.len()));
        stream.send_data(piece, false)?;
    }
    Ok(Some(()))
}
