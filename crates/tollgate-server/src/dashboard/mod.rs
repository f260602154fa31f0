//! What the dashboard and `tollgate top` show: the state of the service once per second, sent to all followers.
//!
//! A follower gets `start` with everything, then a `tick` per second with what has changed. All numbers that only grow are totals
//! since the start of the process, so that a follower that misses a tick still has the right numbers with the next one.
//! A frame is made once for all followers that may see the same key names. No frame is made while there is no follower.

mod frame;
mod history;
mod log;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use axum::body::Bytes;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use tollgate::Timestamp;

pub(crate) use self::frame::{KeyNames, history_of};
use self::history::{History, STEP, Sample};
use self::log::EventLog;
use crate::connections::Activity;
use crate::distribution::Recent;
use crate::metrics::LimitTotals;
use crate::service::{Service, json_seconds, unix_time};

/// The most followers.
pub(crate) const MOST_STREAMS: usize = 100;

/// The most frames that a follower may be behind. Beyond that, it gets `start` again.
const FRAMES_KEPT: usize = 4;

/// After this many seconds, a follower that has not taken a frame is disconnected, and so is one that once acknowledged its
/// stream and no longer does. Buffers between the two take frames for minutes, also if nobody reads them.
const STALLED_AFTER: u64 = 7;

/// In place of a second.
const NEVER: u64 = u64::MAX;

/// What all followers share.
pub(crate) struct Dashboard {
    state: Mutex<State>,
    frames: Mutex<Option<broadcast::Sender<Arc<Frame>>>>, // none when the process is about to end
    streams: Mutex<HashMap<u64, Arc<Stream>>>,
    next_stream: AtomicU64,
    ticks: AtomicU64, // seconds since the start
    pub(crate) log: EventLog,
    policy: Mutex<Option<(usize, Arc<RawValue>)>>, // as JSON, with its generation
    generation: AtomicUsize,                       // of the policy in force
    start: Mutex<[Option<(u64, Bytes)>; 2]>,       // for each kind of key names, with the tick it was made in
    pub(crate) starting: tokio::sync::Mutex<()>,   // held while `start` is made
    began: f64,                                    // Unix time
}

/// What only ticks use.
#[derive(Default)]
struct State {
    began: Option<Timestamp>,
    history: History,
    delays: Recent,
    upstream_durations: Recent,
    queue_waits: Recent,
    sent: HashMap<Box<str>, LimitTotals>, // of each limit, as followers know it
    hot_counts: HashMap<Box<str>, u64>,   // requests to each limit when its hot keys were sent
    generation: usize,                    // of the policy that followers know
}

/// What all followers get.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    /// What has changed: with key names in clear, and with hashes.
    Tick([Option<Bytes>; 2]),
    /// Followers must get everything again, because another policy is in force.
    Restart,
}

/// A follower.
#[derive(Debug)]
pub(crate) struct Stream {
    names: KeyNames,
    taken: AtomicU64,        // the second in which it last took a frame
    acknowledged: AtomicU64, // the second in which its client last reported that it reads, or `NEVER`
    connection: Option<Arc<Activity>>,
}

/// Ends a follower when it is dropped.
pub(crate) struct Following {
    service: Arc<Service>,
    number: u64,
    stream: Arc<Stream>,
    pub(crate) frames: broadcast::Receiver<Arc<Frame>>,
}

/// Why a follower is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FollowError {
    #[error(
        "{MOST_STREAMS} event streams are open, which is the maximum: close a dashboard, or try again later"
    )]
    Full,
    #[error("the process is about to end")]
    Ending,
}

impl Default for Dashboard {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            frames: Mutex::new(Some(broadcast::Sender::new(FRAMES_KEPT))),
            streams: Mutex::default(),
            next_stream: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            log: EventLog::default(),
            policy: Mutex::default(),
            generation: AtomicUsize::new(0),
            start: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            began: now(),
        }
    }
}

impl Dashboard {
    /// Notes that another policy is in force.
    pub(crate) fn policy_changed(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends all streams, and refuses new ones.
    pub(crate) fn close(&self) {
        *self.frames.lock() = None;
    }

    /// Measures, and sends a frame to all followers. Call it every second.
    pub(crate) fn tick(&self, service: &Service) {
        let second = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        self.log.look(service);
        let mut state = self.state.lock();
        state.measure(service);
        if state.generation != self.generation.load(Ordering::Relaxed) {
            state.generation = self.generation.load(Ordering::Relaxed);
            state.drop_removed_limits(service);
            *self.start.lock() = [None, None];
            self.send(Frame::Restart);
        }
        let events = self.log.take_new();
        let wanted = self.drop_stalled(second);
        if wanted != [false, false] {
            let with_hot_keys = second.is_multiple_of(STEP);
            let frames = frame::tick(service, &mut state, wanted, with_hot_keys, &events);
            drop(state);
            self.send(Frame::Tick(frames));
        }
    }

    fn send(&self, frame: Frame) {
        if let Some(frames) = &*self.frames.lock() {
            let _ = frames.send(Arc::new(frame)); // an error: there is no follower
        }
    }

    /// Disconnects followers that take no frames. Returns the kinds of key names that the others see.
    fn drop_stalled(&self, second: u64) -> [bool; 2] {
        let mut wanted = [false, false];
        for stream in self.streams.lock().values() {
            let acknowledged = match stream.acknowledged.load(Ordering::Relaxed) {
                NEVER => second,
                at => at,
            };
            if stream.taken.load(Ordering::Relaxed).min(acknowledged) + STALLED_AFTER < second {
                if let Some(connection) = &stream.connection {
                    connection.abort();
                }
            } else {
                wanted[stream.names as usize] = true;
            }
        }
        wanted
    }

    /// The client of a stream reports that it reads. Returns whether the stream is open.
    pub(crate) fn acknowledge(&self, number: u64) -> bool {
        let streams = self.streams.lock();
        let stream = streams.get(&number);
        if let Some(stream) = stream {
            stream.acknowledged.store(self.ticks.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        stream.is_some()
    }

    /// Everything, for a new follower. It is made once per second and kind of key names.
    pub(crate) fn start(&self, service: &Service, names: KeyNames) -> Bytes {
        let mut starts = self.start.lock();
        let second = self.ticks.load(Ordering::Relaxed);
        if let Some((made, start)) = &starts[names as usize]
            && *made == second
        {
            return start.clone();
        }
        let policy = self.policy(service);
        let start = frame::start(service, &self.state.lock(), &policy, names, &self.log.all(), self.began);
        starts[names as usize] = Some((second, start.clone()));
        start
    }

    /// The policy in force as JSON, made once for each policy.
    fn policy(&self, service: &Service) -> Arc<RawValue> {
        let generation = self.generation.load(Ordering::Relaxed);
        let mut policy = self.policy.lock();
        match &*policy {
            Some((of, json)) if *of == generation => Arc::clone(json),
            _ => {
                let json = frame::policy(service);
                *policy = Some((generation, Arc::clone(&json)));
                json
            }
        }
    }

    /// Reads the history of the last 15 minutes.
    pub(crate) fn with_history<T>(&self, read: impl FnOnce(&History) -> T) -> T {
        read(&self.state.lock().history)
    }
}

impl State {
    /// Adds a step to the history when it is time for one.
    fn measure(&mut self, service: &Service) {
        let now = service.engine.clock().now();
        let began = *self.began.get_or_insert(now);
        let step = now.since(began).get() / 1_000_000_000 / STEP + 1;
        if !self.history.is_due(step) {
            return;
        }
        self.delays.add(service.metrics.delay());
        if let Some(gateway) = &service.metrics.gateway {
            self.upstream_durations.add(gateway.upstream_durations());
            self.queue_waits.add(gateway.queue_waits());
        }
        let durations = service.metrics.decision_duration();
        let limits = service.metrics.limit_totals();
        let sample = Sample {
            requests: service.metrics.request_totals(),
            durations,
            limits: &mut limits.iter().map(|(limit, totals)| (limit.name(), *totals)),
        };
        self.history.add(step, sample);
    }

    fn drop_removed_limits(&mut self, service: &Service) {
        let policy = service.engine.policy();
        let known: std::collections::HashSet<&str> = policy.limit_numbers().map(|(_, name)| name).collect();
        self.history.keep(|name| known.contains(name));
        self.sent.retain(|name, _| known.contains(&**name));
        self.hot_counts.retain(|name, _| known.contains(&**name));
    }
}

impl Service {
    /// Adds a follower. It must get [`Dashboard::start`] first.
    pub(crate) fn follow_dashboard(
        self: &Arc<Self>,
        names: KeyNames,
        connection: Option<Arc<Activity>>,
    ) -> Result<Following, FollowError> {
        let dashboard = &self.dashboard;
        let frames = dashboard.frames.lock().as_ref().ok_or(FollowError::Ending)?.subscribe();
        let mut streams = dashboard.streams.lock();
        if streams.len() >= MOST_STREAMS {
            return Err(FollowError::Full);
        }
        let number = dashboard.next_stream.fetch_add(1, Ordering::Relaxed);
        let taken = AtomicU64::new(dashboard.ticks.load(Ordering::Relaxed));
        let stream = Arc::new(Stream { names, taken, acknowledged: AtomicU64::new(NEVER), connection });
        streams.insert(number, Arc::clone(&stream));
        drop(streams);
        Ok(Following { service: Arc::clone(self), number, stream, frames })
    }
}

impl Following {
    /// Notes that the follower has taken a frame.
    pub(crate) fn take(&self) {
        self.stream.taken.store(self.service.dashboard.ticks.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn names(&self) -> KeyNames {
        self.stream.names
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.service.dashboard.streams.lock().remove(&self.number);
    }
}

/// The time of day in seconds.
fn now() -> f64 {
    json_seconds(unix_time())
}
