//! How much a draw gets.

use crate::rule::own;
use crate::{Credits, Nanos, Outcome, PermitId, Retry, Rule, State, Status, Tat, Timestamp, Window};

/// A node's question to the store: units of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Draw {
    /// How long the grant should last at the present demand.
    pub sync: Nanos,
    /// The units that requests at this node ask for, per second. With 0, the draw gets its `cost`, as one request would, or nothing.
    pub demand: u64,
    /// The cost of the request that waits for the draw, or 0.
    pub cost: u64,
    /// Units that the node spent while the store was gone. They are charged first.
    pub owed: u64,
    /// The latest mark that the node knows, if the store may have forgotten some writes.
    pub mark: Option<Mark>,
}

/// The store's answer to a [`Draw`]. All its units have been charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The units, or 0.
    pub units: u64,
    /// The time until they may be spent.
    pub start: Nanos,
    /// The time until they may no longer be spent, if they end with a window.
    pub end: Option<Nanos>,
    /// When the waiting request may ask again, if there are no units for it.
    pub retry: Option<Retry>,
    /// What the store has charged by now.
    pub mark: Mark,
    /// What remains of the key in the store.
    pub status: Status,
}

/// What a store has charged to a key. A node presents the latest mark it knows to a store that may have forgotten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// The state of a bucket.
    Bucket(Tat),
    /// The state of burst credits.
    Credits(Credits),
    /// The newest window or sub-window that was charged.
    Window {
        /// When it ends.
        end: Timestamp,
        /// The units that were charged in it.
        used: u64,
    },
}

/// What a bucket can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) units: u64,
    pub(crate) start: Nanos,
}

/// The bounds of a grant.
pub(crate) struct Sizes {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

/// The least units that are worth a call.
const WORTH_A_CALL: u64 = 8;

impl Draw {
    /// A draw of exactly one cost, decided as one request is.
    pub const fn of_cost(cost: u64) -> Self {
        Self { sync: Nanos::ZERO, demand: 0, cost, owed: 0, mark: None }
    }

    /// The units that last for `sync`.
    pub(crate) fn wanted(&self) -> u64 {
        let units = u128::from(self.demand) * u128::from(self.sync.get()) / 1_000_000_000;
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// The least and the most units of a grant, for a rule that has `per_ms` units per millisecond.
    pub(crate) fn sizes(&self, capacity: u64, per_ms: u64) -> Sizes {
        let half_a_life = u64::try_from(u128::from(self.wanted()) * 5 / 2).unwrap_or(u64::MAX);
        let most = (capacity / 4).min(half_a_life);
        let least = per_ms.max(WORTH_A_CALL).min(most).max(self.cost).max(1);
        Sizes { least, most: most.max(least) }
    }
}

impl Rule {
    /// Decides how much a draw gets, and charges it. The state is that of the store.
    ///
    /// This is for rules that have [lease terms](Self::lease_terms). Other rules give exactly the cost of the draw, or nothing, and
    /// concurrency limits give nothing.
    ///
    /// ```
    /// use tollgate_core::lease::Draw;
    /// use tollgate_core::{Nanos, PermitId, Rate, Rule, State, Timestamp, TokenBucket};
    ///
    /// let rule = Rule::from(TokenBucket::new(Rate::per_second(1000)?, 1000)?);
    /// let (mut key, now) = (State::default(), Timestamp::from_nanos(0));
    /// rule.spend(&mut key, PermitId(0), 900, now);
    /// let draw = Draw { sync: Nanos::new(100_000_000), demand: 5000, ..Draw::of_cost(0) };
    /// let grant = rule.grant(&mut key, &draw, now);
    /// // 100 units are kept for single requests, so these are units that come within the next 83 ms.
    /// assert_eq!((grant.units, grant.start.get()), (83, 83_000_000));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn grant(&self, state: &mut State, draw: &Draw, now: Timestamp) -> Grant {
        if let Some(mark) = draw.mark {
            self.present(state, mark, now);
        }
        if draw.owed > 0 {
            self.spend_in_full(state, draw.owed, now);
        }
        let offer =
            if draw.demand == 0 || draw.cost > self.capacity() { None } else { self.offer(state, draw, now) };
        let nothing = Offer { units: 0, start: Nanos::ZERO };
        let (offer, retry) = match offer {
            Some(offer) => (offer, None),
            None if matches!(self, Self::Concurrency(_)) => (nothing, Some(Retry::Unknown)),
            // The waiting request is decided as if it had come to the store by itself.
            None => match self.test(state, draw.cost.max(1), now) {
                Outcome::Allow { delay } => (Offer { units: draw.cost, start: delay }, None),
                Outcome::Deny { retry } => (nothing, Some(retry)),
            },
        };
        let Offer { units, start } = offer;
        self.spend(state, PermitId(0), units, now);
        let end = if units > 0 { self.window_end(state).map(|end| end.since(now)) } else { None };
        Grant { units, start, end, retry, mark: self.mark(state), status: self.status(state, now) }
    }

    /// What a draw gets. None if that is nothing that could be spent within a second.
    fn offer(&self, state: &State, draw: &Draw, now: Timestamp) -> Option<Offer> {
        match self {
            Self::TokenBucket(rule) => {
                let tat = if let State::Bucket(tat) = state { *tat } else { Tat::default() };
                rule.bucket().offer(rule.bucket().ahead(tat, now), draw)
            }
            Self::BurstCredits(rule) => {
                let Credits { base, peak } =
                    if let State::Credits(credits) = state { *credits } else { Credits::default() };
                let [slow, fast] = rule.buckets();
                let (slow, fast) =
                    (slow.offer(slow.ahead(base, now), draw)?, fast.offer(fast.ahead(peak, now), draw)?);
                Some(Offer { units: slow.units.min(fast.units), start: slow.start.max(fast.start) })
            }
            Self::FixedWindow(rule) => self.window_offer(state, draw, rule.window(), now),
            Self::SlidingCounter(rule) => self.window_offer(state, draw, rule.window(), now),
            Self::LeakyBucket(_)
            | Self::TokenBucketMaxWait(_)
            | Self::LeakyBucketMaxWait(_)
            | Self::SlidingLog(_)
            | Self::Concurrency(_) => None,
        }
    }

    /// Units of a window are not promised for later, and none are kept for single requests: they do not come back before the
    /// window ends.
    fn window_offer(&self, state: &State, draw: &Draw, window: Nanos, now: Timestamp) -> Option<Offer> {
        let free = self.status(state, now).remaining;
        let per_ms = u128::from(self.capacity()) * 1_000_000 / u128::from(window.get());
        let Sizes { least, most } = draw.sizes(self.capacity(), u64::try_from(per_ms).unwrap_or(u64::MAX));
        if free < draw.cost.max(1) {
            return None;
        }
        let units = draw.wanted().min(free / 2).min(most).max(least).min(free);
        Some(Offer { units, start: Nanos::ZERO })
    }

    /// When the newest window or sub-window ends that was charged.
    fn window_end(&self, state: &State) -> Option<Timestamp> {
        match (self, state) {
            (Self::FixedWindow(_), State::Window(window)) => Some(window.end),
            (Self::SlidingCounter(rule), State::Counts(counts)) => Some(rule.newest_end(counts)),
            (_, _) => None,
        }
    }

    /// What has been charged to a key.
    fn mark(&self, state: &State) -> Mark {
        match (self, state) {
            (Self::TokenBucket(_), State::Bucket(tat)) => Mark::Bucket(*tat),
            (Self::BurstCredits(_), State::Credits(credits)) => Mark::Credits(*credits),
            (Self::FixedWindow(_), State::Window(Window { end, used, .. })) => {
                Mark::Window { end: *end, used: *used }
            }
            (Self::SlidingCounter(rule), State::Counts(counts)) => {
                Mark::Window { end: rule.newest_end(counts), used: rule.newest_used(counts) }
            }
            (_, _) => Mark::Bucket(Tat::default()),
        }
    }

    /// Has at least as much charged as a mark says.
    fn present(&self, state: &mut State, mark: Mark, now: Timestamp) {
        match (self, mark) {
            (Self::TokenBucket(rule), Mark::Bucket(tat)) => rule.bucket().present(own(state), tat, now),
            (Self::BurstCredits(rule), Mark::Credits(known)) => {
                let credits: &mut Credits = own(state);
                let [base, peak] = rule.buckets();
                base.present(&mut credits.base, known.base, now);
                peak.present(&mut credits.peak, known.peak, now);
            }
            (Self::FixedWindow(rule), Mark::Window { end, used }) => rule.present(own(state), end, used, now),
            (Self::SlidingCounter(rule), Mark::Window { end, used }) => {
                rule.present(own(state), end, used, now)
            }
            // The mark of another algorithm.
            (_, _) => {}
        }
    }
}
