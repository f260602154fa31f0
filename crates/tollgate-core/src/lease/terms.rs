//! Which rules can be leased, and on which terms.

use crate::{AlgorithmKind, Nanos, Rule};

/// A grant may be spent for this many times [`Terms::sync`].
const LIFE: u64 = 5;

/// The smallest burst that can be leased. A smaller one would be gone with one or two grants.
const SMALLEST_BURST: u64 = 16;

/// The terms on which a rule is leased.
///
/// ```
/// use tollgate_core::{Nanos, Rate, Rule, TokenBucket};
///
/// let rule = Rule::from(TokenBucket::new(Rate::per_second(1000)?, 1000)?);
/// let terms = rule.lease_terms(Nanos::new(100_000_000)).unwrap();
/// assert_eq!(terms.life().get(), 500_000_000);
/// // Four nodes can hold 500 units each, but only 500 units come in the life of a grant.
/// assert_eq!((terms.most_held(), terms.most_excess(4)), (500, 500));
/// // What comes in 100 ms is kept for single requests.
/// assert_eq!(terms.reserve(), 100);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    sync: Nanos,
    most_held: u64,
    per_life: Option<u64>, // units that come in the life of a grant; none if grants end with their window
}

impl Terms {
    /// How long a grant should last at the present demand.
    pub const fn sync(&self) -> Nanos {
        self.sync
    }

    /// How long a grant may be spent.
    pub const fn life(&self) -> Nanos {
        life(self.sync)
    }

    /// The most units of a key that one node holds at any moment, if no request costs more than a fourth of the burst.
    pub const fn most_held(&self) -> u64 {
        self.most_held
    }

    /// The units of the burst that are kept for requests that the store decides one by one: what comes in [`sync`](Self::sync), and a
    /// fourth of the burst at most. Zero for windows.
    pub fn reserve(&self) -> u64 {
        self.per_life.map_or(0, |per_life| per_life.div_ceil(LIFE).min(self.most_held / 2))
    }

    /// The most units by which `nodes` together exceed, in any span of time, what the rule itself allows in that span. In total they
    /// never exceed it. Grants of windows end with their window, so they add nothing.
    pub fn most_excess(&self, nodes: u64) -> u64 {
        self.per_life.map_or(0, |per_life| self.most_held.saturating_mul(nodes).min(per_life))
    }
}

/// Why a rule cannot be leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoLease {
    /// The algorithm depends on the order or the time of each request.
    Algorithm(AlgorithmKind),
    /// Requests may wait for their turn, and turns have one order for all nodes.
    MaxWait,
    /// The burst is too small to be divided into grants.
    Burst {
        /// The burst of the rule.
        found: u64,
        /// The smallest burst that can be leased.
        least: u64,
    },
    /// The window or sub-window is too short for grants to be worth a call.
    Window {
        /// The window or sub-window of the rule.
        found: Nanos,
        /// The shortest that can be leased.
        least: Nanos,
    },
    /// Denied requests are counted, and a node that denies by itself tells the store nothing.
    CountsDenied,
}

impl Rule {
    /// The terms on which this rule is leased if grants should last for `sync`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::lease::NoLease;
    /// use tollgate_core::{AlgorithmKind, Nanos, Rule, SlidingLog};
    ///
    /// let rule = Rule::from(SlidingLog::new(100, Duration::from_secs(60))?);
    /// let terms = rule.lease_terms(Nanos::new(100_000_000));
    /// assert_eq!(terms, Err(NoLease::Algorithm(AlgorithmKind::SlidingLog)));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The reason, if the rule cannot be leased.
    pub fn lease_terms(&self, sync: Nanos) -> Result<Terms, NoLease> {
        let most_held = self.capacity() / 2;
        let window_terms = |found: Nanos| {
            let least = life(sync);
            if found < least {
                return Err(NoLease::Window { found, least });
            }
            Ok(Terms { sync, most_held, per_life: None })
        };
        match self {
            Self::TokenBucket(_) | Self::BurstCredits(_) => {
                if self.capacity() < SMALLEST_BURST {
                    return Err(NoLease::Burst { found: self.capacity(), least: SMALLEST_BURST });
                }
                Ok(Terms { sync, most_held, per_life: Some(self.gained_in(life(sync))) })
            }
            Self::FixedWindow(_) if self.counts_denied() => Err(NoLease::CountsDenied),
            Self::FixedWindow(rule) => window_terms(rule.window()),
            Self::SlidingCounter(rule) => window_terms(rule.sub_window()),
            Self::TokenBucketMaxWait(_) | Self::LeakyBucketMaxWait(_) => Err(NoLease::MaxWait),
            Self::LeakyBucket(_) => Err(NoLease::Algorithm(AlgorithmKind::LeakyBucket)),
            Self::SlidingLog(_) => Err(NoLease::Algorithm(AlgorithmKind::SlidingLog)),
            Self::Concurrency(_) => Err(NoLease::Algorithm(AlgorithmKind::Concurrency)),
        }
    }

    /// The most units that a bucket gains in a span. Zero for other rules.
    fn gained_in(&self, span: Nanos) -> u64 {
        match self {
            Self::TokenBucket(rule) => rule.bucket().gained_in(span),
            Self::BurstCredits(rule) => {
                rule.buckets().map(|bucket| bucket.gained_in(span)).into_iter().min().unwrap_or(0)
            }
            Self::LeakyBucket(_)
            | Self::TokenBucketMaxWait(_)
            | Self::LeakyBucketMaxWait(_)
            | Self::FixedWindow(_)
            | Self::SlidingLog(_)
            | Self::SlidingCounter(_)
            | Self::Concurrency(_) => 0,
        }
    }
}

const fn life(sync: Nanos) -> Nanos {
    Nanos::new(sync.get().saturating_mul(LIFE))
}
