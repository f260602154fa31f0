//! What the three controllers share: the limit they move and what they see.

use std::time::Duration;

use crate::{RuleError, Timestamp};

/// A request that has ended, or a window of them summed up.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::adaptive::Sample;
///
/// let quick = Sample { rtt: Duration::from_millis(10), in_flight: 8, dropped: false };
/// let refused = Sample { dropped: true, ..quick };
/// assert_ne!(quick, refused);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// How long it took. At least 1 ns is assumed.
    pub rtt: Duration,
    /// How many were in flight with it, itself included.
    pub in_flight: u64,
    /// It was refused or timed out by the upstream for want of capacity.
    pub dropped: bool,
}

/// Finds how many requests may be in flight. The limit never leaves its [`Bounds`], whatever is observed.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::adaptive::{Aimd, Bounds, Controller, Gradient2, Sample, Vegas};
///
/// let (bounds, rtt) = (Bounds::new(1, 100)?, Duration::from_millis(10));
/// let controllers: [Box<dyn Controller>; 3] = [
///     Box::new(Aimd::new(20, bounds, 900, Duration::from_secs(5))?),
///     Box::new(Vegas::new(20, bounds, 1)),
///     Box::new(Gradient2::new(20, bounds)),
/// ];
/// let limits = controllers.map(|mut controller| {
///     (0..3).for_each(|_| controller.observe(Sample { rtt, in_flight: 20, dropped: false }));
///     controller.limit()
/// });
/// assert_eq!(limits, [23, 32, 22]); // none has seen a queue
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
pub trait Controller {
    /// Learns from a request that has ended. With less than half the limit in flight the limit does not grow.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::adaptive::{Aimd, Bounds, Controller, Sample};
    ///
    /// let mut aimd = Aimd::new(20, Bounds::new(1, 100)?, 900, Duration::from_secs(5))?;
    /// let rtt = Duration::from_millis(10);
    /// let limits = [9, 10].map(|in_flight| {
    ///     aimd.observe(Sample { rtt, in_flight, dropped: false });
    ///     aimd.limit()
    /// });
    /// assert_eq!(limits, [20, 21]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn observe(&mut self, sample: Sample);

    /// [`observe`](Self::observe) at a time, for a controller that goes by time, too.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::Timestamp;
    /// use tollgate_core::adaptive::{Aimd, Bounds, Controller, Sample};
    ///
    /// let mut aimd = Aimd::new(20, Bounds::new(1, 100)?, 900, Duration::from_secs(5))?;
    /// let sample = Sample { rtt: Duration::from_millis(10), in_flight: 20, dropped: false };
    /// aimd.observe_at(sample, Timestamp::from_nanos(0)); // to which time is nothing
    /// assert_eq!(aimd.limit(), 21);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn observe_at(&mut self, sample: Sample, now: Timestamp) {
        let _ = now;
        self.observe(sample);
    }

    /// How many may be in flight now. At least 1.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Bounds, Controller, Gradient2};
    ///
    /// assert_eq!(Gradient2::new(0, Bounds::new(5, 100)?).limit(), 5); // what is below the bounds is raised
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    fn limit(&self) -> u64;
}

/// Between what a controller may move its limit. Equal bounds hold it still.
///
/// ```
/// use tollgate_core::adaptive::{Bounds, Controller, Vegas};
///
/// let bounds = Bounds::new(10, 100)?;
/// let limits = [1, 50, 500].map(|initial| Vegas::new(initial, bounds, 1).limit());
/// assert_eq!(limits, [10, 50, 100]);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    min: u64,
    max: u64,
}

impl Bounds {
    /// From `min` to `max`, both included. Refuses `min` 0, `min` above `max`, and a `max` above 2^32.
    ///
    /// ```
    /// use tollgate_core::RuleError;
    /// use tollgate_core::adaptive::Bounds;
    ///
    /// assert!(Bounds::new(1, 1 << 32).is_ok());
    /// assert_eq!(Bounds::new(0, 5), Err(RuleError::Bounds { min: 0, max: 5 }));
    /// assert_eq!(Bounds::new(6, 5), Err(RuleError::Bounds { min: 6, max: 5 }));
    /// ```
    pub fn new(min: u64, max: u64) -> Result<Self, RuleError> {
        if min == 0 || min > max {
            return Err(RuleError::Bounds { min, max });
        }
        if max > MOST {
            return Err(RuleError::TooLarge { what: "largest limit", found: max, most: MOST });
        }
        Ok(Self { min, max })
    }
}

const MOST: u64 = 1 << 32;

/// A limit in 1/1024: small steps add up, and a replay gives the same bits everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    units: u64,
    bounds: Bounds,
}

impl Limit {
    pub(super) const UNIT: u64 = 1024;

    pub(super) fn new(initial: u64, bounds: Bounds) -> Self {
        Self { units: initial.clamp(bounds.min, bounds.max) * Self::UNIT, bounds }
    }

    pub(super) const fn units(&self) -> u64 {
        self.units
    }

    pub(super) const fn whole(&self) -> u64 {
        self.units / Self::UNIT
    }

    pub(super) fn set_units(&mut self, units: u64) {
        self.units = units.clamp(self.bounds.min * Self::UNIT, self.bounds.max * Self::UNIT);
    }

    /// Whether so many in flight are enough to learn from: at less than half the limit, it was not
    /// the limit that made the request fast.
    pub(super) const fn is_tried_by(&self, in_flight: u64) -> bool {
        in_flight.saturating_mul(2 * Self::UNIT) >= self.units
    }
}
