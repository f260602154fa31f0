//! Burst credits: a bucket of saved-up credits behind a bucket that bounds the peak.

use super::token_bucket::TokenBucket;
use crate::answer::{Answer, Retry};
use num_bigint::BigInt;
use num_rational::BigRational;

#[cfg(test)]
mod tests;

/// Two token buckets that are charged together or not at all.
#[derive(Clone, Debug)]
pub struct BurstCredits {
    credits: TokenBucket,
    peak: TokenBucket,
}

impl BurstCredits {
    /// Credits fill with `tokens` per `period` up to `ceiling`, and are spent at no more than
    /// `peak_tokens` per `peak_period` with a burst of `peak_burst`.
    pub fn new(
        tokens: u64,
        period: u64,
        ceiling: u64,
        peak_tokens: u64,
        peak_period: u64,
        peak_burst: u64,
    ) -> Self {
        Self {
            credits: TokenBucket::new(tokens, period, ceiling),
            peak: TokenBucket::new(peak_tokens, peak_period, peak_burst),
        }
    }

    /// How many credits hold the peak for `burst_for` nanoseconds: what it spends in that time beyond the
    /// base rate, less a part of one.
    pub fn ceiling_for(
        (tokens, period): (u64, u64),
        (peak_tokens, peak_period): (u64, u64),
        burst_for: u64,
    ) -> BigInt {
        let rate = |tokens: u64, period: u64| BigRational::new(tokens.into(), period.into());
        let beyond = rate(peak_tokens, peak_period) - rate(tokens, period);
        (beyond * BigInt::from(burst_for)).floor().to_integer()
    }

    /// Decides without charging.
    pub fn would(&self, now: u64, cost: u64) -> Answer {
        both(self.credits.would(now, cost), self.peak.would(now, cost))
    }

    /// Decides, and charges both buckets if both allow.
    pub fn ask(&mut self, now: u64, cost: u64) -> Answer {
        let answer = self.would(now, cost);
        if answer.allowed {
            return both(self.credits.ask(now, cost), self.peak.ask(now, cost));
        }
        answer
    }

    /// Decides a request that is charged in full: both buckets must allow it.
    pub fn would_in_full(&self, now: u64, cost: u64) -> Answer {
        both(self.credits.would_in_full(now, cost), self.peak.would_in_full(now, cost))
    }

    /// Charges both buckets in full.
    pub fn charge_in_full(&mut self, now: u64, cost: u64) {
        self.credits.charge_in_full(now, cost);
        self.peak.charge_in_full(now, cost);
    }

    /// Refunds both buckets, each as far as it still knows of the charge. At least as many more may
    /// pass as the one gave back that gave less.
    pub fn refund(&mut self, now: u64, cost: u64, charged: u64) -> u64 {
        if cost > self.credits.burst() || cost > self.peak.burst() {
            return 0;
        }
        let credits = self.credits.refund(now, cost, charged);
        credits.min(self.peak.refund(now, cost, charged))
    }
}

fn both(credits: Answer, peak: Answer) -> Answer {
    let decision = match (credits.retry, peak.retry) {
        (None, None) => Ok(0),
        (Some(retry), None) | (None, Some(retry)) => Err(retry),
        (Some(Retry::After(a)), Some(Retry::After(b))) => Err(Retry::After(a.max(b))),
        // A bucket's retry is never unknown, so one of them is `Never`.
        (Some(_), Some(_)) => Err(Retry::Never),
    };
    Answer::new(decision, credits.remaining.min(peak.remaining), credits.reset.max(peak.reset))
}
