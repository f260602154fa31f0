//! One connection through the proxy: in each direction, a thread that takes bytes and one that delivers them when
//! they are due.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Direction, Fault, Shared};
use crate::real_time::now;

/// Bytes that are taken at once, and how many times that may be on their way.
const CHUNK: usize = 16 << 10;
const MOST_CHUNKS: usize = 1024;

/// How long the server has to accept.
const CONNECT: Duration = Duration::from_secs(5);

/// How often a write that the other end does not take looks whether it still should.
const WRITE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Connection {
    client: TcpStream,
    upstream: OnceLock<TcpStream>,
    is_aborted: AtomicBool,
    has_lost: AtomicBool,
}

/// What is on its way.
#[derive(Debug)]
struct Parcel {
    due: Instant,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// What may be done with it now.
#[derive(Debug, PartialEq, Eq)]
enum Leave {
    Carry,
    Swallow,
    Stop,
}

impl Connection {
    pub(super) fn new(client: TcpStream) -> Self {
        Self { client, upstream: OnceLock::new(), is_aborted: false.into(), has_lost: false.into() }
    }

    /// Whether something was swallowed that should have been carried.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::SeqCst)
    }

    /// Lets its threads end, and the connections with a reset when they are closed. With the state locked, and whoever
    /// waits for a change to be woken.
    pub(super) fn abort(&self) {
        self.is_aborted.store(true, Ordering::SeqCst);
        for stream in [Some(&self.client), self.upstream.get()].into_iter().flatten() {
            reset_when_closed(stream);
            // Wakes whoever reads. Unlike that of writing, it tells the other end nothing.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }

    /// Carries bytes both ways until both ends have closed it, or it is aborted.
    pub(super) fn carry(&self, shared: &Shared) {
        let Some(upstream) = self.connect(shared) else { return };
        let client = &self.client;
        for stream in [client, upstream] {
            let _ = stream.set_nodelay(true);
            let _ = stream.set_write_timeout(Some(WRITE));
        }
        let (requests, requests_due) = sync_channel(MOST_CHUNKS);
        let (answers, answers_due) = sync_channel(MOST_CHUNKS);
        thread::scope(|scope| {
            scope.spawn(move || take(shared, client, &requests));
            scope.spawn(move || take(shared, upstream, &answers));
            scope.spawn(move || self.deliver(shared, Direction::Request, &requests_due, upstream));
            self.deliver(shared, Direction::Answer, &answers_due, client);
        });
    }

    /// Connects to the server, unless nothing may be carried, or there is none.
    fn connect(&self, shared: &Shared) -> Option<&TcpStream> {
        if self.leave(shared, Direction::Request) == Leave::Stop {
            return None;
        }
        shared.end_write(Direction::Request);
        let connected = TcpStream::connect_timeout(&shared.upstream, CONNECT);
        // Until it is known to the connection, nobody may abort that.
        let _state = shared.state();
        match connected {
            Ok(upstream) if !self.is_aborted() => Some(self.upstream.get_or_init(|| upstream)),
            _ => {
                self.abort();
                None
            }
        }
    }

    /// Delivers what is due, as far as it may.
    fn deliver(&self, shared: &Shared, direction: Direction, parcels: &Receiver<Parcel>, to: &TcpStream) {
        for Parcel { due, content } in parcels {
            self.wait_until(shared, due);
            let mut bytes = match &content {
                Content::Bytes(bytes) => bytes.as_slice(),
                Content::End | Content::Reset => &[],
            };
            loop {
                match self.leave(shared, direction) {
                    Leave::Stop => return,
                    Leave::Swallow => break,
                    Leave::Carry => {}
                }
                let written = match content {
                    Content::Bytes(_) => write(to, bytes),
                    Content::End => to.shutdown(Shutdown::Write).map(|()| 0),
                    Content::Reset => Err(io::ErrorKind::ConnectionReset.into()),
                };
                shared.end_write(direction);
                let Ok(written) = written else {
                    // This end is gone, and the other one has to know.
                    let _state = shared.state();
                    self.abort();
                    shared.changed.notify_all();
                    return;
                };
                bytes = &bytes[written..];
                if bytes.is_empty() {
                    break;
                }
            }
        }
    }

    fn wait_until(&self, shared: &Shared, due: Instant) {
        let mut state = shared.state();
        loop {
            let left = due.saturating_duration_since(now());
            if left.is_zero() || self.is_aborted() {
                return;
            }
            (state, _) = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until it is known what may be done. A write that may begin is counted, until [`Shared::end_write`].
    fn leave(&self, shared: &Shared, direction: Direction) -> Leave {
        let is_held = |state: &mut super::State| state.fault == Fault::HalfOpen && !self.is_aborted();
        let state = shared.changed.wait_while(shared.state(), is_held);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if self.is_aborted() {
            Leave::Stop
        } else if state.fault == Fault::DropAnswers && direction == Direction::Answer {
            self.has_lost.store(true, Ordering::SeqCst);
            Leave::Swallow
        } else {
            state.writing[direction as usize] += 1;
            Leave::Carry
        }
    }

    fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn end_write(&self, direction: Direction) {
        self.state().writing[direction as usize] -= 1;
        self.settled.notify_all();
    }
}

/// Takes what comes, and notes when it is due.
fn take(shared: &Shared, mut from: &TcpStream, parcels: &SyncSender<Parcel>) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let content = match from.read(&mut buffer) {
            Ok(0) => Content::End,
            Ok(read) => Content::Bytes(buffer[..read].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => Content::Reset,
        };
        let is_last = !matches!(content, Content::Bytes(_));
        let due = now() + shared.state().delay;
        // Nobody takes it once the connection is aborted.
        if parcels.send(Parcel { due, content }).is_err() || is_last {
            return;
        }
    }
}

/// How much the other end takes now.
fn write(mut to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    match to.write(bytes) {
        Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => Ok(0),
        written => written,
    }
}

/// Lets closing a connection reset it instead of ending it in order, where the system is known.
///
/// The standard library's `set_linger` is not stable yet.
fn reset_when_closed(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    {
        use std::ffi::{c_int, c_void};
        use std::os::fd::AsRawFd as _;

        unsafe extern "C" {
            fn setsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_void, size: u32)
            -> c_int;
        }
        const SOL_SOCKET: c_int = 1;
        const SO_LINGER: c_int = 13;

        /// `struct linger`: whether to, and for how many seconds.
        #[repr(C)]
        struct Linger(c_int, c_int);
        let linger = Linger(1, 0);
        let size = u32::try_from(size_of::<Linger>()).expect("it is two words");
        // SAFETY: the socket is open as long as `stream` is borrowed, and `size` bytes are read of a value that lives
        // until the call returns. Should it fail, the connection ends in order.
        unsafe { setsockopt(stream.as_raw_fd(), SOL_SOCKET, SO_LINGER, (&raw const linger).cast(), size) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}
