//! How fast tokens come.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use crate::divisor::Divisor;
use crate::{Nanos, RuleError};

/// The finest piece of a nanosecond a schedule is kept in, for rates that do not divide evenly.
pub(crate) const FINEST: u64 = 64;

/// A number of tokens per period, such as 100 per minute.
///
/// Kept exactly if the tokens per nanosecond reduce to a fraction with a numerator of at most 64, as nearly
/// all rates that people write do. Otherwise the time between two tokens is rounded up by less than 1/64 ns,
/// so that the rate is never too fast: slow by at most 16 in 10^9 near 1000 a second, by up to 1.6 % near
/// 10^9 a second. (Of bytes, count KiB.)
///
/// Equal means given alike: 60 a minute and 1 a second are as fast, but are not equal.
///
/// ```
/// use tollgate_core::Rate;
///
/// assert_eq!(Rate::per_minute(100)?.to_string(), "100 per 60s");
/// assert_ne!(Rate::per_minute(60)?, Rate::per_second(1)?);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    tokens: u64, // never zero
    period: u64, // nanoseconds; never zero
}

impl Rate {
    /// `tokens` per `period`.
    ///
    /// Refuses zero for either, a period above 146 years, and more than one token a nanosecond unless that
    /// is kept exactly.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Rate, RuleError};
    ///
    /// let (second, nano) = (Duration::from_secs(1), Duration::from_nanos(1));
    /// assert_eq!(Rate::new(0, second), Err(RuleError::ZeroRate));
    /// assert_eq!(Rate::new(1, Duration::ZERO), Err(RuleError::ZeroPeriod));
    /// assert!(Rate::new(64, nano).is_ok()); // a token each 1/64 ns, exactly
    /// assert_eq!(Rate::new(65, nano), Err(RuleError::TooFast { tokens: 65, period: nano }));
    /// ```
    pub fn new(tokens: u64, period: Duration) -> Result<Self, RuleError> {
        if tokens == 0 {
            return Err(RuleError::ZeroRate);
        }
        if period.is_zero() {
            return Err(RuleError::ZeroPeriod);
        }
        if period > MAX_SPAN {
            return Err(RuleError::TooLong { what: "rate's period", span: period, most: MAX_SPAN });
        }
        let rate = Self { tokens, period: Nanos::saturating_from(period).get() };
        rate.interval()?;
        Ok(rate)
    }

    /// `tokens` a second. Refuses 0, and what [`new`](Self::new) finds too fast.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Rate, RuleError};
    ///
    /// assert_eq!(Rate::per_second(5)?, Rate::new(5, Duration::from_secs(1))?);
    /// assert_eq!(Rate::per_second(0), Err(RuleError::ZeroRate));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn per_second(tokens: u64) -> Result<Self, RuleError> {
        Self::new(tokens, Duration::from_secs(1))
    }

    /// `tokens` a minute. Refuses as [`per_second`](Self::per_second) does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::Rate;
    ///
    /// assert_eq!(Rate::per_minute(90)?, Rate::new(90, Duration::from_secs(60))?);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn per_minute(tokens: u64) -> Result<Self, RuleError> {
        Self::new(tokens, Duration::from_secs(60))
    }

    /// `tokens` an hour. Refuses as [`per_second`](Self::per_second) does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::Rate;
    ///
    /// assert_eq!(Rate::per_hour(1000)?, Rate::new(1000, Duration::from_secs(3600))?);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn per_hour(tokens: u64) -> Result<Self, RuleError> {
        Self::new(tokens, Duration::from_secs(3600))
    }

    /// The tokens that come in one period: the burst people mean when they name none. Never 0.
    ///
    /// ```
    /// use tollgate_core::Rate;
    ///
    /// assert_eq!(Rate::per_minute(60)?.tokens(), 60); // as it was given, not reduced to 1 a second
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub const fn tokens(self) -> u64 {
        self.tokens
    }

    /// The period, as it was given. Never zero.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::Rate;
    ///
    /// assert_eq!(Rate::per_minute(60)?.period(), Duration::from_secs(60));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub const fn period(self) -> Duration {
        Duration::from_nanos(self.period)
    }

    /// Whether this rate is faster than `other`.
    pub(crate) fn is_above(self, other: Self) -> bool {
        u128::from(self.tokens) * u128::from(other.period)
            > u128::from(other.tokens) * u128::from(self.period)
    }

    /// The time between two tokens, exact where the schedule can hold it and rounded up where not.
    pub(crate) fn interval(self) -> Result<Interval, RuleError> {
        let divisor = gcd(self.tokens, self.period);
        let (tokens, period) = (self.tokens / divisor, self.period / divisor);
        if tokens <= FINEST {
            return Ok(Interval::new(period, tokens));
        }
        if tokens > period {
            return Err(RuleError::TooFast { tokens: self.tokens, period: self.period() });
        }
        // At most `period`, which fits, since tokens > FINEST.
        let ticks = (u128::from(FINEST) * u128::from(period)).div_ceil(u128::from(tokens)) as u64;
        Ok(Interval::new(ticks, FINEST))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {:?}", self.tokens, self.period())
    }
}

/// The longest span a rule may have: 146 years, so that sums of two still fit the word.
pub(crate) const MAX_SPAN: Duration = Duration::from_nanos(1 << 62);

/// The time between two tokens: `ticks` pieces of a nanosecond cut into `per_nano`.
///
/// 3 a second is one token each 333 333 333⅓ ns. Kept in thirds of a nanosecond that is 10⁹ ticks,
/// exactly, and no error adds up. A rate that would need more than 64 pieces is rounded up to 1/64 ns:
/// at 997 a second slow by 5 in 10⁹, and never fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Interval {
    pub(crate) ticks: Divisor,
    pub(crate) per_nano: Divisor, // 1..=64
}

impl Interval {
    fn new(ticks: u64, per_nano: u64) -> Self {
        let divisor = |n| Divisor::new(NonZeroU64::new(n).expect("a rate has tokens and a period"));
        Self { ticks: divisor(ticks), per_nano: divisor(per_nano) }
    }

    /// Of numbers that may be anybody's.
    pub(crate) fn of(ticks: u64, per_nano: u64) -> Result<Self, RuleError> {
        if ticks == 0 || per_nano == 0 || per_nano > FINEST {
            return Err(RuleError::ZeroSpan { what: "interval" });
        }
        Ok(Self::new(ticks, per_nano))
    }
}

pub(crate) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
