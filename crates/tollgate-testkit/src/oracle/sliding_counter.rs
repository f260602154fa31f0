//! Sliding window by counters: one count per sub-window, the oldest of them weighed.

use super::rounding::{down, reported};
use crate::answer::{Answer, Retry};

#[cfg(test)]
mod tests;

/// What the sub-window that has partly slid out counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterMode {
    /// In proportion to the part still inside.
    Interpolate,
    /// In full, until all of it is out: never over the limit in any window.
    Strict,
    /// Not at all.
    Lenient,
}

/// At most about `limit` per `window` nanoseconds, counted in `buckets` sub-windows.
///
/// A sub-window has `window / buckets` nanoseconds, which need not be whole. Times are therefore
/// measured in parts of `1/buckets` nanosecond, in which a sub-window has exactly `window` parts.
#[derive(Clone, Debug)]
pub struct SlidingCounter {
    limit: u64,
    window: u64,
    buckets: u32,
    mode: CounterMode,
    /// Admitted cost per sub-window, by index, oldest first.
    counts: Vec<(i128, u64)>,
}

impl SlidingCounter {
    /// A counter that has seen nothing.
    pub fn new(limit: u64, window: u64, buckets: u32, mode: CounterMode) -> Self {
        assert!(window > 0 && buckets > 0, "a window without length or parts");
        Self { limit, window, buckets, mode, counts: Vec::new() }
    }

    /// Decides without charging.
    pub fn would(&self, now: u64, cost: u64) -> Answer {
        self.answer(now, self.decide(now, cost))
    }

    /// Decides, and counts the request if allowed.
    pub fn ask(&mut self, now: u64, cost: u64) -> Answer {
        let decision = self.decide(now, cost);
        if decision.is_ok() && cost > 0 {
            self.count(self.place(now.into()).0, cost);
        }
        self.answer(now, decision)
    }

    /// Decides a request that is charged in full: cost 0 has to wait until the estimate is within the limit.
    pub fn would_in_full(&self, now: u64, cost: u64) -> Answer {
        let room = i128::from(self.limit) * i128::from(self.window);
        if cost == 0 && self.estimate(now.into()) > room {
            return self.answer(now, Err(Retry::After(self.wait_for(now, room))));
        }
        self.would(now, cost)
    }

    /// Counts the whole cost.
    pub fn charge_in_full(&mut self, now: u64, cost: u64) {
        if cost > 0 {
            self.count(self.place(now.into()).0, cost);
        }
    }

    /// Takes the charge out of the sub-window it was stamped in, if that still counts. The newest
    /// sub-window stays the newest, even with nothing left in it, until nothing is left at all.
    pub fn refund(&mut self, now: u64, cost: u64, charged: u64) -> u64 {
        let (index, _) = self.place(now.into());
        let stamped = i128::from(charged) * i128::from(self.buckets) / i128::from(self.window);
        let lasts = match self.mode {
            CounterMode::Interpolate | CounterMode::Strict => i128::from(self.buckets) + 1,
            CounterMode::Lenient => self.buckets.into(),
        };
        let Some((_, count)) = self.counts.iter_mut().find(|(counted, _)| *counted == stamped) else {
            return 0;
        };
        if index - stamped >= lasts {
            return 0;
        }
        let given = cost.min(*count);
        *count -= given;
        if self.counts.iter().all(|(_, count)| *count == 0) {
            self.counts.clear();
        }
        given
    }

    fn decide(&self, now: u64, cost: u64) -> Result<u64, Retry> {
        let room = (i128::from(self.limit) - i128::from(cost)) * i128::from(self.window);
        if cost == 0 || self.estimate(now.into()) <= room {
            Ok(0)
        } else if cost > self.limit {
            Err(Retry::Never)
        } else {
            Err(Retry::After(self.wait_for(now, room)))
        }
    }

    fn answer(&self, now: u64, decision: Result<u64, Retry>) -> Answer {
        let window = i128::from(self.window);
        let remaining = down(i128::from(self.limit) * window - self.estimate(now.into()), window);
        // The estimate is above 0 exactly as long as anything counted is remembered.
        Answer::new(decision, reported(remaining), self.wait_for(now, 0))
    }

    fn count(&mut self, index: i128, cost: u64) {
        match self.counts.last_mut() {
            Some((newest, count)) if *newest == index => *count += cost,
            _ => self.counts.push((index, cost)),
        }
        // No later request is decided before this sub-window, and it looks back over `buckets`
        // more.
        let oldest = index - i128::from(self.buckets);
        self.counts.retain(|(index, _)| *index >= oldest);
    }

    /// What counts against the limit at `time`, times the parts of a sub-window.
    fn estimate(&self, time: i128) -> i128 {
        let (index, into) = self.place(time);
        let (mut full, mut old) = (0, 0);
        for (counted, count) in &self.counts {
            match index - counted {
                age if age < self.buckets.into() => full += i128::from(*count),
                age if age == self.buckets.into() => old = i128::from(*count),
                _ => {}
            }
        }
        let window = i128::from(self.window);
        match self.mode {
            CounterMode::Interpolate => old * (window - into) + full * window,
            CounterMode::Strict => (old + full) * window,
            CounterMode::Lenient => full * window,
        }
    }

    /// The sub-window of a time and the parts passed in it. A time before the newest counted
    /// sub-window is taken as the start of that one.
    fn place(&self, time: i128) -> (i128, i128) {
        let parts = time * i128::from(self.buckets);
        let (index, into) = (parts / i128::from(self.window), parts % i128::from(self.window));
        match self.counts.last() {
            Some((newest, _)) if index < *newest => (*newest, 0),
            _ => (index, into),
        }
    }

    /// The shortest wait until the estimate is no more than `room`, found by halving: while nobody
    /// spends the estimate never rises, and two windows after the newest sub-window began it is 0.
    fn wait_for(&self, now: u64, room: i128) -> u64 {
        let now = i128::from(now);
        if self.estimate(now) <= room {
            return 0;
        }
        let newest = self.counts.last().map_or(0, |(newest, _)| *newest);
        let newest_began = newest * i128::from(self.window) / i128::from(self.buckets) + 1;
        let (mut above, mut within) = (now, now.max(newest_began) + 2 * i128::from(self.window));
        while within - above > 1 {
            let middle = above + (within - above) / 2;
            if self.estimate(middle) <= room {
                within = middle;
            } else {
                above = middle;
            }
        }
        reported(within - now)
    }
}
