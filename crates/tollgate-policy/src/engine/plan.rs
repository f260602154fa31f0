//! From a request to its verdict: which limits apply, each with its key and its numbers, then what they say.

use std::fmt;

use smallvec::SmallVec;
use tollgate::{Decision, KeyedLimiter, Outcome, Permit, Timestamp};

use super::attributes::TENANT;
use super::in_force::{InForce, NumbersId, Standing};
use super::shared::{Permits as Held, Shared};
use super::verdict::{Entries, Entry, Told, Verdict};
use super::{Engine, Request, TooManyLimits};
use crate::store::{Does, Source};

/// Whether whoever asks can hold a permit. Concurrency limits act only where one can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permits {
    Can,
    Cannot,
}

/// The most limits that can be decided together, and as many as usually are.
pub(crate) const MOST_LIMITS: usize = KeyedLimiter::MOST_TOGETHER;
pub(crate) const USUAL_LIMITS: usize = KeyedLimiter::USUAL_TOGETHER;

/// The tenant of a request.
pub(super) fn tenant<'a>(attributes: &[(&'a str, &'a str)]) -> Option<&'a str> {
    attributes.iter().find(|(name, _)| *name == TENANT).map(|(_, value)| *value)
}

/// The limits that apply to a request, not yet decided.
pub struct Plan<'a> {
    pub(super) verdict: Verdict<'a>, // to be
    engine: &'a Engine,
}

/// What is asked of the table.
type Asks<'a> = SmallVec<[tollgate::Request<'a>; USUAL_LIMITS]>;

impl<'a> Plan<'a> {
    /// The limits that apply to a request by its attributes, and one that was found for it in another way.
    pub(super) fn new(
        engine: &'a Engine,
        in_force: &'a InForce,
        request: &Request<'a>,
        permits: Permits,
        found: Option<u32>,
    ) -> Result<Self, TooManyLimits> {
        let (Self { mut verdict, .. }, standing) = Self::empty(engine, in_force, request);
        for &place in &in_force.by_attributes {
            let limit = in_force.limit(place);
            if (limit.is_concurrency && permits == Permits::Cannot) || !limit.conditions.hold(&verdict.values)
            {
                continue;
            }
            let Some(is_missing) = limit.applies(&verdict.values) else { continue };
            verdict.add(place, in_force.numbers_of(place, &standing), is_missing);
        }
        if let Some(place) = found {
            verdict.add(place, in_force.numbers_of(place, &standing), false);
        }
        if verdict.limits.len() > MOST_LIMITS {
            let name = |entry: &Entry| in_force.limit(entry.limit).policy.name.clone();
            return Err(TooManyLimits { limits: verdict.limits.iter().map(name).collect() });
        }
        Ok(Self { verdict, engine })
    }

    /// One without limits.
    pub(super) fn of_none(engine: &'a Engine, in_force: &'a InForce, request: &Request<'a>) -> Self {
        Self::empty(engine, in_force, request).0
    }

    fn empty(engine: &'a Engine, in_force: &'a InForce, request: &Request<'a>) -> (Self, Standing<'a>) {
        let standing = engine.standing(in_force, tenant(request.attributes));
        let values = in_force.names.values(request.attributes, in_force.tier_name(standing.tier));
        let verdict = Verdict {
            in_force,
            now: Timestamp::default(),
            cost: request.cost.unwrap_or_else(|| in_force.cost(&values)),
            in_full: false,
            outcome: Outcome::ALLOW,
            is_charged: true,
            reported: None,
            reduced: engine.pressure.is_reduced(),
            source: Source::Memory,
            values,
            limits: SmallVec::new(),
            shadow: SmallVec::new(),
        };
        (Self { verdict, engine }, standing)
    }

    /// Decides it in the table of this process: all limits are charged, or none.
    ///
    /// # Panics
    ///
    /// When the engine has a store that others share: there, [`decide`](Self::decide) waits for it.
    #[inline]
    pub fn check(mut self, now: Timestamp) -> Verdict<'a> {
        assert!(self.engine.shared.is_none(), "{WAITS}");
        self.verdict.now = now;
        self.verdict.check();
        self.verdict
    }

    /// Decides it in the table of this process, with a permit for each concurrency limit. Dropping them gives them back.
    ///
    /// # Panics
    ///
    /// When the engine has a store that others share: there, [`hold`](Self::hold) waits for it.
    pub fn acquire(mut self, now: Timestamp) -> (Verdict<'a>, Vec<Permit>) {
        assert!(self.engine.shared.is_none(), "{WAITS}");
        self.verdict.now = now;
        let permits = self.verdict.acquire();
        (self.verdict, permits)
    }

    /// Decides it, wherever states are kept: all limits are charged, or none. With states in this process, it is decided
    /// at once.
    pub async fn decide(self, now: Timestamp) -> Verdict<'a> {
        match &self.engine.shared {
            None => self.check(now),
            Some(shared) => self.ask_store(shared, now, Does::Charge).await.0,
        }
    }

    /// Decides it, wherever states are kept, with a permit for each concurrency limit. Dropping them gives them back.
    pub async fn hold(self, now: Timestamp) -> (Verdict<'a>, Held) {
        match &self.engine.shared {
            None => {
                let (verdict, permits) = self.acquire(now);
                (verdict, permits.into())
            }
            Some(shared) => self.ask_store(shared, now, Does::Hold).await,
        }
    }

    async fn ask_store(mut self, shared: &Shared, now: Timestamp, does: Does) -> (Verdict<'a>, Held) {
        self.verdict.now = now;
        let permits = self.verdict.decide_shared(self.engine, shared, does).await;
        (self.verdict, permits)
    }
}

/// What whoever does not wait is told.
pub(super) const WAITS: &str = "the states are in a store that has to be waited for";

impl fmt::Debug for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan").field("limits", &self.verdict.limits.len()).finish_non_exhaustive()
    }
}

impl<'a> Verdict<'a> {
    fn add(&mut self, limit: u32, numbers: NumbersId, is_missing: bool) {
        let entry =
            Entry { limit, numbers, hash: 0, is_missing, told: Told::Here, decision: Decision::default() };
        let is_shadow = self.in_force.limit(limit).policy.shadow;
        if is_shadow { self.shadow.push(entry) } else { self.limits.push(entry) }
    }

    fn check(&mut self) {
        let asks = self.asks();
        match &asks[..] {
            _ if self.is_missing() => self.deny_missing(),
            [] => {}
            // One limit needs none of what several need.
            [ask] => {
                let decision = ask.check_at(self.now);
                self.limits[0].decision = decision;
                (self.outcome, self.reported) = (decision.outcome, Some(0));
            }
            asks if asks.len() <= USUAL_LIMITS => self.check_all::<USUAL_LIMITS>(asks),
            asks => self.check_all::<MOST_LIMITS>(asks),
        }
        self.is_charged = self.is_allowed();
        self.watch(None);
    }

    fn acquire(&mut self) -> Vec<Permit> {
        let is_concurrency = |entry: &Entry| self.in_force.limit(entry.limit).is_concurrency;
        if !self.limits.iter().chain(&self.shadow).any(is_concurrency) {
            self.check(); // which is quicker
            return Vec::new();
        }
        let asks = self.asks();
        let mut permits = Vec::new();
        if self.is_missing() {
            self.deny_missing();
        } else if !asks.is_empty() {
            let mut decisions = [Decision::default(); MOST_LIMITS];
            let decisions = &mut decisions[..asks.len()];
            let verdict;
            (verdict, permits) = KeyedLimiter::acquire_all_at(&asks, self.now, decisions);
            self.note(&verdict, decisions);
        }
        self.is_charged = self.is_allowed();
        // Nobody would hold, or give back, what a request that is denied has taken.
        self.watch(self.is_allowed().then_some(&mut permits));
        permits
    }

    fn check_all<const N: usize>(&mut self, asks: &[tollgate::Request<'_>]) {
        let mut decisions = [Decision::default(); N];
        let decisions = &mut decisions[..asks.len()];
        let verdict = KeyedLimiter::check_all_at(asks, self.now, decisions);
        self.note(&verdict, decisions);
    }

    pub(super) fn asks(&mut self) -> Asks<'a> {
        let asks: Asks<'a> = self.limits.iter().map(|entry| self.ask(entry)).collect();
        self.limits.iter_mut().zip(&asks).for_each(|(entry, ask)| entry.hash = ask.key_hash());
        asks
    }

    pub(super) fn ask(&self, entry: &Entry) -> tollgate::Request<'a> {
        let limit = self.in_force.limit(entry.limit);
        let ask = limit.ask(entry.numbers, &limit.shared_key(&self.values)).cost(self.cost);
        if self.in_full { ask.in_full() } else { ask }
    }

    /// A peek at the key of a limit.
    pub(super) fn peek(&self, entry: &Entry) -> tollgate::Request<'a> {
        let limit = self.in_force.limit(entry.limit);
        limit.ask(entry.numbers, &limit.shared_key(&self.values)).cost(0)
    }

    pub(super) fn note(&mut self, verdict: &tollgate::Verdict, decisions: &[Decision]) {
        self.limits.iter_mut().zip(decisions).for_each(|(entry, decision)| entry.decision = *decision);
        (self.outcome, self.reported) = (verdict.outcome, verdict.reported);
    }

    pub(super) fn is_missing(&self) -> bool {
        self.cost > 0 && self.limits.iter().any(|entry| entry.is_missing)
    }

    /// Denies because an attribute is missing: no wait helps, and nothing is charged but where
    /// denied requests count, too.
    pub(super) fn deny_missing(&mut self) {
        let decisions: Entries<Decision> = self.limits.iter().map(|entry| self.denied(entry)).collect();
        self.note(&tollgate::Verdict::of(&decisions), &decisions);
    }

    /// What a limit says of a request that is denied whatever it says.
    fn denied(&self, entry: &Entry) -> Decision {
        let (limit, ask) = (self.in_force.limit(entry.limit), self.ask(entry));
        let counts = limit.numbers(entry.numbers).rule.counts_denied() || self.in_full;
        let decision = if counts { ask.check_at(self.now) } else { ask.preview_at(self.now) };
        let denies = entry.is_missing && self.cost > 0;
        if denies { Decision { outcome: Outcome::NEVER, ..decision } } else { decision }
    }

    /// Lets each shadow limit decide alone, whatever the live ones said. Where permits can be held, theirs are, too.
    pub(super) fn watch(&mut self, mut permits: Option<&mut Vec<Permit>>) {
        for i in 0..self.shadow.len() {
            let ask = self.ask(&self.shadow[i]);
            self.shadow[i].hash = ask.key_hash();
            self.shadow[i].decision = if self.shadow[i].is_missing && self.cost > 0 {
                self.denied(&self.shadow[i])
            } else if let Some(permits) = permits.as_deref_mut() {
                let mut decision = [Decision::default()];
                permits.extend(KeyedLimiter::acquire_all_at(&[ask], self.now, &mut decision).1);
                decision[0]
            } else {
                ask.check_at(self.now)
            };
        }
    }
}
