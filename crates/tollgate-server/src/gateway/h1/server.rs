//! Speaks HTTP/1.1 with a client.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::{Method, StatusCode, Uri};
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tollgate_policy::Gateway as Settings;

use super::body::{Decoded, Decoder, Encoder};
use super::framing::Framing;
use super::head::{HeadReader, Malformed, RequestHead};
use super::io::{Io, Timer};
use super::kind::Kind;
use crate::connections::Activity;
use crate::gateway::exchange::{Asked, Held, Reply, ReplyBody, ReplyHeaders};
use crate::gateway::forward::{Carried, ConnectionTokens, Keep, Peer, carried_on, write_response};
use crate::gateway::front::{BodyError, Front, READ_AHEAD};
use crate::gateway::metrics::SlowClient;
use crate::gateway::progress::{Progress, ReadWatch};
use crate::gateway::refusal::Refusal;
use crate::gateway::upstream::AnswerBody;
use crate::gateway::{Gateway, h2};
use crate::listener::Connection;

/// How long the head of a request may take to come, once it has begun.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// As much of a body that nobody wants is read over, so that the connection can be used on.
const READ_OVER: u64 = 64 << 10;

/// How long a client that is told off has to read it, while what it still sends is thrown away.
const LINGER: Duration = Duration::from_secs(2);

/// As much is put together before it is sent.
const SEND: usize = 64 << 10;

/// What an HTTP/2 client begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Speaks with a client until one of both has enough, or until `stop` and the end of what is under way.
pub(crate) async fn serve<S>(
    gateway: &Arc<Gateway>,
    stream: S,
    connection: Connection,
    activity: &Arc<Activity>,
    stop: impl Future<Output = ()> + Send,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut client = Client::new(stream);
    let mut timer = None;
    let mut stop = pin!(stop);
    let mut is_first = true;
    let peer = Peer::new(connection.peer.ip());
    loop {
        let idle = gateway.idle();
        let waits = timer.get_or_insert_with(|| Timer::new(idle));
        waits.set(idle);
        let head = match client.next_head(waits, stop.as_mut(), is_first).await {
            Next::Head(head) => head,
            Next::Http2 => return h2::serve(gateway, client.io, connection, activity, stop).await,
            Next::Malformed(malformed) => {
                gateway.count_refused();
                let refusal = Refusal::malformed(malformed);
                return client.part(refusal.into()).await;
            }
            Next::End => return,
        };
        is_first = false;
        let _in_flight = activity.begin();
        let behind = gateway.behind();
        let mut is_kept = wants_to_stay(&head);
        let reply = match require_one_meaning(&head) {
            Err(malformed) => {
                gateway.count_refused();
                return client.part(Refusal::malformed(malformed).into()).await;
            }
            Ok((_, Framing::Length(length))) if length > behind.settings.max_body => {
                gateway.count_refused();
                return client.part(Refusal::too_large().into()).await;
            }
            Ok((host, framing)) => {
                client.begin_body(&head, framing, &behind.settings);
                let asked = Asked {
                    method: &head.method,
                    uri: &head.uri,
                    headers: &head.headers,
                    host,
                    framing,
                    peer: &peer,
                    is_tls: connection.is_tls,
                    upgrade: upgrade(&head, framing),
                };
                gateway.exchange(&behind, &asked, &mut client, &mut timer).await
            }
        };
        let Some(mut reply) = reply else { return };
        let is_stopping = poll_fn(|context| Poll::Ready(stop.as_mut().poll(context).is_ready())).await;
        is_kept &= !is_stopping;
        if let ReplyBody::Upgraded(_) = reply.body {
            return client.tunnel(reply).await;
        }
        // What the application still gets of the request is not to be read over; the connection ends with the answer then.
        is_kept &= !reply.is_asked_still() && client.is_body_over().await;
        let mut watch = ReadWatch::new(Progress::new(behind.settings.timeouts.download));
        let (is_whole, used) = match client.answer(&head, &mut reply, is_kept, &mut watch).await {
            Ok(answered) => answered,
            Err(error) => {
                if error.kind() == std::io::ErrorKind::TimedOut {
                    gateway.metrics.slow_client(SlowClient::download);
                }
                return;
            }
        };
        timer = timer.or(used);
        if !is_kept || !is_whole || !client.read_over().await {
            return client.linger().await;
        }
    }
}

/// Whether the client wants to ask more over this connection.
fn wants_to_stay(head: &RequestHead) -> bool {
    let tokens = ConnectionTokens::of(&head.headers);
    if head.is_11 { !tokens.has(b"close") } else { tokens.has(b"keep-alive") && !tokens.has(b"close") }
}

/// The protocol that a client wants to speak from now on: WebSocket, if any. What speaks HTTP by another name would go round the
/// limits, and round all that is refused here.
pub(crate) fn upgrade(head: &RequestHead, framing: Framing) -> Option<&[u8]> {
    let wanted = head.headers.of(Kind::Upgrade).next()?;
    let is_websocket = wanted.eq_ignore_ascii_case(b"websocket") && head.method == Method::GET;
    let is_asked = head.is_11 && framing.is_empty() && ConnectionTokens::of(&head.headers).has(b"upgrade");
    (is_websocket && is_asked).then_some(wanted)
}

/// The host and the framing of a request that everybody reads in the same way.
fn require_one_meaning(head: &RequestHead) -> Result<(&str, Framing), Malformed> {
    let framing = Framing::of_request(head)?;
    if ConnectionTokens::of(&head.headers).are_too_many() {
        return Err(Malformed::new("Connection has more than 32 tokens"));
    }
    match head.method {
        Method::CONNECT => return Err(Malformed::new("it asks for a tunnel, and there is none here")),
        Method::TRACE => return Err(Malformed::new("TRACE is not carried on")),
        _ => {}
    }
    let host = one_host(&head.headers, head.is_11)?;
    let host = match (&head.uri.scheme(), head.uri.authority()) {
        // Which wins, says RFC 9112, section 3.2.2.
        (Some(_), Some(authority)) if is_host(authority.as_str()) => authority.as_str(),
        (None, None) if has_path(&head.uri, &head.method) => host.unwrap_or_default(),
        _ => return Err(Malformed::new("the target is no path and no URL")),
    };
    Ok((host, framing))
}

fn has_path(uri: &Uri, method: &Method) -> bool {
    uri.path().starts_with('/') || (uri.path() == "*" && *method == Method::OPTIONS)
}

/// The one host that a request names. HTTP/1.0 may name none.
pub(crate) fn one_host<H: Carried>(headers: &H, is_needed: bool) -> Result<Option<&str>, Malformed> {
    let mut hosts = headers.of(Kind::Host);
    match (hosts.next(), hosts.next()) {
        (None, _) if !is_needed => Ok(None),
        (Some(host), None) => {
            let host = std::str::from_utf8(host).ok().filter(|host| is_host(host));
            host.map(Some).ok_or(Malformed::new("Host is a name or an address, with a port or without"))
        }
        _ => Err(Malformed::new("HTTP/1.1 asks for one Host header")),
    }
}

/// Whether a host is one that nobody reads as anything else: a name or an address, with a port or without. The standard allows
/// more in names, such as `;` and `=`, which say something to those who read `Forwarded`, and escapes, which some resolve.
pub(crate) fn is_host(host: &str) -> bool {
    let is_port = |port: &str| port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        return address.parse::<std::net::Ipv6Addr>().is_ok()
            && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_in_name) && is_port(port)
}

/// A client, and what it is sending.
pub(crate) struct Client<S> {
    pub(crate) io: Io<S>,
    reader: HeadReader,
    body: Decoder,
    left: u64,            // that the body may still have
    wants_continue: bool, // before it sends a body
    upload: Progress,
    out: Vec<u8>,
    sent: usize, // of `out`
}

#[expect(
    clippy::large_enum_variant,
    reason = "nearly every one is a head, and a box for it would be an allocation"
)]
enum Next {
    Head(RequestHead),
    Http2,
    Malformed(Malformed),
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    fn new(stream: S) -> Self {
        Self {
            io: Io::new(stream),
            reader: HeadReader::default(),
            body: Decoder::new(Framing::Empty),
            left: 0,
            wants_continue: false,
            upload: Progress::new(None),
            out: Vec::new(),
            sent: 0,
        }
    }

    /// Waits for the next request.
    async fn next_head(
        &mut self,
        timer: &mut Timer,
        mut stop: Pin<&mut impl Future<Output = ()>>,
        is_first: bool,
    ) -> Next {
        let mut has_begun = false;
        poll_fn(|context| {
            loop {
                let begun = &self.io.buffer[..self.io.buffer.len().min(PREFACE.len())];
                if is_first && PREFACE.starts_with(begun) {
                    if begun.len() == PREFACE.len() {
                        return Poll::Ready(Next::Http2);
                    }
                } else {
                    match self.reader.request(&mut self.io.buffer) {
                        Ok(Some(head)) => return Poll::Ready(Next::Head(head)),
                        Ok(None) => {}
                        Err(malformed) => return Poll::Ready(Next::Malformed(malformed)),
                    }
                }
                match self.io.poll_fill(context) {
                    Poll::Ready(Ok(read)) if read > 0 => {}
                    Poll::Ready(_) => return Poll::Ready(Next::End),
                    Poll::Pending => break,
                }
            }
            if !self.io.buffer.is_empty() && !has_begun {
                has_begun = true;
                timer.set(HEAD_TIMEOUT);
            }
            if !has_begun && stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(Next::End);
            }
            timer.poll(context).map(|()| Next::End)
        })
        .await
    }

    fn begin_body(&mut self, head: &RequestHead, framing: Framing, settings: &Settings) {
        self.body = Decoder::new(framing);
        self.left = settings.max_body;
        self.upload = Progress::new(settings.timeouts.upload);
        self.wants_continue = head.is_11
            && !framing.is_empty()
            && head.headers.of(Kind::Expect).any(|expects| expects.eq_ignore_ascii_case(b"100-continue"));
    }

    /// Reads over what is left of a body. Ready when all of it is, or when it is too much.
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            match ready!(self.poll_piece(context)) {
                Ok(Some(_)) => {}
                Ok(None) => return Poll::Ready(true),
                Err(_) => return Poll::Ready(false),
            }
        }
    }

    /// Whether the connection can be used on after an answer: what is left of the request has come, or is little.
    async fn is_body_over(&mut self) -> bool {
        if self.wants_continue && !self.body.is_done() {
            return false; // it waits for a word, or for the end
        }
        self.left = self.left.min(READ_OVER);
        match poll_fn(|context| Poll::Ready(self.poll_over(context))).await {
            Poll::Ready(is_over) => is_over,
            Poll::Pending => self.body.left().is_some_and(|left| left <= READ_OVER),
        }
    }

    /// Waits until it is.
    async fn read_over(&mut self) -> bool {
        if self.body.is_done() {
            return true;
        }
        let over = poll_fn(|context| self.poll_over(context));
        tokio::time::timeout(LINGER, over).await.unwrap_or(false)
    }

    /// Sends an answer. Whether all of it could be had, and a timer to be used again.
    async fn answer(
        &mut self,
        head: &RequestHead,
        reply: &mut Reply,
        is_kept: bool,
        watch: &mut ReadWatch,
    ) -> std::io::Result<(bool, Option<Timer>)> {
        // HTTP/1.0 knows no chunks: what has no length ends with the connection.
        let framing = match reply.framing {
            Some(Framing::Chunked) if !head.is_11 => Some(Framing::UntilClose),
            framing => framing,
        };
        let keep = match (is_kept && framing != Some(Framing::UntilClose), head.is_11) {
            (false, _) => Keep::Close,
            (true, true) => Keep::Open,
            (true, false) => Keep::OpenFor10,
        };
        self.out.clear();
        reply.write_head(framing, keep, &mut self.out);
        let body = std::mem::replace(&mut reply.body, ReplyBody::Full(Bytes::new()));
        let (is_whole, timer) = match body {
            ReplyBody::Upgraded(_) => (false, None),
            ReplyBody::Full(bytes) => {
                if head.method != Method::HEAD {
                    self.out.extend_from_slice(&bytes);
                }
                (true, None)
            }
            ReplyBody::Upstream(mut body) => {
                let encoder = Encoder::new(framing.unwrap_or(Framing::Empty));
                let has_none = head.method == Method::HEAD || reply.status == StatusCode::NOT_MODIFIED;
                let is_whole = self.send_body(&mut body, encoder, has_none, watch).await?;
                (is_whole, Some(body.into_timer()))
            }
        };
        // Before the client has the end of the answer: a client that then asks for the next finds the slot free.
        reply.held = Held::default();
        poll_fn(|context| self.poll_send(context, watch)).await?;
        Ok((is_whole && keep != Keep::Close, timer))
    }

    /// Sends the body of an answer as it comes. False if not all of it came: the client sees that by a connection that ends too
    /// early.
    async fn send_body(
        &mut self,
        body: &mut AnswerBody,
        mut encoder: Encoder,
        has_none: bool, // whatever its head says of a length
        watch: &mut ReadWatch,
    ) -> std::io::Result<bool> {
        if body.is_done() && has_none {
            return Ok(true);
        }
        poll_fn(|context| {
            loop {
                if body.poll_request(context, self).is_err() {
                    return Poll::Ready(Ok(false));
                }
                while self.out.len() - self.sent < SEND {
                    match body.poll_piece(context) {
                        Poll::Pending => break,
                        Poll::Ready(Ok(Some(piece))) if encoder.piece(&piece, &mut self.out) => {}
                        Poll::Ready(Ok(None)) => {
                            // What is left goes out with whatever comes next.
                            return Poll::Ready(Ok(encoder.end(&mut self.out)));
                        }
                        Poll::Ready(_) => return Poll::Ready(Ok(false)),
                    }
                }
                if !self.out.is_empty() {
                    ready!(self.poll_send(context, watch))?;
                    continue;
                }
                if body.is_asked_still() {
                    return Poll::Pending; // a client that leaves is seen by what is left of the request
                }
                // A client that leaves while the application is slow keeps no slot.
                return self.poll_gone(context).map(|()| Err(std::io::ErrorKind::BrokenPipe.into()));
            }
        })
        .await
    }

    /// Sends what is to be sent. An error of the kind `TimedOut` where the client reads too slowly.
    fn poll_send(&mut self, context: &mut Context<'_>, watch: &mut ReadWatch) -> Poll<std::io::Result<()>> {
        let too_slow = |watch: &mut ReadWatch, context: &mut Context<'_>| {
            watch.poll_too_slow(context).map(|()| Err(std::io::ErrorKind::TimedOut.into()))
        };
        while self.sent < self.out.len() {
            match Pin::new(&mut self.io.stream).poll_write(context, &self.out[self.sent..]) {
                Poll::Pending => return too_slow(watch, context),
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                Poll::Ready(written) => {
                    let written = written?;
                    watch.moved(written);
                    self.sent += written;
                }
            }
        }
        if Pin::new(&mut self.io.stream).poll_flush(context)?.is_pending() {
            return too_slow(watch, context); // TLS has kept some of it
        }
        self.out.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Asks a client for the body that waits for `100 Continue`.
    fn poll_continue(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        if !self.wants_continue || !self.io.buffer.is_empty() || self.body.is_done() {
            return Poll::Ready(Ok(()));
        }
        // A line as short as this is taken at once, or the connection is in a bad way.
        let line = b"HTTP/1.1 100 Continue\r\n\r\n";
        match ready!(Pin::new(&mut self.io.stream).poll_write(context, line)) {
            Ok(written) if written == line.len() => {
                self.wants_continue = false;
                Poll::Ready(Ok(()))
            }
            _ => Poll::Ready(Err(BodyError::Gone)),
        }
    }

    /// Reads some more, and counts it. Of a chunked body only its pieces count, and not what stands between them.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        match self.io.poll_fill(context) {
            Poll::Ready(Ok(read)) if read > 0 => {
                if self.body.left().is_some() {
                    self.upload.moved(read);
                }
                Poll::Ready(Some(()))
            }
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Sends a last answer, and ends.
    async fn part(&mut self, mut reply: Reply) {
        self.out.clear();
        reply.write_head(reply.framing, Keep::Close, &mut self.out);
        if let ReplyBody::Full(bytes) = std::mem::replace(&mut reply.body, ReplyBody::Full(Bytes::new())) {
            self.out.extend_from_slice(&bytes);
        }
        let out = std::mem::take(&mut self.out);
        if self.io.write_all(&out).await.is_ok() {
            self.linger().await;
        }
    }

    /// Ends a connection so that the client can read what it was sent last: what it still sends is read and thrown away for a
    /// while, since a connection that is closed with bytes unread is reset, and the answer with it.
    async fn linger(&mut self) {
        if self.io.stream.shutdown().await.is_err() {
            return;
        }
        let mut thrown_away = vec![0; 8 << 10];
        let drained =
            async { while matches!(self.io.stream.read(&mut thrown_away).await, Ok(read) if read > 0) {} };
        let _ = tokio::time::timeout(LINGER, drained).await;
    }

    /// Lets client and application speak to each other from now on.
    async fn tunnel(mut self, mut reply: Reply) {
        reply.held.release_slot();
        let mut first = Vec::with_capacity(512);
        let protocol = match &reply.headers {
            ReplyHeaders::Upstream(headers) => headers.of(Kind::Upgrade).next(),
            ReplyHeaders::Own(_) => None,
        };
        reply.write_head(None, Keep::Upgrade(protocol.unwrap_or_default()), &mut first);
        let ReplyBody::Upgraded(mut connected) = reply.body else { return };
        first.extend_from_slice(&connected.io.buffer);
        let mut sent = self.io.write_all(&first).await;
        if sent.is_ok() {
            sent = connected.io.write_all(&self.io.buffer).await;
        }
        if sent.is_ok() {
            // Whichever ends it, the other is told.
            let _ = tokio::io::copy_bidirectional(&mut self.io.stream, &mut connected.io.stream).await;
        }
    }
}

impl Reply {
    fn is_asked_still(&self) -> bool {
        matches!(&self.body, ReplyBody::Upstream(body) if body.is_asked_still())
    }

    fn write_head(&self, framing: Option<Framing>, keep: Keep<'_>, out: &mut Vec<u8>) {
        match &self.headers {
            ReplyHeaders::Upstream(lines) => {
                write_response(self.status, carried_on(lines), &self.told, framing, keep, out);
            }
            ReplyHeaders::Own(headers) => {
                write_response(self.status, carried_on(headers), &self.told, framing, keep, out);
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Front for Client<S> {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        ready!(self.poll_continue(context))?;
        loop {
            match self.body.decode(&mut self.io.buffer).map_err(BodyError::Malformed)? {
                Decoded::End => return Poll::Ready(Ok(None)),
                Decoded::Piece(piece) => {
                    let Some(left) = self.left.checked_sub(piece.len() as u64) else {
                        return Poll::Ready(Err(BodyError::TooLarge));
                    };
                    self.left = left;
                    if self.body.left().is_none() {
                        self.upload.moved(piece.len());
                    }
                    return Poll::Ready(Ok(Some(piece)));
                }
                Decoded::NeedsMore => match self.poll_fill(context) {
                    Poll::Ready(Some(())) => {}
                    Poll::Ready(None) => return Poll::Ready(Err(BodyError::Gone)),
                    Poll::Pending => {
                        self.upload.waits();
                        return Poll::Pending;
                    }
                },
            }
        }
    }

    fn poll_ahead(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        let wanted = self.body.left().map_or(0, |left| left.min(READ_AHEAD as u64));
        ready!(self.poll_continue(context))?;
        while (self.io.buffer.len() as u64) < wanted {
            match self.poll_fill(context) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) => return Poll::Ready(Err(BodyError::Gone)),
                Poll::Pending => {
                    self.upload.waits();
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn upload(&mut self) -> &mut Progress {
        &mut self.upload
    }

    fn poll_gone(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.io.buffer.len() < READ_AHEAD {
            if ready!(self.poll_fill(context)).is_none() {
                return Poll::Ready(());
            }
        }
        Poll::Pending // more is not read ahead, and so it is not seen
    }
}
