//! Several descriptors of one request, as Envoy asks of them: their plans are joined and decided as one.

use smallvec::SmallVec;
use tollgate::{Decision, KeyedLimiter, Outcome, Timestamp};

use super::descriptors::Leaf;
use super::plan::{MOST_LIMITS, Permits, Plan};
use super::verdict::{Entry, Verdict};
use super::{Engine, InForce, Request, TooManyLimits};
use crate::policy::{Descriptor, Uncounted};

/// What is asked of one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// `domain` first, then the entries of the descriptor, in order.
    pub attributes: &'a [(&'a str, &'a str)],
    /// What to do.
    pub hits: Hits,
}

/// What to do with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hits {
    /// Charge what the policy says it costs: 1 unless it says otherwise.
    Usual,
    /// Charge so much. 0 peeks.
    Charge(u64),
    /// Give back so much.
    Refund(u64),
}

/// The plans of several descriptors, not yet decided.
#[derive(Debug)]
pub struct PlanTogether<'a> {
    in_force: &'a InForce,
    answers: Vec<Answer<'a>>,
}

/// The answer to several descriptors that were asked of together.
#[derive(Debug)]
#[must_use = "a denied request must not go ahead"]
pub struct Together<'a> {
    /// Whether the request may pass.
    pub outcome: Outcome,
    /// The answers of the descriptors, in the order they were asked in.
    pub answers: Vec<Answer<'a>>,
}

/// The answer of one descriptor.
#[derive(Debug)]
pub struct Answer<'a> {
    /// What the limits say that apply to it; what it would have been decided alone.
    pub verdict: Verdict<'a>,
    found: Option<Leaf>,
    refund: Option<u64>,
    in_force: &'a InForce,
}

impl Together<'_> {
    /// Whether the request may pass, now or after its delay.
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }
}

impl<'a> Answer<'a> {
    /// What the policy says of the descriptor, if it knows it and no other has replaced it.
    pub fn descriptor(&self) -> Option<&'a Descriptor> {
        match self.found? {
            Leaf::Limit(place) => self.in_force.limit(place).policy.descriptor.as_ref(),
            Leaf::Uncounted(place) => Some(&self.uncounted(place).descriptor),
        }
    }

    /// Whether the policy says that there is no end of it.
    pub fn is_unlimited(&self) -> bool {
        matches!(self.found, Some(Leaf::Uncounted(place)) if self.uncounted(place).unlimited)
    }

    fn uncounted(&self, place: u32) -> &'a Uncounted {
        &self.in_force.policy.descriptors[place as usize]
    }

    /// Forgets the limit of the descriptor itself: another replaces it.
    fn replace(&mut self) {
        if let Some(Leaf::Limit(limit)) = self.found {
            self.verdict.limits.retain(|entry| entry.limit != limit);
            self.verdict.shadow.retain(|entry| entry.limit != limit);
        }
        self.found = None;
    }
}

impl<'a> PlanTogether<'a> {
    pub(super) fn new(
        engine: &Engine,
        in_force: &'a InForce,
        requests: &[Described<'a>],
    ) -> Result<Self, TooManyLimits> {
        let mut answers = Vec::with_capacity(requests.len());
        for Described { attributes, hits } in requests {
            let found = match attributes {
                [(_, domain), entries @ ..] => in_force.descriptors.find(domain, entries),
                [] => None,
            };
            let limit = found.and_then(|leaf| match leaf {
                Leaf::Limit(place) => Some(place),
                Leaf::Uncounted(_) => None,
            });
            let (cost, refund) = match *hits {
                Hits::Usual => (None, None),
                Hits::Charge(cost) => (Some(cost), None),
                Hits::Refund(cost) => (Some(0), Some(cost)),
            };
            let Plan(verdict) =
                Plan::new(engine, in_force, &Request { attributes, cost }, Permits::Cannot, limit)?;
            answers.push(Answer { verdict, found, refund, in_force });
        }
        let mut plan = Self { in_force, answers };
        plan.replace();
        plan.require_few()?;
        Ok(plan)
    }

    /// Leaves out what others replace.
    fn replace(&mut self) {
        let replaced: SmallVec<[&str; 4]> = self
            .answers
            .iter()
            .filter_map(Answer::descriptor)
            .flat_map(|descriptor| descriptor.replaces.iter().map(String::as_str))
            .collect();
        if replaced.is_empty() {
            return;
        }
        for answer in &mut self.answers {
            let name = answer.descriptor().and_then(|descriptor| descriptor.name.as_deref());
            if name.is_some_and(|name| replaced.contains(&name)) {
                answer.replace();
            }
        }
    }

    fn require_few(&self) -> Result<(), TooManyLimits> {
        let limits = || self.answers.iter().flat_map(|answer| answer.verdict.limits.iter());
        if limits().count() <= MOST_LIMITS {
            return Ok(());
        }
        let name = |entry: &Entry| self.in_force.limit(entry.limit).policy.name.clone();
        Err(TooManyLimits { limits: limits().map(name).collect() })
    }

    /// Decides them: what is given back is given back first; then all limits of all descriptors are charged, or none.
    pub fn check(mut self, now: Timestamp) -> Together<'a> {
        for answer in &mut self.answers {
            answer.verdict.now = now;
            answer.give_back();
        }
        let asks = self.asks();
        let outcome = if self.in_force.policy.envoy.shadow_mode {
            // Nothing is denied, so each limit is charged for what it would let pass.
            self.decide_each(|ask| ask.check_at(now), &asks);
            Outcome::ALLOW
        } else if self.answers.iter().any(|answer| answer.verdict.is_missing()) {
            self.answers.iter_mut().for_each(|answer| answer.verdict.deny_missing());
            Outcome::NEVER
        } else {
            self.decide_all(&asks, now)
        };
        for answer in &mut self.answers {
            answer.verdict.is_charged = outcome.is_allowed();
            answer.verdict.watch(None);
        }
        Together { outcome, answers: self.answers }
    }

    fn asks(&mut self) -> SmallVec<[tollgate::Request<'a>; 8]> {
        let is_quota = |entry: &Entry| self.in_force.is_quota(entry.limit);
        let mut asks = SmallVec::new();
        for answer in &mut self.answers {
            let own = answer.verdict.asks();
            asks.extend(
                own.into_iter()
                    .zip(&answer.verdict.limits)
                    .map(|(ask, entry)| if is_quota(entry) { ask.one_of_several() } else { ask }),
            );
        }
        asks
    }

    fn decide_all(&mut self, asks: &[tollgate::Request<'_>], now: Timestamp) -> Outcome {
        let mut decisions = [Decision::default(); MOST_LIMITS];
        let decisions = &mut decisions[..asks.len()];
        let outcome = match asks {
            [] => Outcome::ALLOW,
            [ask] => {
                decisions[0] = ask.check_at(now);
                decisions[0].outcome
            }
            asks => KeyedLimiter::check_all_at(asks, now, decisions).outcome,
        };
        let mut decided = decisions.iter();
        self.decide_each(|_| *decided.next().expect("one for each"), asks);
        outcome
    }

    /// Notes what is decided of each limit.
    fn decide_each(
        &mut self,
        mut decide: impl FnMut(&tollgate::Request<'_>) -> Decision,
        asks: &[tollgate::Request<'_>],
    ) {
        let mut asks = asks.iter();
        for answer in &mut self.answers {
            let own: SmallVec<[Decision; 8]> =
                asks.by_ref().take(answer.verdict.limits.len()).map(&mut decide).collect();
            answer.verdict.note(&tollgate::Verdict::of(&own), &own);
        }
    }
}

impl Answer<'_> {
    /// Gives back what was charged before, to every limit that applies.
    fn give_back(&mut self) {
        let Some(cost) = self.refund else { return };
        let (verdict, now) = (&self.verdict, self.verdict.now);
        for entry in verdict.limits.iter().chain(&verdict.shadow) {
            verdict.ask(entry).cost(cost).refund_at(now, now);
        }
    }
}
