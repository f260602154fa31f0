//! A connection to a place of the application, and the answer that comes over it.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::Upstream;
use super::call::Upload;
use crate::gateway::front::Front;
use crate::gateway::h1::{Decoded, Decoder, Io, Timer};

/// An idle connection is not used again after so long: many servers close them by then.
const IDLE: Duration = Duration::from_secs(30);

/// After how long a quiet connection is asked whether the other side is still there.
const QUIET: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub(in crate::gateway) struct Connected {
    pub(in crate::gateway) io: Io<TcpStream>,
    pub(super) was_used: bool,
    idle_since: Instant,
}

impl Connected {
    pub(super) async fn open(authority: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(authority).await?;
        stream.set_nodelay(true)?;
        // Of one that is gone without a word nobody would hear for as long as it is quiet.
        SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(QUIET))?;
        Ok(Self { io: Io::new(stream), was_used: false, idle_since: Instant::now() })
    }

    /// Whether an idle connection can be used: nothing came over it, and it is not too old.
    pub(super) fn is_open(&mut self) -> bool {
        let mut byte = [0];
        // Where nothing has happened since it was last read, this is no system call.
        let is_quiet = matches!(self.io.stream.try_read(&mut byte), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
        is_quiet && self.idle_since.elapsed() < IDLE
    }
}

/// The body of an answer, as it comes.
#[derive(Debug)]
pub(in crate::gateway) struct AnswerBody {
    connected: Option<Connected>, // until it is kept for the next
    upstream: Arc<Upstream>,
    decoder: Decoder,
    upload: Option<Upload>, // what is left of the request
    can_be_kept: bool,
    timer: Timer,
    stall: Duration, // how long the next piece may take
}

impl AnswerBody {
    pub(super) fn new(
        connected: Connected,
        upstream: Arc<Upstream>,
        decoder: Decoder,
        upload: Option<Upload>,
        can_be_kept: bool,
        (timer, stall): (Timer, Duration),
    ) -> Self {
        let mut body =
            Self { connected: Some(connected), upstream, decoder, upload, can_be_kept, timer, stall };
        body.finish();
        body
    }

    pub(in crate::gateway) const fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// Whether the application still gets some of the request.
    pub(in crate::gateway) const fn is_asked_still(&self) -> bool {
        self.upload.is_some() && !self.is_done()
    }

    /// Sends on what is left of the request, as far as it has come. To be called whenever the answer is.
    pub(in crate::gateway) fn poll_request<F: Front>(
        &mut self,
        context: &mut Context<'_>,
        front: &mut F,
    ) -> std::io::Result<()> {
        let (Some(upload), Some(connected)) = (&mut self.upload, &mut self.connected) else { return Ok(()) };
        if let Poll::Ready(Err(error)) = upload.poll(context, connected, front, &mut self.timer) {
            return Err(std::io::Error::other(error.to_string()));
        }
        if upload.is_over() {
            self.upload = None;
        }
        Ok(())
    }

    /// The timer that waited, to wait again.
    pub(in crate::gateway) fn into_timer(self) -> Timer {
        self.timer
    }

    /// The next piece; none at the end.
    pub(in crate::gateway) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<Option<Bytes>>> {
        loop {
            let Some(connected) = &mut self.connected else { return Poll::Ready(Ok(None)) };
            match self.decoder.decode(&mut connected.io.buffer) {
                Err(malformed) => return Poll::Ready(Err(std::io::Error::other(malformed.why))),
                Ok(Decoded::Piece(piece)) => {
                    self.finish();
                    return Poll::Ready(Ok(Some(piece)));
                }
                Ok(Decoded::End) => {
                    self.finish();
                    return Poll::Ready(Ok(None));
                }
                Ok(Decoded::NeedsMore) => {}
            }
            let Poll::Ready(read) = connected.io.poll_fill(context) else {
                if self.timer.poll(context).is_ready() {
                    if self.timer.is_over(context) {
                        return Poll::Ready(Err(std::io::ErrorKind::TimedOut.into()));
                    }
                    context.waker().wake_by_ref(); // the client may send too slowly by now
                }
                return Poll::Pending;
            };
            match read? {
                0 if self.decoder.ends_with_connection() => self.decoder.connection_ended(),
                0 => return Poll::Ready(Err(std::io::ErrorKind::UnexpectedEof.into())),
                _ => self.timer.set(self.stall),
            }
        }
    }

    /// Keeps the connection once all has been read: also if the client never asks for the end.
    fn finish(&mut self) {
        if !self.decoder.is_done() {
            return;
        }
        let Some(mut connected) = self.connected.take() else { return };
        // What comes unasked belongs to nobody.
        if self.can_be_kept && self.upload.is_none() && connected.io.buffer.is_empty() {
            connected.was_used = true;
            connected.idle_since = Instant::now();
            self.upstream.keep(connected);
        }
    }
}
