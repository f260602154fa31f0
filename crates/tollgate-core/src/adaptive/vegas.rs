//! Vegas: the queue is what requests take longer than without load.

use super::limit::{Bounds, Controller, Limit, Sample};
use crate::Nanos;

/// Estimates the queue at the upstream as `limit * (1 - no-load / rtt)` and keeps it between three and
/// six times `log10(limit)`.
///
/// The no-load time is the smallest seen. A base that shifts upwards must be noticed, so the smallest
/// is sought anew every 15 to 30 times `limit` samples, at random lest many nodes do it at once. The
/// original takes whatever the next sample says, and a busy moment poisons it; here the smallest of the
/// last two such periods stands, so that one bad moment cannot.
///
/// The first sample only tells the no-load time. A drop takes `log10(limit)` off, and tells no time.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::adaptive::{Bounds, Controller, Sample, Vegas};
///
/// let mut vegas = Vegas::new(20, Bounds::new(1, 100)?, 1);
/// let limits = [(10, false), (10, false), (20, false), (1, true)].map(|(ms, dropped)| {
///     vegas.observe(Sample { rtt: Duration::from_millis(ms), in_flight: 20, dropped });
///     vegas.limit()
/// });
/// assert_eq!(limits, [20, 26, 25, 24]); // at 20 ms, half of what is in flight is a queue
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Vegas {
    limit: Limit,
    smallest: Option<u64>, // nanoseconds; of this period
    previous: Option<u64>, // of the period before
    until_probe: u64,      // samples left in this period
    random: u64,
}

impl Vegas {
    /// Starts at `initial`, held within `bounds`. Nodes with different seeds probe at different times;
    /// 0 is taken as 1.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Bounds, Controller, Vegas};
    ///
    /// assert_eq!(Vegas::new(500, Bounds::new(1, 100)?, 1).limit(), 100);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(initial: u64, bounds: Bounds, seed: u64) -> Self {
        let limit = Limit::new(initial, bounds);
        let mut vegas = Self { limit, smallest: None, previous: None, until_probe: 0, random: seed };
        vegas.until_probe = vegas.next_period();
        vegas
    }

    /// The time a request takes without load, in nanoseconds, as far as is known. At least 1; none
    /// before the first sample that was not dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::adaptive::{Bounds, Controller, Sample, Vegas};
    ///
    /// let mut vegas = Vegas::new(20, Bounds::new(1, 100)?, 1);
    /// assert_eq!(vegas.no_load(), None);
    /// for us in [9, 5, 7] {
    ///     vegas.observe(Sample { rtt: Duration::from_micros(us), in_flight: 1, dropped: false });
    /// }
    /// assert_eq!(vegas.no_load(), Some(5000));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn no_load(&self) -> Option<u64> {
        self.smallest.into_iter().chain(self.previous).min()
    }

    fn probe(&mut self, rtt: u64) {
        self.smallest = Some(self.smallest.map_or(rtt, |smallest| smallest.min(rtt)));
        self.until_probe -= 1;
        if self.until_probe == 0 {
            self.previous = self.smallest.take();
            self.until_probe = self.next_period();
        }
    }

    /// 15 to 30 times the limit.
    fn next_period(&mut self) -> u64 {
        // The generator of Marsaglia's xorshift family; 0 is its one fixed point.
        let mut x = self.random.max(1);
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random = x;
        let half = 15 * self.limit.whole();
        half + x % (half + 1)
    }
}

impl Controller for Vegas {
    fn observe(&mut self, sample: Sample) {
        let limit = self.limit.units();
        let step = u64::from(self.limit.whole().ilog10().max(1));
        if sample.dropped {
            // How long a refusal takes says nothing about how long a request does.
            return self.limit.set_units(limit.saturating_sub(step * Limit::UNIT));
        }
        let rtt = Nanos::saturating_from(sample.rtt).get().max(1);
        let known = self.no_load();
        self.probe(rtt);
        // A new smallest time is a measure, not a verdict on the limit.
        let Some(no_load) = known.filter(|&known| known <= rtt) else {
            return;
        };
        if !self.limit.is_tried_by(sample.in_flight) {
            return;
        }
        let queued = u128::from(limit) * u128::from(rtt - no_load);
        let queue = queued.div_ceil(u128::from(rtt) * u128::from(Limit::UNIT)) as u64; // at most the limit
        let next = match queue {
            _ if queue <= step => limit + 6 * step * Limit::UNIT,
            _ if queue < 3 * step => limit + step * Limit::UNIT,
            _ if queue > 6 * step => limit.saturating_sub(step * Limit::UNIT),
            _ => limit,
        };
        self.limit.set_units(next);
    }

    fn limit(&self) -> u64 {
        self.limit.whole()
    }
}
