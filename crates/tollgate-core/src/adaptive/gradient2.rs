//! Gradient2: the limit follows how long requests take now against how long they usually take.

use super::limit::{Bounds, Controller, Limit, Sample};
use crate::Nanos;

/// `gradient = clamp(usual / now, 0.5, 1)`; each sample moves the limit a fifth of the way to
/// `limit * gradient + 4`, the 4 being room for a queue in which to find more.
///
/// The usual time is an average over about 600 samples. In the original it drifts up under lasting
/// overload, and the limit creeps back with it. Here it stands still while the gradient is below 0.9,
/// for one length of the average; if times are still that long, they may be the new normal, and it
/// moves again, but to no more than twice what it was when last calm.
///
/// A drop changes nothing: how long a refusal takes says nothing about how long requests do.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::adaptive::{Bounds, Controller, Gradient2, Sample};
///
/// let mut gradient = Gradient2::new(50, Bounds::new(1, 100)?);
/// let mut observe = |ms, dropped| {
///     gradient.observe(Sample { rtt: Duration::from_millis(ms), in_flight: 50, dropped });
///     gradient.limit()
/// };
/// assert_eq!([10; 11].map(|ms| observe(ms, false))[10], 58); // 4/5 more with each
/// assert_eq!(observe(40, true), 58);
/// assert_eq!(observe(40, false), 53); // a fifth of the way to half, and 4
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gradient2 {
    limit: Limit,
    usual: Usual,
}

/// Queueing that is allowed, to find out whether more would pass.
const QUEUE: u128 = 4;
/// The share of the way to the new limit that one sample goes, in tenths.
const SMOOTHING: u128 = 2;
/// Samples in the average.
const LONG: u64 = 600;
/// Samples that are simply averaged at the start.
const WARM_UP: u128 = 10;

impl Gradient2 {
    /// Starts at `initial`, held within `bounds`.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Bounds, Controller, Gradient2};
    ///
    /// assert_eq!(Gradient2::new(500, Bounds::new(1, 100)?).limit(), 100);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(initial: u64, bounds: Bounds) -> Self {
        Self { limit: Limit::new(initial, bounds), usual: Usual::default() }
    }

    /// The limit with its fraction, in 1/1024.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::adaptive::{Bounds, Controller, Gradient2, Sample};
    ///
    /// let mut gradient = Gradient2::new(20, Bounds::new(1, 100)?);
    /// gradient.observe(Sample { rtt: Duration::from_millis(10), in_flight: 20, dropped: false });
    /// assert_eq!((gradient.limit(), gradient.limit_units()), (20, 21_299)); // 20.8
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub const fn limit_units(&self) -> u64 {
        self.limit.units()
    }
}

impl Controller for Gradient2 {
    fn observe(&mut self, sample: Sample) {
        if sample.dropped {
            return; // how long a refusal takes says nothing about how long a request does
        }
        let short = u128::from(Nanos::saturating_from(sample.rtt).get().clamp(1, LONGEST)) * FINE;
        let long = self.usual.learn(short);
        if !self.limit.is_tried_by(sample.in_flight) {
            return;
        }
        let limit = u128::from(self.limit.units());
        let by_gradient = (limit * long / short).clamp(limit / 2, limit);
        let target = by_gradient + QUEUE * u128::from(Limit::UNIT);
        let next = ((10 - SMOOTHING) * limit + SMOOTHING * target) / 10;
        self.limit.set_units(u64::try_from(next).unwrap_or(u64::MAX));
    }

    fn limit(&self) -> u64 {
        self.limit.whole()
    }
}

/// Times are averaged in pieces of a nanosecond.
const FINE: u128 = 1024;
/// No request is taken to last longer, so that products fit: 36 years.
const LONGEST: u64 = 1 << 60;

/// How long requests usually take.
#[derive(Clone, Debug, Default)]
struct Usual {
    average: u128,
    calm: u128,    // the average when the gradient was last 0.9 or more
    warmed: u128,  // samples seen, up to WARM_UP
    slow_for: u64, // samples in a row with a gradient below 0.9
}

impl Usual {
    /// Takes in a sample and returns the average after it.
    fn learn(&mut self, sample: u128) -> u128 {
        if self.warmed < WARM_UP {
            self.average = (self.average * self.warmed + sample) / (self.warmed + 1);
            self.warmed += 1;
            self.calm = self.average;
        } else if 10 * self.average < 9 * sample {
            self.slow_for += 1;
            if self.slow_for > LONG {
                self.average = self.towards(sample).min(2 * self.calm);
                if self.average == 2 * self.calm {
                    // As far as one rise may go. Wait and see again before the next.
                    self.calm = self.average;
                    self.slow_for = 0;
                }
            }
        } else {
            self.average = self.towards(sample);
            if self.average > 2 * sample {
                // What was slow has ended: follow it down faster than the average would.
                self.average = self.average * 9 / 10;
            }
            self.calm = self.average;
            self.slow_for = 0;
        }
        self.average
    }

    /// The average moved by one sample: exponential, over LONG samples.
    fn towards(&self, sample: u128) -> u128 {
        let long = u128::from(LONG);
        (self.average * (long - 1) + sample * 2) / (long + 1)
    }
}
