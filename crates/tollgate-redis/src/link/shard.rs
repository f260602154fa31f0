//! One shard: its connection, the breaker before it, and the task that keeps both.
//!
//! The breaker is closed while there is a connection, so that a call finds out about both with one look. A call that finds
//! none fails at once. When calls fail, the connection is dropped (it may be half open), and a task in the background
//! makes a new one and has the server show that it takes charges before calls are sent to it: they never pay for that.
//! It has to show it again, over the same connection, when it answers a call with an error: that may be of one key or of all.
//! The first of them is a trial all the same: the count of failures begins one short of the most.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, ServerError, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::connector::{Address, Connection, Connector};
use super::error::{LinkError, text_of};
use super::examine::Examination;
use super::health::{BreakerState, Counters, ShardHealth};
use super::script::Script;
use super::sentinel::Sentinels;
use super::slot::SLOTS;
use super::task::{Task, jittered};
use super::told::{Lately, Reason};

/// As many calls in a row may fail before all do.
const MOST_FAILURES: u32 = 5;

/// How often it is tried whether a server is back, on average.
pub(crate) const PROBE: Duration = Duration::from_millis(250);

/// How long a server that takes charges needs at most to say so, if calls are not given longer.
const GREETING: Duration = Duration::from_millis(50);

/// How long one that has answered with an error has: calls will find out sooner whether it is too slow.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// It is not looked at again for so long: errors of one key may come with every call.
const SECOND_LOOKS: Duration = Duration::from_secs(1);

/// As many scripts are told to servers beforehand; more are found out when they are called.
const MOST_SCRIPTS: usize = 64;

/// How many connections this process has made that calls were sent over.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// What all shards of a link share.
pub(super) struct Common {
    pub(super) connector: Connector,
    pub(super) deadline: Duration,
    pub(super) is_cluster: bool,
    pub(super) scripts: Mutex<Vec<Script>>,
    pub(super) connections: AtomicU64, // grows when a shard gets or loses its connection, or a slot its shard
    pub(super) changed: Notify,        // whether some shard can be reached
    pub(super) rediscover: Notify,     // the cluster's map seems to be old
}

impl Common {
    pub(super) fn learn(&self, script: &Script) {
        let mut scripts = self.scripts.lock();
        if scripts.len() < MOST_SCRIPTS && scripts.iter().all(|known| known.hash() != script.hash()) {
            scripts.push(script.clone());
        }
    }

    /// Notes that another connection may be the primary of a key. It has been replaced before: a caller that finds the new number
    /// finds the new connection, too.
    pub(super) fn count_change(&self) {
        self.connections.fetch_add(1, Release);
    }

    /// A new connection to a server that takes charges.
    async fn connect(
        &self,
        address: &Address,
        slot: impl Fn() -> Option<usize>,
    ) -> Result<Connection, String> {
        let mut connection = self.connector.connect(address).await?;
        let slot = slot(); // now: it may have been told meanwhile
        let scripts = self.scripts.lock().clone();
        let within = self.deadline.max(GREETING);
        let examination = Examination { is_cluster: self.is_cluster, slot, scripts: &scripts, within };
        examination.of(&mut connection.redis).await.map_err(|reason| format!("{address}: {reason}"))?;
        Ok(connection)
    }
}

/// Where the primary of a shard is.
pub(super) enum Finder {
    At(Address),
    Sentinels(Sentinels),
}

impl Finder {
    async fn find(&mut self) -> Result<Address, String> {
        match self {
            Self::At(address) => Ok(address.clone()),
            Self::Sentinels(sentinels) => sentinels.ask().await,
        }
    }

    /// Waits until the primary is elsewhere, and takes charges there.
    async fn moved(&mut self, from: &Address, common: &Common) -> (Address, Connection) {
        let Self::Sentinels(sentinels) = self else { return std::future::pending().await };
        loop {
            let to = sentinels.names_another(from).await;
            // A sentinel that is behind names the old one. It is not followed, since that is no primary any more.
            if let Ok(connection) = common.connect(&to, || None).await {
                return (to, connection);
            }
        }
    }
}

/// One shard. Its connection ends when it is dropped.
pub(super) struct Shard {
    state: Arc<State>,
    _keeper: Task,
}

/// Why a command has no good answer.
pub(super) enum Failure {
    Link(LinkError),
    Server { error: ServerError, generation: u64 },
}

impl Shard {
    /// Begins to connect. `name` is what it is called in errors and the log.
    pub(super) fn start(
        name: &str,
        first: Option<Address>,
        finder: Finder,
        common: Arc<Common>,
    ) -> Arc<Self> {
        let down = Down {
            reason: "it is not connected yet".into(),
            since: Instant::now(),
            last: first,
            was_tried: false,
            generation: 0,
        };
        let state = Arc::new(State {
            name: name.into(),
            phase: ArcSwap::from_pointee(Phase::Down(down)),
            failures: AtomicU32::new(0),
            changing: Mutex::new(()),
            tripped: Notify::new(),
            doubted: Notify::new(),
            slot: AtomicUsize::new(SLOTS),
            told: Lately::default(),
            reason: Mutex::default(),
            probe_at: Mutex::new(Instant::now()),
            counters: Counters::default(),
            common,
        });
        let keeper = Task::spawn(keep(Arc::clone(&state), finder));
        Arc::new(Self { state, _keeper: keeper })
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.state.counters
    }

    /// Sends a command and waits for its answer, at most until the deadline.
    pub(super) async fn send(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let (mut connection, generation) = self.state.connection()?;
        let answer = timeout_at(deadline, connection.send_packed_command(command)).await;
        self.state.judge(answer.ok(), generation)
    }

    /// The same over one connection only. If it is not the present one, the command is not sent.
    pub(super) async fn send_to(
        &self,
        primary: u64,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let (mut connection, generation) = self.state.connection_to(primary)?;
        let answer = timeout_at(deadline, connection.send_packed_command(command)).await;
        self.state.judge(answer.ok(), generation)
    }

    /// The number of the present connection. No other connection of this process has it.
    pub(super) fn primary(&self) -> Result<u64, LinkError> {
        match &**self.state.phase.load() {
            Phase::Up(up) => Ok(up.primary),
            Phase::Down(down) => Err(self.state.open_error(down)),
        }
    }

    /// The same of a command for a slot that is on its way to this server.
    pub(super) async fn send_asking(&self, command: Cmd, deadline: Instant) -> Result<Value, Failure> {
        let (mut connection, generation) = self.state.connection()?;
        let mut both = Pipeline::new();
        both.cmd("ASKING").add_command(command);
        let answer = timeout_at(deadline, connection.send_packed_commands(&both, 1, 1)).await;
        let answer =
            answer.ok().map(|answers| answers.map(|mut answers| answers.pop().unwrap_or(Value::Nil)));
        self.state.judge(answer, generation)
    }

    /// In a cluster: a slot that it has, for what is tried on it.
    pub(super) fn has_slot(&self, slot: usize) {
        self.state.slot.store(slot, Relaxed);
    }

    /// Tells the caller of a server's error, and the log. It may be of one key only: whether the server takes no charges at
    /// all is tried in the background.
    pub(super) fn refused(&self, error: &ServerError) -> LinkError {
        let text = text_of(error);
        if self.state.told.is_news(&text, Instant::now()) {
            let shard = &self.state.name;
            tracing::warn!(%shard, error = text, "the store answers calls with an error (told once a minute)");
        }
        self.state.doubted.notify_one();
        self.failed(error)
    }

    /// Tells the caller of a server's error.
    pub(super) fn failed(&self, error: &ServerError) -> LinkError {
        let error = LinkError::Server(text_of(error));
        self.state.counters.count_error(&error);
        error
    }

    /// Sends no more calls over the connection that this answer came by: the server takes no charges.
    pub(super) fn trip(&self, error: &ServerError, generation: u64) {
        self.state.open(generation, &text_of(error));
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(**self.state.phase.load(), Phase::Up(_))
    }

    /// Waits until the first connection is made or has failed. One that has been there before is not waited for.
    pub(super) async fn first_connection(&self, deadline: Instant) {
        loop {
            let mut changed = std::pin::pin!(self.state.common.changed.notified());
            changed.as_mut().enable();
            let is_first = matches!(&**self.state.phase.load(), Phase::Down(down) if !down.was_tried);
            if !is_first || timeout_at(deadline, changed).await.is_err() {
                return;
            }
        }
    }

    /// A connection to ask other things by.
    pub(super) fn connection(&self) -> Option<MultiplexedConnection> {
        match &**self.state.phase.load() {
            Phase::Up(up) => Some(up.redis.clone()),
            Phase::Down(_) => None,
        }
    }

    /// Where it is, or was last.
    pub(super) fn address(&self) -> Option<Address> {
        match &**self.state.phase.load() {
            Phase::Up(up) => Some(up.address.clone()),
            Phase::Down(down) => down.last.clone(),
        }
    }

    pub(super) fn health(&self) -> ShardHealth {
        let address =
            self.address().map_or_else(|| self.state.name.to_string(), |address| address.to_string());
        let (state, since, reason) = match &**self.state.phase.load() {
            Phase::Down(down) => (BreakerState::Open, down.since, Some(down.reason.to_string())),
            Phase::Up(up) if self.state.failures.load(Relaxed) >= MOST_FAILURES - 1 => {
                (BreakerState::HalfOpen, up.since, None)
            }
            Phase::Up(up) => (BreakerState::Closed, up.since, None),
        };
        self.state.counters.health(self.state.name.to_string(), address, state, since.elapsed(), reason)
    }
}

struct State {
    name: Arc<str>,
    phase: ArcSwap<Phase>,
    failures: AtomicU32,      // in a row
    changing: Mutex<()>,      // held while the phase is changed, so that each change is told once
    tripped: Notify,          // the keeper must look at the phase
    doubted: Notify,          // the server has answered with an error
    slot: AtomicUsize,        // of a cluster: one that it has, or `SLOTS`
    told: Lately,             // of errors
    reason: Mutex<Reason>,    // why it cannot be used, as it was told
    probe_at: Mutex<Instant>, // when a connection is tried next, or was tried last
    counters: Counters,
    common: Arc<Common>,
}

enum Phase {
    Up(Up),
    Down(Down),
}

struct Up {
    redis: MultiplexedConnection,
    primary: u64,    // the number of the connection, among all of this process
    generation: u64, // what went wrong on an earlier connection is not held against this one
    address: Address,
    since: Instant,
}

struct Down {
    reason: Arc<str>, // the newest
    since: Instant,
    last: Option<Address>,
    was_tried: bool, // ever
    generation: u64, // of the last connection
}

impl State {
    /// The connection, if there is one. The clone counts references, which is what `redis` asks for to send anything.
    fn connection(&self) -> Result<(MultiplexedConnection, u64), Failure> {
        match &**self.phase.load() {
            Phase::Up(up) => {
                self.counters.count_call();
                Ok((up.redis.clone(), up.generation))
            }
            Phase::Down(down) => Err(self.not_sent(self.open_error(down))),
        }
    }

    /// The connection of this number, if it is the present one.
    fn connection_to(&self, primary: u64) -> Result<(MultiplexedConnection, u64), Failure> {
        match &**self.phase.load() {
            Phase::Up(up) if up.primary == primary => {
                self.counters.count_call();
                Ok((up.redis.clone(), up.generation))
            }
            Phase::Up(_) => Err(self.not_sent(LinkError::Replaced { shard: Arc::clone(&self.name) })),
            Phase::Down(down) => Err(self.not_sent(self.open_error(down))),
        }
    }

    /// Counts a call that was not sent.
    fn not_sent(&self, error: LinkError) -> Failure {
        self.counters.count_error(&error);
        Failure::Link(error)
    }

    /// Why there is no connection.
    fn open_error(&self, down: &Down) -> LinkError {
        LinkError::Open {
            shard: Arc::clone(&self.name),
            reason: Arc::clone(&down.reason),
            since: down.since,
            probe_at: *self.probe_at.lock(),
        }
    }

    /// What an answer, or that there was none in time, tells of the call and of the server.
    fn judge(&self, answer: Option<RedisResult<Value>>, generation: u64) -> Result<Value, Failure> {
        let error = match answer {
            Some(Ok(answer)) => {
                // Read first: usually there is nothing to write, and all threads share the line.
                if self.failures.load(Relaxed) != 0 && self.is_current(generation) {
                    self.failures.store(0, Relaxed);
                }
                match answer {
                    Value::ServerError(error) => return Err(Failure::Server { error, generation }),
                    answer => return Ok(answer),
                }
            }
            Some(Err(error)) => {
                self.open(generation, &format!("the connection broke: {error}"));
                LinkError::Lost
            }
            None => {
                if self.is_current(generation) && self.failures.fetch_add(1, Relaxed) + 1 >= MOST_FAILURES {
                    let within = self.common.deadline;
                    self.open(generation, &format!("calls were not answered within {within:?}"));
                }
                LinkError::TimedOut
            }
        };
        self.counters.count_error(&error);
        Err(Failure::Link(error))
    }

    fn slot(&self) -> Option<usize> {
        Some(self.slot.load(Relaxed)).filter(|&slot| slot < SLOTS)
    }

    fn is_current(&self, generation: u64) -> bool {
        matches!(&**self.phase.load(), Phase::Up(up) if up.generation == generation)
    }

    /// Opens the breaker, if it is the present connection that has failed.
    fn open(&self, generation: u64, reason: &str) {
        let _held = self.changing.lock();
        let phase = self.phase.load();
        let Phase::Up(up) = &**phase else { return };
        if up.generation != generation {
            return;
        }
        let down = Down {
            reason: reason.into(),
            since: Instant::now(),
            last: Some(up.address.clone()),
            was_tried: true,
            generation,
        };
        tracing::warn!(shard = %self.name, address = %up.address, reason, "the store's shard cannot be used");
        self.reason.lock().begins(reason, down.since);
        self.phase.store(Arc::new(Phase::Down(down)));
        self.common.count_change();
        self.tripped.notify_one();
        self.tell();
    }

    /// Notes why there is still no connection.
    fn stay_down(&self, reason: &str) {
        let _held = self.changing.lock();
        let phase = self.phase.load();
        let Phase::Down(down) = &**phase else { return };
        if self.reason.lock().is_news(reason, Instant::now()) {
            tracing::warn!(shard = %self.name, reason, "the store's shard cannot be reached");
        }
        let (since, last, generation) = (down.since, down.last.clone(), down.generation);
        let down = Down { reason: reason.into(), since, last, was_tried: true, generation };
        self.phase.store(Arc::new(Phase::Down(down)));
        self.tell();
    }

    /// Closes the breaker: calls are sent over this connection from now on.
    fn close(&self, redis: MultiplexedConnection, address: Address) -> u64 {
        let _held = self.changing.lock();
        let before = self.phase.load();
        let generation = match &**before {
            Phase::Up(up) => {
                tracing::info!(shard = %self.name, from = %up.address, to = %address, "the store's primary has moved");
                up.generation + 1
            }
            Phase::Down(down) => {
                let lasted = down.since.elapsed();
                tracing::info!(shard = %self.name, %address, after = ?lasted, "the store's shard can be used");
                down.generation + 1
            }
        };
        self.reason.lock().is_over();
        let is_first = generation == 1;
        self.failures.store(if is_first { 0 } else { MOST_FAILURES - 1 }, Relaxed);
        let primary = CONNECTIONS.fetch_add(1, Relaxed) + 1;
        let since = Instant::now();
        self.phase.store(Arc::new(Phase::Up(Up { redis, primary, generation, address, since })));
        self.common.count_change();
        self.counters.count_connection();
        self.tell();
        generation
    }

    fn tell(&self) {
        self.common.changed.notify_waiters();
        self.common.rediscover.notify_one();
    }
}

/// Makes connections, one after the other, as long as the shard is there.
async fn keep(state: Arc<State>, mut finder: Finder) {
    loop {
        let found = match finder.find().await {
            Ok(address) => {
                let connection = state.common.connect(&address, || state.slot()).await;
                connection.map(|connection| (address, connection))
            }
            Err(reason) => Err(reason),
        };
        match found {
            Err(reason) => state.stay_down(&reason),
            Ok((address, connection)) => {
                let since = Instant::now();
                let broke = stay_up(&state, &mut finder, address, connection).await;
                // One that broke is made again at once. One that was given up, or that broke as soon as it was made, would
                // fail again: the server is given time.
                if broke && since.elapsed() > PROBE {
                    continue;
                }
            }
        }
        let pause = jittered(PROBE);
        *state.probe_at.lock() = Instant::now() + pause;
        sleep(pause).await;
    }
}

/// Lets calls use a connection as long as it works: returns whether it broke by itself.
async fn stay_up(state: &State, finder: &mut Finder, mut address: Address, connection: Connection) -> bool {
    let Connection { redis, mut driver } = connection;
    let mut refuses = Box::pin(refuses(state, redis.clone()));
    let mut generation = state.close(redis, address.clone());
    loop {
        tokio::select! {
            reason = &mut refuses => {
                state.open(generation, &reason);
                return false;
            }
            () = driver.ended() => {
                state.open(generation, "the connection was closed");
                return true;
            }
            // It may be about an earlier connection.
            () = state.tripped.notified() => if !state.is_current(generation) { return false },
            (to, connection) = finder.moved(&address, &state.common) => {
                refuses.set(self::refuses(state, connection.redis.clone()));
                generation = state.close(connection.redis, to.clone());
                (address, driver) = (to, connection.driver);
            }
        }
    }
}

/// Waits until a server that has answered with an error shows that it takes no charges, and says why.
async fn refuses(state: &State, mut redis: MultiplexedConnection) -> String {
    loop {
        state.doubted.notified().await;
        let (is_cluster, slot) = (state.common.is_cluster, state.slot());
        let examination = Examination { is_cluster, slot, scripts: &[], within: SECOND_LOOK };
        if let Err(reason) = examination.of(&mut redis).await {
            return reason;
        }
        sleep(SECOND_LOOKS).await;
    }
}
