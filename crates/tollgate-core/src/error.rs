//! Why a rule could not be built.

use std::time::Duration;

use crate::Rate;

/// Numbers that make no rule. Each message says what would be right.
///
/// ```
/// use tollgate_core::{Rate, RuleError};
///
/// let refused = Rate::per_second(0).unwrap_err();
/// assert_eq!(refused, RuleError::ZeroRate);
/// assert!(refused.to_string().ends_with("give at least 1 token per period"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// A rate of no tokens.
    #[error("the rate is 0 tokens, so nothing could ever pass; give at least 1 token per period")]
    ZeroRate,
    /// A rate per no time.
    #[error("the rate's period is 0; give a period of at least 1 ns, such as 1 s")]
    ZeroPeriod,
    /// A rate faster than the schedule can hold.
    #[error(
        "the rate of {tokens} tokens per {period:?} is faster than one token a nanosecond and cannot be kept \
         exactly; give at most 1000000000 tokens per second, or count in a larger unit"
    )]
    TooFast {
        /// Tokens asked for.
        tokens: u64,
        /// Per this time.
        period: Duration,
    },
    /// Something that must hold at least one unit holds none.
    #[error("the {what} is 0, so nothing could ever pass; give at least 1")]
    ZeroCapacity {
        /// `burst`, `queue`, `limit`, ...
        what: &'static str,
    },
    /// A `max_wait` under which nobody may wait.
    #[error("the max_waiting is 0, so nobody could wait; give at least 1, or use the bucket alone")]
    ZeroWaiting,
    /// A span of no length.
    #[error("the {what} is 0; give a span of at least 1 ns, such as 60 s")]
    ZeroSpan {
        /// `window`, `lease`, ...
        what: &'static str,
    },
    /// A span longer than the clock can count.
    #[error("the {what} of {span:?} is too long; give at most {most:?} ({} years)", most.as_secs() / 31_557_600)]
    TooLong {
        /// `window`, `lease`, ...
        what: &'static str,
        /// The span given.
        span: Duration,
        /// The longest that would do.
        most: Duration,
    },
    /// A count above what the state can hold.
    #[error("the {what} of {found} is too large; with the other numbers as they are, give at most {most}")]
    TooLarge {
        /// `burst`, `limit`, ...
        what: &'static str,
        /// The number given.
        found: u64,
        /// The largest that would do.
        most: u64,
    },
    /// A window cut into no pieces, into too many, or into pieces shorter than a nanosecond.
    #[error("{found} sub-windows are not possible for this window; give 1 to {most}")]
    Buckets {
        /// The number given.
        found: u32,
        /// The most that would do.
        most: u32,
    },
    /// A peak that is no peak.
    #[error(
        "the peak rate of {peak} is not above the base rate of {base}, so there is nothing to save credits \
         for; give a higher peak"
    )]
    PeakNotAboveBase {
        /// The base rate given.
        base: Rate,
        /// The peak rate given.
        peak: Rate,
    },
    /// A cost no wait could ever pay.
    #[error(
        "a cost of {cost} can never pass: the limit holds {capacity} at most; raise the limit or lower the cost"
    )]
    Unreachable {
        /// The cost asked for.
        cost: u64,
        /// What the limit holds.
        capacity: u64,
    },
    /// Bounds that exclude each other.
    #[error("the smallest limit {min} and the largest {max} leave nothing between; give 1 <= min <= max")]
    Bounds {
        /// The smallest allowed.
        min: u64,
        /// The largest allowed.
        max: u64,
    },
    /// A factor outside its range.
    #[error("the {what} of {found} thousandths is out of range; give {least} to {most} thousandths")]
    Factor {
        /// `floor`, `backoff`, ...
        what: &'static str,
        /// The number given.
        found: u32,
        /// The smallest that would do.
        least: u32,
        /// The largest that would do.
        most: u32,
    },
}

impl RuleError {
    /// Refuses a cost above what a limit can hold.
    pub(crate) fn require(cost: u64, capacity: u64) -> Result<(), Self> {
        if cost > capacity { Err(Self::Unreachable { cost, capacity }) } else { Ok(()) }
    }
}
