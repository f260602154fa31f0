//! Calls, as the callers of the engine make them.

use super::{Action, Rule};

/// Names and values. No name comes twice.
pub type Attributes = Vec<(String, String)>;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the requests of the engine")]
pub enum Call {
    /// Charges every limit that applies. Concurrency limits do not apply.
    Check { attributes: Attributes, cost: u64 },
    /// Charges every limit that applies, and takes slots of concurrency limits under a permit that is not in use.
    Hold { attributes: Attributes, cost: u64, permit: u64 },
    /// Gives back the slots of a permit, if it has any.
    Release { permit: u64 },
    /// Envoy's descriptors of one request.
    Describe(Vec<Descriptor>),
    /// What a request of this cost would be answered. Writes nothing.
    Explain { attributes: Attributes, cost: u64 },
    /// A charge by a rule that comes with the call.
    Sent { key: String, rule: Rule, cost: u64 },
    /// A charge by a token bucket that comes with the call as redis-cell writes it.
    Cell { key: String, max_burst: u64, count: u64, period_seconds: u64, cost: u64 },
}

/// One descriptor of Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The entries. The domain is [`DOMAIN`](super::Policy::DOMAIN).
    pub attributes: Attributes,
    /// What to do: every action except [`Hold`](Action::Hold) and [`Peek`](Action::Peek).
    pub action: Action,
    /// The cost.
    pub cost: u64,
    /// A limit that replaces all limits of the policy.
    pub sent: Option<SentLimit>,
}

/// A limit that comes with a descriptor: a fixed window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentLimit {
    /// How many pass per window. 0 blocks the descriptor.
    pub limit: u32,
    /// The length of the window.
    pub seconds: u64,
}
