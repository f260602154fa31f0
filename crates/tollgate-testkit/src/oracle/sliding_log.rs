//! Sliding window, exact: every admitted event is kept and summed up.

use super::rounding::reported;
use crate::answer::{Answer, Retry};

#[cfg(test)]
mod tests;

/// At most `limit` in every span of `window` nanoseconds.
///
/// An event counts while it is younger than the window; at exactly that age it is out. A request
/// stamped before the newest event is decided and logged as if it came with that event.
#[derive(Clone, Debug)]
pub struct SlidingLog {
    limit: u64,
    window: u64,
    /// Admitted events, oldest first; those of one instant are one entry.
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    time: u64,
    cost: u64,
}

impl SlidingLog {
    /// An empty log.
    pub fn new(limit: u64, window: u64) -> Self {
        assert!(window > 0, "a window without length");
        Self { limit, window, events: Vec::new() }
    }

    /// Decides without charging.
    pub fn would(&self, now: u64, cost: u64) -> Answer {
        self.answer(now, self.decide(now, cost))
    }

    /// Decides, and logs the request if allowed.
    pub fn ask(&mut self, now: u64, cost: u64) -> Answer {
        let decision = self.decide(now, cost);
        if decision.is_ok() && cost > 0 {
            self.log(self.not_before_newest(now), cost);
        }
        self.answer(now, decision)
    }

    /// Decides a request that is charged in full: cost 0 has to wait until the log is within the limit.
    pub fn would_in_full(&self, now: u64, cost: u64) -> Answer {
        if cost > 0 || self.used(self.not_before_newest(now).into()) <= self.limit {
            return self.would(now, cost);
        }
        self.answer(now, Err(self.wait_for_room(now, 0)))
    }

    /// Logs the whole cost, up to twice the limit.
    pub fn charge_in_full(&mut self, now: u64, cost: u64) {
        let time = self.not_before_newest(now);
        let room = (2 * self.limit).saturating_sub(self.used(time.into()));
        if cost.min(room) > 0 {
            self.log(time, cost.min(room));
        }
    }

    /// Strikes the charge from the log, if it still counts. One that was logged later than it was
    /// stamped is not found under its stamp.
    pub fn refund(&mut self, now: u64, cost: u64, charged: u64) -> u64 {
        let time = self.not_before_newest(now).into();
        let window = i128::from(self.window);
        let counts = |event: &&mut Event| i128::from(event.time) + window > time;
        let Some(event) = self.events.iter_mut().filter(counts).find(|event| event.time == charged) else {
            return 0;
        };
        let given = cost.min(event.cost);
        event.cost -= given;
        self.events.retain(|event| event.cost > 0);
        given
    }

    /// Entries held, to see that memory depends on the limit and not on the traffic.
    pub fn entries(&self) -> usize {
        self.events.len()
    }

    fn decide(&self, now: u64, cost: u64) -> Result<u64, Retry> {
        let used = self.used(self.not_before_newest(now).into());
        if cost == 0 || u128::from(used) + u128::from(cost) <= u128::from(self.limit) {
            return Ok(0);
        }
        Err(self.wait_for_room(now, cost))
    }

    /// The wait until enough events have left.
    fn wait_for_room(&self, now: u64, cost: u64) -> Retry {
        let fits = |used: u64| u128::from(used) + u128::from(cost) <= u128::from(self.limit);
        let time = self.not_before_newest(now).into();
        let mut used = self.used(time);
        for event in self.events.iter().filter(|event| self.leaves(event) > time) {
            used -= event.cost;
            if fits(used) {
                return Retry::After(reported(self.leaves(event) - i128::from(now)));
            }
        }
        Retry::Never
    }

    fn answer(&self, now: u64, decision: Result<u64, Retry>) -> Answer {
        let used = self.used(self.not_before_newest(now).into());
        let reset = self.events.last().map_or(0, |newest| reported(self.leaves(newest) - i128::from(now)));
        Answer::new(decision, self.limit.saturating_sub(used), reset)
    }

    fn log(&mut self, time: u64, cost: u64) {
        match self.events.last_mut() {
            Some(newest) if newest.time == time => newest.cost += cost,
            _ => self.events.push(Event { time, cost }),
        }
        // No later request is decided before `time`, so what is out of the window there is out for
        // good.
        let window = self.window;
        self.events.retain(|event| i128::from(event.time) + i128::from(window) > i128::from(time));
    }

    fn used(&self, time: i128) -> u64 {
        self.events.iter().filter(|event| self.leaves(event) > time).map(|event| event.cost).sum()
    }

    fn leaves(&self, event: &Event) -> i128 {
        i128::from(event.time) + i128::from(self.window)
    }

    fn not_before_newest(&self, now: u64) -> u64 {
        self.events.last().map_or(now, |newest| now.max(newest.time))
    }
}
