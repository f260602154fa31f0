//! The store that several processes share: how it is opened, and what it tells of itself.

use std::sync::Arc;
use std::time::Duration;

use tollgate_policy::{Policy, Store, StoreSettings, StoredPermit};
use tollgate_redis::{BreakerState, RedisStore};

/// A store that tells how it is, and what is its own.
pub(crate) trait Health: Store {
    /// The servers it is kept on, one or several.
    fn shards(&self) -> Vec<ShardHealth>;

    /// Whether it may have given a permit that a caller brings back.
    fn may_have_given(&self, permit: &StoredPermit) -> bool;
}

/// How one server of a store is.
#[derive(Clone, Debug)]
pub(crate) struct ShardHealth {
    pub(crate) name: String,    // stays the same, also where another server takes over
    pub(crate) address: String, // where its primary is
    pub(crate) breaker: Breaker,
    pub(crate) since: Duration,        // for how long the breaker has been so
    pub(crate) reason: Option<String>, // why it is open
    pub(crate) calls: u64,
    pub(crate) errors: Vec<(&'static str, u64)>, // by their kind
    pub(crate) reconnects: u64,
}

/// Whether a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breaker {
    /// It is.
    Closed,
    /// It is, since it is back, and nobody has heard of it yet.
    HalfOpen,
    /// It is not.
    Open,
}

impl Breaker {
    /// What it means for the server, as it is told.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "in use",
            Self::HalfOpen => "tried again",
            Self::Open => "unreachable",
        }
    }

    /// Whether the server answers, as far as is known.
    pub(crate) fn is_up(self) -> bool {
        self != Self::Open
    }
}

/// Opens the store that the policy asks for: none for one that keeps states in this process. What it could not do is told
/// in words.
pub(crate) async fn open(policy: &Policy) -> Result<Option<Arc<dyn Health>>, String> {
    match &policy.store {
        StoreSettings::Memory(_) => Ok(None),
        StoreSettings::Redis(redis) => {
            let store = RedisStore::open(redis).map_err(|error| error.to_string())?;
            // Whoever asks at once should be answered by the store; but without it, requests are decided too.
            if !store.ready(PATIENCE).await {
                tracing::warn!(
                    "the store cannot be reached yet: until then, `on_error` says what is decided"
                );
            }
            Ok(Some(Arc::new(store)))
        }
    }
}

/// How long the start waits for the store.
const PATIENCE: Duration = Duration::from_secs(1);

impl Health for RedisStore {
    fn shards(&self) -> Vec<ShardHealth> {
        let shard = |shard: tollgate_redis::ShardHealth| ShardHealth {
            breaker: match shard.state {
                BreakerState::Closed => Breaker::Closed,
                BreakerState::HalfOpen => Breaker::HalfOpen,
                BreakerState::Open => Breaker::Open,
            },
            name: shard.name,
            address: shard.address,
            since: shard.lasting,
            reason: shard.reason,
            calls: shard.calls,
            errors: shard.errors.to_vec(),
            reconnects: shard.reconnects,
        };
        self.health().into_iter().map(shard).collect()
    }

    fn may_have_given(&self, permit: &StoredPermit) -> bool {
        tollgate_redis::is_permit(permit)
    }
}

#[cfg(test)]
mod slow;
#[cfg(test)]
mod tests;
