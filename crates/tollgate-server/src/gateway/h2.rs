//! Speaks HTTP/2 with a client: hyper does.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Version, header};
use bytes::{Buf as _, Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Gateway;
use super::exchange::{Asked, Held, Reply, ReplyBody, ReplyHeaders};
use super::forward::{Peer, carried_on};
use super::front::{BodyError, Front};
use super::h1::{Framing, Io, Malformed};
use super::metrics::Ended;
use super::refusal::Refusal;
use crate::listener::Connection;

/// The most requests of one client at once.
const MOST_STREAMS: u32 = 256;

/// The largest list of headers.
const HEADER_BYTES: u32 = 64 << 10;

/// Speaks with a client until one of both has enough, or until `stop` and the end of what is under way.
pub(super) async fn serve<S>(
    gateway: &Arc<Gateway>,
    io: Io<S>,
    connection: Connection,
    mut stop: Pin<&mut (impl Future<Output = ()> + Send)>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let gateway = Arc::clone(gateway);
    let service = service_fn(move |request: Request<Incoming>| {
        let gateway = Arc::clone(&gateway);
        async move { Ok::<_, Infallible>(answer(&gateway, request, connection).await) }
    });
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(HEADER_BYTES)
        .adaptive_window(true)
        .keep_alive_interval(Some(std::time::Duration::from_secs(60)))
        .serve_connection(TokioIo::new(Rewound { prefix: io.buffer, stream: io.stream }), service);
    let mut served = std::pin::pin!(served);
    tokio::select! {
        _ = &mut served => {}
        () = stop.as_mut() => {
            served.as_mut().graceful_shutdown();
            let _ = served.await;
        }
    }
}

async fn answer(
    gateway: &Gateway,
    request: Request<Incoming>,
    connection: Connection,
) -> Response<AnswerStream> {
    let (mut head, body) = request.into_parts();
    join_cookies(&mut head.headers);
    let behind = gateway.behind();
    let mut sent = None;
    let reply = match require_one_meaning(&head.method, &head.uri, &head.headers, &body) {
        Err(malformed) => {
            gateway.metrics.ended(Ended::refused);
            Some(Refusal::malformed(malformed).into())
        }
        Ok((_, Framing::Length(length))) if length > behind.settings.max_body => {
            gateway.metrics.ended(Ended::refused);
            Some(Refusal::too_large().into())
        }
        Ok((host, framing)) => {
            let mut front = Stream { body, left: behind.settings.max_body };
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
            let reply = gateway.exchange(&behind, &asked, &mut front, &mut None).await;
            sent = Some(front);
            reply
        }
    };
    let reply = reply.unwrap_or_else(|| {
        Refusal::new(axum::http::StatusCode::BAD_REQUEST, "The request ended before it was whole.").into()
    });
    respond(&head.method, reply, sent)
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

fn respond(method: &Method, reply: Reply, sent: Option<Stream>) -> Response<AnswerStream> {
    let Reply { status, headers, told, framing, body, held } = reply;
    let body = match body {
        ReplyBody::Full(_) if *method == Method::HEAD => ReplyBody::Full(Bytes::new()),
        body => body,
    };
    let mut response = Response::new(AnswerStream { body, held, sent });
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

/// The host and the framing of a request that everybody reads in the same way.
fn require_one_meaning(
    method: &Method,
    uri: &axum::http::Uri,
    headers: &HeaderMap,
    body: &Incoming,
) -> Result<(String, Framing), Malformed> {
    if matches!(*method, Method::CONNECT | Method::TRACE) {
        return Err(Malformed::new("it asks for a tunnel or a trace, and there is none here"));
    }
    let is_path = uri.path().starts_with('/') || (uri.path() == "*" && *method == Method::OPTIONS);
    if !is_path {
        return Err(Malformed::new("the target is no path"));
    }
    let host = super::h1::one_host(headers, false)?;
    let host = match (uri.authority(), host) {
        (Some(authority), None) => authority.as_str(),
        (Some(authority), Some(host)) if authority.as_str().eq_ignore_ascii_case(host) => host,
        (None, Some(host)) => host,
        (Some(_), Some(_)) => return Err(Malformed::new("Host is another than :authority")),
        (None, None) => return Err(Malformed::new("it names no host")),
    };
    if !super::h1::is_host(host) {
        return Err(Malformed::new("its host is no name and no address"));
    }
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return Err(Malformed::new("HTTP/2 has no Transfer-Encoding"));
    }
    let framing = match body.size_hint().exact() {
        Some(0) => Framing::Empty,
        Some(length) => Framing::Length(length),
        None => Framing::Chunked,
    };
    Ok((host.to_owned(), framing))
}

/// The body of a request. That its client has left is seen by hyper, which then drops the whole exchange.
struct Stream {
    body: Incoming,
    left: u64,
}

impl Front for Stream {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None => return Poll::Ready(Ok(None)),
                Some(Err(_)) => return Poll::Ready(Err(BodyError::Gone)),
                Some(Ok(frame)) => {
                    let Ok(piece) = frame.into_data() else { continue }; // trailers end here
                    let Some(left) = self.left.checked_sub(piece.len() as u64) else {
                        return Poll::Ready(Err(BodyError::TooLarge));
                    };
                    self.left = left;
                    return Poll::Ready(Ok(Some(piece)));
                }
            }
        }
    }

    fn poll_gone(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

/// The body of an answer, and what is held until it has been read.
struct AnswerStream {
    body: ReplyBody,
    held: Held,
    sent: Option<Stream>, // what the client still sends
}

impl Body for AnswerStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        if let (ReplyBody::Upstream(body), Some(sent)) = (&mut this.body, &mut this.sent) {
            body.poll_request(context, sent)?;
        }
        let piece = match &mut this.body {
            ReplyBody::Full(bytes) if bytes.is_empty() => None,
            ReplyBody::Full(bytes) => Some(Ok(std::mem::take(bytes))),
            ReplyBody::Upstream(body) => ready!(body.poll_piece(context)).transpose(),
            ReplyBody::Upgraded(_) => Some(Err(io::ErrorKind::Unsupported.into())),
        };
        if self.is_end_stream() {
            // Before the client has the end of the answer: whoever then asks for the next finds the place free.
            self.held = Held::default();
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            ReplyBody::Full(bytes) => bytes.is_empty(),
            ReplyBody::Upstream(body) => body.is_done(),
            ReplyBody::Upgraded(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            ReplyBody::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            _ => SizeHint::default(),
        }
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
