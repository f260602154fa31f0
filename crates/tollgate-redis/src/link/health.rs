//! What is told of each shard: its state and what has happened on it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::LinkError;

/// Whether calls are sent to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// They are.
    Closed,
    /// They fail at once. Whether the server is back is found out in the background.
    Open,
    /// They are, but if the next fails too, they fail at once: the server is back and has answered none yet, or has left
    /// the last ones unanswered.
    HalfOpen,
}

impl BreakerState {
    /// A name for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// How a shard does.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardHealth {
    /// What it is called in the log, for as long as it is there: what the sentinels call their primary, and its address
    /// otherwise.
    pub name: String,
    /// Where its primary is, or was last: another place after each failover of sentinels.
    pub address: String,
    /// Whether calls are sent to it.
    pub state: BreakerState,
    /// How long that has been so. (A shard that is half open closes without a new beginning.)
    pub lasting: Duration,
    /// Why they are not.
    pub reason: Option<String>,
    /// Commands sent to it for calls.
    pub calls: u64,
    /// Calls that failed, by kind.
    pub errors: [(&'static str, u64); LinkError::KINDS.len()],
    /// Connections made after the first.
    pub reconnects: u64,
    /// Scripts sent again because the server did not know them.
    pub repairs: u64,
    /// Calls that it sent to another server.
    pub redirects: u64,
}

/// What has happened on a shard.
#[derive(Debug, Default)]
pub(super) struct Counters {
    calls: AtomicU64,
    errors: [AtomicU64; LinkError::KINDS.len()],
    connections: AtomicU64,
    repairs: AtomicU64,
    redirects: AtomicU64,
}

impl Counters {
    pub(super) fn count_call(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    pub(super) fn count_error(&self, error: &LinkError) {
        self.errors[error.index()].fetch_add(1, Relaxed);
    }

    pub(super) fn count_connection(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    pub(super) fn count_repair(&self) {
        self.repairs.fetch_add(1, Relaxed);
    }

    pub(super) fn count_redirect(&self) {
        self.redirects.fetch_add(1, Relaxed);
    }

    pub(super) fn health(
        &self,
        name: String,
        address: String,
        state: BreakerState,
        lasting: Duration,
        reason: Option<String>,
    ) -> ShardHealth {
        let mut errors = LinkError::KINDS.map(|kind| (kind, 0));
        for (told, counted) in errors.iter_mut().zip(&self.errors) {
            told.1 = counted.load(Relaxed);
        }
        ShardHealth {
            name,
            address,
            state,
            lasting,
            reason,
            calls: self.calls.load(Relaxed),
            errors,
            reconnects: self.connections.load(Relaxed).saturating_sub(1),
            repairs: self.repairs.load(Relaxed),
            redirects: self.redirects.load(Relaxed),
        }
    }
}
