//! A store that several processes share, and the asks that it decides.
//!
//! The table of one process answers at once and needs nothing of this. A store outside the process answers later, or not at all.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::{Action, Decision, Group, Nanos, Rule};

use crate::engine::USUAL_ASKS;

/// A store outside this process. It keeps the states of keys, and replaces those of one request at one instant of a clock that all
/// processes on it share. It decides by the rules of the asks and has none of its own.
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

    /// The number of processes that share the store, as far as it is known. Each has its share of a limit during an outage.
    fn nodes(&self) -> u32;
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
    /// The value that all keys of a request have in common, so that a cluster keeps them in one slot. Empty if there is none.
    pub tag: &'a [u8],
    /// The rule to decide by.
    pub rule: Rule,
    /// The pace of its rate at the moment.
    pub pace: Pace,
    /// The cost. 0 peeks.
    pub cost: u64,
    /// What the request does to the limit.
    pub action: Action,
    /// With which asks it decides.
    pub group: Group,
    /// Whether the request is denied whatever the rule says: the limit is 0, or an attribute of the key is missing.
    pub is_denied: bool,
    /// Whether the key has one set of numbers at a time. If other numbers charged it last, a denial converts its state to the
    /// numbers of this request. From then on the key refills by them.
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
    /// What is known of the key.
    pub knowledge: Knowledge,
}

/// What is known of the key of an ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Knowledge {
    /// The table of this process has it.
    #[default]
    Local,
    /// A store has it.
    Stored {
        /// The time until more can be had than remains, if that is known.
        more_after: Option<Nanos>,
    },
    /// Nothing: another limit denied the request before this one was asked, or the store gave no answer and the policy decides.
    Nothing,
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
    /// A denial of the store that is a moment old.
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
    /// The time for which it has not answered.
    pub out_for: Duration,
    /// The time until the store is tried again.
    pub retry_after: Duration,
}
