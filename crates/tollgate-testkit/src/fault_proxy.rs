//! A network that fails as told: a TCP proxy before a server.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::ports::free_port;
use crate::real_time::{pause, within};
use connection::Connection;

mod connection;
#[cfg(test)]
mod tests;

/// Connections beyond these are closed as they come. Each takes four threads.
const MOST_CONNECTIONS: usize = 64;

/// How long any change may take to come into force.
const PATIENCE: Duration = Duration::from_secs(30);

/// Carries connections to a server, until it is told to do it badly. Everything that it is told has come into force
/// when the call returns.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    upstream: SocketAddr,
    state: Mutex<State>,
    /// That connections look again: another fault, another delay, or the end.
    changed: Condvar,
    /// That whoever changed something looks again: a write has ended, a connection is gone, or the listener.
    settled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    fault: Fault,
    delay: Duration,
    is_ending: bool,
    is_listening: bool,
    /// Writes that have begun, by direction.
    writing: [usize; 2],
    connections: HashMap<u64, Arc<Connection>>,
    /// How many there have been.
    accepted: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Fault {
    #[default]
    None,
    Cut,
    HalfOpen,
    DropAnswers,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Request,
    Answer,
}

impl FaultProxy {
    /// Starts one before a server, which need not run yet. It has no fault.
    ///
    /// # Panics
    ///
    /// When it finds no port.
    #[must_use = "it is gone when it is dropped"]
    pub fn start(upstream: SocketAddr) -> Self {
        // Not one of the system's choice: it could not be sure to get it again after a cut.
        let listener = within(PATIENCE, || TcpListener::bind((Ipv4Addr::LOCALHOST, free_port())).ok());
        let listener = listener.expect("a free port can be listened on");
        let address = listener.local_addr().expect("it listens");
        let state = Mutex::new(State { is_listening: true, ..State::default() });
        let shared =
            Arc::new(Shared { address, upstream, state, changed: Condvar::new(), settled: Condvar::new() });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.serve(listener)
        });
        Self { shared, acceptor: Some(acceptor) }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// How many connections it has.
    pub fn connections(&self) -> usize {
        self.shared.state().connections.len()
    }

    /// Delivers bytes that come from now on only after that time, each way, in their order. It is latency: any number
    /// may be on their way at once. Connections are accepted without delay.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Resets all connections, and refuses new ones until [`heal`](Self::heal).
    pub fn cut(&self) {
        self.shared.change(Fault::Cut);
    }

    /// Carries nothing any more, in either direction, and closes nothing. New connections are accepted. When it is
    /// healed, what has been sent meanwhile is delivered, as after a network was away.
    pub fn half_open(&self) {
        self.shared.change(Fault::HalfOpen);
    }

    /// Carries requests, but swallows the answers: what a call that timed out has done is done.
    pub fn drop_answers(&self) {
        self.shared.change(Fault::DropAnswers);
    }

    /// Ends any fault and delay. Connections that have lost an answer are reset: those that came after would be taken
    /// for it, which no network does.
    pub fn heal(&self) {
        self.delay(Duration::ZERO);
        self.shared.change(Fault::None);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            state.is_ending = true;
            self.shared.abort(&state, |_| true);
        }
        self.shared.wake_acceptor();
        if let Some(acceptor) = self.acceptor.take() {
            // Which has waited for all connections.
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    /// Puts a fault in force, and waits until nothing happens any more that it forbids.
    fn change(&self, fault: Fault) {
        let mut state = self.state();
        state.fault = fault;
        match fault {
            Fault::Cut => self.abort(&state, |_| true),
            Fault::None => self.abort(&state, Connection::has_lost),
            Fault::HalfOpen | Fault::DropAnswers => {}
        }
        self.changed.notify_all();
        if fault == Fault::Cut {
            drop(state);
            self.wake_acceptor();
            state = self.state();
        }
        let is_unsettled = |state: &mut State| match fault {
            Fault::Cut => state.is_listening || !state.connections.is_empty(),
            Fault::HalfOpen => !state.is_listening || state.writing != [0, 0],
            Fault::DropAnswers => !state.is_listening || state.writing[Direction::Answer as usize] > 0,
            Fault::None => !state.is_listening || state.connections.values().any(|one| one.has_lost()),
        };
        let waited = self.settled.wait_timeout_while(state, PATIENCE, is_unsettled);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(!waited.timed_out(), "{fault:?} is still not in force after {PATIENCE:?}");
    }

    /// Lets connections end with a reset. They are gone a little later.
    fn abort(&self, state: &State, which: impl Fn(&Connection) -> bool) {
        state.connections.values().filter(|connection| which(connection)).for_each(|one| one.abort());
        self.changed.notify_all();
    }

    /// Accepts connections, but while they are cut, until the end.
    fn serve(self: &Arc<Self>, first: TcpListener) {
        let mut threads = Vec::new();
        let mut listener = Some(first);
        while let Some(listening) = listener.take().or_else(|| self.listen_again()) {
            while self.accept(&listening, &mut threads) {}
            drop(listening);
            self.state().is_listening = false;
            self.settled.notify_all();
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Accepts one connection, and says whether to go on.
    fn accept(self: &Arc<Self>, listener: &TcpListener, threads: &mut Vec<JoinHandle<()>>) -> bool {
        let accepted = listener.accept();
        let mut state = self.state();
        if state.is_ending || state.fault == Fault::Cut {
            return false;
        }
        match accepted {
            Ok((client, _)) if state.connections.len() < MOST_CONNECTIONS => {
                let connection = Arc::new(Connection::new(client));
                let number = state.accepted;
                state.accepted += 1;
                state.connections.insert(number, Arc::clone(&connection));
                let shared = Arc::clone(self);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread::spawn(move || {
                    connection.carry(&shared);
                    drop(connection);
                    // The last owner closes it.
                    shared.state().connections.remove(&number);
                    shared.settled.notify_all();
                }));
            }
            Ok(_) => {}
            // No more files, say: that passes.
            Err(_) => {
                drop(state);
                pause(Duration::from_millis(10));
            }
        }
        true
    }

    /// Listens again once nothing is cut any more, unless it is the end.
    fn listen_again(&self) -> Option<TcpListener> {
        let is_cut = |state: &mut State| state.fault == Fault::Cut && !state.is_ending;
        let state = self.changed.wait_while(self.state(), is_cut).unwrap_or_else(PoisonError::into_inner);
        if state.is_ending {
            return None;
        }
        drop(state);
        let listener = within(PATIENCE, || TcpListener::bind(self.address).ok())?;
        self.state().is_listening = true;
        self.settled.notify_all();
        Some(listener)
    }

    /// It looks whether it should go on when it has accepted something.
    fn wake_acceptor(&self) {
        self.changed.notify_all();
        let _ = TcpStream::connect_timeout(&self.address, PATIENCE);
    }

    /// Nothing is left half done in it by a panic.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
