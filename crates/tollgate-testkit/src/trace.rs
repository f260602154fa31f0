//! Random request sequences that go where limiters go wrong: edges, bursts, idle years, clocks that
//! step back. And the rates to try them with.

use crate::random::Random;

#[cfg(test)]
mod tests;

mod rates;

pub use rates::rates;

/// No trace goes beyond this time: 2^62 ns, 146 years.
pub const HORIZON: u64 = 1 << 62;

const TEN_YEARS: u64 = 10 * 365 * 24 * 3600 * 1_000_000_000;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When it comes, in nanoseconds.
    pub now: u64,
    /// What it costs.
    pub cost: u64,
}

/// An endless sequence of requests on one key.
#[derive(Clone, Debug)]
pub struct Trace {
    random: Random,
    scale: u64,
    capacity: u64,
    longest_idle: u64,
    last: Step,
    /// The latest time so far, to return to after the clock stepped back.
    latest: u64,
    hinted: Option<Step>,
}

impl Trace {
    /// A trace for a rule whose natural time scale (the time of one token, a window) is
    /// `period_hint` nanoseconds and that admits at most `capacity` at once.
    pub fn new(seed: u64, period_hint: u64, capacity: u64) -> Self {
        let mut random = Random::new(seed);
        // Not always from 0: an absent state that reads as time 0 must not matter.
        let start = if random.chance(1, 4) { 0 } else { random.log_uniform(1, 1 << 50) };
        Self {
            random,
            scale: period_hint.max(1),
            capacity,
            longest_idle: TEN_YEARS,
            last: Step { now: start, cost: 0 },
            latest: start,
            hinted: None,
        }
    }

    /// Bounds the idle gaps, 10 years unless told otherwise.
    pub fn longest_idle(self, nanos: u64) -> Self {
        Self { longest_idle: nanos, ..self }
    }

    /// Tells the trace the retry of the request it gave last. With some chance the next step is the
    /// same request exactly then, or one nanosecond before.
    pub fn hint(&mut self, retry: u64) {
        let early = self.random.below(2);
        let on_time = self.last.now.saturating_add(retry);
        if retry <= self.longest_idle && on_time < HORIZON && retry > 0 && self.random.chance(1, 2) {
            self.hinted = Some(Step { now: on_time - early, cost: self.last.cost });
        }
    }

    /// Whether most of the time there is has passed. A rule of one a month sees only some 1700
    /// tokens before the horizon; a long test of it goes on with a new key and a new trace.
    pub fn is_near_horizon(&self) -> bool {
        self.latest > HORIZON / 4 * 3
    }

    fn next_time(&mut self) -> u64 {
        let now = self.last.now;
        // A bucket behind its own time only denies, so the clock soon recovers.
        if now < self.latest && self.random.chance(1, 6) {
            return (self.latest + self.random.below(2)).min(HORIZON);
        }
        let wait = match self.random.below(2000) {
            0..=799 => 0,
            800..=1099 => self.random.between(1, 10),
            1100..=1599 => self.around_scale(),
            1600..=1799 => self.random.log_uniform(1, self.scale.saturating_mul(4)),
            1800..=1939 => {
                let all = self.scale.saturating_mul(self.capacity.max(2)).min(self.longest_idle);
                self.random.log_uniform(1, all.max(1))
            }
            1940..=1989 => return now.saturating_sub(self.step_back()),
            1990..=1998 => self.random.log_uniform(1, self.scale.saturating_mul(100)),
            _ => {
                // The closer to the horizon, the shorter, so that idling alone never reaches it.
                let room = (HORIZON - now) / 64;
                self.random.log_uniform(1, TEN_YEARS).min(room).max(1)
            }
        };
        now.saturating_add(wait.min(self.longest_idle)).min(HORIZON)
    }

    fn around_scale(&mut self) -> u64 {
        let scale = self.scale;
        match self.random.below(5) {
            0 => scale,
            1 => scale - 1,
            2 => scale.saturating_add(1),
            3 => scale.saturating_mul(self.random.between(1, 8)) / 4,
            _ => self.random.between(0, scale.saturating_mul(2)),
        }
    }

    fn step_back(&mut self) -> u64 {
        match self.random.below(10) {
            0..=4 => self.random.between(1, 10),
            5..=8 => self.around_scale(),
            _ => self.random.log_uniform(1, self.last.now.max(1)),
        }
    }

    fn next_cost(&mut self) -> u64 {
        let capacity = self.capacity;
        match self.random.below(100) {
            0..=9 => 0,
            10..=64 => 1,
            65..=79 => self.random.between(1, 5),
            80..=88 => self.random.between(0, capacity),
            89..=95 => capacity.saturating_sub(self.random.below(3)),
            96..=97 => capacity.saturating_add(1),
            _ => capacity.saturating_add(self.random.between(1, capacity.max(1))),
        }
    }
}

impl Iterator for Trace {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let step = match self.hinted.take() {
            Some(step) => step,
            None => Step { now: self.next_time(), cost: self.next_cost() },
        };
        self.last = step;
        self.latest = self.latest.max(step.now);
        Some(step)
    }
}
