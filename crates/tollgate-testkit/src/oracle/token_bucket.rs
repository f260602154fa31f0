//! Token bucket: holds tokens and the time they were counted, nothing else.

use super::rounding::{down, reported, up};
use super::waiting::Waiting;
use crate::answer::{Answer, Retry};

#[cfg(test)]
mod tests;

/// A bucket of at most `burst` tokens that gains `tokens` per `period` nanoseconds.
///
/// Tokens are counted in parts of `1/period` token, of which every nanosecond brings exactly
/// `tokens`: whole numbers, yet no rounding. A clock that steps back walks the same straight line
/// backwards, so an earlier request sees fewer tokens and what it takes is missing later too.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    tokens: i128,
    period: i128,
    burst: u64,
    /// Parts held at `at`; negative while admitted requests are still waiting for theirs.
    level: i128,
    at: u64,
    waiting: Option<Waiting>,
}

impl TokenBucket {
    /// A full bucket. All three numbers are at least 1.
    pub fn new(tokens: u64, period: u64, burst: u64) -> Self {
        assert!(tokens > 0 && period > 0 && burst > 0, "a bucket without rate or room");
        let (tokens, period) = (i128::from(tokens), i128::from(period));
        Self { tokens, period, burst, level: i128::from(burst) * period, at: 0, waiting: None }
    }

    /// Holds a request that finds too few tokens, if they come within `max_wait` nanoseconds and
    /// fewer than `max_waiting` others are being held.
    pub fn with_max_wait(self, max_wait: u64, max_waiting: u64) -> Self {
        Self { waiting: Some(Waiting::new(max_wait, max_waiting)), ..self }
    }

    /// Decides without charging.
    pub fn would(&self, now: u64, cost: u64) -> Answer {
        self.answer(now, self.decide(now, cost))
    }

    /// Decides, and takes the tokens if allowed.
    pub fn ask(&mut self, now: u64, cost: u64) -> Answer {
        let decision = self.decide(now, cost);
        if let (Ok(delay), true) = (decision, cost > 0) {
            self.level = self.level_at(now) - i128::from(cost) * self.period;
            self.at = now;
            if let Some(waiting) = &mut self.waiting {
                waiting.admit(now, delay);
            }
        }
        self.answer(now, decision)
    }

    /// Takes the tokens of a request that was allowed. It waits for them if they come in time.
    pub fn spend(&mut self, now: u64, cost: u64) {
        let delay = self.time_for(i128::from(cost) * self.period - self.level_at(now));
        self.level = self.level_at(now) - i128::from(cost) * self.period;
        self.at = now;
        if let Some(waiting) = self.waiting.as_mut().filter(|waiting| delay <= waiting.max_wait()) {
            waiting.admit(now, reported(delay));
        }
    }

    /// Decides a request that is charged in full: cost 0 has to wait until the debt is paid back, as far
    /// as nobody may wait for it.
    pub fn would_in_full(&self, now: u64, cost: u64) -> Answer {
        let may_wait = self.waiting.as_ref().map_or(0, Waiting::max_wait);
        let debt = self.time_for(-self.level_at(now)) - may_wait;
        if cost == 0 && debt > 0 {
            return self.answer(now, Err(Retry::After(reported(debt))));
        }
        self.would(now, cost)
    }

    /// Takes the tokens, also those that are not there, down to a debt of one burst.
    pub fn charge_in_full(&mut self, now: u64, cost: u64) {
        let (level, lowest) = (self.level_at(now), -self.full());
        if cost > 0 && level > lowest {
            self.level = (level - i128::from(cost) * self.period).max(lowest);
            self.at = now;
        }
    }

    /// Puts tokens back, at most until the bucket is full: it is then as new. None for a charge so long
    /// ago that an empty bucket would have filled since, and none while somebody waits, whose turn would
    /// then no longer be the next.
    pub fn refund(&mut self, now: u64, cost: u64, charged: u64) -> u64 {
        let gained_since = i128::from(now.saturating_sub(charged)) * self.tokens;
        let somebody_waits = self.waiting.as_ref().is_some_and(|waiting| waiting.somebody_waits(now));
        let missing = self.full() - self.level_at(now);
        if cost > self.burst || gained_since >= self.full() || somebody_waits || missing == 0 {
            return 0;
        }
        let given = (i128::from(cost) * self.period).min(missing);
        if given == missing {
            (self.level, self.at) = (self.full(), 0);
        } else {
            (self.level, self.at) = (self.level_at(now) + given, now);
        }
        if let (Some(waiting), true) = (&mut self.waiting, given > 0) {
            waiting.forget();
        }
        reported(up(given, self.period))
    }

    /// Goes on with other numbers, and is full again when it would have been: no sooner.
    pub fn change_keeping_time(&mut self, now: u64, tokens: u64, period: u64, burst: u64) {
        let missing = self.full() - self.level_at(now);
        let missing = up(missing * i128::from(tokens), self.tokens);
        *self = Self::new(tokens, period, burst);
        if missing > 0 {
            (self.level, self.at) = (self.full() - missing, now);
        }
    }

    fn decide(&self, now: u64, cost: u64) -> Result<u64, Retry> {
        if cost == 0 {
            return Ok(0);
        }
        if cost > self.burst {
            return Err(Retry::Never);
        }
        let missing = i128::from(cost) * self.period - self.level_at(now);
        let delay = self.time_for(missing);
        match &self.waiting {
            Some(waiting) => waiting.decide(now, delay, delay - waiting.max_wait()),
            None if delay > 0 => Err(Retry::After(reported(delay))),
            None => Ok(0),
        }
    }

    fn answer(&self, now: u64, decision: Result<u64, Retry>) -> Answer {
        let level = self.level_at(now);
        let remaining = down(level, self.period);
        let reset = self.time_for(self.full() - level);
        Answer::new(decision, reported(remaining), reported(reset))
    }

    fn level_at(&self, now: u64) -> i128 {
        let elapsed = i128::from(now) - i128::from(self.at);
        (self.level + elapsed * self.tokens).min(self.full())
    }

    /// The most tokens it holds.
    pub(super) fn burst(&self) -> u64 {
        self.burst
    }

    fn full(&self) -> i128 {
        i128::from(self.burst) * self.period
    }

    /// Whole nanoseconds until so many parts have come in.
    fn time_for(&self, parts: i128) -> i128 {
        up(parts, self.tokens)
    }
}
