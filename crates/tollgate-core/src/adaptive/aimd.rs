//! AIMD: one more after each success, a tenth less after each drop.

use std::time::Duration;

use super::limit::{Bounds, Controller, Limit, Sample};
use crate::RuleError;

/// Additive increase, multiplicative decrease. It sees drops and timeouts only; choose it where
/// latency says little.
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
    /// Refuses a backoff outside 500 to 999.
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
