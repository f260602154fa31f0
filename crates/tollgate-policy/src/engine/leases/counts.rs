//! What became of the units that were drawn for a limit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts of one limit. They are written by draws and not by decisions.
#[derive(Debug, Default)]
pub(super) struct LeaseCounts {
    draws: AtomicU64,
    drawn: AtomicU64,
    lapsed: AtomicU64,
    returned: AtomicU64,
    presented: AtomicU64,
}

impl LeaseCounts {
    pub(super) fn add_draw(&self, presents_mark: bool) {
        self.draws.fetch_add(1, Relaxed);
        self.presented.fetch_add(presents_mark.into(), Relaxed);
    }

    pub(super) fn add_drawn(&self, units: u64) {
        self.drawn.fetch_add(units, Relaxed);
    }

    pub(super) fn add_lapsed(&self, units: u64) {
        self.lapsed.fetch_add(units, Relaxed);
    }

    pub(super) fn add_returned(&self, units: u64) {
        self.returned.fetch_add(units, Relaxed);
    }

    pub(super) fn stats(&self, limit: &str) -> LeaseStats {
        LeaseStats {
            limit: limit.to_owned(),
            draws: self.draws.load(Relaxed),
            drawn: self.drawn.load(Relaxed),
            lapsed: self.lapsed.load(Relaxed),
            returned: self.returned.load(Relaxed),
            presented: self.presented.load(Relaxed),
            keys: 0,
            held: 0,
            most_excess: 0,
        }
    }
}

/// The leases of one limit, in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// The name of the limit.
    pub limit: String,
    /// Draws that were sent.
    pub draws: u64,
    /// Units that the store granted.
    pub drawn: u64,
    /// Units that were granted, and were neither spent nor returned in time.
    pub lapsed: u64,
    /// Units that were returned.
    pub returned: u64,
    /// Draws that showed the store what it may have forgotten.
    pub presented: u64,
    /// Keys that grants are drawn of now.
    pub keys: u64,
    /// Units that are held now.
    pub held: u64,
    /// The most units by which all processes together can exceed the limit in any span of time. In total they never exceed it.
    pub most_excess: u64,
}
