//! The share of a limit that one of several processes decides by while their store is gone.

use std::time::Duration;

use tollgate::{Concurrency, LeakyBucket, Nanos, Rate, Rule, RuleParts, TokenBucket};

/// The rule of one of `nodes` that share `rule`.
///
/// Rules that count in time become a bucket with the rate divided by `nodes`: a bucket can begin empty, and a part of a window
/// of three among four nodes would be nothing. Their rates add up to no more than the rate of `rule`. The burst
/// or the queue of each node is at least 1, so all of them add up to at most `nodes`, or to that of `rule` if it is larger. The slots
/// of a concurrency limit are divided. They add up to no more than its limit, because a node may have no share ([`has_share`]).
pub(super) fn share(rule: &Rule, nodes: u32) -> Rule {
    let nodes = u64::from(nodes.max(1));
    let part = |limit: u64| (limit / nodes).max(1);
    match rule.parts() {
        RuleParts::Concurrency { limit, lease } => {
            Concurrency::new(part(limit), lease.map(Duration::from)).map_or(*rule, Rule::from)
        }
        RuleParts::LeakyBucket { bucket, .. } => {
            let rate = slower(bucket.per_nano, Nanos::new(bucket.interval), nodes);
            rate.and_then(|rate| LeakyBucket::new(rate, part(bucket.capacity)).ok()).map_or(*rule, Rule::from)
        }
        RuleParts::TokenBucket { bucket, .. } | RuleParts::BurstCredits { base: bucket, .. } => {
            let rate = slower(bucket.per_nano, Nanos::new(bucket.interval), nodes);
            token(rate, part(rule.capacity())).unwrap_or(*rule)
        }
        RuleParts::FixedWindow { limit, window, .. }
        | RuleParts::SlidingLog { limit, window }
        | RuleParts::SlidingCounter { limit, window, .. } => {
            token(slower(limit, window, nodes), part(limit)).unwrap_or(*rule)
        }
    }
}

/// Whether each of `nodes` has a share of `rule`. A concurrency limit below the number of nodes cannot be shared. One slot per node
/// would exceed the limit, and a node does not know which nodes have a slot.
pub(super) fn has_share(rule: &Rule, nodes: u32) -> bool {
    !matches!(rule, Rule::Concurrency(_)) || rule.capacity() >= u64::from(nodes)
}

/// `tokens` in a span that is `nodes` times as long.
fn slower(tokens: u64, span: Nanos, nodes: u64) -> Option<Rate> {
    let divisor = gcd(tokens, nodes);
    let span = span.get().checked_mul(nodes / divisor)?;
    Rate::new(tokens / divisor, Duration::from_nanos(span)).ok()
}

fn token(rate: Option<Rate>, burst: u64) -> Option<Rule> {
    TokenBucket::new(rate?, burst).ok().map(Rule::from)
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
    use tollgate::{Align, BurstCredits, FixedWindow, SlidingLog};

    #[test]
    fn shares_add_up_to_no_more_than_the_whole() -> Result<(), tollgate::RuleError> {
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
            assert_eq!(share(&rule, nodes), expected, "{rule:?} among {nodes}");
        }
        Ok(())
    }
}
