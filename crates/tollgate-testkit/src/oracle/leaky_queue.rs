//! Leaky bucket as a queue: admitted work waits its turn and leaves at the drain rate.

use super::rounding::{down, reported, up};
use super::waiting::Waiting;
use crate::answer::{Answer, Retry};

#[cfg(test)]
mod tests;

/// A queue with room for `capacity` units of cost that works off `tokens` of them per `period`
/// nanoseconds.
///
/// The backlog is counted in parts of `1/period` unit, of which every nanosecond works off exactly
/// `tokens`. An admitted request is released when the backlog it found has been worked off.
#[derive(Clone, Debug)]
pub struct LeakyQueue {
    tokens: i128,
    period: i128,
    capacity: u64,
    /// Parts still to be worked off at `at`.
    backlog: i128,
    at: u64,
    waiting: Option<Waiting>,
}

impl LeakyQueue {
    /// An empty queue. All three numbers are at least 1.
    pub fn new(tokens: u64, period: u64, capacity: u64) -> Self {
        assert!(tokens > 0 && period > 0 && capacity > 0, "a queue without drain or room");
        Self { tokens: tokens.into(), period: period.into(), capacity, backlog: 0, at: 0, waiting: None }
    }

    /// Puts a deadline of `max_wait` on every request, and holds at most `max_waiting` at once.
    pub fn with_max_wait(self, max_wait: u64, max_waiting: u64) -> Self {
        Self { waiting: Some(Waiting::new(max_wait, max_waiting)), ..self }
    }

    /// Decides without charging, for a caller without a deadline.
    pub fn would(&self, now: u64, cost: u64) -> Answer {
        self.answer(now, self.decide(now, cost, u64::MAX))
    }

    /// Decides for a caller without a deadline, and queues the request if allowed.
    pub fn ask(&mut self, now: u64, cost: u64) -> Answer {
        self.ask_within(now, cost, u64::MAX)
    }

    /// Decides for a caller who would not wait longer than `deadline` nanoseconds.
    pub fn ask_within(&mut self, now: u64, cost: u64, deadline: u64) -> Answer {
        let decision = self.decide(now, cost, deadline);
        if let (Ok(delay), true) = (decision, cost > 0) {
            self.queue(now, cost, delay);
        }
        self.answer(now, decision)
    }

    /// Queues a request that was allowed. It waits for its turn if that comes in time.
    pub fn spend(&mut self, now: u64, cost: u64) {
        let backlog = self.backlog_at(now) + i128::from(cost) * self.period;
        let delay = self.time_for(self.backlog_at(now));
        let is_within = |waiting: &Waiting| backlog <= self.full() && delay <= waiting.max_wait();
        let waits = self.waiting.as_ref().is_some_and(is_within);
        self.queue(now, cost, if waits { reported(delay) } else { 0 });
    }

    /// Decides a request that is charged in full: cost 0 has to wait until the backlog fits the queue.
    pub fn would_in_full(&self, now: u64, cost: u64) -> Answer {
        let debt = self.time_for(self.backlog_at(now) - self.full());
        if cost == 0 && debt > 0 {
            return self.answer(now, Err(Retry::After(reported(debt))));
        }
        self.would(now, cost)
    }

    /// Adds to the backlog, also beyond the capacity, up to twice the capacity. Nobody is held for it.
    pub fn charge_in_full(&mut self, now: u64, cost: u64) {
        let (backlog, most) = (self.backlog_at(now), 2 * self.full());
        if cost > 0 && backlog < most {
            self.backlog = (backlog + i128::from(cost) * self.period).min(most);
            self.at = now;
        }
    }

    /// Gives nothing back. A place in the queue is a time at which somebody may go; whoever had the
    /// next ones was told theirs.
    pub fn refund(&mut self, _now: u64, _cost: u64, _charged: u64) -> u64 {
        0
    }

    fn decide(&self, now: u64, cost: u64, deadline: u64) -> Result<u64, Retry> {
        if cost == 0 {
            return Ok(0);
        }
        if cost > self.capacity {
            return Err(Retry::Never);
        }
        let backlog = self.backlog_at(now);
        let delay = self.time_for(backlog);
        let until_it_fits = self.time_for(backlog + i128::from(cost) * self.period - self.full());
        let deadline = i128::from(deadline);
        match &self.waiting {
            Some(waiting) => {
                let own = until_it_fits.max(delay - deadline.min(waiting.max_wait()));
                waiting.decide(now, delay, own)
            }
            None => match until_it_fits.max(delay - deadline) {
                wait if wait > 0 => Err(Retry::After(reported(wait))),
                _ => Ok(reported(delay)),
            },
        }
    }

    fn queue(&mut self, now: u64, cost: u64, delay: u64) {
        self.backlog = self.backlog_at(now) + i128::from(cost) * self.period;
        self.at = now;
        if let Some(waiting) = &mut self.waiting {
            waiting.admit(now, delay);
        }
    }

    fn answer(&self, now: u64, decision: Result<u64, Retry>) -> Answer {
        let reset = self.time_for(self.backlog_at(now));
        Answer::new(decision, self.remaining(now), reported(reset))
    }

    /// How many requests of cost 1 would pass at `now`, whatever deadline a caller has. Where the rule
    /// bounds the waiting, they are tried: at most as many as there is room for, so it comes to an end.
    fn remaining(&self, now: u64) -> u64 {
        if self.waiting.is_none() {
            return reported(down(self.full() - self.backlog_at(now), self.period));
        }
        let (mut tried, mut passed) = (self.clone(), 0);
        while let Ok(delay) = tried.decide(now, 1, u64::MAX) {
            tried.queue(now, 1, delay);
            passed += 1;
        }
        passed
    }

    fn backlog_at(&self, now: u64) -> i128 {
        // Before `at` the same line runs upwards: a clock that steps back finds a longer queue.
        let elapsed = i128::from(now) - i128::from(self.at);
        (self.backlog - elapsed * self.tokens).max(0)
    }

    fn full(&self) -> i128 {
        i128::from(self.capacity) * self.period
    }

    /// Whole nanoseconds until so many parts are worked off.
    fn time_for(&self, parts: i128) -> i128 {
        up(parts, self.tokens)
    }
}
