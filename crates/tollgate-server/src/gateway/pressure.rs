//! How loaded the application is, as the gateway sees it: what `adaptive_rates` goes by.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tollgate::Nanos;
use tollgate::adaptive::Load;
use tollgate_policy::AdaptiveRates;

use crate::connections::peer_network;

/// How often the load is told.
pub(super) const EVERY: Duration = Duration::from_millis(250);

/// What was seen since it was last told. Of waits it is only counted how many were beyond the marks: that is all that the ninth
/// of ten says.
#[derive(Debug)]
pub(super) struct Pressure {
    high: AtomicU64, // nanoseconds
    low: AtomicU64,
    waits: AtomicU64, // for a slot
    waits_from_low: AtomicU64,
    waits_over_high: AtomicU64,
    hasher: RandomState,
    answers: Box<[Answers]>, // by the hash of their client
}

/// The answers to one client, or to several of the same hash.
#[derive(Debug, Default)]
struct Answers {
    all: AtomicU32,
    errors: AtomicU32,
}

/// The number of counters. Clients whose hashes meet share one.
const CLIENTS: usize = 1024;

/// The share of errors, in thousandths, from which an application is failing, and up to which it is well.
const FAILING: u64 = 100;
const WELL: u64 = 50;

/// The counter of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientId(usize);

impl Pressure {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            high: AtomicU64::new(u64::MAX),
            low: AtomicU64::new(u64::MAX),
            waits: zero(),
            waits_from_low: zero(),
            waits_over_high: zero(),
            hasher: RandomState::new(),
            answers: (0..CLIENTS).map(|_| Answers::default()).collect(),
        }
    }

    /// A request has waited for a slot, also if it got none.
    pub(super) fn waited(&self, wait: Nanos) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        if wait.get() >= self.low.load(Ordering::Relaxed) {
            self.waits_from_low.fetch_add(1, Ordering::Relaxed);
        }
        if wait.get() > self.high.load(Ordering::Relaxed) {
            self.waits_over_high.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Which client a request is from: a tenant that the policy names, or else an address.
    pub(super) fn client(&self, tenant: Option<&str>, address: IpAddr) -> ClientId {
        let hash = match tenant {
            Some(tenant) => self.hasher.hash_one(tenant),
            None => self.hasher.hash_one(peer_network(address)),
        };
        ClientId(hash as usize % CLIENTS)
    }

    /// The application has answered a client, or has failed to.
    pub(super) fn answered(&self, client: ClientId, is_error: bool) {
        let Answers { all, errors } = &self.answers[client.0];
        all.fetch_add(1, Ordering::Relaxed);
        if is_error {
            errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The errors since this was last asked: how many, and their share in thousandths. Every client has the same weight, however
    /// often it asks. Where there are several, the one with the largest share does not count: it may be provoking errors.
    fn take_errors(&self) -> (u64, u64) {
        let (mut clients, mut errors, mut shares) = (0, 0, 0);
        let mut worst = (0, 0); // share, errors
        for client in &self.answers {
            if client.all.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let failed = u64::from(client.errors.swap(0, Ordering::Relaxed));
            let share = failed * 1000 / u64::from(client.all.swap(0, Ordering::Relaxed)).max(1);
            (clients, errors, shares) = (clients + 1, errors + failed, shares + share);
            worst = worst.max((share, failed));
        }
        match clients {
            0 => (0, 0),
            1 => (errors, shares),
            _ => (errors - worst.1, (shares - worst.0) / (clients - 1)),
        }
    }

    /// The load since it was last told. High where one of ten requests waited longer than the high mark, or one of ten answers
    /// was an error; low where nine of ten waited less than the low mark, and hardly an answer was.
    pub(super) fn tell(&self, marks: AdaptiveRates) -> Load {
        self.high.store(Nanos::saturating_from(marks.high).get(), Ordering::Relaxed);
        self.low.store(Nanos::saturating_from(marks.low).get(), Ordering::Relaxed);
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let (waits, from_low, over_high) =
            (take(&self.waits), take(&self.waits_from_low), take(&self.waits_over_high));
        let (errors, share) = self.take_errors();
        // Of few answers, one error says little.
        let is_failing = errors >= 2 && share >= FAILING;
        if over_high * 10 > waits || is_failing {
            return Load::High;
        }
        if from_low * 10 <= waits && share <= WELL { Load::Low } else { Load::Between }
    }
}

#[cfg(test)]
mod tests;
