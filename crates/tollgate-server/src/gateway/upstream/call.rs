//! Sends a request to a place of the application and waits for the head of its answer.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use tokio::io::AsyncWrite as _;
use tollgate_policy::Timeouts;

use super::connection::{AnswerBody, Connected};
use super::{InFlight, Upstream};
use crate::gateway::front::{BodyError, Front, unless_gone};
use crate::gateway::h1::{Decoder, Encoder, Framing, HeadReader, Lines, ResponseHead, Timer};

/// As much of a body is put together before it is sent.
const SEND: usize = 32 << 10;

/// A request to be sent.
#[derive(Debug)]
pub(in crate::gateway) struct Call<'a> {
    pub(in crate::gateway) head: &'a [u8], // as it is sent
    pub(in crate::gateway) method: &'a Method,
    pub(in crate::gateway) framing: Framing, // of its body
    pub(in crate::gateway) is_upgrade: bool, // whether it asks to speak something else
    pub(in crate::gateway) timeouts: Timeouts,
}

/// Why there is no answer.
#[derive(Debug)]
pub(in crate::gateway) enum CallError {
    /// Nobody can be reached there. Nothing was sent.
    Unreachable(std::io::Error),
    /// The connection ended before an answer came.
    Closed,
    /// No answer came in time.
    TimedOut,
    /// What came is no answer.
    Malformed(&'static str),
    /// The body of the request cannot be had.
    Body(BodyError),
    /// The client is gone.
    Gone,
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(error) => write!(f, "it cannot be reached: {error}"),
            Self::Closed => f.write_str("it closed the connection without an answer"),
            Self::TimedOut => f.write_str("it did not answer in time"),
            Self::Malformed(why) => write!(f, "its answer is not HTTP: {why}"),
            Self::Body(_) | Self::Gone => f.write_str("the client left"),
        }
    }
}

/// An answer as it begins.
#[derive(Debug)]
pub(in crate::gateway) enum Answered {
    Answer(ResponseHead, AnswerBody),
    /// From now on both speak something else.
    Upgraded(ResponseHead, Connected),
}

impl Answered {
    pub(in crate::gateway) const fn status(&self) -> StatusCode {
        let (Self::Answer(head, _) | Self::Upgraded(head, _)) = self;
        head.status
    }

    pub(in crate::gateway) const fn headers(&self) -> &Lines {
        let (Self::Answer(head, _) | Self::Upgraded(head, _)) = self;
        &head.headers
    }
}

/// Sends a request and waits for the head of its answer. Nothing that a client has sent is lost by [`CallError::Unreachable`].
pub(in crate::gateway) async fn call<F: Front>(
    call: &Call<'_>,
    at: &InFlight,
    front: &mut F,
    timer: &mut Option<Timer>,
) -> Result<Answered, CallError> {
    // A connection that was used before may have been closed by the other side at this very moment. A request that can be
    // repeated is then sent once more, over a new one.
    if let Some(connected) = at.upstream.reuse() {
        match send(call, &at.upstream, connected, front, timer).await {
            Err(CallError::Closed) if call.framing.is_empty() && call.method.is_idempotent() => {}
            result => return result,
        }
    }
    let opening = tokio::time::timeout(call.timeouts.connect, Connected::open(&at.upstream.authority));
    let connected = match unless_gone(front, opening).await {
        None => return Err(CallError::Gone),
        Some(Err(_elapsed)) => return Err(CallError::Unreachable(std::io::ErrorKind::TimedOut.into())),
        Some(Ok(connected)) => connected.map_err(CallError::Unreachable)?,
    };
    send(call, &at.upstream, connected, front, timer).await
}

async fn send<F: Front>(
    call: &Call<'_>,
    upstream: &Arc<Upstream>,
    mut connected: Connected,
    front: &mut F,
    timer: &mut Option<Timer>,
) -> Result<Answered, CallError> {
    let mut own = timer.take().unwrap_or_else(|| Timer::new(call.timeouts.answer));
    let mut sending = Sending { upload: Upload::new(call), reader: HeadReader::default(), has_read: false };
    own.set(if call.framing.is_empty() { call.timeouts.answer } else { call.timeouts.idle });
    let head = poll_fn(|context| sending.poll(context, &mut connected, front, &mut own)).await;
    let head = match head {
        Ok(head) => head,
        Err(error) => {
            *timer = Some(own);
            return Err(error);
        }
    };
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        *timer = Some(own);
        if !call.is_upgrade {
            return Err(CallError::Malformed("it speaks something else, and nobody asked it to"));
        }
        return Ok(Answered::Upgraded(head, connected));
    }
    let framing =
        Framing::of_response(&head, call.method).map_err(|malformed| CallError::Malformed(malformed.why))?;
    let says_close = crate::gateway::forward::ConnectionTokens::of(&head.headers).has(b"close");
    let can_be_kept = head.is_11 && !says_close;
    // An application may begin to answer before it has read all; it gets the rest meanwhile.
    let upload = Some(sending.upload).filter(|upload| !upload.is_over());
    if upload.is_some() {
        own.set(call.timeouts.answer); // it may have waited for the client
    }
    let waits = (own, call.timeouts.answer);
    let body =
        AnswerBody::new(connected, Arc::clone(upstream), Decoder::new(framing), upload, can_be_kept, waits);
    Ok(Answered::Answer(head, body))
}

/// A request on its way, and what has come of its answer.
struct Sending {
    upload: Upload,
    reader: HeadReader,
    has_read: bool,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Upload {
    out: Vec<u8>,
    sent: usize, // of `out`
    encoder: Encoder,
    is_body_sent: bool, // or in `out`
    is_refused: bool,   // nothing more is taken; there may be an answer all the same
    idle: Duration,     // how long is waited for the client
    answer: Duration,   // and for the application
}

impl Upload {
    fn new(call: &Call<'_>) -> Self {
        Self {
            out: call.head.to_vec(),
            sent: 0,
            encoder: Encoder::new(call.framing),
            is_body_sent: call.framing.is_empty(),
            is_refused: false,
            idle: call.timeouts.idle,
            answer: call.timeouts.answer,
        }
    }

    /// Whether all of it is there.
    pub(super) fn is_over(&self) -> bool {
        self.is_body_sent && self.is_all_sent()
    }

    fn is_all_sent(&self) -> bool {
        self.sent == self.out.len()
    }

    /// Sends as much as can be sent.
    pub(super) fn poll<F: Front>(
        &mut self,
        context: &mut Context<'_>,
        connected: &mut Connected,
        front: &mut F,
        timer: &mut Timer,
    ) -> Poll<Result<(), CallError>> {
        loop {
            // What of the body has come is sent together with the head.
            while !self.is_body_sent && self.out.len() - self.sent < SEND {
                let Poll::Ready(piece) = front.poll_piece(context) else { break };
                match piece.map_err(CallError::Body)? {
                    Some(piece) if self.encoder.piece(&piece, &mut self.out) => {}
                    None if self.encoder.end(&mut self.out) => self.is_body_sent = true,
                    _ => return Poll::Ready(Err(CallError::Body(BodyError::OtherLength))),
                }
                timer.set(self.answer); // it is the application's turn
            }
            if !self.is_body_sent {
                if front.upload().is_too_slow() {
                    return Poll::Ready(Err(CallError::Body(BodyError::TooSlow)));
                }
                timer.bring_forward(front.upload().deadline());
            }
            if self.is_refused || self.is_all_sent() {
                return Poll::Pending;
            }
            let stream = Pin::new(&mut connected.io.stream);
            match stream.poll_write(context, &self.out[self.sent..]) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(written)) if written > 0 => {
                    self.sent += written;
                    if self.is_all_sent() {
                        self.out.clear();
                        self.sent = 0;
                    }
                    if !self.is_body_sent {
                        let waits_for_client = self.out.is_empty();
                        timer.set(if waits_for_client { self.idle } else { self.answer });
                    }
                }
                Poll::Ready(_) => self.is_refused = true,
            }
        }
    }
}

impl Sending {
    fn poll<F: Front>(
        &mut self,
        context: &mut Context<'_>,
        connected: &mut Connected,
        front: &mut F,
        timer: &mut Timer,
    ) -> Poll<Result<ResponseHead, CallError>> {
        if let Poll::Ready(Err(error)) = self.upload.poll(context, connected, front, timer) {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(result) = self.poll_answer(context, connected) {
            return Poll::Ready(result);
        }
        if self.upload.is_body_sent && front.poll_gone(context).is_ready() {
            return Poll::Ready(Err(CallError::Gone));
        }
        if timer.poll(context).is_ready() {
            if timer.is_over(context) {
                let waits_for_client = !self.upload.is_body_sent && self.upload.is_all_sent();
                return Poll::Ready(Err(if waits_for_client {
                    CallError::Body(BodyError::Stalled)
                } else {
                    CallError::TimedOut
                }));
            }
            context.waker().wake_by_ref(); // the client may be too slow by now
        }
        Poll::Pending
    }

    /// The head of the answer, once it has come.
    fn poll_answer(
        &mut self,
        context: &mut Context<'_>,
        connected: &mut Connected,
    ) -> Poll<Result<ResponseHead, CallError>> {
        loop {
            match self.reader.response(&mut connected.io.buffer) {
                Err(malformed) => return Poll::Ready(Err(CallError::Malformed(malformed.why))),
                // What is said before the answer is for us: we have not asked the client to wait for anything.
                Ok(Some(head))
                    if head.status.is_informational() && head.status != StatusCode::SWITCHING_PROTOCOLS => {}
                Ok(Some(head)) => return Poll::Ready(Ok(head)),
                Ok(None) => match connected.io.poll_fill(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(read)) if read > 0 => self.has_read = true,
                    Poll::Ready(_) if self.has_read => {
                        return Poll::Ready(Err(CallError::Malformed("the answer ends in its head")));
                    }
                    Poll::Ready(_) => return Poll::Ready(Err(CallError::Closed)),
                },
            }
        }
    }
}
