//! What an oracle or a store answers, in plain numbers.

/// How long a denied request must wait until it would be admitted, if nobody else spends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After so many nanoseconds; one nanosecond earlier it would still be denied.
    After(u64),
    /// Some time, but nobody can say when: a holder without a lease has to let go first.
    Unknown,
    /// No wait helps: the request asks for more than the limit ever holds.
    Never,
}

/// The answer of one limit.
///
/// Times and counts beyond `u64` are reported as `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the request may go.
    pub allowed: bool,
    /// Nanoseconds to hold an admitted request; 0 if denied.
    pub delay: u64,
    /// When to come back; `None` when allowed.
    pub retry: Option<Retry>,
    /// Unit-cost requests that would still be admitted now, counted after the decision.
    pub remaining: u64,
    /// Nanoseconds until the key is as unused, counted after the decision.
    pub reset: u64,
}

impl Answer {
    /// Puts a decision (the delay of an admitted request, or the retry of a denied one) together
    /// with the state it left behind.
    pub fn new(decision: Result<u64, Retry>, remaining: u64, reset: u64) -> Self {
        Self {
            allowed: decision.is_ok(),
            delay: decision.unwrap_or(0),
            retry: decision.err(),
            remaining,
            reset,
        }
    }
}

/// The answer to one request that several limits apply to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether every limit admitted it; only then was any of them charged.
    pub allowed: bool,
    /// The largest delay of the limits; 0 if denied.
    pub delay: u64,
    /// The largest retry among the limits that deny; `None` when allowed.
    pub retry: Option<Retry>,
    /// The smallest remaining of the limits.
    pub remaining: u64,
    /// Index of the limit that explains the answer.
    pub reported: usize,
    /// Every limit's own answer. In a denied request a limit that would have admitted it says
    /// `allowed` with its unchanged state.
    pub answers: Vec<Answer>,
}
