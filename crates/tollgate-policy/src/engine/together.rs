//! Several descriptors of one request, as Envoy asks of them: their plans are joined and decided as one.

use smallvec::SmallVec;
use tollgate::{Decision, KeyedLimiter, Outcome, Timestamp};

use super::descriptors::Leaf;
use super::in_force::InForce;
use super::overrides::{KnownOverrides, Override, SentLimit};
use super::plan::{MOST_LIMITS, Permits, Plan, WAITS};
use super::shared::{Asks, Fallen, Outage, Shared};
use super::throttle::{ThrottleError, Throttled};
use super::verdict::{Entry, LimitVerdict, Summary, Told, Verdict};
use super::{Engine, Request, TooManyLimits};
use crate::policy::{Descriptor, OnError, Uncounted};
use crate::store::{Ask as StoredAsk, Decided, Does, Part, Seen, Source};

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
    /// Charge the cost in the policy. Default: 1.
    Usual,
    /// Charge this many, if the request passes. 0 peeks.
    Charge(u64),
    /// Charge this many in any case, also beyond the limit: usage that is reported after the work was done. 0 charges
    /// nothing, and is denied while a limit is exceeded.
    ChargeInFull(u64),
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
    /// A cluster keeps the keys of its descriptors in different places.
    #[error(
        "this request needs keys of {one} and of {other}, which the cluster keeps in different places, so that they cannot be \
         charged together: ask about these descriptors in requests of their own, or use a single server or Sentinel"
    )]
    KeptApart {
        /// A limit, and what its key is kept by.
        one: String,
        /// Another, with another.
        other: String,
    },
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

type HereAsks<'a> = SmallVec<[tollgate::Request<'a>; 8]>;

/// What the store said of a limit that was sent, if one was.
fn seen_of<'d>(seen: &mut std::slice::Iter<'d, Seen>, limit: Option<Override>) -> Option<&'d Seen> {
    limit.and_then(|_| seen.next())
}

/// Refuses what a cluster could not decide: what its servers would say is no outage, in which others decide.
fn require_one_place(asks: &[StoredAsk<'_>]) -> Result<(), NotDecided> {
    let told = |ask: &StoredAsk<'_>| {
        let tag: String = String::from_utf8_lossy(ask.tag).chars().take(TAG_SHOWN).collect();
        format!("limit `{}` by `{tag}`", ask.limit)
    };
    let Some(one) = asks.first() else { return Ok(()) };
    match asks.iter().find(|other| other.tag != one.tag) {
        None => Ok(()),
        Some(other) => Err(NotDecided::KeptApart { one: told(one), other: told(other) }),
    }
}

/// So much is told of what a key is kept by, which may be long.
const TAG_SHOWN: usize = 64;

impl<'a> Together<'a> {
    pub(super) fn check(
        engine: &'a Engine,
        in_force: &'a InForce,
        requests: &[Described<'a>],
        now: Timestamp,
    ) -> Result<Self, NotDecided> {
        let mut together = Self::new(engine, in_force, requests, now)?;
        together.decide_here(engine, now)?;
        Ok(together)
    }

    /// [`check`](Self::check), wherever states are kept.
    pub(super) async fn decide(
        engine: &'a Engine,
        in_force: &'a InForce,
        requests: &[Described<'a>],
        now: Timestamp,
    ) -> Result<Self, NotDecided> {
        let mut together = Self::new(engine, in_force, requests, now)?;
        match &engine.shared {
            None => together.decide_here(engine, now)?,
            Some(shared) => together.ask_store(engine, shared, now).await?,
        }
        Ok(together)
    }

    /// What applies to each of them, not yet decided.
    fn new(
        engine: &'a Engine,
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
        together.use_the_strictest()?;
        Ok(together)
    }

    fn decide_here(&mut self, engine: &Engine, now: Timestamp) -> Result<(), NotDecided> {
        assert!(engine.shared.is_none(), "{WAITS}");
        let sent = self.answers.iter().filter_map(Answer::sent_limit);
        let overrides = engine.overrides.known(sent, now)?;
        let asks = self.asks(&overrides);
        if self.watches() {
            // Nothing is denied, so each limit is charged for what it would let pass.
            self.note(asks.iter().map(|ask| ask.check_at(now)));
        } else if self.is_missing() {
            self.note(std::iter::repeat(Decision::default()));
            self.answers.iter_mut().for_each(|answer| answer.deny(&overrides, now));
            self.outcome = Outcome::NEVER;
        } else {
            self.decide_asks(&asks, now);
        }
        if self.is_allowed() {
            self.give_back(&overrides, now);
        }
        for answer in &mut self.answers {
            answer.verdict.is_charged = self.outcome.is_allowed();
            answer.verdict.watch(None);
        }
        Ok(())
    }

    /// Whether nothing is denied, whatever the limits say.
    fn watches(&self) -> bool {
        self.answers.first().is_some_and(|answer| answer.in_force.policy.envoy.shadow_mode)
    }

    fn is_missing(&self) -> bool {
        self.answers.iter().any(|answer| answer.verdict.is_missing())
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

    async fn ask_store(
        &mut self,
        engine: &'a Engine,
        shared: &Shared,
        now: Timestamp,
    ) -> Result<(), NotDecided> {
        self.answers.iter_mut().for_each(|answer| answer.verdict.hash_keys());
        let (watches, is_denied) = (self.watches(), !self.watches() && self.is_missing());
        let live = self.answers.iter().flat_map(|answer| answer.stored_asks(engine, watches));
        let shadow = self.answers.iter().flat_map(|answer| answer.stored_shadows(engine));
        let quotas: Asks<'_> = match watches {
            true => Asks::new(),
            false => self.answers.iter().flat_map(|answer| answer.stored_quotas(engine)).collect(),
        };
        let asks: Asks<'_> = live.chain(shadow).chain(quotas).collect();
        // Where nothing is denied, or all is, nobody is told that it cannot be decided.
        let is_open = !watches && !is_denied;
        if is_open && self.answers.first().is_some_and(|answer| answer.in_force.policy.is_on_cluster()) {
            require_one_place(&asks)?;
        }
        let decided = match &asks[..] {
            [] => None,
            asks => Some(shared.store.decide(asks, is_denied).await),
        };
        match decided {
            None => {}
            Some(Ok(decided)) => self.note_stored(&decided),
            Some(Err(unavailable)) => {
                self.fall_back(engine, shared, Outage::new(&unavailable, now))?;
            }
        }
        if watches {
            self.outcome = Outcome::ALLOW;
        } else if is_denied {
            self.outcome = Outcome::NEVER;
        }
        for answer in &mut self.answers {
            answer.verdict.deny_what_is_missing();
            answer.verdict.is_charged = self.outcome.is_allowed();
        }
        Ok(())
    }

    /// Notes what the store has decided of each limit, in the order of its asks.
    fn note_stored(&mut self, decided: &Decided) {
        self.outcome = decided.verdict.outcome;
        let mut seen = decided.each.iter();
        for answer in &mut self.answers {
            let verdict = &mut answer.verdict;
            verdict.source = decided.source;
            verdict.limits.iter_mut().zip(&mut seen).for_each(|(entry, seen)| entry.note(seen));
            verdict.sum_up();
            if let (Some(sent), Some(seen)) =
                (&mut answer.overridden, seen_of(&mut seen, answer.request.limit))
            {
                (sent.decision, sent.source) = (seen.decision, decided.source);
            }
        }
        for answer in &mut self.answers {
            answer.verdict.shadow.iter_mut().zip(&mut seen).for_each(|(entry, seen)| entry.note(seen));
        }
    }

    /// Decides without the store, as each limit says.
    fn fall_back(&mut self, engine: &Engine, shared: &Shared, outage: Outage) -> Result<(), NotDecided> {
        let sent = self.answers.iter().filter_map(Answer::sent_limit);
        let overrides = engine.overrides.known(sent, outage.now())?;
        let mut asked: Vec<Fallen<'_>> =
            self.answers.iter().flat_map(|answer| answer.fallen(shared, &overrides)).collect();
        asked.extend(self.answers.iter().flat_map(|answer| {
            let quotas = answer.watching_quotas();
            quotas.map(|entry| Fallen {
                here: answer.verdict.peek(entry).one_of_several(),
                on_error: OnError::Local,
                ..Fallen::new(&answer.verdict, entry, shared)
            })
        }));
        let alone = |fallen: &Fallen<'_>| outage.decide(&[*fallen], false, Does::Charge).1[0];
        let decided = if self.watches() {
            asked.iter().map(alone).collect()
        } else {
            let decided;
            (self.outcome, decided, _) = outage.decide(&asked, self.is_missing(), Does::Charge);
            decided
        };
        let mut decided = decided.into_iter();
        for answer in &mut self.answers {
            let verdict = &mut answer.verdict;
            verdict.source = Source::Fallback;
            for (entry, decided) in verdict.limits.iter_mut().zip(&mut decided) {
                (entry.decision, entry.told) = decided;
            }
            verdict.sum_up();
            if let Some(sent) = &mut answer.overridden {
                let (decision, told) = decided.next().expect("one for each");
                (sent.decision, sent.source) = (decision, Source::Fallback);
                sent.is_known = told != Told::Unknown;
            }
            for place in 0..answer.verdict.shadow.len() {
                let decided = alone(&answer.fallen_of(&answer.verdict.shadow[place], shared));
                let entry = &mut answer.verdict.shadow[place];
                (entry.decision, entry.told) = decided;
            }
        }
        Ok(())
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
    fn use_the_strictest(&mut self) -> Result<(), NotDecided> {
        for i in 0..self.answers.len() {
            let Described { attributes, limit: Some(of), .. } = self.answers[i].request else { continue };
            let same = self
                .answers
                .iter()
                .map(|other| &other.request)
                .filter(|other| other.attributes == attributes);
            let limits = same.filter_map(|other| other.limit).filter(|other| other.window == of.window);
            self.answers[i].request.limit = limits.min_by_key(|of| of.limit);
            if let Some(sent) = self.answers[i].sent_limit() {
                self.answers[i].overridden = Some(Throttled::not_yet(sent.rule()?));
            }
        }
        Ok(())
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
            let sent = answer.sent_limit().map(|of| overrides.ask(of, answer.request.attributes, 0));
            if let (Some(told), Some(ask)) = (&mut answer.overridden, sent) {
                ask.cost(cost).refund_at(now, now);
                told.decision = ask.preview_at(now);
            }
        }
    }

    /// What is asked of the table: for each descriptor its limits, and the one that was sent with it; last the quotas that only
    /// watch.
    fn asks<'o>(&mut self, overrides: &'o KnownOverrides<'_>) -> HereAsks<'o>
    where
        'a: 'o,
    {
        let mut asks: HereAsks<'o> = SmallVec::new();
        for answer in &mut self.answers {
            let own = answer.verdict.asks();
            let is_quota = |entry: &Entry| answer.in_force.is_quota(entry.limit);
            let own = own.into_iter().zip(&answer.verdict.limits);
            asks.extend(own.map(|(ask, entry)| if is_quota(entry) { ask.one_of_several() } else { ask }));
            asks.extend(answer.ask_sent(overrides));
        }
        // A quota that only watches has passed, as in the reference: with it, no other quota denies. A peek always passes.
        for answer in &self.answers {
            let quotas = answer.watching_quotas();
            asks.extend(quotas.map(|entry| answer.verdict.peek(entry).one_of_several()));
        }
        asks
    }

    fn decide_asks(&mut self, asks: &[tollgate::Request<'_>], now: Timestamp) {
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
        engine: &'a Engine,
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
            Hits::Charge(cost) | Hits::ChargeInFull(cost) => Some(cost),
            Hits::Refund(_) => Some(0),
        };
        let asked = Request { attributes: request.attributes, cost };
        // A domain that a policy with descriptors does not have is nobody's: nor is what was sent for it.
        let limit = request.limit.filter(|_| in_force.descriptors.may_have(domain));
        let (found, overridden) = match (request.limit, limit) {
            (None, _) => (in_force.descriptors.find(domain, entries), None),
            (Some(_), None) => (None, None),
            (Some(_), Some(of)) => {
                let sent = SentLimit { of, counts_denied: in_force.descriptors.counts_denied(domain) };
                (None, Some(Throttled::not_yet(sent.rule()?)))
            }
        };
        let limit_of = |leaf| if let Leaf::Limit(place) = leaf { Some(place) } else { None };
        let Plan { mut verdict, .. } = if request.limit.is_some() {
            Plan::of_none(engine, in_force, &asked)
        } else {
            Plan::new(engine, in_force, &asked, Permits::Cannot, found.and_then(limit_of))?
        };
        verdict.now = now;
        verdict.in_full = matches!(request.hits, Hits::ChargeInFull(_));
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

    /// What is asked of the store: its limits, and the one that was sent with it.
    fn stored_asks(&self, engine: &'a Engine, watches: bool) -> impl Iterator<Item = StoredAsk<'a>> {
        let ask = move |entry: &Entry| {
            let part = match watches {
                true => Part::Alone,
                false if self.in_force.is_quota(entry.limit) => Part::OneOf,
                false => Part::All,
            };
            self.refunding(self.verdict.stored_ask(engine, entry, Does::Charge, part))
        };
        let part = if watches { Part::Alone } else { Part::All };
        let sent = self.sent_limit().zip(self.overridden).map(move |(of, sent)| {
            let does = if self.verdict.in_full { Does::ChargeInFull } else { Does::Charge };
            self.refunding(of.stored_ask(self.request.attributes, self.verdict.cost, does, sent.rule, part))
        });
        self.verdict.limits.iter().map(ask).chain(sent)
    }

    /// Its quotas that only watch.
    fn watching_quotas(&self) -> impl Iterator<Item = &Entry> {
        self.verdict.shadow.iter().filter(|entry| self.in_force.is_quota(entry.limit))
    }

    /// [`watching_quotas`](Self::watching_quotas), as the store is asked: a peek at a key that nobody writes, because two asks of
    /// one key are decided as one.
    fn stored_quotas(&self, engine: &'a Engine) -> impl Iterator<Item = StoredAsk<'a>> {
        let ask = move |entry: &Entry| StoredAsk {
            limit: "*quota".into(),
            cost: 0,
            does: Does::Charge,
            ..self.verdict.stored_ask(engine, entry, Does::Charge, Part::OneOf)
        };
        self.watching_quotas().map(ask)
    }

    fn stored_shadows(&self, engine: &'a Engine) -> impl Iterator<Item = StoredAsk<'a>> {
        let ask = move |entry: &Entry| self.verdict.stored_ask(engine, entry, Does::Charge, Part::Alone);
        self.verdict.shadow.iter().map(ask).map(|ask| self.refunding(ask))
    }

    /// The ask, which gives back where the descriptor says so.
    fn refunding<'s>(&self, ask: StoredAsk<'s>) -> StoredAsk<'s> {
        match self.request.hits {
            Hits::Refund(cost) => StoredAsk { cost, does: Does::Refund, ..ask },
            Hits::Usual | Hits::Charge(_) | Hits::ChargeInFull(_) => ask,
        }
    }

    /// What is asked of its limits without the store, in the order of [`stored_asks`](Self::stored_asks).
    fn fallen<'o>(
        &self,
        shared: &Shared,
        overrides: &'o KnownOverrides<'_>,
    ) -> impl Iterator<Item = Fallen<'o>>
    where
        'a: 'o,
    {
        let fallen = |entry: &Entry| {
            let fallen = self.fallen_of(entry, shared);
            let is_quota = self.in_force.is_quota(entry.limit);
            Fallen { here: if is_quota { fallen.here.one_of_several() } else { fallen.here }, ..fallen }
        };
        let sent = self.ask_sent(overrides).zip(self.overridden).map(|(here, sent)| Fallen {
            on_error: shared.on_error,
            here,
            rule: sent.rule,
            gives_back: self.gives_back(),
            has_share: true, // a window, which becomes a bucket
        });
        self.verdict.limits.iter().map(fallen).chain(sent).collect::<Vec<_>>().into_iter()
    }

    fn fallen_of(&self, entry: &Entry, shared: &Shared) -> Fallen<'a> {
        Fallen { gives_back: self.gives_back(), ..Fallen::new(&self.verdict, entry, shared) }
    }

    const fn gives_back(&self) -> bool {
        matches!(self.request.hits, Hits::Refund(_))
    }

    fn uncounted(&self, place: u32) -> &'a Uncounted {
        &self.in_force.policy.descriptors[place as usize]
    }

    /// Forgets the limit of the descriptor itself: another replaces it. One that is unlimited has no limit to forget.
    fn leave_out(&mut self) {
        if let Some(Leaf::Limit(limit)) = self.found {
            self.verdict.limits.retain(|entry| entry.limit != limit);
            self.verdict.shadow.retain(|entry| entry.limit != limit);
            self.found = None;
        }
    }

    fn limits(&self) -> usize {
        let quotas = self.watching_quotas().count();
        self.verdict.limits.len() + usize::from(self.overridden.is_some()) + quotas
    }

    /// The limit that was sent with it, which counts denied requests where those of its domain do.
    fn sent_limit(&self) -> Option<SentLimit> {
        let domain = self.request.attributes.first().map_or("", |(_, domain)| domain);
        let counts_denied = self.in_force.descriptors.counts_denied(domain);
        self.request.limit.map(|of| SentLimit { of, counts_denied })
    }

    fn ask_sent<'o>(&self, overrides: &'o KnownOverrides<'_>) -> Option<tollgate::Request<'o>> {
        let ask = overrides.ask(self.sent_limit()?, self.request.attributes, self.verdict.cost);
        Some(if self.verdict.in_full { ask.in_full() } else { ask })
    }

    /// Notes that the request is denied whatever its limits say.
    fn deny(&mut self, overrides: &KnownOverrides<'_>, now: Timestamp) {
        self.verdict.deny_missing();
        let in_full = self.verdict.in_full;
        let preview =
            self.ask_sent(overrides).map(|ask| if in_full { ask.check_at(now) } else { ask.preview_at(now) });
        if let (Some(sent), Some(preview)) = (&mut self.overridden, preview) {
            sent.decision = preview;
        }
    }
}
