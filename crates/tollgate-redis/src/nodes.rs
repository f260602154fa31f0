//! How many processes share the store: each tells every few seconds that it lives.

use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::store::WeakStore;

/// Where they are counted.
pub(crate) const KEY: &[u8] = b"tollgate:{nodes}";

/// One that has gone is counted for so long: whoever is cut off may still be there.
pub(crate) const COUNTED_FOR: Duration = Duration::from_secs(600);

/// As many are told apart.
pub(crate) const MOST_NODES: u32 = 1024;

/// How often each tells.
const EVERY: Duration = Duration::from_secs(5);

/// Tells, for as long as anybody has the store.
pub(crate) async fn keep_telling(count: Weak<AtomicU32>, store: WeakStore) {
    let mut every = tokio::time::interval(EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first soon: the share of each depends on it.
    let mut wait = Duration::from_millis(100);
    loop {
        tokio::time::sleep(wait).await;
        let (Some(count), Some(store)) = (count.upgrade(), store.upgrade()) else { return };
        if let Ok(nodes) = store.tell_living().await {
            count.store(nodes, Ordering::Relaxed);
            wait = EVERY;
        }
    }
}
