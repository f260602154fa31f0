//! Moments, and the spans between them.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

/// A moment: nanoseconds since the zero of whatever clock the caller reads.
///
/// The clock should be monotonic. One that steps back mints nothing, but a bucket that was used waits until
/// it has caught up; windows go on at the newest moment they saw. With an `Instant` taken when the process
/// starts, `Timestamp::from_nanos(start.elapsed().as_nanos() as u64)` is all it takes.
///
/// The core never asks what the zero is. Rules whose windows are aligned to the wall clock are told
/// once how far this zero lies from the Unix epoch ([`crate::FixedWindow::started_at`]).
///
/// ```
/// use tollgate_core::{Nanos, Timestamp};
///
/// let (first, second) = (Timestamp::from_nanos(5), Timestamp::from_nanos(8));
/// assert!(first < second);
/// assert_eq!(second.since(first), Nanos::new(3));
/// assert_eq!(Timestamp::default(), Timestamp::from_nanos(0)); // the clock's zero
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `nanos` nanoseconds after the clock's zero.
    ///
    /// ```
    /// use tollgate_core::Timestamp;
    ///
    /// let second = Timestamp::from_nanos(1_000_000_000);
    /// assert!(second > Timestamp::default());
    /// ```
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's zero.
    ///
    /// ```
    /// use tollgate_core::Timestamp;
    ///
    /// assert_eq!(Timestamp::from_nanos(5).as_nanos(), 5);
    /// assert_eq!(Timestamp::default().as_nanos(), 0);
    /// ```
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `span` later; the end of time (584 years) if it lies beyond.
    ///
    /// ```
    /// use tollgate_core::{Nanos, Timestamp};
    ///
    /// assert_eq!(Timestamp::from_nanos(5).after(Nanos::new(3)), Timestamp::from_nanos(8));
    /// let end = Timestamp::from_nanos(u64::MAX);
    /// assert_eq!(end.after(Nanos::new(1)), end);
    /// ```
    #[inline]
    pub const fn after(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// How long after `earlier` this is; zero if it is not after.
    ///
    /// ```
    /// use tollgate_core::{Nanos, Timestamp};
    ///
    /// let (first, second) = (Timestamp::from_nanos(5), Timestamp::from_nanos(8));
    /// assert_eq!(second.since(first), Nanos::new(3));
    /// assert_eq!(first.since(second), Nanos::ZERO); // a clock that stepped back
    /// ```
    #[inline]
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A span in whole nanoseconds, up to 584 years.
///
/// What decisions answer with: a [`Duration`] that fits one word. Making two Durations, each split into
/// seconds and a rest, would take a fifth of the instructions of a token bucket's decision. It compares
/// with Durations, turns into them, and prints like them.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::Nanos;
///
/// let wait = Nanos::new(1_500_000_000);
/// assert_eq!(wait, Duration::from_millis(1500));
/// assert_eq!(Duration::from(wait).as_millis(), 1500);
/// assert_eq!(wait.to_string(), "1.5s");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(u64);

impl Nanos {
    /// No time at all.
    ///
    /// ```
    /// use tollgate_core::Nanos;
    ///
    /// assert_eq!(Nanos::ZERO, Nanos::default());
    /// ```
    pub const ZERO: Self = Self(0);

    /// So many nanoseconds.
    ///
    /// ```
    /// use tollgate_core::Nanos;
    ///
    /// assert_eq!(Nanos::new(2_000_000).to_string(), "2ms");
    /// ```
    #[inline]
    pub const fn new(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A Duration, cut off at 584 years.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::Nanos;
    ///
    /// assert_eq!(Nanos::saturating_from(Duration::from_micros(3)), Nanos::new(3000));
    /// assert_eq!(Nanos::saturating_from(Duration::MAX), Nanos::new(u64::MAX));
    /// ```
    pub fn saturating_from(span: Duration) -> Self {
        Self(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The number of nanoseconds.
    ///
    /// ```
    /// use tollgate_core::Nanos;
    ///
    /// assert_eq!(Nanos::new(3).get(), 3);
    /// ```
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whether it is no time at all.
    ///
    /// ```
    /// use tollgate_core::Nanos;
    ///
    /// assert!(Nanos::new(0).is_zero());
    /// assert!(!Nanos::new(1).is_zero());
    /// ```
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whole seconds, rounded up: what a `Retry-After` header may say. Zero for no time at all only.
    ///
    /// ```
    /// use tollgate_core::Nanos;
    ///
    /// assert_eq!(Nanos::new(1_000_000_000).as_secs_ceil(), 1);
    /// assert_eq!(Nanos::new(1_000_000_001).as_secs_ceil(), 2);
    /// assert_eq!([Nanos::ZERO, Nanos::new(1)].map(Nanos::as_secs_ceil), [0, 1]);
    /// ```
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        Self::from_nanos(span.0)
    }
}

impl PartialEq<Duration> for Nanos {
    fn eq(&self, other: &Duration) -> bool {
        Duration::from(*self) == *other
    }
}

impl PartialEq<Nanos> for Duration {
    fn eq(&self, other: &Nanos) -> bool {
        *self == Self::from(*other)
    }
}

impl PartialOrd<Duration> for Nanos {
    fn partial_cmp(&self, other: &Duration) -> Option<Ordering> {
        Duration::from(*self).partial_cmp(other)
    }
}

impl PartialOrd<Nanos> for Duration {
    fn partial_cmp(&self, other: &Nanos) -> Option<Ordering> {
        self.partial_cmp(&Self::from(*other))
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration::from(*self).fmt(f)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
