//! Requests whose states are kept in a store that several processes share, and what is done when it gives no answer.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::{Decision, KeyedLimiter, Nanos, Outcome, Permit, Retry, Rule, Status, Timestamp};

use super::Engine;
use super::plan::MOST_LIMITS;
use super::share::has_share;
use super::throttle::{ThrottleError, Throttled};
use super::verdict::{Entry, Told, Verdict};
use crate::policy::OnError;
use crate::store::{Ask, Decided, Does, Part, Seen, Source, Store, StoredPermit, Unavailable};

/// The store, and what is done when it gives no answer.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) on_error: OnError, // where a limit does not say
}

pub(super) type Asks<'a> = SmallVec<[Ask<'a>; 8]>;

/// Places in concurrency limits, wherever they are kept. Dropping them gives them back.
#[derive(Default)]
pub struct Permits {
    here: Vec<Permit>,
    stored: Option<(Arc<dyn Store>, Vec<StoredPermit>)>,
}

impl Permits {
    /// Those that a store keeps, given to this process or to another.
    pub fn stored(store: Arc<dyn Store>, permits: Vec<StoredPermit>) -> Self {
        let stored = (!permits.is_empty()).then_some((store, permits));
        Self { here: Vec::new(), stored }
    }

    fn add(&mut self, store: &Arc<dyn Store>, permits: Vec<StoredPermit>) {
        match &mut self.stored {
            Some((_, stored)) => stored.extend(permits),
            None => *self = Self::stored(Arc::clone(store), permits),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.here.is_empty() && self.stored.is_none()
    }

    /// What a store knows them by, where a store keeps all of them: any process on it can give them back.
    pub fn in_store(&self) -> Option<&[StoredPermit]> {
        self.stored.as_ref().filter(|_| self.here.is_empty()).map(|(_, permits)| &permits[..])
    }

    /// Leaves them in their store, for whoever knows what it knows them by.
    pub fn leave_in_store(mut self) {
        self.stored = None;
    }

    /// Gives them back: whether all were still held.
    ///
    /// # Errors
    ///
    /// When the store that keeps them gives no answer. It is asked once more, without anybody waiting; else they are free
    /// when their leases end.
    pub async fn release(mut self) -> Result<bool, Unavailable> {
        // All of them, whether or not one has ended.
        let here = self.here.drain(..).map(Permit::release).fold(true, |all, was_held| all & was_held);
        match self.stored.take() {
            None => Ok(here),
            Some((store, permits)) => match store.release(&permits).await {
                Ok(released) => Ok(released & here),
                Err(unavailable) => {
                    store.release_later(permits);
                    Err(unavailable)
                }
            },
        }
    }
}

impl From<Vec<Permit>> for Permits {
    fn from(here: Vec<Permit>) -> Self {
        Self { here, stored: None }
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        if let Some((store, permits)) = self.stored.take() {
            store.release_later(permits);
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stored = self.stored.as_ref().map_or(0, |(_, permits)| permits.len());
        f.debug_struct("Permits").field("here", &self.here.len()).field("stored", &stored).finish()
    }
}

impl<'a> Verdict<'a> {
    /// Asks the store, which charges all limits or none. Tells the permits that are held now.
    pub(super) async fn decide_shared(&mut self, engine: &'a Engine, shared: &Shared, does: Does) -> Permits {
        self.hash_keys();
        let mut asks: Asks<'a> =
            self.limits.iter().map(|entry| self.stored_ask(engine, entry, does, Part::All)).collect();
        // Places that a request that is denied has taken nobody would give back: so shadows look first.
        let shadows = self.shadow.iter();
        asks.extend(shadows.map(|entry| self.stored_ask(engine, entry, Does::Charge, Part::Alone)));
        if asks.is_empty() {
            self.source = Source::Store; // which had nothing to say
            return Permits::default();
        }
        match shared.store.decide(&asks, self.is_missing()).await {
            Ok(decided) => {
                let (live, shadow) = decided.each.split_at(self.limits.len());
                self.limits.iter_mut().zip(live).for_each(|(entry, seen)| entry.note(seen));
                self.shadow.iter_mut().zip(shadow).for_each(|(entry, seen)| entry.note(seen));
                (self.outcome, self.reported) = (decided.verdict.outcome, decided.verdict.reported);
                self.source = decided.source;
                self.deny_what_is_missing();
                self.is_charged = self.is_allowed();
                let mut permits = Permits::stored(Arc::clone(&shared.store), decided.permits);
                if does == Does::Hold && self.is_allowed() {
                    self.hold_shadows(engine, shared, &mut permits).await;
                }
                permits
            }
            Err(unavailable) => self.fall_back(shared, &unavailable, does),
        }
    }

    /// Takes places in concurrency limits that only watch, each by itself, for a request that passes.
    async fn hold_shadows(&mut self, engine: &'a Engine, shared: &Shared, permits: &mut Permits) {
        for place in 0..self.shadow.len() {
            let entry = &self.shadow[place];
            let has_place = self.cost > 0 && entry.decision.is_allowed();
            if !has_place || !self.in_force.limit(entry.limit).is_concurrency {
                continue;
            }
            let ask = self.stored_ask(engine, entry, Does::Hold, Part::All);
            // Where there is no answer, it has looked.
            if let Ok(decided) = shared.store.decide(&[ask], false).await {
                self.shadow[place].note(&decided.each[0]);
                permits.add(&shared.store, decided.permits);
            }
        }
    }

    /// What is asked of the store.
    pub(super) fn stored_ask(&self, engine: &Engine, entry: &Entry, does: Does, part: Part) -> Ask<'a> {
        let limit = self.in_force.limit(entry.limit);
        let key = limit.shared_key(&self.values);
        let is_missing = part == Part::Alone && entry.is_missing;
        let is_blocked = limit.is_blocked(entry.numbers) || is_missing;
        let does = if self.in_full && does == Does::Charge { Does::ChargeInFull } else { does };
        let pace = engine.pace_of(self.in_force, limit, entry.numbers);
        Ask {
            part,
            pace,
            is_blocked,
            ..limit.stored_ask(limit.numbers(entry.numbers).rule, &key, self.cost, does)
        }
    }

    pub(super) fn hash_keys(&mut self) {
        for i in 0..self.limits.len() {
            self.limits[i].hash = self.ask(&self.limits[i]).key_hash();
        }
        for i in 0..self.shadow.len() {
            self.shadow[i].hash = self.ask(&self.shadow[i]).key_hash();
        }
    }

    /// Denies for ever what lacks an attribute that a limit cannot do without.
    pub(super) fn deny_what_is_missing(&mut self) {
        let cost = self.cost;
        for entry in
            self.limits.iter_mut().chain(&mut self.shadow).filter(|entry| entry.is_missing && cost > 0)
        {
            entry.decision.outcome = Outcome::NEVER;
        }
        if self.is_missing() {
            self.sum_up();
        }
    }

    /// What its limits come to, if they alone decide.
    pub(super) fn sum_up(&mut self) {
        let decisions: SmallVec<[Decision; 8]> = self.limits.iter().map(|entry| entry.decision).collect();
        let verdict = tollgate::Verdict::of(&decisions);
        (self.outcome, self.reported) = (verdict.outcome, verdict.reported);
    }

    /// Decides without the store, as each limit says.
    fn fall_back(&mut self, shared: &Shared, unavailable: &Unavailable, does: Does) -> Permits {
        self.source = Source::Fallback;
        let fallen = |entry: &Entry| Fallen::new(self, entry, shared);
        let live: Vec<Fallen<'_>> = self.limits.iter().map(fallen).collect();
        let shadow: Vec<Fallen<'_>> = self.shadow.iter().map(fallen).collect();
        let outage = Outage::new(unavailable, self.now);
        let is_denied = self.is_missing();
        let (outcome, decided, permits) = outage.decide(&live, is_denied, does);
        let shadow: Vec<_> =
            shadow.iter().map(|fallen| outage.decide(&[*fallen], false, Does::Charge).1[0]).collect();
        let entries = self.limits.iter_mut().chain(&mut self.shadow);
        for (entry, (decision, told)) in entries.zip(decided.into_iter().chain(shadow)) {
            (entry.decision, entry.told) = (decision, told);
        }
        let told: SmallVec<[Decision; 8]> = self.limits.iter().map(|entry| entry.decision).collect();
        (self.outcome, self.reported) = (outcome, tollgate::Verdict::of(&told).reported);
        self.deny_what_is_missing();
        self.is_charged = self.is_allowed();
        permits.into()
    }
}

impl Entry {
    /// Notes what a store has said.
    pub(super) fn note(&mut self, seen: &Seen) {
        let told = if seen.is_known { Told::Stored(seen.more_after) } else { Told::Unknown };
        (self.decision, self.told) = (seen.decision, told);
    }
}

/// A time without the store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outage {
    since: Timestamp,
    now: Timestamp,
    retry_after: Nanos,
}

/// What is asked of a limit whose store is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fallen<'a> {
    pub(super) on_error: OnError,
    /// In this process, where it has its share.
    pub(super) here: tollgate::Request<'a>,
    pub(super) rule: Rule,
    /// Whether nothing is asked for, and something given back.
    pub(super) gives_back: bool,
    /// Whether this process has a share of it.
    pub(super) has_share: bool,
}

impl<'a> Fallen<'a> {
    pub(super) fn new(verdict: &Verdict<'a>, entry: &Entry, shared: &Shared) -> Self {
        let limit = verdict.in_force.limit(entry.limit);
        // A blocked request needs no store, and no share, to be denied.
        let is_blocked = limit.is_blocked(entry.numbers);
        let on_error = is_blocked.then_some(OnError::Local).or(limit.policy.on_error);
        Self {
            on_error: on_error.unwrap_or(shared.on_error),
            here: verdict.ask(entry),
            rule: limit.numbers(entry.numbers).rule,
            gives_back: false,
            has_share: is_blocked || has_share(&limit.numbers(entry.numbers).rule, shared.store.nodes()),
        }
    }

    /// Whether it is denied because nobody can be asked: also what only looks, which is told of what comes next.
    const fn is_denied(&self) -> bool {
        match self.on_error {
            OnError::Deny => !self.gives_back,
            OnError::Local => !self.has_share,
            OnError::Allow => false,
        }
    }

    /// Whether the table of this process decides it.
    const fn is_local(&self) -> bool {
        matches!(self.on_error, OnError::Local) && self.has_share
    }

    /// What is told of a limit that nobody has asked.
    fn unknown(&self, outcome: Outcome) -> (Decision, Told) {
        let remaining = if outcome.is_allowed() { self.rule.capacity() } else { 0 };
        (Decision { outcome, status: Status { remaining, reset_after: Nanos::ZERO } }, Told::Unknown)
    }
}

impl Outage {
    pub(super) fn new(unavailable: &Unavailable, now: Timestamp) -> Self {
        let out_for = Nanos::saturating_from(unavailable.out_for);
        let since = Timestamp::from_nanos(now.as_nanos().saturating_sub(out_for.get()));
        // A denial says when to come back, and never at once.
        let retry_after = Nanos::saturating_from(unavailable.retry_after).max(Nanos::new(1));
        Self { since, now, retry_after }
    }

    pub(super) const fn now(&self) -> Timestamp {
        self.now
    }

    /// Decides limits together: those that say so deny or allow, the rest have their share here. Nothing is charged where
    /// one denies, or the request `is_denied` for another reason.
    pub(super) fn decide(
        &self,
        asked: &[Fallen<'_>],
        is_denied: bool,
        does: Does,
    ) -> (Outcome, Vec<(Decision, Told)>, Vec<Permit>) {
        let unavailable = Outcome::Deny { retry: Retry::After(self.retry_after) };
        let denies = asked.iter().any(Fallen::is_denied);
        let local: SmallVec<[tollgate::Request<'_>; 8]> =
            asked.iter().filter(|fallen| fallen.is_local()).map(|fallen| fallen.here).collect();
        let drains = asked.iter().filter(|fallen| fallen.is_local() && starts_empty(&fallen.rule));
        drains.for_each(|fallen| self.drain(&fallen.here));
        let mut decisions = [Decision::default(); MOST_LIMITS];
        let decisions = &mut decisions[..local.len()];
        let (mut outcome, mut permits) = (Outcome::ALLOW, Vec::new());
        if denies || is_denied || does == Does::Preview {
            local
                .iter()
                .zip(&mut *decisions)
                .for_each(|(ask, decision)| *decision = ask.preview_at(self.now));
        } else if !local.is_empty() {
            let verdict;
            (verdict, permits) = match does {
                Does::Hold => KeyedLimiter::acquire_all_at(&local, self.now, decisions),
                _ => (KeyedLimiter::check_all_at(&local, self.now, decisions), Vec::new()),
            };
            outcome = verdict.outcome;
        }
        let mut decisions = decisions.iter();
        let each: Vec<(Decision, Told)> = asked
            .iter()
            .map(|fallen| {
                if fallen.is_local() {
                    (*decisions.next().expect("one for each"), Told::Here)
                } else {
                    fallen.unknown(if fallen.is_denied() { unavailable } else { Outcome::ALLOW })
                }
            })
            .collect();
        (if denies { unavailable } else { outcome }, each, permits)
    }

    /// Takes from a key what it had when the store went: a share that began full would be given twice, here and there.
    fn drain(&self, ask: &tollgate::Request<'_>) {
        let had = ask.peek_at(self.since).remaining;
        if had > 0 {
            let _ = ask.cost(had).check_at(self.since);
        }
    }
}

/// Whether the share of a rule begins with nothing: what leaves a queue leaves at its rate anyway, and places are not
/// refilled by time.
const fn starts_empty(rule: &Rule) -> bool {
    !matches!(rule, Rule::LeakyBucket(_) | Rule::LeakyBucketMaxWait(_) | Rule::Concurrency(_))
}

impl Engine {
    /// How fast the rate of some numbers goes for now.
    pub(super) fn pace_of(
        &self,
        in_force: &super::InForce,
        limit: &super::in_force::LimitInForce,
        numbers: super::in_force::NumbersId,
    ) -> Pace {
        if self.pressure.is_reduced() {
            self.pressure.pace_of(in_force.shed(limit, numbers))
        } else {
            Pace::FULL
        }
    }
}

impl Shared {
    /// Decides one ask that stands for itself, by a rule that came with it.
    pub(super) async fn ask_alone(
        &self,
        ask: Ask<'_>,
    ) -> Result<Result<Throttled, Unavailable>, ThrottleError> {
        self.store.require(&ask.rule).map_err(ThrottleError::Rule)?;
        let asks = [ask];
        let decided = self.store.decide(&asks, false).await;
        Ok(decided.map(|decided| Throttled {
            decision: only(&decided),
            source: decided.source,
            ..Throttled::not_yet(asks[0].rule)
        }))
    }

    /// Decides such an ask without the store.
    pub(super) fn fall_back_alone(
        &self,
        here: tollgate::Request<'_>,
        rule: Rule,
        unavailable: &Unavailable,
        now: Timestamp,
    ) -> Throttled {
        let has_share = has_share(&rule, self.store.nodes());
        let fallen = Fallen { on_error: self.on_error, here, rule, gives_back: false, has_share };
        let (decision, told) = Outage::new(unavailable, now).decide(&[fallen], false, Does::Charge).1[0];
        let is_known = told != Told::Unknown;
        Throttled { decision, source: Source::Fallback, is_known, ..Throttled::not_yet(rule) }
    }
}

impl<'a> Ask<'a> {
    /// What is asked of a key by a rule that came with it.
    pub(super) fn sent(limit: &'static str, key: &'a [u8], rule: Rule, cost: u64) -> Self {
        Self {
            limit: limit.into(),
            key: std::iter::once(key).collect(),
            tag: key,
            rule,
            pace: Pace::FULL,
            cost,
            does: Does::Charge,
            part: Part::All,
            has_one_tier: false,
            is_blocked: false,
        }
    }
}

/// The answer to one ask that stands for itself.
pub(super) fn only(decided: &Decided) -> Decision {
    decided.each[0].decision
}
