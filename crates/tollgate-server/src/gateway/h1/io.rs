//! One side of a connection with what has been read of it, and a clock for whom it is waited.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

/// As much is read at once.
const READ: usize = 16 << 10;

/// A stream, and what has been read of it that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Io<S> {
    pub(crate) stream: S,
    pub(crate) buffer: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Io<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// Reads some more into the buffer. 0 is the end.
    pub(crate) fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() - self.buffer.len() < READ / 4 {
            self.buffer.reserve(READ);
        }
        poll_read_buf(Pin::new(&mut self.stream), context, &mut self.buffer)
    }

    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await // TLS may have kept some of it
    }
}

/// How long somebody is still waited for. It is put off with every request and hardly ever comes due, so the runtime is told
/// only when it would ring too late, or has rung too early.
#[derive(Debug)]
pub(crate) struct Timer {
    sleep: Pin<Box<Sleep>>,
    due: Instant,
    patience: Instant, // which may have been brought forward
}

impl Timer {
    pub(crate) fn new(time: Duration) -> Self {
        Self::until(Instant::now() + time)
    }

    pub(crate) fn until(due: Instant) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep_until(due)), due, patience: due }
    }

    /// Waits from now.
    pub(crate) fn set(&mut self, time: Duration) {
        self.set_until(Instant::now() + time);
    }

    pub(crate) fn set_until(&mut self, due: Instant) {
        self.patience = due;
        self.wake_at(due);
    }

    fn wake_at(&mut self, due: Instant) {
        self.due = due;
        if self.due < self.sleep.deadline() {
            self.sleep.as_mut().reset(self.due);
        }
    }

    /// Wakes the task at this time, too, to look whether a client has become too slow.
    pub(crate) fn bring_forward(&mut self, due: Option<Instant>) {
        if let Some(due) = due.filter(|due| *due < self.due) {
            self.wake_at(due);
        }
    }

    /// Whether the time is over that was set, and not one that was brought forward. Goes on waiting where it is not.
    pub(crate) fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        while self.poll(context).is_ready() {
            if Instant::now() >= self.patience {
                return true;
            }
            self.wake_at(self.patience);
        }
        false
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.sleep.as_mut().poll(context).is_ready() {
            if self.sleep.deadline() >= self.due {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.due);
        }
        Poll::Pending
    }
}
