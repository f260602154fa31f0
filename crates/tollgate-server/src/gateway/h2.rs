//! Speaks HTTP/2 with a client. The `h2` crate reads and writes frames. A task per stream watches the client, so that a client that gives
//! no window is noticed although its body is not polled.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header,
};
use bytes::{Buf as _, Bytes, BytesMut};
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_policy::is_same_host;

use super::Gateway;
use super::behind::Behind;
use super::exchange::{Asked, Held, Reply, ReplyBody, ReplyHeaders};
use super::forward::{Peer, carried_on};
use super::front::{BodyError, Front, READ_AHEAD};
use super::h1::{Framing, Io, MOST_HEADERS, Malformed, TOO_LARGE};
use super::metrics::SlowClient;
use super::progress::{Progress, ReadWatch, SharedBytes};
use super::refusal::Refusal;
use crate::connections::Activity;
use crate::http2::{Upkeep, UpkeepAction};
use crate::listener::Connection;

/// The most requests of one client at once.
const MOST_STREAMS: u32 = 256;

/// The largest list of headers.
const HEADER_BYTES: u32 = 64 << 10;

/// As much of a request's body is on its way before the application takes it: of one stream, and of all streams of a connection. One
/// stream that the application does not read leaves room for the others.
const STREAM_WINDOW: u32 = 128 << 10;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// As much of an answer is kept for a client that does not take it: so much here, and so much in the frames.
const SEND: usize = 32 << 10;

/// The most pieces of a body that are read ahead.
const MOST_AHEAD: usize = 256;

/// How long a connection may take to begin.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Speaks with a client until one of both has enough, or until `stop` and the end of what is under way.
pub(super) async fn serve<S>(
    gateway: &Arc<Gateway>,
    io: Io<S>,
    connection: Connection,
    activity: &Arc<Activity>,
    mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND);
    let handshake = builder.handshake(Rewound { prefix: io.buffer, stream: io.stream });
    let Ok(Ok(mut served)) = tokio::time::timeout(HANDSHAKE, handshake).await else { return };
    let mut upkeep = Upkeep::new(&mut served, gateway.idle());
    let (uploads, downloads) = (SharedBytes::new(activity), SharedBytes::new(activity));
    let mut is_stopping = false;
    loop {
        tokio::select! {
            accepted = served.accept() => {
                let Some(Ok((request, respond))) = accepted else { return };
                let (gateway, in_flight) = (Arc::clone(gateway), activity.begin());
                let shared = [Arc::clone(&uploads), Arc::clone(&downloads)];
                tokio::spawn(async move {
                    answer(&gateway, request, respond, connection, shared).await;
                    drop(in_flight);
                });
            }
            due = upkeep.due(activity) => match due {
                UpkeepAction::Drop => return,
                UpkeepAction::GoAway if is_stopping => {}
                UpkeepAction::GoAway => {
                    is_stopping = true;
                    served.graceful_shutdown();
                    upkeep.going_away();
                }
            },
            () = stop.as_mut(), if !is_stopping => {
                is_stopping = true;
                served.graceful_shutdown();
                upkeep.going_away();
            }
        }
    }
}

/// Answers one request.
async fn answer(
    gateway: &Gateway,
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    connection: Connection,
    [uploads, downloads]: [Arc<SharedBytes>; 2],
) {
    let (mut head, body) = request.into_parts();
    let behind = gateway.behind();
    let mut stream = Stream::new(body, respond, &behind, &uploads);
    join_cookies(&mut head.headers);
    let reply = match require_one_meaning(&head.method, &head.uri, &head.headers, &stream.body) {
        Err(malformed) => {
            gateway.count_refused();
            Refusal::malformed(malformed).into()
        }
        Ok((_, Framing::Length(length))) if length > behind.settings.max_body => {
            gateway.count_refused();
            Refusal::too_large().into()
        }
        Ok((host, framing)) => {
            let peer = Peer::new(connection.peer.ip());
            let asked = Asked {
                method: &head.method,
                uri: &head.uri,
                headers: &head.headers,
                host: &host,
                framing,
                peer: &peer,
                is_tls: connection.is_tls,
                upgrade: None,
            };
            match gateway.exchange(&behind, &asked, &mut stream, &mut None).await {
                Some(reply) => reply,
                None => return, // the client has reset the stream
            }
        }
    };
    let download = Progress::of_stream(behind.settings.timeouts.download, &downloads);
    let mut watch = ReadWatch::new(download);
    let sent = stream.send(&head.method, reply, &mut watch).await;
    if let Err(SendError::TooSlow) = sent {
        gateway.metrics.slow_client(SlowClient::download);
    }
}

/// HTTP/2 sends the pairs of a cookie in several fields, HTTP/1.1 in one (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(header::COOKIE).iter();
    if let (Some(first), Some(_)) = (cookies.next(), cookies.next()) {
        let mut joined = first.as_bytes().to_vec();
        for cookie in headers.get_all(header::COOKIE).iter().skip(1) {
            joined.extend_from_slice(b"; ");
            joined.extend_from_slice(cookie.as_bytes());
        }
        if let Ok(joined) = HeaderValue::from_bytes(&joined) {
            headers.insert(header::COOKIE, joined);
        }
    }
}

/// The host and the framing of a request that everybody reads in the same way.
fn require_one_meaning(
    method: &Method,
    uri: &axum::http::Uri,
    headers: &HeaderMap,
    body: &RecvStream,
) -> Result<(String, Framing), Malformed> {
    if headers.len() > MOST_HEADERS {
        return Err(TOO_LARGE);
    }
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        return Err(Malformed::new("it asks for a tunnel or a trace, and there is none here"));
    }
    let is_path = uri.path().starts_with('/') || (uri.path() == "*" && *method == Method::OPTIONS);
    if !is_path {
        return Err(Malformed::new("the target is no path"));
    }
    let host = super::h1::one_host(headers, false)?;
    let host = match (uri.authority(), host) {
        // RFC 9113, section 8.3.1: they are compared in their normal form, and the application gets `:authority`.
        (Some(authority), Some(host)) if !is_same_host(authority.as_str(), host) => {
            return Err(Malformed::new("`host` differs from `:authority`; send one of them"));
        }
        (Some(authority), _) => authority.as_str(),
        (None, Some(host)) => host,
        (None, None) => return Err(Malformed::new("it names no host")),
    };
    if !super::h1::is_host(host) {
        return Err(Malformed::new("its host is no name and no address"));
    }
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(Malformed::new("HTTP/2 has no Transfer-Encoding"));
    }
    Ok((host.to_owned(), Framing::of_stream(headers, body.is_end_stream())?))
}

/// One request: its body, and the way to answer it.
struct Stream {
    body: RecvStream,
    respond: SendResponse<Bytes>,
    ahead: VecDeque<Bytes>, // of the body, that nobody has taken yet
    ahead_bytes: usize,
    left: u64, // that the body may still have
    upload: Progress,
}

/// Why an answer was not sent to its end.
enum SendError {
    /// The client has reset the stream, or is gone.
    Gone,
    /// The application broke off.
    Broken,
    /// The client read too slowly.
    TooSlow,
}

impl From<h2::Error> for SendError {
    fn from(_: h2::Error) -> Self {
        Self::Gone
    }
}

impl Stream {
    fn new(
        body: RecvStream,
        respond: SendResponse<Bytes>,
        behind: &Behind,
        uploads: &Arc<SharedBytes>,
    ) -> Self {
        Self {
            body,
            respond,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            left: behind.settings.max_body,
            upload: Progress::of_stream(behind.settings.timeouts.upload, uploads),
        }
    }

    /// Reads the next piece of the body. The client's window is opened again when the piece is taken.
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        match self.body.poll_data(context) {
            Poll::Ready(None) => Poll::Ready(Ok(None)),
            Poll::Ready(Some(Err(_))) => Poll::Ready(Err(BodyError::Gone)),
            Poll::Ready(Some(Ok(piece))) => {
                self.upload.moved(piece.len());
                Poll::Ready(Ok(Some(piece)))
            }
            Poll::Pending => {
                self.upload.waits();
                Poll::Pending
            }
        }
    }

    /// Sends an answer as the client takes it.
    async fn send(&mut self, method: &Method, reply: Reply, watch: &mut ReadWatch) -> Result<(), SendError> {
        let Reply { status, headers, told, framing, mut body, mut held } = reply;
        if let (ReplyBody::Full(bytes), Method::HEAD) = (&mut body, method.clone()) {
            bytes.clear();
        }
        let response = head(status, headers, told, framing);
        let is_all = is_done(&body);
        if is_all {
            // Before the client has the end of the answer: a client that then asks for the next finds the slot free.
            held = Held::default();
        }
        let mut sender = self.respond.send_response(response, is_all)?;
        if is_all {
            return Ok(());
        }
        let mut waiting = BytesMut::new();
        let result = poll_fn(|context| {
            self.poll_send(context, &mut sender, &mut body, &mut held, &mut waiting, watch)
        })
        .await;
        match result {
            Ok(()) => {}
            Err(SendError::TooSlow) => sender.send_reset(Reason::CANCEL),
            Err(SendError::Broken) => sender.send_reset(Reason::INTERNAL_ERROR),
            Err(SendError::Gone) => {}
        }
        drop(held);
        result
    }

    /// Moves an answer from the application to the client. What waits for the client has a bound.
    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        sender: &mut SendStream<Bytes>,
        body: &mut ReplyBody,
        held: &mut Held,
        waiting: &mut BytesMut,
        watch: &mut ReadWatch,
    ) -> Poll<Result<(), SendError>> {
        loop {
            if let ReplyBody::Upstream(body) = body {
                body.poll_request(context, self).map_err(|_| SendError::Broken)?;
            }
            while waiting.len() < SEND && !is_done(body) {
                match poll_piece(body, context) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(piece)) => waiting.extend_from_slice(&piece.unwrap_or_default()),
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(SendError::Broken)),
                }
            }
            if is_done(body) {
                // The application has done its part, whatever the client does now.
                *held = Held::default();
            }
            if waiting.is_empty() {
                if is_done(body) {
                    sender.send_data(Bytes::new(), true)?;
                    return Poll::Ready(Ok(()));
                }
                return sender.poll_reset(context).map(|_| Err(SendError::Gone));
            }
            sender.reserve_capacity(waiting.len());
            let capacity = match sender.capacity() {
                0 => match sender.poll_capacity(context) {
                    Poll::Ready(Some(capacity)) => capacity?,
                    Poll::Ready(None) => return Poll::Ready(Err(SendError::Gone)),
                    Poll::Pending => {
                        if watch.poll_too_slow(context).is_ready() {
                            return Poll::Ready(Err(SendError::TooSlow));
                        }
                        return Poll::Pending;
                    }
                },
                capacity => capacity,
            };
            let piece = waiting.split_to(capacity.min(waiting.len())).freeze();
            watch.moved(piece.len());
            let is_last = is_done(body) && waiting.is_empty();
            sender.send_data(piece, is_last)?;
            if is_last {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// Whether nothing more comes of an answer.
fn is_done(body: &ReplyBody) -> bool {
    match body {
        ReplyBody::Full(bytes) => bytes.is_empty(),
        ReplyBody::Upstream(body) => body.is_done(),
        ReplyBody::Upgraded(_) => false,
    }
}

fn poll_piece(body: &mut ReplyBody, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
    match body {
        ReplyBody::Full(bytes) => Poll::Ready(Ok(Some(std::mem::take(bytes)))),
        ReplyBody::Upstream(body) => body.poll_piece(context),
        ReplyBody::Upgraded(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
    }
}

/// The head of an answer.
fn head(
    status: StatusCode,
    headers: ReplyHeaders,
    told: Vec<(&'static str, String)>,
    framing: Option<Framing>,
) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = Version::HTTP_2;
    let onto = response.headers_mut();
    match headers {
        ReplyHeaders::Own(headers) => *onto = headers,
        ReplyHeaders::Upstream(lines) => {
            for (name, value) in carried_on(&lines) {
                // What HTTP/1.1 has as a name or a value is one here, too.
                if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
                {
                    onto.append(name, value);
                }
            }
        }
    }
    for (name, value) in told {
        let value = HeaderValue::try_from(value).expect("names, digits and punctuation");
        onto.insert(HeaderName::from_static(name), value);
    }
    if let Some(Framing::Length(length)) = framing {
        onto.insert(header::CONTENT_LENGTH, length.into());
    }
    response
}

impl Front for Stream {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        let piece = match self.ahead.pop_front() {
            Some(piece) => {
                self.ahead_bytes -= piece.len();
                piece
            }
            None => match ready!(self.poll_data(context))? {
                Some(piece) => piece,
                None => return Poll::Ready(Ok(None)), // trailers end here
            },
        };
        let Some(left) = self.left.checked_sub(piece.len() as u64) else {
            return Poll::Ready(Err(BodyError::TooLarge));
        };
        self.left = left;
        let _ = self.body.flow_control().release_capacity(piece.len());
        Poll::Ready(Ok(Some(piece)))
    }

    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.respond.poll_reset(context).map(|_| ())
    }

    fn poll_ahead(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        // The number of pieces is bounded, too: a small piece takes more memory than it has bytes.
        while self.ahead_bytes < READ_AHEAD && self.ahead.len() < MOST_AHEAD && !self.body.is_end_stream() {
            let Some(piece) = ready!(self.poll_data(context))? else { break };
            self.ahead_bytes += piece.len();
            self.ahead.push_back(piece);
        }
        Poll::Ready(Ok(()))
    }

    fn upload(&mut self) -> &mut Progress {
        &mut self.upload
    }
}
/// A stream of which something has been read already.
struct Rewound<S> {
    prefix: BytesMut,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.prefix.len().min(buffer.remaining());
        buffer.put_slice(&self.prefix[..length]);
        self.prefix.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
