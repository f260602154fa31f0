//! Calls that bring their rule: `POST /v1/throttle` as JSON, redis-cell's `CL.THROTTLE` as three whole numbers.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate::{
    AlgorithmKind, Decision, Group, KeyedLimiter, Outcome, Rate, Request, RequestRule, Rule, Timestamp,
    TokenBucket,
};

use super::answer::Answer;
use super::backend::Call;
use super::plan::{Plan, PlannedRequest, SentAsk};
use super::sent_rules::{KnownRule, SentRules, ThrottleError};
use super::{Engine, Hits, Reason};
use crate::compiled::Values;
use crate::policy::sent_rule;
use crate::store::{Source, Unavailable};

/// The decision by a rule that came with the call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttled {
    /// The outcome, and the status of the key after it.
    pub decision: Decision,
    /// The rule.
    pub rule: Rule,
    /// Where the decision comes from.
    pub source: Source,
    /// Whether the state of the key is known. It is not if `on_error: allow` or `on_error: deny` decided.
    pub is_known: bool,
}

impl Throttled {
    /// Why the request is denied.
    pub fn reason(&self) -> Option<Reason> {
        match self.decision.outcome {
            Outcome::Allow { .. } => None,
            Outcome::Deny { .. } if !self.is_known => Some(Reason::Unavailable),
            Outcome::Deny { retry } => {
                Some(Reason::of(retry, matches!(self.rule, Rule::Concurrency(_)), false))
            }
        }
    }
}

/// A request with the rule it is to be decided by.
#[derive(Clone, Copy, Debug)]
pub struct SentRule<'a> {
    /// The key. Each algorithm has its own keys, apart from those of the policy's limits.
    pub key: &'a str,
    /// The algorithm.
    pub algorithm: AlgorithmKind,
    /// Its numbers, as a JSON object.
    pub numbers: &'a str,
    /// The cost of the request. 0 peeks.
    pub cost: u64,
}

/// A call of `CL.THROTTLE`.
#[derive(Clone, Copy, Debug)]
pub struct CellRequest<'a> {
    /// The key, of any bytes. No limit of the policy and no other algorithm has it.
    pub key: &'a [u8],
    /// The rule.
    pub numbers: CellNumbers,
    /// The cost. 0 peeks: nothing is charged, and no key is made.
    pub quantity: u64,
}

/// A token bucket as redis-cell writes it. A key that is asked under other numbers keeps its arrival time
/// ([`TokenBucket::keeping_arrival_time`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CellNumbers {
    /// What passes at once beyond the first: the bucket holds one more.
    pub max_burst: u64,
    /// Tokens per period.
    pub count: u64,
    /// In seconds.
    pub period: u64,
}

impl CellNumbers {
    fn known(self, cells: &SentRules<Self>) -> Result<KnownRule, ThrottleError> {
        cells.get(&self, |numbers| *numbers, || self.rule())
    }

    fn rule(self) -> Result<Rule, ThrottleError> {
        let rate = Rate::new(self.count, Duration::from_secs(self.period));
        let bucket = rate.and_then(|rate| TokenBucket::new(rate, self.max_burst.saturating_add(1)));
        let bucket = bucket.map_err(|error| ThrottleError::Rule(error.to_string()))?;
        Ok(bucket.keeping_arrival_time().into())
    }
}

/// The name of cells in a store.
const CELL: &str = "*cell";

/// The longest numbers, in bytes of JSON.
const LONGEST_NUMBERS: usize = 1024;

/// Cells that are decided side by side: as many as the table fetches from memory at once.
const BATCH: usize = 16;

/// A call with its rule: a plan of one ask.
#[derive(Clone, Copy)]
struct ThrottleCall<'a> {
    engine: &'a Engine,
    sent: Sent<'a>,
}

#[derive(Clone, Copy)]
enum Sent<'a> {
    Rule(SentRule<'a>),
    Cell(CellRequest<'a>),
}

impl<'a> ThrottleCall<'a> {
    const fn cost(&self) -> u64 {
        match self.sent {
            Sent::Rule(SentRule { cost, .. }) | Sent::Cell(CellRequest { quantity: cost, .. }) => cost,
        }
    }

    /// The rule, and the limiter and the hash of its key.
    #[inline]
    fn rule(&self) -> Result<(KnownRule, &'a KeyedLimiter, u64), ThrottleError> {
        match self.sent {
            Sent::Rule(sent) => {
                let rules = &self.engine.throttle[&sent.algorithm];
                let hash = rules.limiter.ask(sent.key).key_hash();
                Ok((rules.get(sent.numbers, |numbers| numbers.into(), || sent.rule())?, &rules.limiter, hash))
            }
            Sent::Cell(request) => {
                let cells = &self.engine.cells;
                let hash = cells.limiter.ask(request.key).key_hash();
                Ok((request.numbers.known(cells)?, &cells.limiter, hash))
            }
        }
    }
}

impl SentRule<'_> {
    /// Makes the rule from its numbers.
    fn rule(&self) -> Result<Rule, ThrottleError> {
        if self.numbers.len() > LONGEST_NUMBERS {
            let message = format!("a rule of {} bytes: {LONGEST_NUMBERS} are the most", self.numbers.len());
            return Err(ThrottleError::Rule(message));
        }
        sent_rule(self.algorithm, self.numbers).map_err(ThrottleError::Rule)
    }
}

impl<'a> Call<'a> for ThrottleCall<'a> {
    type Error = ThrottleError;

    fn has_leases(&self) -> bool {
        false // the next call may bring other numbers
    }

    fn plan<T>(&self, then: impl FnOnce(Plan<'a>) -> T) -> Result<T, ThrottleError> {
        let (name, key) = match self.sent {
            Sent::Rule(sent) => ("*throttle", sent.key.as_bytes()),
            Sent::Cell(request) => (CELL, request.key),
        };
        let (KnownRule { rule, local, .. }, limiter, hash) = self.rule()?;
        let mut plan = Plan::new(self.engine);
        plan.is_reduced = false; // these rates are not
        let (hits, cost) = (Hits::Charge(self.cost()), self.cost());
        plan.requests.push(PlannedRequest { values: Values::default(), hits, cost, found: None });
        let key_parts = std::iter::once(key).collect();
        let sent = SentAsk { name: name.into(), key: key_parts, tag: key, rule, limiter, local };
        plan.add_sent(sent, hash, Group::All, false);
        Ok(then(plan))
    }
}

impl Engine {
    /// Decides a request by the rule that comes with it.
    ///
    /// ```
    /// use tollgate::AlgorithmKind;
    /// use tollgate_policy::{Engine, Policy, SentRule};
    ///
    /// let engine = Engine::new(Policy::default())?;
    /// let numbers = r#"{"rate":"5/s","burst":2}"#;
    /// let sent = SentRule { key: "alice", algorithm: AlgorithmKind::TokenBucket, numbers, cost: 1 };
    /// let throttled = engine.throttle(&sent, engine.clock().now()).now().expect("the states are in memory")?;
    /// assert_eq!((throttled.decision.status.remaining, throttled.rule.capacity()), (1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Returns an error if the rule is invalid, or if the store cannot keep its states.
    pub fn throttle<'a>(
        &'a self,
        sent: &SentRule<'a>,
        now: Timestamp,
    ) -> Answer<'a, Result<Throttled, ThrottleError>> {
        self.decide_sent(Sent::Rule(*sent), now)
    }

    /// Decides a call of `CL.THROTTLE`. The error is that of [`throttle`](Self::throttle).
    pub fn throttle_cell<'a>(
        &'a self,
        request: &CellRequest<'a>,
        now: Timestamp,
    ) -> Answer<'a, Result<Throttled, ThrottleError>> {
        let is_peek = request.quantity == 0;
        let answer = self.decide_sent(Sent::Cell(*request), now);
        answer.map(move |throttled| {
            throttled.map(|mut throttled| {
                if is_peek {
                    throttled.decision.outcome = Outcome::ALLOW; // redis-cell limits no peek
                }
                throttled
            })
        })
    }

    fn decide_sent<'a>(
        &'a self,
        sent: Sent<'a>,
        now: Timestamp,
    ) -> Answer<'a, Result<Throttled, ThrottleError>> {
        let call = ThrottleCall { engine: self, sent };
        let Some(shared) = &self.shared else {
            // The ask without a list around it, because these calls are short.
            return Answer::Now(call.rule().map(|(KnownRule { rule, local, .. }, limiter, hash)| {
                let decision = limiter.ask_by_hash(hash).rule(&local).cost(call.cost()).check_at(now);
                Throttled { decision, rule, source: Source::Memory, is_known: true }
            }));
        };
        let rule = call.rule().map(|(known, ..)| known.rule);
        match rule.and_then(|rule| shared.store.require(&rule).map_err(ThrottleError::Rule)) {
            Ok(()) => self.decide(call, now, super::Verdict::into_throttled),
            Err(error) => Answer::Now(Err(error)),
        }
    }

    /// Decides several calls of `CL.THROTTLE`, each by itself and in order. In memory their keys are fetched side by side, and nothing is
    /// allocated except for a rule that is new. `each` gets the decisions in order.
    ///
    /// ```
    /// use tollgate_policy::{CellNumbers, CellRequest, Engine, Policy};
    ///
    /// let engine = Engine::new(Policy::default())?;
    /// let numbers = CellNumbers { max_burst: 1, count: 30, period: 60 };
    /// let requests = [CellRequest { key: b"alice", numbers, quantity: 1 }; 3];
    /// let mut allowed = Vec::new();
    /// let answer = engine.throttle_cells(&requests, engine.clock().now(), |decision| allowed.push(decision.unwrap().is_allowed()));
    /// answer.now().expect("the states are in memory");
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), tollgate_policy::EngineError>(())
    /// ```
    pub fn throttle_cells<'a>(
        &'a self,
        requests: &'a [CellRequest<'a>],
        now: Timestamp,
        mut each: impl FnMut(Result<Decision, ThrottleError>) + Send + 'a,
    ) -> Answer<'a, ()> {
        if self.shared.is_some() {
            return Answer::Later(Box::pin(async move {
                for request in requests {
                    each(self.throttle_cell(request, now).wait().await.map(|throttled| throttled.decision));
                }
            }));
        }
        for batch in requests.chunks(BATCH) {
            if self.throttle_batch(batch, now, |decision| each(Ok(decision))).is_none() {
                // A rule is invalid: they go one by one, so that each sees the charges of those before it.
                for request in batch {
                    let throttled = self.throttle_cell(request, now).now().expect("the states are in memory");
                    each(throttled.map(|throttled| throttled.decision));
                }
            }
        }
        Answer::Now(())
    }

    /// Decides cells in memory, at most [`BATCH`]. None, and none is decided, if a rule is invalid.
    fn throttle_batch(
        &self,
        batch: &[CellRequest<'_>],
        now: Timestamp,
        each: impl FnMut(Decision),
    ) -> Option<()> {
        // A run is a sequence of calls with the same numbers. Most batches are one run.
        let runs = || batch.chunk_by(|one, next| one.numbers == next.numbers);
        let mut rules: SmallVec<[RequestRule; BATCH]> = SmallVec::new();
        for run in runs() {
            rules.push(run[0].numbers.known(&self.cells).ok()?.local);
        }
        let limiter = &self.cells.limiter;
        let mut requests: SmallVec<[Request<'_>; BATCH]> = SmallVec::new();
        for (run, rule) in runs().zip(&rules) {
            requests.extend(run.iter().map(|cell| limiter.ask(cell.key).rule(rule).cost(cell.quantity)));
        }
        let mut decisions = [Decision::default(); BATCH];
        let decisions = &mut decisions[..requests.len()];
        KeyedLimiter::check_each_at(&requests, now, decisions);
        decisions.iter().copied().for_each(each);
        Some(())
    }

    /// Forgets a key of [`throttle_cell`](Self::throttle_cell). Returns whether it was remembered.
    pub fn reset_cell<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<bool, Unavailable>> {
        let Some(shared) = &self.shared else { return Answer::Now(Ok(self.cells.limiter.reset(key))) };
        Answer::Later(Box::pin(async move {
            self.cells.limiter.reset(key); // this process may have a share of it
            // Of any numbers: all keys of these calls look alike.
            let rule = CellNumbers { max_burst: 0, count: 1, period: 1 }.rule().expect("a bucket of one");
            let (limiter, key_parts) = (&self.cells.limiter, std::iter::once(key).collect());
            let local = limiter.request_rule(CELL, rule);
            let sent = SentAsk { name: CELL.into(), key: key_parts, tag: key, rule, limiter, local };
            shared.store.forget(&sent.store_ask()).await
        }))
    }
}

#[cfg(test)]
mod tests;
