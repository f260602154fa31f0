//! Where states are kept that several processes share.
//!
//! What one process keeps is in its own table, which answers at once and needs none of this. What is kept elsewhere
//! answers later, or not at all.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::{Decision, Nanos, Rule, Verdict};

/// A store outside this process: it keeps the states of keys and replaces them, all of a request or none, at one instant
/// of a clock that all who share it have. It holds no opinion on the rules.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Decides a request. `is_denied` says that it is denied whatever the store says, which then charges only what counts
    /// denied requests, too.
    fn decide<'a>(&'a self, asks: &'a [Ask<'_>], is_denied: bool) -> Later<'a, Decided>;

    /// Gives permits back: whether all were still held.
    fn release<'a>(&'a self, permits: &'a [StoredPermit]) -> Later<'a, bool>;

    /// Gives permits back without anybody waiting for it. Where that fails, their leases end them.
    fn release_later(&self, permits: Vec<StoredPermit>);

    /// Forgets the key of an ask: whether it was remembered.
    fn forget<'a>(&'a self, ask: &'a Ask<'_>) -> Later<'a, bool>;

    /// Refuses a rule whose states it cannot keep, and says why.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and what would be right.
    fn require(&self, rule: &Rule) -> Result<(), String>;

    /// How many processes share it, as far as is known: each has its share when the store is gone.
    fn nodes(&self) -> u32;
}

/// An answer that comes later.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = Result<T, Unavailable>> + Send + 'a>>;

/// What is asked of one limit.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The limit's name, or what stands for it.
    pub limit: Cow<'a, str>,
    /// The values of its key, part by part.
    pub key: SmallVec<[&'a [u8]; 2]>,
    /// What all keys of a request have in common, so that a cluster keeps them together. Empty where there is nothing.
    pub tag: &'a [u8],
    /// The rule to decide by.
    pub rule: Rule,
    /// How fast its rate goes for now.
    pub pace: Pace,
    /// What it costs: 0 looks.
    pub cost: u64,
    /// What is done for it.
    pub does: Does,
    /// With whom it is decided.
    pub part: Part,
    /// Whether the key has one set of numbers at a time. If other numbers charged it last, a denial converts its state to the
    /// numbers of this request. From then on the key refills by them.
    pub has_one_tier: bool,
    /// Whether the limit is 0, so that the request is denied without asking its rule. The request is charged only if denied
    /// requests count or if it is charged in full.
    pub is_blocked: bool,
}

/// What is done for a request. Everything except `ChargeInFull` is done only if the request passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It is charged. A concurrency limit is only looked at.
    Charge,
    /// It is charged, and holds a place of a concurrency limit.
    Hold,
    /// Its whole cost is charged in any case, also where the request is denied or goes beyond the limit. Cost 0 is denied
    /// while the key is above its limit. A concurrency limit is only looked at.
    ChargeInFull,
    /// Its cost, which was charged before, is given back.
    Refund,
    /// Nothing: it is only looked at what it would be told.
    Preview,
}

/// With whom a limit decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of these must let the request pass.
    All,
    /// Of these one must, and those that do are charged.
    OneOf,
    /// Nobody: it decides for itself alone.
    Alone,
}

/// What a store has decided.
#[derive(Clone, Debug)]
pub struct Decided {
    /// Who did.
    pub source: Source,
    /// What the limits come to that do not decide alone. They are counted in the order they were asked in, without those
    /// that do.
    pub verdict: Verdict,
    /// What each limit says, in the order they were asked in.
    pub each: SmallVec<[Seen; 8]>,
    /// The places that are held now.
    pub permits: Vec<StoredPermit>,
}

/// What one limit says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The outcome, and how the key stands after it.
    pub decision: Decision,
    /// How long until more can be had than remains, if that is known.
    pub more_after: Option<Nanos>,
    /// Whether it was asked: not where another denies, and that was known before.
    pub is_known: bool,
}

/// A place in a concurrency limit that a store keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPermit {
    /// The store's own name of the key.
    pub key: Vec<u8>,
    /// Of this permit and no other.
    pub id: Vec<u8>,
}

/// Who decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The table in this process.
    #[default]
    Memory,
    /// The store that several processes share.
    Store,
    /// What is known of a denial that the store told a moment ago.
    DeniedCache,
    /// What the policy says for when the store gives no answer.
    Fallback,
}

impl Source {
    /// As answers tell it.
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
    /// For how long it has not given any.
    pub out_for: Duration,
    /// The time until the store is tried again.
    pub retry_after: Duration,
}
