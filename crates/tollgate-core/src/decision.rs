//! What a rule answers.

use crate::Nanos;

/// Whether a request may pass.
///
/// ```
/// use tollgate_core::{Algorithm, Nanos, Outcome, Rate, Retry, Tat, Timestamp, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_second(10)?, 2)?;
/// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
/// assert_eq!(rule.decide(&mut key, 2, now).outcome, Outcome::ALLOW);
/// let retry = Retry::After(Nanos::new(100_000_000)); // when the next token comes
/// assert_eq!(rule.test(&key, 1, now), Outcome::Deny { retry });
/// assert_eq!(rule.test(&key, 3, now), Outcome::NEVER); // the bucket holds 2
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
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
    ///
    /// ```
    /// use tollgate_core::{Nanos, Outcome};
    ///
    /// assert_eq!(Outcome::ALLOW, Outcome::Allow { delay: Nanos::ZERO });
    /// ```
    pub const ALLOW: Self = Self::Allow { delay: Nanos::ZERO };

    /// Denied, and no wait would help.
    ///
    /// ```
    /// use tollgate_core::{Outcome, Retry};
    ///
    /// assert_eq!(Outcome::NEVER, Outcome::Deny { retry: Retry::Never });
    /// ```
    pub const NEVER: Self = Self::Deny { retry: Retry::Never };

    /// Denied for `wait`.
    #[inline]
    pub(crate) const fn deny_for(wait: Nanos) -> Self {
        Self::Deny { retry: Retry::After(wait) }
    }

    /// Whether the request may pass, now or after its delay. However long the delay, it is allowed.
    ///
    /// ```
    /// use tollgate_core::{Nanos, Outcome};
    ///
    /// assert!(Outcome::Allow { delay: Nanos::new(5) }.is_allowed()); // but hold it for 5 ns
    /// assert!(!Outcome::NEVER.is_allowed());
    /// ```
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }

    /// How long a denied request should wait, where that is known: what a `Retry-After` header says, in
    /// whole seconds ([`Nanos::as_secs_ceil`]). None when allowed, and when waiting a known time would not
    /// help.
    ///
    /// ```
    /// use tollgate_core::{Nanos, Outcome, Retry};
    ///
    /// let denied = |retry| Outcome::Deny { retry };
    /// assert_eq!(denied(Retry::After(Nanos::new(5))).retry_after(), Some(Nanos::new(5)));
    /// assert_eq!(denied(Retry::Unknown).retry_after(), None);
    /// assert_eq!(Outcome::NEVER.retry_after(), None);
    /// assert_eq!(Outcome::ALLOW.retry_after(), None);
    /// ```
    pub const fn retry_after(&self) -> Option<Nanos> {
        match self {
            Self::Deny { retry: Retry::After(wait) } => Some(*wait),
            _ => None,
        }
    }

    /// How long to hold a request that is allowed before letting it go. Zero unless the rule holds requests back, and
    /// for one that is denied.
    ///
    /// ```
    /// use tollgate_core::{Algorithm, LeakyBucket, Nanos, Rate, Tat, Timestamp};
    ///
    /// let (rule, mut key) = (LeakyBucket::new(Rate::per_second(1)?, 5)?, Tat::default());
    /// let mut ask = || rule.decide(&mut key, 1, Timestamp::from_nanos(0)).delay();
    /// assert_eq!([ask(), ask(), ask()], [0, 1, 2].map(|s| Nanos::new(s * 1_000_000_000)));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn delay(&self) -> Nanos {
        match self {
            Self::Allow { delay } => *delay,
            Self::Deny { .. } => Nanos::ZERO,
        }
    }
}

/// The smallest wait after which the same request would pass, if nobody else spends meanwhile.
///
/// Over HTTP all three are a 429: `After` with a `Retry-After`, `Unknown` without one, `Never` without one and
/// not worth sending again. Ordered by how bad the news is, so that the largest of several is the answer to
/// all of them.
///
/// ```
/// use tollgate_core::{Nanos, Retry};
///
/// assert!(Retry::After(Nanos::new(u64::MAX)) < Retry::Unknown);
/// assert_eq!(Retry::Unknown.max(Retry::Never), Retry::Never);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Retry {
    /// Exactly this long: a nanosecond earlier it is still denied.
    After(Nanos),
    /// Nobody knows: it depends on somebody giving a permit back, or on room in a table that is full.
    Unknown,
    /// The cost is more than the limit can ever hold.
    Never,
}

/// A key's state in numbers a caller can show.
///
/// An unused key has all of the capacity remaining, and no time until it is unused. The default is what a
/// [`Decision`] says before it is made: nothing remains.
///
/// ```
/// use tollgate_core::{Algorithm, Nanos, Rate, Status, Tat, Timestamp, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
/// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
/// assert_eq!(rule.status(&key, now), Status { remaining: 10, reset_after: Nanos::ZERO });
/// rule.spend(&mut key, 4, now);
/// assert_eq!(rule.status(&key, now), Status { remaining: 6, reset_after: Nanos::new(800_000_000) });
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Status {
    /// How many requests of cost 1 would still pass at this instant. Rounded down.
    pub remaining: u64,
    /// How long until the key is as if it had never been used. Rounded up.
    pub reset_after: Nanos,
}

/// The answer of one limit: the outcome, and the key's status after it.
///
/// ```
/// use tollgate_core::{Algorithm, Nanos, Rate, Tat, Timestamp, TokenBucket};
///
/// let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
/// let (mut key, now) = (Tat::default(), Timestamp::from_nanos(0));
/// assert_eq!(rule.decide(&mut key, 7, now).status.remaining, 3);
/// let denied = rule.decide(&mut key, 4, now);
/// assert_eq!(denied.outcome.retry_after(), Some(Nanos::new(200_000_000))); // a token is missing
/// assert_eq!(denied.status.remaining, 3); // a request of 3 would pass
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not go ahead"]
pub struct Decision {
    /// Whether the request may pass.
    pub outcome: Outcome,
    /// The key after the charge if it passed, unchanged if it did not.
    pub status: Status,
}

impl Decision {
    /// Whether the request may pass, now or after its delay. Not by default: nobody has decided.
    ///
    /// ```
    /// use tollgate_core::{Decision, Outcome};
    ///
    /// assert!(!Decision::default().is_allowed());
    /// assert!(Decision { outcome: Outcome::ALLOW, ..Decision::default() }.is_allowed());
    /// ```
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    /// [`Outcome::retry_after`].
    #[inline]
    pub const fn retry_after(&self) -> Option<Nanos> {
        self.outcome.retry_after()
    }

    /// [`Outcome::delay`].
    #[inline]
    pub const fn delay(&self) -> Nanos {
        self.outcome.delay()
    }
}

/// An undecided place, for callers that make room for decisions on the stack.
impl Default for Decision {
    fn default() -> Self {
        Self { outcome: Outcome::Deny { retry: Retry::Unknown }, status: Status::default() }
    }
}
