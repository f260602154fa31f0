//! How many processes share the store: each tells every few seconds that it lives.

use std::sync::Weak;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

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
    let mut lately = Lately::default();
    // The first soon: the share of each depends on it.
    let mut wait = Duration::from_millis(100);
    loop {
        tokio::time::sleep(wait).await;
        let (Some(count), Some(store)) = (count.upgrade(), store.upgrade()) else { return };
        if let Ok(nodes) = store.tell_living().await {
            count.store(lately.most(nodes, Instant::now()), Ordering::Relaxed);
            wait = EVERY;
        }
    }
}

/// The most that were counted lately. A server that has lost its data begins to count anew, and whoever tells it first would
/// take himself for the only one, and the whole rate for his share.
#[derive(Debug, Default)]
struct Lately(Option<(u32, Instant)>);

impl Lately {
    fn most(&mut self, count: u32, now: Instant) -> u32 {
        match self.0 {
            Some((most, seen)) if count < most && now < seen + COUNTED_FOR => most,
            _ => {
                self.0 = Some((count, now));
                count
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_forgot_the_others_does_not_make_them_fewer() {
        let (mut lately, start) = (Lately::default(), Instant::now());
        for (seconds, counted, expected) in [
            (0, 1, 1),
            (5, 3, 3),
            (10, 3, 3),
            (15, 1, 3), // it was restarted, and this process told it first
            (20, 3, 3),
            (25, 2, 3),
            (619, 2, 3),
            (620, 2, 2), // one has been gone for long
            (625, 4, 4),
        ] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(lately.most(counted, now), expected, "after {seconds} s");
        }
    }
}
