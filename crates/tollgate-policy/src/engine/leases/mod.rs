//! Leases: limits that this process decides by grants that it has drawn from the store.
//!
//! The rules are those of [`tollgate::lease`]. Here is what they need around them: a lease for each key that is asked often, the
//! calls to the store, and the requests that wait for them.
//!
//! | file | subject |
//! |---|---|
//! | `entry.rs` | the lease of one key |
//! | `rare_keys.rs` | keys that are asked too rarely for a lease |
//! | `take.rs` | all leased limits of one plan, taken together |
//! | `decide.rs` | a plan of leased and exact limits |
//! | `tasks.rs`, `draw_wait.rs` | draws and returns in the background; requests that wait for them |
//! | `counts.rs` | what became of the units |

mod counts;
mod decide;
mod draw_wait;
mod entry;
mod rare_keys;
mod take;
mod tasks;

use std::collections::HashMap;
use std::collections::hash_map::VacantEntry;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;
use tollgate::lease::Terms;
use tollgate::{Clock, Timestamp};

use self::counts::LeaseCounts;
pub use self::counts::LeaseStats;
pub(super) use self::decide::{FirstAttempt, LeasedPlan};
use self::entry::Entry;
use self::rare_keys::RareKeys;
pub(super) use self::take::{HeldUnits, lease_terms};
use self::tasks::{EntryCall, LeaseCall};
use crate::store::{Later, LeaseStore, LeasedKey};

/// The most keys with a lease. Others are decided exactly.
const MOST_ENTRIES: usize = 1 << 16;

const SHARDS: usize = 64;

/// The leases of this process.
pub(super) struct Leases {
    store: Arc<dyn LeaseStore>,
    clock: Clock,
    shards: Box<[Mutex<Shard>]>,
    entries: AtomicUsize,
    serials: AtomicU64,
    policies: AtomicU64,                                // that have been in force
    counts: Mutex<HashMap<Box<str>, Arc<LeaseCounts>>>, // by limit
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<u64, Box<Entry>, BuildHasherDefault<KeyHash>>,
    rare: RareKeys,
}

/// Keys are hashes already.
#[derive(Default)]
struct KeyHash(u64);

impl Hasher for KeyHash {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl Leases {
    pub(super) fn new(store: Arc<dyn LeaseStore>, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            store,
            clock,
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            entries: AtomicUsize::new(0),
            serials: AtomicU64::new(0),
            policies: AtomicU64::new(1),
            counts: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    pub(super) fn store(&self) -> &dyn LeaseStore {
        &*self.store
    }

    /// Another policy is in force. Grants are drawn again when a request has shown the numbers of its key.
    pub(super) fn change_policy(&self, is_limit: impl Fn(&str) -> bool) {
        self.policies.fetch_add(1, Relaxed);
        self.counts.lock().retain(|limit, _| is_limit(limit));
    }

    /// Forgets what is held of a key, and lets it lapse.
    pub(super) fn reset(&self, hash: u64) {
        let removed = self.remove(&mut self.shard(hash).lock(), hash);
        // The requests that wait ask again.
        if let Some(wait) = removed.and_then(|entry| entry.end()) {
            wait.end(Ok(()));
        }
    }

    /// Notes units that were spent while the store gave no answer. The next draw has the store charge them.
    pub(super) fn owe(&self, hash: u64, units: u64) {
        if let Some(entry) = self.shard(hash).lock().entries.get_mut(&hash) {
            entry.lease.owe(units);
        }
    }

    /// Draws no more, and returns what is left to the store.
    pub(super) fn close(self: &Arc<Self>) -> Later<'static, ()> {
        let returns = self.close_all();
        let leases = Arc::clone(self);
        Box::pin(async move { join_all(returns.into_iter().map(|call| leases.store.give_back(call))).await })
    }

    /// Closes all leases. Returns what they have left.
    fn close_all(&self) -> Vec<crate::store::ReturnCall> {
        self.is_closed.store(true, Relaxed);
        let now = self.clock.now();
        let mut returns = Vec::new();
        for shard in &self.shards {
            for entry in shard.lock().entries.values_mut() {
                entry.lease.close();
                // Without a primary, units lapse, and there is no call.
                while entry.lease.units() > 0 {
                    if let Some(LeaseCall::Return(call)) = entry.next_call(&*self.store, false, now) {
                        returns.push(call);
                    }
                }
            }
        }
        returns
    }

    /// What became of the units of each limit that was leased.
    pub(super) fn stats(&self) -> Vec<LeaseStats> {
        let now = self.clock.now();
        for shard in &self.shards {
            shard.lock().entries.values_mut().for_each(|entry| entry.count_lapsed(now));
        }
        let counts = self.counts.lock().clone();
        let mut stats: Vec<(Arc<LeaseCounts>, LeaseStats)> =
            counts.into_iter().map(|(limit, counts)| (Arc::clone(&counts), counts.stats(&limit))).collect();
        for shard in &self.shards {
            for entry in shard.lock().entries.values() {
                if let Some((_, stats)) = stats.iter_mut().find(|(of, _)| Arc::ptr_eq(of, entry.counts())) {
                    stats.keys += 1;
                    stats.held += entry.lease.units();
                }
            }
        }
        stats.into_iter().map(|(_, stats)| stats).collect()
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard> {
        &self.shards[Self::place(hash)]
    }

    /// The shard of a key: by the highest bits, since the map of a shard goes by the others.
    const fn place(hash: u64) -> usize {
        (hash >> (64 - SHARDS.trailing_zeros())) as usize
    }

    /// Adds a lease for a key. None if there are too many, or if no more grants are drawn.
    fn add<'s>(
        self: &Arc<Self>,
        place: VacantEntry<'s, u64, Box<Entry>>,
        key: LeasedKey,
        terms: Terms,
        demand: u64,
        now: Timestamp,
    ) -> Option<&'s mut Entry> {
        if self.entries.load(Relaxed) >= MOST_ENTRIES || self.is_closed.load(Relaxed) {
            return None;
        }
        self.entries.fetch_add(1, Relaxed);
        let counts = Arc::clone(self.counts.lock().entry(key.limit.clone()).or_default());
        let serial = self.serials.fetch_add(1, Relaxed);
        self.watch(*place.key(), serial);
        Some(place.insert(Box::new(Entry::new(key, terms, demand, counts, serial, now))))
    }

    fn remove(&self, shard: &mut Shard, hash: u64) -> Option<Box<Entry>> {
        let entry = shard.entries.remove(&hash)?;
        self.entries.fetch_sub(1, Relaxed);
        Some(entry)
    }

    /// What an entry has to send now.
    fn call_of(&self, entry: &mut Entry, hash: u64, now: Timestamp) -> Option<EntryCall> {
        let may_draw = entry.policy == self.policies.load(Relaxed);
        let call = entry.next_call(&*self.store, may_draw, now)?;
        Some(EntryCall { hash, serial: entry.serial, call })
    }

    /// A draw of nothing, if units are owed and no request is likely to draw soon.
    fn charge_owed(&self, entry: &mut Entry, hash: u64, now: Timestamp) -> Option<EntryCall> {
        if !entry.lease.owes() {
            return None;
        }
        let call = entry.single_draw(&*self.store, 0, now)?;
        Some(EntryCall { hash, serial: entry.serial, call })
    }
}

/// Units that are left when the last engine goes are returned, if there is still a runtime.
impl Drop for Leases {
    fn drop(&mut self) {
        let store = Arc::clone(&self.store);
        let returns = self.close_all();
        if !returns.is_empty() {
            self.store.spawn(Box::pin(async move {
                join_all(returns.into_iter().map(|call| store.give_back(call))).await;
            }));
        }
    }
}

/// Waits for all of them at once.
async fn join_all<T>(all: impl Iterator<Item = Later<'static, T>>) {
    let mut waiting: Vec<Later<'static, T>> = all.collect();
    std::future::poll_fn(|cx| {
        waiting.retain_mut(|one| one.as_mut().poll(cx).is_pending());
        if waiting.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
