//! How loaded the application is, as the gateway sees it: what `adaptive_rates` goes by.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::Nanos;
use tollgate::adaptive::Load;
use tollgate_policy::AdaptiveRates;

/// How often the load is told.
pub(super) const EVERY: Duration = Duration::from_millis(250);

/// What was seen since it was last told. Of waits it is only counted how many were beyond the marks: that is all that the ninth
/// of ten says.
#[derive(Debug)]
pub(super) struct Pressure {
    high: AtomicU64, // nanoseconds
    low: AtomicU64,
    waits: AtomicU64, // for a slot
    waits_from_low: AtomicU64,
    waits_over_high: AtomicU64,
    answers: AtomicU64,
    errors: AtomicU64, // of those
}

impl Pressure {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            high: AtomicU64::new(u64::MAX),
            low: AtomicU64::new(u64::MAX),
            waits: zero(),
            waits_from_low: zero(),
            waits_over_high: zero(),
            answers: zero(),
            errors: zero(),
        }
    }

    /// A request has waited for a slot, also if it got none.
    pub(super) fn waited(&self, wait: Nanos) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        if wait.get() >= self.low.load(Ordering::Relaxed) {
            self.waits_from_low.fetch_add(1, Ordering::Relaxed);
        }
        if wait.get() > self.high.load(Ordering::Relaxed) {
            self.waits_over_high.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The application has answered, or has failed to.
    pub(super) fn answered(&self, is_error: bool) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        if is_error {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The load since it was last told. High where one of ten requests waited longer than the high mark, or one of ten answers
    /// was an error; low where nine of ten waited less than the low mark, and hardly an answer was.
    pub(super) fn tell(&self, marks: AdaptiveRates) -> Load {
        self.high.store(Nanos::saturating_from(marks.high).get(), Ordering::Relaxed);
        self.low.store(Nanos::saturating_from(marks.low).get(), Ordering::Relaxed);
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let (waits, from_low, over_high) =
            (take(&self.waits), take(&self.waits_from_low), take(&self.waits_over_high));
        let (answers, errors) = (take(&self.answers), take(&self.errors));
        // Of few answers, one error says little.
        let is_failing = errors >= 2 && errors * 10 >= answers;
        if over_high * 10 > waits || is_failing {
            return Load::High;
        }
        if from_low * 10 <= waits && errors * 20 <= answers { Load::Low } else { Load::Between }
    }
}

#[cfg(test)]
mod tests;
