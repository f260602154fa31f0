//! The back ends that decide a plan: the table of this process, a shared store, and the fallback while the store gives no answer.
//!
//! Each takes the asks of a plan and returns one decision per ask. The verdict is built from them in one place.

use std::sync::Arc;

use smallvec::SmallVec;
use tollgate::{Action, Decision, Group, KeyedLimiter, Nanos, Outcome, Retry, Status, Timestamp};

use super::Engine;
use super::answer::Answer;
use super::leases::{FirstAttempt, HeldUnits, LeasedPlan, Leases};
use super::permits::Permits;
use super::plan::{Denial, Plan, PlannedAsk, USUAL_ASKS};
use super::verdict::Verdict;
use crate::policy::OnError;
use crate::store::{
    self, Decisions, KeyState, LeaseStore, LimitDecision, LimitDecisions, Source, Store, Unavailable,
};

/// A store that several processes share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) leases: Option<Arc<Leases>>, // if nodes can draw grants from the store
    pub(super) is_cluster: bool,            // which has keys on several servers
    pub(super) on_error: OnError,           // of limits that do not set it
}

/// What a back end has decided.
pub(super) struct Decided {
    pub(super) source: Source,
    pub(super) each: LimitDecisions,          // one per ask
    pub(super) permits: Option<Box<Permits>>, // a verdict is moved, and few hold permits
}

/// A call that can be planned, more than once if necessary. The plan is passed to a closure, because the tier of a rule that was
/// sent belongs to the rule only while the registry is locked.
pub(super) trait Call<'a>: Send + 'a {
    /// Why it cannot be decided.
    type Error: Send + 'a;

    /// Whether grants may decide it: it is decided by a policy with leases.
    fn has_leases(&self) -> bool;

    /// Makes the plan, and hands it to `then`.
    fn plan<T>(&self, then: impl FnOnce(Plan<'a>) -> T) -> Result<T, Self::Error>;
}

impl Engine {
    /// Decides a call, and passes its verdict to `then`. All calls come this way, except calls in memory that bring their rule.
    #[inline]
    pub(super) fn decide<'a, C: Call<'a>, T: Send + 'a>(
        &'a self,
        call: C,
        now: Timestamp,
        then: impl FnOnce(Verdict<'a>) -> T + Send + 'a,
    ) -> Answer<'a, Result<T, C::Error>> {
        let Some(shared) = &self.shared else {
            return Answer::Now(call.plan(|plan| {
                let decided = decide_in_table(&plan, now);
                then(Verdict::new(plan, decided, now))
            }));
        };
        if let Some(leases) = shared.leases.as_ref().filter(|_| call.has_leases()) {
            return self.decide_by_leases(call, shared, leases, now, then);
        }
        Answer::Later(Box::pin(async move {
            let plan = call.plan(|plan| plan)?;
            match shared.decide(self, &plan).await {
                Ok(decided) => Ok(then(Verdict::new(plan, decided, now))),
                Err(unavailable) => call.plan(|plan| {
                    let decided = Outage::new(shared, &unavailable, now).decide(&plan, None);
                    then(Verdict::new(plan, decided, now))
                }),
            }
        }))
    }

    /// Decides a call under a policy with leases. If no limit needs the store, that is the answer, without a future.
    fn decide_by_leases<'a, C: Call<'a>, T: Send + 'a>(
        &'a self,
        call: C,
        shared: &'a Shared,
        leases: &'a Arc<Leases>,
        now: Timestamp,
        then: impl FnOnce(Verdict<'a>) -> T + Send + 'a,
    ) -> Answer<'a, Result<T, C::Error>> {
        let first = call.plan(|plan| {
            let Some(leased) = LeasedPlan::of(self, shared, &plan) else {
                return Err(Box::new((plan, None, then)));
            };
            match leased.decide(self, leases, &plan, now) {
                FirstAttempt::Decided(decided) => Ok(then(Verdict::new(plan, decided, now))),
                FirstAttempt::Open(open) => Err(Box::new((plan, Some(open), then))),
            }
        });
        let open = match first {
            Ok(Ok(answer)) => return Answer::Now(Ok(answer)),
            Err(error) => return Answer::Now(Err(error)),
            Ok(Err(open)) => open,
        };
        Answer::Later(Box::pin(async move {
            let (plan, open, then) = *open;
            let answer = match open {
                Some(open) => {
                    let (leased, taken) = *open;
                    leased.finish(self, shared, leases, &plan, taken).await
                }
                None => shared.decide(self, &plan).await,
            };
            match answer {
                Ok(decided) => Ok(then(Verdict::new(plan, decided, now))),
                // The tenant may have another tier by now, so other limits may apply.
                Err(unavailable) => call.plan(|plan| {
                    let leased = LeasedPlan::of(self, shared, &plan);
                    let outage = Outage::new(shared, &unavailable, now);
                    let decided = outage.decide(&plan, leased.as_ref().map(|leased| (leased, &**leases)));
                    then(Verdict::new(plan, decided, now))
                }),
            }
        }))
    }

    /// Decides a plan of peeks. Returns an error if the store is unavailable: there is no fallback for peeks.
    pub(super) fn look<'a>(
        &'a self,
        plan: Plan<'a>,
        now: Timestamp,
    ) -> Answer<'a, Result<Verdict<'a>, Unavailable>> {
        let Some(shared) = &self.shared else {
            let decided = decide_in_table(&plan, now);
            return Answer::Now(Ok(Verdict::new(plan, decided, now)));
        };
        Answer::Later(Box::pin(async move {
            let decided = shared.decide(self, &plan).await?;
            Ok(Verdict::new(plan, decided, now))
        }))
    }
}

/// Decides in the table of this process.
#[inline]
pub(super) fn decide_in_table(plan: &Plan<'_>, now: Timestamp) -> Decided {
    let requests = plan.asks.iter().map(|ask| plan.table_request(ask));
    decide_requests(requests, plan.asks.len(), now)
}

#[inline]
fn decide_requests<'r>(
    requests: impl Iterator<Item = tollgate::Request<'r>> + Clone,
    len: usize,
    now: Timestamp,
) -> Decided {
    let mut each: LimitDecisions = SmallVec::from_elem(LimitDecision::default(), len);
    let permits = KeyedLimiter::decide_at(requests, now, |i, decision| each[i].decision = decision);
    let permits = (!permits.is_empty()).then(|| Box::new(permits.into()));
    Decided { source: Source::Memory, each, permits }
}

impl Shared {
    /// What nodes draw grants from.
    pub(super) fn lease_store(&self) -> Option<&dyn LeaseStore> {
        self.leases.as_ref().map(|leases| leases.store())
    }

    /// Decides in the store.
    pub(super) async fn decide(&self, engine: &Engine, plan: &Plan<'_>) -> Result<Decided, Unavailable> {
        if self.is_cluster && plan.spans_servers(engine) && (plan.can_be_split() || plan.is_denied()) {
            return self.decide_per_server(engine, plan).await;
        }
        let all: Places = (0..plan.asks.len()).collect();
        self.decide_places(engine, plan, &all).await
    }

    /// Decides some asks of a plan in the store. The decisions are those of these asks.
    pub(super) async fn decide_places(
        &self,
        engine: &Engine,
        plan: &Plan<'_>,
        places: &[usize],
    ) -> Result<Decided, Unavailable> {
        if places.is_empty() {
            return Ok(Decided { source: Source::Store, each: LimitDecisions::new(), permits: None });
        }
        let asks: SmallVec<[store::Ask<'_>; 8]> =
            places.iter().map(|place| plan.store_ask(engine, &plan.asks[*place])).collect();
        self.decide_asks(&asks).await
    }

    async fn decide_asks(&self, asks: &[store::Ask<'_>]) -> Result<Decided, Unavailable> {
        let Decisions { source, each, permits } = self.store.decide(asks).await?;
        assert_eq!(each.len(), asks.len(), "one decision per ask");
        let stored = |permits| Box::new(Permits::stored(Arc::clone(&self.store), permits));
        let permits = (!permits.is_empty()).then(|| stored(permits));
        Ok(Decided { source, each, permits })
    }

    /// Decides asks that do not depend on each other, server by server.
    async fn decide_per_server(&self, engine: &Engine, plan: &Plan<'_>) -> Result<Decided, Unavailable> {
        let mut all = Decided {
            source: Source::Store,
            each: SmallVec::from_elem(LimitDecision::default(), plan.asks.len()),
            permits: None,
        };
        let mut asks: Vec<(usize, store::Ask<'_>)> =
            plan.asks.iter().map(|ask| plan.store_ask(engine, ask)).enumerate().collect();
        if plan.is_denied() {
            // It is charged nowhere.
            let charges = asks.iter_mut().filter(|(_, ask)| ask.group == Group::All);
            charges.for_each(|(_, ask)| ask.action = Action::Peek);
        }
        while let Some((_, first)) = asks.first() {
            let tag = first.tag;
            let (here, elsewhere) = asks.into_iter().partition(|(_, ask)| ask.tag == tag);
            let (places, here): (Places, Vec<store::Ask<'_>>) = Vec::into_iter(here).unzip();
            let decided = self.decide_asks(&here).await?;
            for (place, each) in places.into_iter().zip(decided.each) {
                all.each[place] = each;
            }
            asks = elsewhere;
        }
        Ok(all)
    }
}

/// Asks, by their places in the plan.
type Places = SmallVec<[usize; USUAL_ASKS]>;

/// An outage of the store. Each limit is decided by its `on_error`: `deny`, `allow`, or `local`, the share of this process.
pub(super) struct Outage<'s> {
    shared: &'s Shared,
    nodes: u32,
    since: Timestamp,
    now: Timestamp,
    denial: Outcome,
}

impl<'s> Outage<'s> {
    fn new(shared: &'s Shared, unavailable: &Unavailable, now: Timestamp) -> Self {
        let out_for = Nanos::saturating_from(unavailable.out_for);
        let since = Timestamp::from_nanos(now.as_nanos().saturating_sub(out_for.get()));
        // A denial gives a time to come back, and never 0.
        let retry_after = Nanos::saturating_from(unavailable.retry_after).max(Nanos::new(1));
        let denial = Outcome::Deny { retry: Retry::After(retry_after) };
        Self { shared, nodes: shared.store.nodes(), since, now, denial }
    }

    /// Decides in the table of this process. For a limit with `on_error: allow` or `deny`, the table gets a peek that always
    /// passes or is always denied, so that groups work as usual. Limits of which grants are left are decided by these.
    fn decide(&self, plan: &Plan<'_>, leased: Option<(&LeasedPlan, &Leases)>) -> Decided {
        let mut held = leased.map(|(leased, leases)| leased.take_held(plan, leases));
        let is_held = |held: &Option<HeldUnits<'_>>, place| held.as_ref().and_then(|held| held.each[place]);
        let on_error = |(place, ask)| match is_held(&held, place) {
            Some(_) => OnError::Allow,
            None => self.on_error(plan, ask),
        };
        let on_error: SmallVec<[OnError; USUAL_ASKS]> = plan.asks.iter().enumerate().map(on_error).collect();
        let asks = || plan.asks.iter().zip(&on_error);
        for (ask, _) in asks().filter(|(_, on_error)| **on_error == OnError::Local) {
            // A limit of 0 has nothing to give, except that usage is counted.
            let is_counted = ask.action == Action::ChargeInFull && ask.cost > 0;
            if ask.denial != Some(Denial::Blocked) || is_counted {
                self.drain(plan, ask);
            }
        }
        let requests = asks().map(|(ask, on_error)| {
            let peek = plan.key_request(ask).group(ask.group).action(Action::Peek);
            match on_error {
                // What is given back was not charged to the share of this process.
                OnError::Local if ask.action == Action::Refund => peek.cost(0),
                OnError::Local => plan.table_request(ask),
                OnError::Allow if ask.denial.is_none() => peek.cost(0),
                OnError::Allow | OnError::Deny => peek.cost(1).denied(),
            }
        });
        let mut decided = decide_requests(requests, plan.asks.len(), self.now);
        decided.source = Source::Fallback;
        for ((ask, on_error), each) in asks().zip(&mut decided.each) {
            let (outcome, remaining) = match on_error {
                OnError::Local => continue,
                OnError::Allow => (Outcome::ALLOW, plan.rule(ask).capacity()),
                OnError::Deny => (self.denial, 0),
            };
            // A missing attribute denies without a store, too.
            let outcome = if ask.denial.is_some() { Outcome::NEVER } else { outcome };
            let decision = Decision { outcome, status: Status { remaining, reset_after: Nanos::ZERO } };
            *each = LimitDecision { decision, key_state: KeyState::Unknown };
        }
        let denies = |(ask, each): (&PlannedAsk<'_>, &LimitDecision)| {
            ask.group == Group::All && !each.decision.is_allowed()
        };
        let passes = !plan.asks.iter().zip(&decided.each).any(denies);
        for (place, each) in decided.each.iter_mut().enumerate() {
            *each = is_held(&held, place).unwrap_or(*each);
        }
        if let Some(held) = &mut held {
            held.settle(passes);
        }
        if let Some((leased, leases)) = leased {
            let passes = |place: usize| {
                let is_independent = plan.asks[place].group == Group::Independent;
                (passes || is_independent) && decided.each[place].decision.is_allowed()
            };
            leased.owe(leases, |place| on_error[place] == OnError::Local && passes(place));
        }
        decided
    }

    /// What decides an ask. A refund needs no decision, and a limit that cannot be shared is denied.
    fn on_error<'a>(&self, plan: &Plan<'a>, ask: &PlannedAsk<'a>) -> OnError {
        match ask.on_error(self.shared.on_error) {
            OnError::Deny if ask.action == Action::Refund => OnError::Allow,
            OnError::Local
                if ask.denial != Some(Denial::Blocked) && !plan.rule(ask).has_share(self.nodes) =>
            {
                OnError::Deny
            }
            on_error => on_error,
        }
    }

    /// Empties a key as of the beginning of the outage. Otherwise, tokens that were spent in the store could be spent here again.
    fn drain<'a>(&self, plan: &Plan<'a>, ask: &PlannedAsk<'a>) {
        if !plan.rule(ask).share_begins_empty() {
            return;
        }
        let request = plan.key_request(ask);
        let had = request.peek_at(self.since).remaining;
        if had > 0 {
            let _ = request.cost(had).check_at(self.since);
        }
    }
}
