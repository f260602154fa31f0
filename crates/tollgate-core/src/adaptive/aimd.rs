//! AIMD: one more after each success, a tenth less after each drop.

use std::time::Duration;

use super::limit::{Bounds, Controller, Limit, Sample};
use crate::RuleError;

/// Additive increase, multiplicative decrease. It sees drops and timeouts only; choose it where
/// latency says little. A drop takes at least 1 off, down to the smallest of the bounds.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::adaptive::{Aimd, Bounds, Controller, Sample};
///
/// let mut aimd = Aimd::new(3, Bounds::new(1, 100)?, 900, Duration::from_secs(5))?;
/// let sample = Sample { rtt: Duration::from_millis(10), in_flight: 3, dropped: false };
/// aimd.observe(sample);
/// assert_eq!(aimd.limit(), 4);
/// let limits = [true; 4].map(|dropped| {
///     aimd.observe(Sample { dropped, ..sample });
///     aimd.limit()
/// });
/// assert_eq!(limits, [3, 2, 1, 1]);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Aimd {
    limit: Limit,
    backoff: u32, // thousandths
    timeout: Duration,
}

impl Aimd {
    /// Starts at `initial`, held within `bounds`; a drop keeps `backoff` thousandths (900 is usual) and
    /// a request longer than `timeout` (5 s is usual) counts as dropped.
    ///
    /// Refuses a backoff outside 500 to 999. A request of exactly `timeout` is not dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::adaptive::{Aimd, Bounds, Controller};
    ///
    /// let (bounds, timeout) = (Bounds::new(1, 100)?, Duration::from_secs(5));
    /// assert_eq!(Aimd::new(500, bounds, 900, timeout)?.limit(), 100);
    /// assert!(Aimd::new(20, bounds, 1000, timeout).is_err()); // a drop would change nothing
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(initial: u64, bounds: Bounds, backoff: u32, timeout: Duration) -> Result<Self, RuleError> {
        if !(500..=999).contains(&backoff) {
            return Err(RuleError::Factor { what: "backoff", found: backoff, least: 500, most: 999 });
        }
        Ok(Self { limit: Limit::new(initial, bounds), backoff, timeout })
    }
}

impl Controller for Aimd {
    fn observe(&mut self, sample: Sample) {
        let limit = self.limit.whole();
        if sample.dropped || sample.rtt > self.timeout {
            let kept = limit * u64::from(self.backoff) / 1000;
            self.limit.set_units(kept.min(limit - 1).max(1) * Limit::UNIT);
        } else if self.limit.is_tried_by(sample.in_flight) {
            self.limit.set_units((limit + 1) * Limit::UNIT);
        }
    }

    fn limit(&self) -> u64 {
        self.limit.whole()
    }
}
