//! Rules that come with the request as three whole numbers, as redis-cell's `CL.THROTTLE` has them.

use std::fmt;
use std::time::Duration;

use parking_lot::RwLock;
use smallvec::SmallVec;
use tollgate::{Decision, KeyedLimiter, Outcome, Rate, Request, Rule, RuleError, Timestamp, TokenBucket};

use super::Engine;
use super::throttle::{Nodes, Rules, ThrottleError, Throttled};
use crate::store::{Ask, Unavailable};

/// What `CL.THROTTLE` asks.
#[derive(Clone, Copy, Debug)]
pub struct CellRequest<'a> {
    /// Of any bytes. The keys of these requests are their own: no limit of the policy and no other algorithm has them.
    pub key: &'a [u8],
    /// The rule.
    pub numbers: CellNumbers,
    /// What it costs. 0 peeks: nothing is charged, and no key is made.
    pub quantity: u64,
}

/// A token bucket as redis-cell writes it. A key that is asked under other numbers keeps its arrival time
/// ([`TokenBucket::keeping_arrival_time`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CellNumbers {
    /// What passes at once beyond the first: the bucket holds one more.
    pub max_burst: u64,
    /// Tokens that come in each period.
    pub count: u64,
    /// In seconds.
    pub period: u64,
}

impl CellNumbers {
    fn rule(self) -> Result<Rule, RuleError> {
        let rate = Rate::new(self.count, Duration::from_secs(self.period))?;
        Ok(TokenBucket::new(rate, self.max_burst.saturating_add(1))?.keeping_arrival_time().into())
    }

    fn require_rule(self) -> Result<Rule, ThrottleError> {
        self.rule().map_err(|error| ThrottleError::Rule(error.to_string()))
    }
}

impl Engine {
    /// Decides one request of [`throttle_cells`](Self::throttle_cells), wherever states are kept.
    ///
    /// # Errors
    ///
    /// When the rule makes no sense, or the store cannot keep its states.
    pub async fn decide_cell(
        &self,
        request: &CellRequest<'_>,
        now: Timestamp,
    ) -> Result<Throttled, ThrottleError> {
        let (rule, cost) = (request.numbers.require_rule()?, request.quantity);
        let Some(shared) = &self.shared else {
            let decision = self.cells.check(request, now)?;
            return Ok(Throttled { decision, ..Throttled::not_yet(rule) });
        };
        match shared.ask_alone(Ask::sent(CELL, request.key, rule, cost)).await? {
            Ok(throttled) => Ok(throttled),
            Err(unavailable) => {
                let mut throttled = self
                    .cells
                    .with_known(request, now, |here| shared.fall_back_alone(here, rule, &unavailable, now))?;
                if cost == 0 {
                    throttled.decision.outcome = Outcome::ALLOW; // redis-cell limits no look: what remains tells it
                }
                Ok(throttled)
            }
        }
    }

    /// [`reset_cell`](Self::reset_cell), wherever states are kept.
    ///
    /// # Errors
    ///
    /// When the store gives no answer.
    pub async fn forget_cell(&self, key: &[u8]) -> Result<bool, Unavailable> {
        let was_known = self.cells.reset(key);
        let Some(shared) = &self.shared else { return Ok(was_known) };
        // Of any numbers: all keys of these requests look alike.
        let rule = CellNumbers { max_burst: 0, count: 1, period: 1 }.rule().expect("a bucket of one");
        let ask = Ask::sent(CELL, key, rule, 0);
        shared.store.forget(&ask).await
    }
}

/// What stands for a limit's name.
const CELL: &str = "*cell";

/// Requests that are decided side by side: as many as the table fetches from memory at once.
const BATCH: usize = 16;

/// The limiter of these rules.
pub(super) struct Cells(RwLock<Rules<CellNumbers>>);

impl Cells {
    /// Keys in the table of another limiter, whose rule is asked of nobody here.
    pub(super) fn new(limiter: KeyedLimiter, nodes: Option<Nodes>) -> Self {
        Self(RwLock::new(Rules::new(limiter, nodes)))
    }

    /// Decides each request on its own and in order, and tells each decision.
    pub(super) fn check_each(
        &self,
        requests: &[CellRequest<'_>],
        now: Timestamp,
        mut each: impl FnMut(Result<Decision, ThrottleError>),
    ) {
        for batch in requests.chunks(BATCH) {
            if self.check_known(batch, now, |decision| each(Ok(decision))).is_none() {
                // A rule is new, or none: they go one by one, so that each knows what those before it have done.
                batch.iter().for_each(|request| each(self.check(request, now)));
            }
        }
    }

    fn check(&self, request: &CellRequest<'_>, now: Timestamp) -> Result<Decision, ThrottleError> {
        self.with_known(request, now, |ask| ask.check_at(now))
    }

    /// Does something with the key in this process of a request whose rule is made known if it is not.
    fn with_known<T>(
        &self,
        request: &CellRequest<'_>,
        now: Timestamp,
        then: impl Fn(Request<'_>) -> T,
    ) -> Result<T, ThrottleError> {
        let known = || {
            let rules = self.0.read();
            let known = rules.known.get(&request.numbers)?;
            known.use_at(now);
            Some(then(rules.limiter.ask(request.key).tier(known.tier).cost(request.quantity)))
        };
        if let Some(done) = known() {
            return Ok(done);
        }
        self.0.write().add(request.numbers, request.numbers.require_rule()?, now)?;
        // Somebody else may have taken its place since; that has to be done four thousand times in between.
        known().ok_or(ThrottleError::TooManyRules)
    }

    /// Decides requests all of whose rules are known, at most [`BATCH`]. None, and none is decided, where one is not.
    fn check_known(
        &self,
        batch: &[CellRequest<'_>],
        now: Timestamp,
        each: impl FnMut(Decision),
    ) -> Option<()> {
        let rules = self.0.read();
        let mut asks: SmallVec<[Request<'_>; BATCH]> = SmallVec::new();
        let mut last = None;
        for request in batch {
            // Most batches bring the same numbers throughout.
            let tier = match last {
                Some((numbers, tier)) if numbers == request.numbers => tier,
                _ => {
                    let known = rules.known.get(&request.numbers)?;
                    known.use_at(now);
                    known.tier
                }
            };
            last = Some((request.numbers, tier));
            asks.push(rules.limiter.ask(request.key).tier(tier).cost(request.quantity));
        }
        let mut decisions = [Decision::default(); BATCH];
        let decisions = &mut decisions[..asks.len()];
        KeyedLimiter::check_each_at(&asks, now, decisions);
        decisions.iter().copied().for_each(each);
        Some(())
    }

    /// Forgets a key: whether it was remembered.
    pub(super) fn reset(&self, key: &[u8]) -> bool {
        self.0.read().limiter.reset(key)
    }
}

impl fmt::Debug for Cells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cells(..)")
    }
}

#[cfg(test)]
mod tests;
