//! Several descriptors of one request, as Envoy asks of them: their plans are joined and decided as one.

use smallvec::SmallVec;
use tollgate::{Decision, KeyedLimiter, Outcome, Timestamp};

use super::descriptors::Leaf;
use super::in_force::InForce;
use super::overrides::{KnownOverrides, Override};
use super::plan::{MOST_LIMITS, Permits, Plan};
use super::throttle::{ThrottleError, Throttled};
use super::verdict::{Entry, LimitVerdict, Summary, Verdict};
use super::{Engine, Request, TooManyLimits};
use crate::policy::{Descriptor, Uncounted};

/// What is asked of one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// `domain` first, then the entries of the descriptor, in order.
    pub attributes: &'a [(&'a str, &'a str)],
    /// What to do.
    pub hits: Hits,
    /// A limit in place of all that the policy has for it.
    pub limit: Option<Override>,
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

/// Why descriptors were not decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDecided {
    /// Too many limits apply.
    #[error(transparent)]
    TooManyLimits(#[from] TooManyLimits),
    /// A limit that was sent makes no sense, or too many were.
    #[error(transparent)]
    Override(#[from] ThrottleError),
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
    /// What the limits of the policy say that apply to it, and what it comes to if they alone decide.
    pub verdict: Verdict<'a>,
    /// What the limit says that was sent with it, in place of theirs.
    pub overridden: Option<Throttled>,
    request: Described<'a>,
    found: Option<Leaf>,
    in_force: &'a InForce,
}

type Asks<'a> = SmallVec<[tollgate::Request<'a>; 8]>;

impl<'a> Together<'a> {
    pub(super) fn check(
        engine: &Engine,
        in_force: &'a InForce,
        requests: &[Described<'a>],
        now: Timestamp,
    ) -> Result<Self, NotDecided> {
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            answers.push(Answer::new(engine, in_force, request, now)?);
        }
        let mut together = Self { outcome: Outcome::ALLOW, answers };
        together.replace();
        together.require_few()?;
        together.use_the_strictest();
        let sent = together.answers.iter().filter_map(|answer| answer.request.limit);
        let overrides = engine.overrides.known(sent, now)?;
        let asks = together.asks(&overrides);
        if in_force.policy.envoy.shadow_mode {
            // Nothing is denied, so each limit is charged for what it would let pass.
            together.note(asks.iter().map(|ask| ask.check_at(now)));
        } else if together.answers.iter().any(|answer| answer.verdict.is_missing()) {
            together.note(std::iter::repeat(Decision::default()));
            together.answers.iter_mut().for_each(|answer| answer.deny(&overrides, now));
            together.outcome = Outcome::NEVER;
        } else {
            together.decide(&asks, now);
        }
        if together.is_allowed() {
            together.give_back(&overrides, now);
        }
        for answer in &mut together.answers {
            answer.verdict.is_charged = together.outcome.is_allowed();
            answer.verdict.watch(None);
        }
        Ok(together)
    }

    /// Whether the request may pass, now or after its delay.
    pub const fn is_allowed(&self) -> bool {
        self.outcome.is_allowed()
    }

    /// What the client is told: of all limits of all descriptors, as if they were one request's.
    pub fn summary(&self) -> Summary<'_, 'a> {
        let limits: SmallVec<[LimitVerdict<'_, 'a>; 8]> =
            self.answers.iter().flat_map(|answer| answer.verdict.limits()).collect();
        // A quota that is over is not the reason why a request passes, nor, beside others, why it does not.
        let decisions: SmallVec<[Decision; 8]> = limits.iter().map(LimitVerdict::decision).collect();
        let explains = |limit: &&LimitVerdict<'_, 'a>| limit.decision().outcome == self.outcome;
        let reported = match self.outcome {
            Outcome::Deny { .. } => limits.iter().find(explains).copied(),
            Outcome::Allow { .. } => tollgate::Verdict::of(&decisions).reported.map(|place| limits[place]),
        };
        Summary { outcome: self.outcome, limits, reported }
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
                answer.leave_out();
            }
        }
    }

    fn require_few(&self) -> Result<(), TooManyLimits> {
        if self.answers.iter().map(Answer::limits).sum::<usize>() <= MOST_LIMITS {
            return Ok(());
        }
        let names = self.answers.iter().flat_map(|answer| {
            let sent = answer.request.limit.map(|_| "(sent)".to_owned());
            answer.verdict.limits().map(|limit| limit.name().to_owned()).chain(sent).collect::<Vec<_>>()
        });
        Err(TooManyLimits { limits: names.collect() })
    }

    /// Of limits that were sent for one key, the strictest holds for all.
    fn use_the_strictest(&mut self) {
        for i in 0..self.answers.len() {
            let Described { attributes, limit: Some(of), .. } = self.answers[i].request else { continue };
            let same = self
                .answers
                .iter()
                .map(|other| &other.request)
                .filter(|other| other.attributes == attributes);
            let limits = same.filter_map(|other| other.limit).filter(|other| other.window == of.window);
            self.answers[i].request.limit = limits.min_by_key(|of| of.limit);
        }
    }

    /// Gives back what was charged before, to every limit that applies, and tells how they stand then.
    fn give_back(&mut self, overrides: &KnownOverrides<'_>, now: Timestamp) {
        for answer in &mut self.answers {
            let Hits::Refund(cost) = answer.request.hits else { continue };
            let verdict = &answer.verdict;
            for entry in verdict.limits.iter().chain(&verdict.shadow) {
                verdict.ask(entry).cost(cost).refund_at(now, now);
            }
            let left: SmallVec<[Decision; 8]> =
                verdict.limits.iter().map(|entry| verdict.ask(entry).preview_at(now)).collect();
            answer.verdict.note(&tollgate::Verdict::of(&left), &left);
            let sent = answer.request.limit.map(|of| overrides.ask(of, answer.request.attributes, 0));
            if let (Some(told), Some(ask)) = (&mut answer.overridden, sent) {
                ask.cost(cost).refund_at(now, now);
                told.decision = ask.preview_at(now);
            }
        }
    }

    /// What is asked of the table: for each descriptor its limits, and the one that was sent with it.
    fn asks<'o>(&mut self, overrides: &'o KnownOverrides<'_>) -> Asks<'o>
    where
        'a: 'o,
    {
        let mut asks: Asks<'o> = SmallVec::new();
        for answer in &mut self.answers {
            let own = answer.verdict.asks();
            let is_quota = |entry: &Entry| answer.in_force.is_quota(entry.limit);
            let own = own.into_iter().zip(&answer.verdict.limits);
            asks.extend(own.map(|(ask, entry)| if is_quota(entry) { ask.one_of_several() } else { ask }));
            asks.extend(answer.ask_sent(overrides));
        }
        asks
    }

    fn decide(&mut self, asks: &[tollgate::Request<'_>], now: Timestamp) {
        let mut decisions = [Decision::default(); MOST_LIMITS];
        let decisions = &mut decisions[..asks.len()];
        self.outcome = match asks {
            [] => Outcome::ALLOW,
            [ask] => {
                decisions[0] = ask.check_at(now);
                decisions[0].outcome
            }
            asks => KeyedLimiter::check_all_at(asks, now, decisions).outcome,
        };
        self.note(decisions.iter().copied());
    }

    /// Notes what was decided of each limit, in the order of `asks`.
    fn note(&mut self, mut decisions: impl Iterator<Item = Decision>) {
        for answer in &mut self.answers {
            let own: SmallVec<[Decision; 8]> = decisions.by_ref().take(answer.verdict.limits.len()).collect();
            answer.verdict.note(&tollgate::Verdict::of(&own), &own);
            if let Some(sent) = &mut answer.overridden {
                sent.decision = decisions.next().unwrap_or_default();
            }
        }
    }
}

impl<'v, 'a> From<&'v Together<'a>> for Summary<'v, 'a> {
    fn from(together: &'v Together<'a>) -> Self {
        together.summary()
    }
}

impl<'a> Answer<'a> {
    fn new(
        engine: &Engine,
        in_force: &'a InForce,
        request: &Described<'a>,
        now: Timestamp,
    ) -> Result<Self, NotDecided> {
        let (domain, entries) = match request.attributes {
            [(_, domain), entries @ ..] => (*domain, entries),
            [] => ("", &[][..]),
        };
        let cost = match request.hits {
            Hits::Usual => None,
            Hits::Charge(cost) => Some(cost),
            Hits::Refund(_) => Some(0),
        };
        let asked = Request { attributes: request.attributes, cost };
        // A domain that a policy with descriptors does not have is nobody's: nor is what was sent for it.
        let limit = request.limit.filter(|_| in_force.descriptors.may_have(domain));
        let (found, overridden) = match (request.limit, limit) {
            (None, _) => (in_force.descriptors.find(domain, entries), None),
            (Some(_), None) => (None, None),
            (Some(_), Some(of)) => {
                (None, Some(Throttled { decision: Decision::default(), rule: of.rule()? }))
            }
        };
        let limit_of = |leaf| if let Leaf::Limit(place) = leaf { Some(place) } else { None };
        let Plan(mut verdict) = if request.limit.is_some() {
            Plan::of_none(engine, in_force, &asked)
        } else {
            Plan::new(engine, in_force, &asked, Permits::Cannot, found.and_then(limit_of))?
        };
        verdict.now = now;
        Ok(Self { verdict, overridden, request: Described { limit, ..*request }, found, in_force })
    }

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

    /// What was asked.
    pub const fn request(&self) -> &Described<'a> {
        &self.request
    }

    /// Whether it is within its limits.
    pub fn is_allowed(&self) -> bool {
        self.verdict.is_allowed() && self.overridden.is_none_or(|sent| sent.decision.is_allowed())
    }

    fn uncounted(&self, place: u32) -> &'a Uncounted {
        &self.in_force.policy.descriptors[place as usize]
    }

    /// Forgets the limit of the descriptor itself: another replaces it.
    fn leave_out(&mut self) {
        if let Some(Leaf::Limit(limit)) = self.found {
            self.verdict.limits.retain(|entry| entry.limit != limit);
            self.verdict.shadow.retain(|entry| entry.limit != limit);
        }
        self.found = None;
    }

    fn limits(&self) -> usize {
        self.verdict.limits.len() + usize::from(self.overridden.is_some())
    }

    fn ask_sent<'o>(&self, overrides: &'o KnownOverrides<'_>) -> Option<tollgate::Request<'o>> {
        Some(overrides.ask(self.request.limit?, self.request.attributes, self.verdict.cost))
    }

    /// Notes that the request is denied whatever its limits say.
    fn deny(&mut self, overrides: &KnownOverrides<'_>, now: Timestamp) {
        self.verdict.deny_missing();
        let preview = self.ask_sent(overrides).map(|ask| ask.preview_at(now));
        if let (Some(sent), Some(preview)) = (&mut self.overridden, preview) {
            sent.decision = preview;
        }
    }
}
