//! Permits that callers hold over HTTP, by the ID that the service gave them.
//!
//! This process keeps the permits of its own table, under a random ID. Permits of a store must be released by any process on the
//! store, also by one that starts later. Their ID contains all that is needed (`carried.rs`), and nothing is kept here.

mod carried;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tollgate::Timestamp;
use tollgate_policy::{Permits, Unavailable};

use crate::store::Health;

/// The most callers that hold permits at once which this process keeps.
const MOST_HELD: usize = 1_000_000;

/// The permits are in this many tables, by ID. When a table grows, few callers wait, and not for long.
const TABLES: usize = 64;

/// The most permits that are forgotten under one lock.
const FORGET_AT_ONCE: usize = 256;

/// The id of permits where there is none to hold: no concurrency limit applied.
const NOTHING_HELD: &str = "00000000000000000000000000000000";

/// The permits that are held.
#[derive(Debug)]
pub(crate) struct Held {
    tables: Box<[Mutex<Table>]>,
    counts: Arc<HeldCounts>,
    most: usize,
    store: Option<Arc<dyn Health>>, // which keeps the rest, if there is one
}

/// How many permits this process keeps.
#[derive(Debug, Default)]
pub(crate) struct HeldCounts {
    held: AtomicUsize,
    refused: AtomicU64,
}

impl HeldCounts {
    /// The callers that hold permits now.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The calls that were refused because too many permits are held.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct Table {
    permits: HashMap<u128, Kept>,
    ends: BTreeSet<(Timestamp, u128)>, // of the leases, with the IDs
}

#[derive(Debug)]
struct Kept {
    permits: Permits,
    until: Option<Timestamp>, // when their lease has ended, if they have one
}

impl Table {
    fn insert(&mut self, id: u128, kept: Kept) {
        self.ends.extend(kept.until.map(|until| (until, id)));
        self.permits.insert(id, kept);
    }

    fn remove(&mut self, id: u128) -> Option<Kept> {
        let kept = self.permits.remove(&id)?;
        if let Some(until) = kept.until {
            self.ends.remove(&(until, id));
        }
        Some(kept)
    }

    /// Removes permits whose lease has ended: some of them, if there are many.
    fn remove_ended(&mut self, now: Timestamp) -> Vec<Kept> {
        let ended = self.ends.iter().take_while(|(until, _)| *until <= now).take(FORGET_AT_ONCE);
        let ended: Vec<u128> = ended.map(|(_, id)| *id).collect();
        ended.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

/// As many permits are held as this process keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{most} permits are held, which is the maximum: release some, or give the limit a `lease`")]
pub(crate) struct TooManyHeld {
    most: usize,
}

impl Held {
    pub(crate) fn new(store: Option<Arc<dyn Health>>) -> Self {
        Self::with_most(MOST_HELD, store)
    }

    fn with_most(most: usize, store: Option<Arc<dyn Health>>) -> Self {
        let tables = (0..TABLES).map(|_| Mutex::default()).collect();
        Self { tables, counts: Arc::default(), most, store }
    }

    /// How many are held, for the metrics.
    pub(crate) const fn counts(&self) -> &Arc<HeldCounts> {
        &self.counts
    }

    /// Keeps permits until they are released or their lease has ended. Returns an ID that nobody can guess.
    pub(crate) fn keep(&self, permits: Permits, until: Option<Timestamp>) -> Result<String, TooManyHeld> {
        if permits.is_empty() {
            return Ok(NOTHING_HELD.to_owned());
        }
        if let Some(id) = permits.in_store().and_then(carried::write) {
            permits.leave_in_store();
            return Ok(id);
        }
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the system has randomness");
        let id = u128::from_ne_bytes(bytes);
        if self.counts.held.fetch_add(1, Ordering::Relaxed) >= self.most {
            self.counts.held.fetch_sub(1, Ordering::Relaxed);
            return Err(self.refuse());
        }
        self.table(id).lock().insert(id, Kept { permits, until });
        Ok(format!("{id:032x}"))
    }

    /// Refuses a call if no more permits can be kept.
    pub(crate) fn require_room(&self) -> Result<(), TooManyHeld> {
        if self.counts.held() >= self.most { Err(self.refuse()) } else { Ok(()) }
    }

    fn refuse(&self) -> TooManyHeld {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        TooManyHeld { most: self.most }
    }

    fn table(&self, id: u128) -> &Mutex<Table> {
        &self.tables[(id % TABLES as u128) as usize]
    }

    /// Gives permits back. False if they were not held any more.
    ///
    /// # Errors
    ///
    /// When the store that keeps them gives no answer.
    pub(crate) async fn release(&self, id: &str) -> Result<bool, Unavailable> {
        if id == NOTHING_HELD {
            return Ok(true);
        }
        if let Some(permits) = carried::read(id) {
            return match &self.store {
                Some(store) if permits.iter().all(|permit| store.may_have_given(permit)) => {
                    Permits::stored(Arc::clone(store) as _, permits).release().await
                }
                _ => Ok(false),
            };
        }
        let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let Some(id) = is_id.then(|| u128::from_str_radix(id, 16).ok()).flatten() else { return Ok(false) };
        let kept = self.table(id).lock().remove(id);
        match kept {
            Some(kept) => {
                self.counts.held.fetch_sub(1, Ordering::Relaxed);
                kept.permits.release().await
            }
            None => Ok(false),
        }
    }

    /// Forgets permits whose lease has ended. The time it takes does not depend on the number of other permits.
    pub(crate) fn forget_ended(&self, now: Timestamp) {
        for table in &self.tables {
            loop {
                let ended = table.lock().remove_ended(now);
                if ended.is_empty() {
                    break;
                }
                self.counts.held.fetch_sub(ended.len(), Ordering::Relaxed);
                drop(ended); // which may give them back to a store, and is done without the lock
            }
        }
    }
}

#[cfg(test)]
mod tests;
