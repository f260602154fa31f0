//! The application: where it runs, how busy each place is, and whether it is well.

mod call;
mod connection;
mod health;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tollgate::Timestamp;

pub(super) use self::call::{Answered, Call, CallError, call};
pub(super) use self::connection::{AnswerBody, Connected};
use self::health::Health;

/// As many connections to one place are kept while nobody uses them.
const MOST_IDLE: usize = 1024;

/// All places of the application.
#[derive(Debug)]
pub(super) struct Upstreams {
    all: Vec<Arc<Upstream>>,
    next: AtomicUsize, // where to begin, so that those equally busy take turns
}

/// One place.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) authority: String, // host and port
    in_flight: AtomicUsize,
    health: Health,
    idle: Mutex<Vec<Connected>>, // the one used last is used next: the others may be closed one day
}

impl Upstreams {
    pub(super) fn new(authorities: &[String]) -> Self {
        let all = authorities.iter().map(|authority| Arc::new(Upstream::new(authority))).collect();
        Self { all, next: AtomicUsize::new(0) }
    }

    /// Other places: those that are in both are the same.
    pub(super) fn following(&self, authorities: &[String]) -> Self {
        let known = |authority: &String| self.all.iter().find(|upstream| upstream.authority == *authority);
        let all = authorities
            .iter()
            .map(|authority| known(authority).map_or_else(|| Arc::new(Upstream::new(authority)), Arc::clone));
        Self { all: all.collect(), next: AtomicUsize::new(0) }
    }

    /// The place to ask next: of those that are well, the one with the fewest requests. Where none is, the one that has been
    /// left alone for longest.
    pub(super) fn pick(&self, now: Timestamp, tried: &[usize]) -> Option<(usize, InFlight)> {
        let first = match self.all.len() {
            1 => 0,
            many => self.next.fetch_add(1, Ordering::Relaxed) % many,
        };
        let places = (first..self.all.len()).chain(0..first).filter(|place| !tried.contains(place));
        let place = places.min_by_key(|&place| {
            let upstream = &self.all[place];
            (upstream.health.since_when_out(now), upstream.in_flight.load(Ordering::Relaxed))
        })?;
        let upstream = Arc::clone(&self.all[place]);
        let is_trial = upstream.health.is_tried(now);
        Some((place, InFlight::new(upstream, is_trial)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Upstream> {
        self.all.iter().map(|upstream| &**upstream)
    }
}

impl Upstream {
    fn new(authority: &str) -> Self {
        Self {
            authority: authority.to_owned(),
            in_flight: AtomicUsize::new(0),
            health: Health::default(),
            idle: Mutex::default(),
        }
    }

    /// A connection that was used before and is still open, if there is one.
    fn reuse(&self) -> Option<Connected> {
        loop {
            let mut connected = self.idle.lock().pop()?;
            if connected.is_open() {
                return Some(connected);
            }
        }
    }

    /// Keeps a connection for the next request.
    fn keep(&self, connected: Connected) {
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE {
            idle.push(connected);
        }
    }

    /// Closes connections that the other side has closed.
    pub(super) fn sweep(&self) {
        self.idle.lock().retain_mut(Connected::is_open);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn is_well(&self, now: Timestamp) -> bool {
        self.health.since_when_out(now).is_none()
    }
}

/// A request that is at a place.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) upstream: Arc<Upstream>,
    is_trial: bool, // of a place that was left alone
}

impl InFlight {
    fn new(upstream: Arc<Upstream>, is_trial: bool) -> Self {
        upstream.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { upstream, is_trial }
    }

    /// It was answered.
    pub(super) fn succeeded(&self) {
        if self.upstream.health.succeeded() {
            tracing::info!(upstream = self.upstream.authority, "an upstream is well again");
        }
    }

    /// It could not be reached, or did not answer.
    pub(super) fn failed(&self, error: &CallError, now: Timestamp) {
        if let Some(time) = self.upstream.health.failed(now, self.is_trial) {
            let (upstream, seconds) = (&*self.upstream.authority, time.as_secs());
            tracing::warn!(upstream, %error, seconds, "an upstream fails, and is left alone for so long");
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.upstream.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
