//! What a rule answers.

use crate::Nanos;

/// Whether a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not go ahead"]
pub enum Outcome {
    /// It may, after `delay`. Zero unless the rule holds requests back.
    Allow {
        /// How long to hold the request before letting it go.
        delay: Nanos,
    },
    /// It may not.
    Deny {
        /// When asking again would help.
        retry: Retry,
    },
}

impl Outcome {
    /// Allowed at once.
    pub const ALLOW: Self = Self::Allow { delay: Nanos::ZERO };

    /// Denied, and no wait would help.
    pub const NEVER: Self = Self::Deny { retry: Retry::Never };

    /// Denied for `wait`.
    #[inline]
    pub(crate) const fn deny_for(wait: Nanos) -> Self {
        Self::Deny { retry: Retry::After(wait) }
    }

    /// Whether the request may pass, now or after its delay.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }

    /// How long a denied request should wait, where that is known: what a `Retry-After` header says, in
    /// whole seconds ([`Nanos::as_secs_ceil`]). None when allowed, and when waiting a known time would not
    /// help.
    pub const fn retry_after(&self) -> Option<Nanos> {
        match self {
            Self::Deny { retry: Retry::After(wait) } => Some(*wait),
            _ => None,
        }
    }
}

/// The smallest wait after which the same request would pass, if nobody else spends meanwhile.
///
/// Over HTTP all three are a 429: `After` with a `Retry-After`, `Unknown` without one, `Never` without one and
/// not worth sending again. Ordered by how bad the news is, so that the largest of several is the answer to
/// all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// Exactly this long: a nanosecond earlier it is still denied.
    After(Nanos),
    /// It depends on somebody giving a permit back.
    Unknown,
    /// The cost is more than the limit can ever hold.
    Never,
}

/// A key's state in numbers a caller can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// How many requests of cost 1 would still pass at this instant. Rounded down.
    pub remaining: u64,
    /// How long until the key is as if it had never been used. Rounded up.
    pub reset_after: Nanos,
}

/// The answer of one limit: the outcome, and the key's status after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not go ahead"]
pub struct Decision {
    /// Whether the request may pass.
    pub outcome: Outcome,
    /// The key after the charge if it passed, unchanged if it did not.
    pub status: Status,
}

impl Decision {
    /// Whether the request may pass, now or after its delay.
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }
}

/// An undecided place, for callers that make room for decisions on the stack.
impl Default for Decision {
    fn default() -> Self {
        Self { outcome: Outcome::Deny { retry: Retry::Unknown }, status: Status::default() }
    }
}
