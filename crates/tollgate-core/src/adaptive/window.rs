//! Many requests summed up into one sample.

use std::time::Duration;

use super::limit::{Controller, Sample};
use crate::{Nanos, Timestamp};

/// A window ends after this time, if it has seen enough.
const SHORTEST: Nanos = Nanos::new(100_000_000);
/// And after this time in any case.
const LONGEST: Nanos = Nanos::new(1_000_000_000);
/// Requests that are enough.
const ENOUGH: usize = 10;
/// Times that are kept. Of more requests in a window, some stand for all.
const MOST: usize = 512;

/// A controller that learns from windows of requests and not from each: a hundred that are slow because the machine stood still for a
/// moment are one observation, and what a controller calls its long memory lasts as long at a thousand requests a second as at ten.
///
/// A window lasts 100 ms to a second, and at least ten requests if it ends before the second does. Its time is that of the
/// median request, so that a few slow ones do not count; as many were in flight as were at most; and it was dropped if one of its
/// requests in twenty was.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::Timestamp;
/// use tollgate_core::adaptive::{Bounds, Controller, Gradient2, Sample, Windowed};
///
/// let mut controller = Windowed::new(Gradient2::new(20, Bounds::new(1, 100)?));
/// let sample = Sample { rtt: Duration::from_millis(10), in_flight: 20, dropped: false };
/// for ms in 0..1000 {
///     controller.observe_at(sample, Timestamp::from_nanos(ms * 1_000_000));
/// }
/// assert_eq!(controller.limit(), 27); // nine windows, each a step of 0.8
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Windowed<C> {
    controller: C,
    began: Option<Timestamp>, // none before the first request
    times: Vec<Duration>,
    seen: usize, // requests, of which `times` has some
    dropped: usize,
    in_flight: u64,
}

impl<C: Controller> Windowed<C> {
    /// Lets a controller learn from windows.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Bounds, Controller, Gradient2, Windowed};
    ///
    /// assert_eq!(Windowed::new(Gradient2::new(20, Bounds::new(1, 100)?)).limit(), 20);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn new(controller: C) -> Self {
        Self { controller, began: None, times: Vec::new(), seen: 0, dropped: 0, in_flight: 0 }
    }

    fn end_window(&mut self) {
        let requests = self.seen + self.dropped;
        // A refusal that is one of many is somebody's bad luck, not want of capacity.
        let dropped = self.dropped > 0 && self.dropped * 20 >= requests;
        self.times.sort_unstable();
        let median = self.times.get(self.times.len() / 2).copied();
        if dropped {
            let rtt = median.unwrap_or_default();
            self.controller.observe(Sample { rtt, in_flight: self.in_flight, dropped: true });
        } else if let Some(rtt) = median {
            self.controller.observe(Sample { rtt, in_flight: self.in_flight, dropped: false });
        }
        self.times.clear();
        (self.seen, self.dropped, self.in_flight) = (0, 0, 0);
    }

    fn keep(&mut self, rtt: Duration) {
        self.seen += 1;
        if self.times.len() < MOST {
            self.times.push(rtt);
        } else {
            // Each in turn takes the place of an older one, in steps that go through all.
            self.times[self.seen.wrapping_mul(211) % MOST] = rtt;
        }
    }
}

impl<C: Controller> Controller for Windowed<C> {
    /// As if no time passed: a window ends when it has seen as many as it keeps.
    fn observe(&mut self, sample: Sample) {
        self.observe_at(sample, self.began.unwrap_or_default());
        if self.seen >= MOST {
            self.end_window();
        }
    }

    fn observe_at(&mut self, sample: Sample, now: Timestamp) {
        let began = *self.began.get_or_insert(now);
        let age = now.since(began);
        let is_over = age >= LONGEST || (age >= SHORTEST && self.seen + self.dropped >= ENOUGH);
        if is_over {
            self.end_window();
            self.began = Some(now);
        }
        self.in_flight = self.in_flight.max(sample.in_flight);
        if sample.dropped { self.dropped += 1 } else { self.keep(sample.rtt) }
    }

    fn limit(&self) -> u64 {
        self.controller.limit()
    }
}

#[cfg(test)]
mod tests;
