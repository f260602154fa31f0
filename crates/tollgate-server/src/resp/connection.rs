//! One connection: reads, has requests answered, writes. Most are idle at any moment, and hold no buffer then.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::later::Later;
use super::pending::{Pending, PendingBytes};
use super::session::{Session, Workspace};
use crate::connections::Activity;
use crate::service::Service;

/// As much is read at once.
const READ_BYTES: usize = 32 << 10;

/// How long a request may take to come once it has begun, and a stranger to give the password.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long what is to be sent may stay unread.
const STALLED: Duration = Duration::from_secs(20);

/// What a client gets for which there is no room.
const NO_ROOM: &[u8] =
    b"-ERR too many bytes are pending on all connections; send whole requests and read the replies\r\n";

/// How long a client that was told to go may take to read why.
const LINGER: Duration = Duration::from_secs(1);

thread_local! {
    /// What the connections of a thread use in turn, and none of them while it waits.
    static SHARED: RefCell<Shared> = RefCell::new(Shared {
        input: vec![0; READ_BYTES].into_boxed_slice(),
        output: Vec::new(),
        workspace: Workspace::default(),
    });
}

struct Shared {
    input: Box<[u8]>,
    output: Vec<u8>,
    workspace: Workspace,
}

/// One connection.
pub(super) struct Connection<S> {
    stream: S,
    service: Arc<Service>,
    session: Session,
    activity: Arc<Activity>,
    pending: Pending,
    rest: Vec<u8>,    // of the input, that is not answered yet
    until: usize,     // how long it must be to be worth a look
    unsent: Vec<u8>,  // of the output, that did not fit into the socket
    sent: usize,      // of that
    is_written: bool, // since all of it was last flushed
    later: Later,     // what is to be sent when a store has answered
    alarm: Option<(WaitsFor, Pin<Box<Sleep>>)>,
    password: Option<Pin<Box<Sleep>>>, // until when a stranger must have given it
}

/// What a connection may wait for only so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    Request,
    Reader,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(
        stream: S,
        session: Session,
        activity: Arc<Activity>,
        pending: Arc<PendingBytes>,
        service: Arc<Service>,
    ) -> Self {
        Self {
            stream,
            service,
            session,
            activity,
            pending: Pending::new(pending),
            rest: Vec::new(),
            until: 1,
            unsent: Vec::new(),
            sent: 0,
            is_written: false,
            later: Later::default(),
            alarm: None,
            password: None,
        }
    }

    /// Speaks until either side ends it, or until `stop`: then as soon as all that has come is answered.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let is_polite = poll_fn(|context| {
            let polled = self.poll(context, stop.as_mut());
            if polled.is_pending() && !self.pending.set(self.rest.capacity() + self.unsent.capacity()) {
                // The client may not read this, either.
                let _ = Pin::new(&mut self.stream).poll_write(context, NO_ROOM);
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
            polled
        })
        .await;
        if is_polite.is_ok() {
            let _ = tokio::time::timeout(LINGER, poll_fn(|context| self.poll_goodbye(context))).await;
        }
    }

    /// Goes on until there is nothing to do, or to the end: an error where there is nobody to say goodbye to.
    fn poll(
        &mut self,
        context: &mut Context<'_>,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<io::Result<()>> {
        // Whatever else a stranger does meanwhile.
        if self.session.is_stranger {
            let password = self.password.get_or_insert_with(|| Box::pin(sleep(REQUEST_TIMEOUT)));
            if password.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        } else {
            self.password = None;
        }
        loop {
            // Whatever else is waited for: what was asked is asked now, and a store is not kept waiting by a client.
            self.poll_later(context);
            // A client that does not read is not listened to.
            match self.poll_send(context) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => return self.wait(WaitsFor::Reader, context),
            }
            if self.session.is_closing && self.later.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if self.session.is_closing || self.later.is_full(0) {
                self.alarm = None; // a store does not take for ever
                return Poll::Pending;
            }
            if self.until <= self.rest.len() {
                self.answer_rest(context)?;
                continue;
            }
            match self.poll_read(context) {
                Poll::Ready(read) => read?,
                Poll::Pending if stop.as_mut().poll(context).is_ready() => self.session.is_closing = true,
                Poll::Pending if self.rest.is_empty() => {
                    self.alarm = None;
                    return Poll::Pending;
                }
                Poll::Pending => return self.wait(WaitsFor::Request, context),
            }
        }
    }

    /// Takes what a store has answered, to be sent.
    fn poll_later(&mut self, context: &mut Context<'_>) {
        if !self.later.is_empty() {
            self.later.poll(context, &mut self.unsent);
            self.is_written |= !self.unsent.is_empty();
        }
    }

    /// Reads, and answers what has come.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        SHARED.with_borrow_mut(|shared| {
            let mut buffer = ReadBuf::new(&mut shared.input);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
            let length = buffer.filled().len();
            if length == 0 && !self.later.is_empty() {
                self.session.is_closing = true; // it may still be listening
                return Poll::Ready(Ok(()));
            }
            if length == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.activity.touch();
            if !self.rest.is_empty() {
                self.rest.extend_from_slice(&shared.input[..length]);
                return Poll::Ready(Ok(())); // it is looked at if it is long enough now
            }
            let Shared { input, output, workspace } = shared;
            let input = &mut input[..length];
            let now = self.service.engine.clock().now();
            let answered = self.session.answer(&self.service, now, input, workspace, output, &mut self.later);
            self.rest.extend_from_slice(&input[answered.consumed..]);
            self.until = answered.until;
            Poll::Ready(self.send(output, context))
        })
    }

    /// Answers what had to wait for more of it, or for what came before it to be sent.
    fn answer_rest(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        SHARED.with_borrow_mut(|Shared { output, workspace, .. }| {
            let now = self.service.engine.clock().now();
            let (rest, later) = (&mut self.rest, &mut self.later);
            let answered = self.session.answer(&self.service, now, rest, workspace, output, later);
            if answered.consumed == self.rest.len() {
                self.rest = Vec::new(); // an idle connection keeps none
            } else {
                self.rest.drain(..answered.consumed);
            }
            if answered.consumed > 0 {
                self.alarm = None; // the next may take as long
            }
            self.until = answered.until;
            self.send(output, context)
        })
    }

    /// Sends what can be sent, and keeps the rest of it.
    fn send(&mut self, output: &mut Vec<u8>, context: &mut Context<'_>) -> io::Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let written = match Pin::new(&mut self.stream).poll_write(context, output) {
            Poll::Ready(written) => written?,
            Poll::Pending => 0,
        };
        self.is_written = true;
        self.unsent.extend_from_slice(&output[written..]);
        output.clear();
        Ok(())
    }

    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.unsent.len() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.unsent[self.sent..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
            self.alarm = None;
        }
        if self.sent > 0 {
            (self.unsent, self.sent) = (Vec::new(), 0);
        }
        if self.is_written {
            ready!(Pin::new(&mut self.stream).poll_flush(context))?;
            self.is_written = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Waits, but not for ever: an error when it has been too long.
    fn wait(&mut self, waits: WaitsFor, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.alarm.as_ref().is_none_or(|(since, _)| *since != waits) {
            let patience = if waits == WaitsFor::Reader { STALLED } else { REQUEST_TIMEOUT };
            self.alarm = Some((waits, Box::pin(sleep(patience))));
        }
        let Some((_, alarm)) = &mut self.alarm else { unreachable!("just set") };
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Closes our side and reads on for a moment: a socket that is closed with input unread takes back what was sent, and
    /// the client would not learn why.
    fn poll_goodbye(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        SHARED.with_borrow_mut(|shared| {
            loop {
                let mut buffer = ReadBuf::new(&mut shared.input);
                ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
                if buffer.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
            }
        })
    }
}
