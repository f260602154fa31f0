//! The store that several processes share: how it is opened, and what it tells of itself.

use std::sync::Arc;
use std::time::Duration;

use tollgate_policy::{Policy, Store, StoreSettings};

/// A store that tells how it is.
pub(crate) trait Health: Store {
    /// The servers it is kept on, one or several.
    fn shards(&self) -> Vec<ShardHealth>;
}

/// How one server of a store is.
#[derive(Clone, Debug)]
pub(crate) struct ShardHealth {
    pub(crate) address: String,
    pub(crate) breaker: Breaker,
    pub(crate) since: Duration, // for how long the breaker has been so
    pub(crate) calls: u64,
    pub(crate) errors: Vec<(&'static str, u64)>, // by their kind
    pub(crate) reconnects: u64,
}

/// Whether a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "told by stores, of which the tests have one"))]
pub(crate) enum Breaker {
    /// It is.
    Closed,
    /// Now and then, to see whether it is back.
    HalfOpen,
    /// It is not.
    Open,
}

impl Breaker {
    /// As it is told.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }

    /// Whether the server answers, as far as is known.
    pub(crate) fn is_up(self) -> bool {
        self == Self::Closed
    }
}

/// Opens the store that the policy asks for: none for one that keeps states in this process. What it could not do is told
/// in words.
pub(crate) async fn open(policy: &Policy) -> Result<Option<Arc<dyn Health>>, String> {
    match &policy.store {
        StoreSettings::Memory(_) => Ok(None),
        StoreSettings::Redis(redis) => Err(format!(
            "store: redis at {}: this build knows no store but `store: memory`",
            redis.urls.join(", ")
        )),
    }
}

#[cfg(test)]
mod slow;
#[cfg(test)]
mod tests;
