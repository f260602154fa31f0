//! The share of a rule that each process decides by while the store that they share is unavailable.

use std::time::Duration;

use crate::{Concurrency, LeakyBucket, Nanos, Rate, Rule, RuleParts, TokenBucket};

impl Rule {
    /// The rule of one of `nodes` processes that share this rule.
    ///
    /// Rates and windows become a bucket with the rate divided by `nodes`. A window is not divided, because a fourth of a limit
    /// of 3 would be 0. A bucket can also begin empty. A share has no `max_wait`.
    ///
    /// The rates of all nodes add up to at most the rate of the rule. Each node has a burst or a queue of at least 1. So the
    /// bursts add up to at most `nodes`, or to the burst of the rule if that is larger. The slots of a concurrency limit are
    /// divided. Call [`has_share`](Self::has_share) first: without it, fewer slots than nodes would become one slot per node.
    ///
    /// If the divided rate cannot be a rule, such as one with a period above 146 years, each node gets the whole rule.
    ///
    /// ```
    /// use tollgate_core::{Rate, Rule, TokenBucket};
    ///
    /// let rule = Rule::from(TokenBucket::new(Rate::per_second(1000)?, 600)?);
    /// assert_eq!(rule.share_of(4), Rule::from(TokenBucket::new(Rate::per_second(250)?, 150)?));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[must_use]
    pub fn share_of(&self, nodes: u32) -> Self {
        let nodes = u64::from(nodes.max(1));
        let part = |limit: u64| (limit / nodes).max(1);
        let token = |rate: Option<Rate>, burst| TokenBucket::new(rate?, burst).ok().map(Self::from);
        let share = match self.parts() {
            RuleParts::Concurrency { limit, lease } => {
                Concurrency::new(part(limit), lease.map(Duration::from)).ok().map(Self::from)
            }
            RuleParts::LeakyBucket { bucket, .. } => {
                let rate = slower(bucket.per_nano, Nanos::new(bucket.interval), nodes);
                rate.and_then(|rate| LeakyBucket::new(rate, part(bucket.capacity)).ok()).map(Self::from)
            }
            RuleParts::TokenBucket { bucket, .. } | RuleParts::BurstCredits { base: bucket, .. } => {
                token(slower(bucket.per_nano, Nanos::new(bucket.interval), nodes), part(self.capacity()))
            }
            RuleParts::FixedWindow { limit, window, .. }
            | RuleParts::SlidingLog { limit, window }
            | RuleParts::SlidingCounter { limit, window, .. } => {
                token(slower(limit, window, nodes), part(limit))
            }
        };
        share.unwrap_or(*self)
    }

    /// Whether each of `nodes` processes has a share of the rule. A concurrency limit below the number of nodes cannot be shared: one
    /// slot per node would exceed the limit, and a node does not know which nodes have a slot.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, Rule};
    ///
    /// let rule = Rule::from(Concurrency::new(3, None)?);
    /// assert!(rule.has_share(3) && !rule.has_share(4));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn has_share(&self, nodes: u32) -> bool {
        !matches!(self, Self::Concurrency(_)) || self.capacity() >= u64::from(nodes)
    }

    /// Whether a share of the rule must begin empty. A rule that refills with time must: the tokens that the key had before the
    /// outage may already have been spent through the store. A queue lets requests go at its rate in any case, and time does not
    /// refill slots.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, Rate, Rule, TokenBucket};
    ///
    /// assert!(Rule::from(TokenBucket::new(Rate::per_second(5)?, 10)?).share_begins_empty());
    /// assert!(!Rule::from(Concurrency::new(3, None)?).share_begins_empty());
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub const fn share_begins_empty(&self) -> bool {
        match self {
            Self::LeakyBucket(_) | Self::LeakyBucketMaxWait(_) | Self::Concurrency(_) => false,
            Self::TokenBucket(_)
            | Self::TokenBucketMaxWait(_)
            | Self::BurstCredits(_)
            | Self::FixedWindow(_)
            | Self::SlidingLog(_)
            | Self::SlidingCounter(_) => true,
        }
    }
}

/// The rate of `tokens` per `span`, divided by `nodes`. None if its period would be too long.
fn slower(tokens: u64, span: Nanos, nodes: u64) -> Option<Rate> {
    let divisor = gcd(tokens, nodes);
    let span = span.get().checked_mul(nodes / divisor)?;
    Rate::new(tokens / divisor, Duration::from_nanos(span)).ok()
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Align, BurstCredits, FixedWindow, RuleError, SlidingLog};

    #[test]
    fn shares_add_up_to_no_more_than_the_whole() -> Result<(), RuleError> {
        let minute = Duration::from_secs(60);
        let token = |rate: Result<Rate, _>, burst| TokenBucket::new(rate?, burst).map(Rule::from);
        for (rule, nodes, expected) in [
            (token(Rate::per_second(1000), 600)?, 4, token(Rate::per_second(250), 150)?),
            (token(Rate::per_minute(1), 1)?, 4, token(Rate::new(1, 4 * minute), 1)?),
            (token(Rate::per_second(3), 3)?, 2, token(Rate::new(3, Duration::from_secs(2)), 1)?),
            (FixedWindow::new(10, minute, Align::Epoch)?.into(), 4, token(Rate::new(10, 4 * minute), 2)?),
            (SlidingLog::new(3, minute)?.into(), 4, token(Rate::new(3, 4 * minute), 1)?),
            (
                BurstCredits::new(Rate::per_second(100)?, Rate::per_second(1000)?, 27_000)?.into(),
                2,
                token(Rate::per_second(50), 500)?,
            ),
            (
                LeakyBucket::new(Rate::per_second(3000)?, 5000)?.into(),
                3,
                LeakyBucket::new(Rate::per_second(1000)?, 1666)?.into(),
            ),
            (Concurrency::new(20, Some(minute))?.into(), 3, Concurrency::new(6, Some(minute))?.into()),
            (token(Rate::per_second(5), 10)?, 0, token(Rate::per_second(5), 10)?),
        ] {
            assert_eq!(rule.share_of(nodes), expected, "{rule:?} among {nodes}");
        }
        Ok(())
    }
}
