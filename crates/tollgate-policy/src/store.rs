//! The trait of a store that several processes share, and the asks that it decides.
//!
//! The table of this process does not implement the trait, because it answers at once. A store outside the process answers later,
//! or not at all.

mod lease;

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::{Action, Decision, Group, Nanos, Rule};

use crate::engine::USUAL_ASKS;

pub use self::lease::{DrawCall, Drawn, LeaseStore, LeasedKey, PrimaryId, ReturnCall};

/// A store outside this process. It keeps the states of keys, and changes all states of one request atomically, by one clock for
/// all processes. It decides by the rules of the asks and has no rules of its own.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Decides the asks of one request, by their groups and actions: one decision per ask, in order.
    ///
    /// A caller may drop the future while it waits. The store then releases the permits that the request holds.
    fn decide<'a>(&'a self, asks: &'a [Ask<'_>]) -> Later<'a, Result<Decisions, Unavailable>>;

    /// Releases permits. Returns whether all of them were still held.
    fn release<'a>(&'a self, permits: &'a [StoredPermit]) -> Later<'a, Result<bool, Unavailable>>;

    /// Releases permits in the background. If that fails, their leases end them.
    fn release_later(&self, permits: Vec<StoredPermit>);

    /// Forgets the key of an ask. Returns whether the store had it.
    fn forget<'a>(&'a self, ask: &'a Ask<'_>) -> Later<'a, Result<bool, Unavailable>>;

    /// Refuses a rule whose states it cannot keep.
    ///
    /// # Errors
    ///
    /// What is wrong with the rule, and what would be right.
    fn require(&self, rule: &Rule) -> Result<(), String>;

    /// The number of processes that share the store, as far as the store knows. Limits are divided by it during an outage.
    fn nodes(&self) -> u32;

    /// What leases need. None for a store that nodes cannot draw grants from.
    fn leases(self: Arc<Self>) -> Option<Arc<dyn LeaseStore>> {
        None
    }
}

/// An answer that has to be waited for.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a request asks of one limit.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The name of the limit. A rule that was sent with a call has a name that begins with `*`.
    pub limit: Cow<'a, str>,
    /// The values of its key, part by part.
    pub key: SmallVec<[&'a [u8]; 2]>,
    /// The hash tag: a value that the keys of a request share, so that a cluster keeps them in one hash slot. Empty if there is
    /// none.
    pub tag: &'a [u8],
    /// The rule to decide by.
    pub rule: Rule,
    /// The current multiplier of its rate (`adaptive_rates`).
    pub pace: Pace,
    /// The cost. 0 peeks, except with [`Action::ChargeInFull`].
    pub cost: u64,
    /// What the request does to the limit.
    pub action: Action,
    /// The group that it decides in.
    pub group: Group,
    /// Whether the request is denied whatever the rule says: the limit is 0, or an attribute of the key is missing.
    pub is_denied: bool,
    /// Whether all requests of a key have the same numbers at any time. Then a denial, too, converts a state that was written by
    /// other numbers. From then on, the key refills by the numbers of this ask.
    pub has_one_tier: bool,
}

/// The decisions of a store.
#[derive(Clone, Debug)]
pub struct Decisions {
    /// Where they come from.
    pub source: Source,
    /// The decision of each ask, in order.
    pub each: LimitDecisions,
    /// The permits that are held now.
    pub permits: Vec<StoredPermit>,
}

/// The decisions of most requests, without an allocation.
pub type LimitDecisions = SmallVec<[LimitDecision; USUAL_ASKS]>;

/// The decision of one ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitDecision {
    /// The outcome, and the status of the key after it.
    pub decision: Decision,
    /// Where the state of the key is, if it is known.
    pub key_state: KeyState,
}

/// Where the state of a key is, if it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyState {
    /// In the table of this process.
    #[default]
    Local,
    /// In a store.
    Stored {
        /// The time until more than `remaining` can pass, if it is known.
        more_after: Option<Nanos>,
    },
    /// Unknown. Either a cached denial of another limit denied the request, so the store was not asked about this one. Or the
    /// store gave no answer, and `on_error: allow` or `on_error: deny` decided.
    Unknown,
}

/// A slot of a concurrency limit that a store keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPermit {
    /// The store's own name of the key.
    pub key: Vec<u8>,
    /// The ID of this permit.
    pub id: Vec<u8>,
}

/// Where decisions come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The table of this process.
    #[default]
    Memory,
    /// The store that several processes share.
    Store,
    /// Grants that this process has drawn from the store.
    Lease,
    /// A recent denial of the store, repeated without a call.
    DeniedCache,
    /// `on_error` of the policy, because the store gave no answer.
    Fallback,
}

impl Source {
    /// The name in replies and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Store => "store",
            Self::Lease => "lease",
            Self::DeniedCache => "denied_cache",
            Self::Fallback => "fallback",
        }
    }
}

/// A store gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the store gave no answer: {why}")]
pub struct Unavailable {
    /// Why.
    pub why: String,
    /// How long the store has given no answer. 0 if only this call failed.
    pub out_for: Duration,
    /// The time until the store is tried again.
    pub retry_after: Duration,
}
