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

/// What an offer depends on besides the state of the key, as plain numbers: for stores that decide in another process. One for each
/// schedule of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfferParts {
    /// The units that last for [`sync`](Draw::sync).
    pub wanted: u64,
    /// The least units of a grant.
    pub least: u64,
    /// The most units of a grant.
    pub most: u64,
    /// The part of the burst that is kept for single requests, in pieces of the schedule (see [`BucketParts`](crate::BucketParts)).
    /// 0 for windows.
    pub reserve: u64,
    /// The whole units of this part.
    pub kept: u64,
}

/// What a bucket can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) units: u64,
    pub(crate) start: Nanos,
}

/// The least units that are worth a call.
const WORTH_A_CALL: u64 = 8;

impl Draw {
    /// A draw of exactly one cost, decided as one request is.
    pub const fn of_cost(cost: u64) -> Self {
        Self { sync: Nanos::ZERO, demand: 0, cost, owed: 0, mark: None }
    }

    /// The units that last for `sync`.
    fn wanted(&self) -> u64 {
        let units = u128::from(self.demand) * u128::from(self.sync.get()) / 1_000_000_000;
        u64::try_from(units).unwrap_or(u64::MAX)
    }

    /// What an offer depends on, for a rule that has `per_ms` units per millisecond. Nothing is kept for single requests.
    pub(crate) fn offer_parts(&self, capacity: u64, per_ms: u64) -> OfferParts {
        let wanted = self.wanted();
        let half_a_life = u64::try_from(u128::from(wanted) * 5 / 2).unwrap_or(u64::MAX);
        let most = (capacity / 4).min(half_a_life);
        let least = per_ms.max(WORTH_A_CALL).min(most).max(self.cost).max(1);
        OfferParts { wanted, least, most: most.max(least), reserve: 0, kept: 0 }
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
        let offer = if self.has_offer(draw) { self.offer(state, draw, now) } else { None };
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

    /// What an offer to a draw depends on besides the state, for each schedule of the rule: two for burst credits. Empty if the draw
    /// is decided as one request.
    ///
    /// ```
    /// use tollgate_core::lease::Draw;
    /// use tollgate_core::{Nanos, Rate, Rule, TokenBucket};
    ///
    /// let rule = Rule::from(TokenBucket::new(Rate::per_second(1000)?, 1000)?);
    /// let draw = Draw { sync: Nanos::new(100_000_000), demand: 500, ..Draw::of_cost(0) };
    /// let parts = rule.offer_parts(&draw).next().expect("it has demand");
    /// assert_eq!((parts.wanted, parts.least, parts.most, parts.kept), (50, 8, 125, 100));
    /// assert_eq!(rule.offer_parts(&Draw::of_cost(1)).count(), 0);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn offer_parts(&self, draw: &Draw) -> impl Iterator<Item = OfferParts> + use<> {
        let parts = match self {
            _ if !self.has_offer(draw) => [None, None],
            Self::TokenBucket(rule) => [Some(rule.bucket().offer_parts(draw)), None],
            Self::BurstCredits(rule) => rule.buckets().map(|bucket| Some(bucket.offer_parts(draw))),
            Self::FixedWindow(rule) => [Some(self.window_offer_parts(draw, rule.window())), None],
            Self::SlidingCounter(rule) => [Some(self.window_offer_parts(draw, rule.window())), None],
            Self::LeakyBucket(_)
            | Self::TokenBucketMaxWait(_)
            | Self::LeakyBucketMaxWait(_)
            | Self::SlidingLog(_)
            | Self::Concurrency(_) => [None, None],
        };
        parts.into_iter().flatten()
    }

    /// Whether a draw may get more than the cost of one request.
    fn has_offer(&self, draw: &Draw) -> bool {
        draw.demand > 0 && draw.cost <= self.capacity()
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
        let OfferParts { wanted, least, most, .. } = self.window_offer_parts(draw, window);
        if free < draw.cost.max(1) {
            return None;
        }
        let units = wanted.min(free / 2).min(most).max(least).min(free);
        Some(Offer { units, start: Nanos::ZERO })
    }

    fn window_offer_parts(&self, draw: &Draw, window: Nanos) -> OfferParts {
        let per_ms = u128::from(self.capacity()) * 1_000_000 / u128::from(window.get());
        draw.offer_parts(self.capacity(), u64::try_from(per_ms).unwrap_or(u64::MAX))
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
