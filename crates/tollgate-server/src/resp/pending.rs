//! The bytes that connections keep: requests that are not whole yet, and answers that are not read yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes that all connections keep together.
const MOST: usize = 64 << 20;

/// The bytes of all connections.
#[derive(Debug, Default)]
pub(super) struct PendingBytes(AtomicUsize);

/// The bytes of one connection.
#[derive(Debug)]
pub(super) struct Pending {
    all: Arc<PendingBytes>,
    bytes: usize,
}

impl Pending {
    pub(super) const fn new(all: Arc<PendingBytes>) -> Self {
        Self { all, bytes: 0 }
    }

    /// Counts the bytes that the connection keeps now. False where it keeps more than before, and all connections together keep
    /// too much.
    #[must_use = "a connection for which there is no room is closed"]
    pub(super) fn set(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        // Most connections keep nothing, and do not touch the count that all of them share.
        if bytes > before {
            let grown = bytes - before;
            return self.all.0.fetch_add(grown, Ordering::Relaxed) + grown <= MOST;
        }
        if bytes < before {
            self.all.0.fetch_sub(before - bytes, Ordering::Relaxed);
        }
        true
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_together_keep_no_more_than_the_bound() {
        let all = Arc::new(PendingBytes::default());
        let mut connections: Vec<Pending> = (0..64).map(|_| Pending::new(Arc::clone(&all))).collect();
        assert!(connections.iter_mut().all(|connection| connection.set(1 << 20)));
        let mut one_more = Pending::new(Arc::clone(&all));
        assert!(!one_more.set(1));
        assert!(connections[0].set(1 << 19), "to keep less is always possible");
        drop(one_more);
        assert!(connections[1].set(3 << 19));
        drop(connections);
        assert_eq!(all.0.load(Ordering::Relaxed), 0);
    }
}
