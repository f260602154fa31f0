//! Rates that follow the load.

use tollgate_core::adaptive::RateMultiplier;

use super::KeyedLimiter;

impl KeyedLimiter {
    /// Slows the tiers of all limiters in the table, from now on, each as its [`Shed`](crate::Shed) class says, until
    /// it is told otherwise.
    ///
    /// A bucket's rate is multiplied, and its burst unchanged; the tokens that a key has stay what they are, so that
    /// a change hands out nothing. Waits are told in real time, as they are if the pace stays; a `max_wait` stays the
    /// time that somebody is held. Of a window the limit is multiplied; a cost above what is left of it is denied with
    /// [`Retry::Unknown`](crate::Retry::Unknown). Concurrency limits stay as they are.
    ///
    /// A key goes by the class that last charged it: where its tier is put into another, or it is asked for under
    /// another tier, that class' pace holds for it from its next charge on.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::adaptive::{Load, RateMultiplier};
    /// use tollgate::{Clock, KeyedLimiter, Numbers, Rate, Shed, TokenBucket};
    ///
    /// let rule = TokenBucket::new(Rate::per_second(10)?, 5)?;
    /// let limiter = KeyedLimiter::builder(rule).clock(Clock::manual()).build();
    /// let free = limiter.add_tier(Numbers { rule: rule.into(), shed: Shed::First });
    /// let _ = (limiter.ask("alice").cost(5).check(), limiter.ask("bob").tier(&free).cost(5).check());
    ///
    /// let mut multiplier = RateMultiplier::new(100)?;
    /// (0..3).for_each(|_| multiplier.observe(Load::High)); // 0.512, and 0.262144 for those who are slowed first
    /// limiter.set_paces(&multiplier);
    /// limiter.clock().advance(Duration::from_millis(400));
    /// assert_eq!(limiter.peek("alice").remaining, 4);
    /// assert_eq!(limiter.ask("bob").tier(&free).peek().remaining, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_paces(&self, multiplier: &RateMultiplier) {
        self.table.set_paces([0, 1, 2].map(|shed| multiplier.pace_of(shed)));
    }
}

#[cfg(test)]
mod tests;
