//! A call that has come whole: its message read, decided and answered, at once if states are in this process.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::server::SendResponse;
use hyper::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use prost::Message as _;
use tonic::Status;

use super::server::send_data;
use super::{RateLimitRequest, RateLimitResponse, should_rate_limit, should_rate_limit_now};
use crate::metrics::Protocol;
use crate::service::Service;
use crate::telemetry::Tracing;

/// What stands before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Whether a call is one of gRPC.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind =
        headers.get(header::CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(b"application/grpc"));
    matches!(kind, Some([] | [b'+' | b';', ..]))
}

/// Whether this is one message, not compressed, and all of it.
pub(super) fn is_whole(message: &[u8]) -> bool {
    let [0, a, b, c, d, message @ ..] = message else { return false };
    u32::from_be_bytes([*a, *b, *c, *d]) as usize == message.len()
}

/// Decides the message without waiting, and answers. A client that has gone does not hear it. If a store has to be waited for, nothing
/// is decided, and the call comes back.
pub(super) fn answer_now(
    service: &Service,
    message: &[u8],
    tracing: Tracing,
    respond: SendResponse<Bytes>,
) -> Option<SendResponse<Bytes>> {
    let decided = match read(message) {
        Ok(request) => should_rate_limit_now(service, &request, Protocol::grpc, tracing),
        Err(status) => Some(Err(status)),
    };
    let Some(decided) = decided else { return Some(respond) };
    reply(decided, respond);
    None
}

/// Decides the message by a store that is waited for, and answers, unless the client has gone.
pub(super) async fn answer_later(
    service: Arc<Service>,
    message: Bytes,
    tracing: Tracing,
    mut respond: SendResponse<Bytes>,
) {
    let decided = async {
        let request = read(&message)?;
        should_rate_limit(&service, &request, Protocol::grpc, tracing).await
    };
    let decided = tokio::select! {
        decided = decided => decided,
        _ = poll_fn(|context| respond.poll_reset(context)) => return,
    };
    reply(decided, respond);
}

fn read(message: &[u8]) -> Result<RateLimitRequest, Status> {
    RateLimitRequest::decode(&message[PREFIX..])
        .map_err(|error| Status::internal(format!("the message cannot be read: {error}")))
}

fn reply(decided: Result<RateLimitResponse, Status>, respond: SendResponse<Bytes>) {
    let _ = match decided {
        Ok(response) => {
            let length = response.encoded_len();
            let mut data = BytesMut::with_capacity(PREFIX + length);
            data.put_u8(0);
            data.put_u32(u32::try_from(length).unwrap_or(u32::MAX)); // a few kilobytes at most
            response.encode(&mut data).expect("there is room for it");
            send(data.freeze(), respond)
        }
        Err(status) => refuse(status, respond),
    };
}

fn send(data: Bytes, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut head = Response::new(());
    head.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let mut stream = respond.send_response(head, false)?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    stream.reserve_capacity(data.len());
    if stream.capacity() < data.len() {
        // A client that does not take its answers is waited for elsewhere, and not for ever.
        tokio::spawn(async move {
            if let Ok(Some(())) = send_data(&mut stream, data).await {
                let _ = stream.send_trailers(trailers);
            }
        });
        return Ok(());
    }
    stream.send_data(data, false)?;
    stream.send_trailers(trailers)
}

/// Tells what is wrong in the headers alone, as gRPC has it.
fn refuse(status: Status, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let (head, ()) = status.into_http::<()>().into_parts();
    respond.send_response(Response::from_parts(head, ()), true).map(drop)
}

/// Tells whoever speaks HTTP/2 and no gRPC, as HTTP has it.
pub(super) fn refuse_kind(mut respond: SendResponse<Bytes>) {
    let mut head = Response::new(());
    *head.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let _ = respond.send_response(head, true);
}
