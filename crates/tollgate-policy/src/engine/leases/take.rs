//! All leased limits of one plan, taken together.

use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::MutexGuard;
use smallvec::SmallVec;
use tollgate::adaptive::Pace;
use tollgate::lease::{GrantId, Take, Terms};
use tollgate::{Action, Decision, Group, Outcome, Retry, Rule, Status, Timestamp};

use super::counts::LeaseCounts;
use super::draw_wait::DrawWait;
use super::entry::{Entry, denied_for};
use super::tasks::EntryCall;
use super::{Leases, Shard};
use crate::engine::Engine;
use crate::engine::plan::{AskedLimit, Plan, PlannedAsk, USUAL_ASKS};
use crate::store::{KeyState, LeasedKey, LimitDecision, LimitDecisions, Unavailable};

/// The leased asks of a plan.
pub(in crate::engine) struct LeasedAsks(SmallVec<[LeasedAsk; USUAL_ASKS]>);

/// An ask that grants can decide. Its rule is not copied, because a list of them is moved.
#[derive(Clone, Copy)]
struct LeasedAsk {
    hash: u64,
    cost: u64,
    place: u16,   // in the plan
    is_all: bool, // whether it can deny the request
}

/// The numbers that an ask is leased by.
struct LeasedNumbers {
    capacity: u64, // at the pace of the request
    pace: Pace,
    terms: Terms,
}

/// What grants have decided of a plan.
#[expect(clippy::large_enum_variant, reason = "it is nearly always the large one")]
pub(in crate::engine) enum Taken<'l> {
    /// All of it.
    All(LimitDecisions),
    /// What the store does not have to decide. Dropping it puts the units back.
    Some(Box<PartlyTaken<'l>>),
    /// Nothing yet: units have to be drawn first.
    Wait(Arc<DrawWait>),
    /// Nothing: units have to be drawn, and there is no connection.
    NoStore(Unavailable),
}

/// The units that were taken for a request that the store still has to decide.
pub(in crate::engine) struct PartlyTaken<'l> {
    pub(super) each: LimitDecisions, // of the plan; those of the store are not decided yet
    pub(super) stored: SmallVec<[usize; USUAL_ASKS]>, // the places of asks that the store decides
    pub(super) is_denied: bool,      // by a grant
    units: TakenUnits<'l>,
}

/// Units that go back into their grants if they are dropped.
pub(super) struct TakenUnits<'l> {
    leases: &'l Leases,
    each: SmallVec<[(TakenUnit, Arc<LeaseCounts>); USUAL_ASKS]>,
}

#[derive(Clone, Copy)]
struct TakenUnit {
    hash: u64,
    serial: u64,
    grant: GrantId,
    cost: u64,
    is_all: bool,
}

impl TakenUnits<'_> {
    /// Spends the units if the request passes. Otherwise only those of limits that decide by themselves.
    fn settle(&mut self, passes: bool) {
        self.each.retain(|(unit, _)| unit.is_all && !passes);
    }
}

impl Drop for TakenUnits<'_> {
    fn drop(&mut self) {
        for (unit, counts) in &self.each {
            if !self.leases.shard(unit.hash).lock().put_back(unit) {
                counts.add_lapsed(unit.cost);
            }
        }
    }
}

impl Shard {
    /// Puts units back into their grant. Returns false if the entry is gone.
    fn put_back(&mut self, unit: &TakenUnit) -> bool {
        let entry = self.entries.get_mut(&unit.hash).filter(|entry| entry.serial == unit.serial);
        entry.map(|entry| entry.put_back(unit.grant, unit.cost)).is_some()
    }
}

impl PartlyTaken<'_> {
    /// Spends the units if the request passes. Otherwise only those of independent limits.
    pub(super) fn settle(&mut self, passes: bool) {
        self.units.settle(passes);
    }
}

/// The answer of one lease.
enum LeaseAnswer {
    Taken(TakenUnit, LimitDecision),
    Denied(LimitDecision),
    Wait(Arc<DrawWait>),
    Exact,
}

/// What has to be sent when the locks are free.
type EntryCalls = SmallVec<[EntryCall; 1]>;

impl LeasedAsks {
    /// The asks of a plan that grants can decide. None if there are none, or if the store has to decide the whole plan.
    pub(in crate::engine) fn of(engine: &Engine, plan: &Plan<'_>) -> Option<Self> {
        let mut asks = SmallVec::new();
        for (place, ask) in plan.asks.iter().enumerate() {
            let full = plan.rule(ask);
            if ask.group == Group::AnyOf || ask.denial.is_some() || full.counts_denied() {
                return None;
            }
            if leased_numbers(engine, plan, ask).is_some() {
                let (hash, cost, is_all) = (ask.hash, ask.cost, ask.group == Group::All);
                asks.push(LeasedAsk { hash, cost, place: place as u16, is_all });
            }
        }
        (!asks.is_empty()).then_some(Self(asks))
    }
}

/// The terms on which grants decide an ask. None if the store decides it.
pub(in crate::engine) fn lease_terms<'a>(plan: &Plan<'a>, ask: &PlannedAsk<'a>) -> Option<Terms> {
    let AskedLimit::Policy(limit, numbers) = plan.limit(ask) else { return None };
    limit.numbers(numbers).terms.filter(|_| ask.action == Action::Charge && ask.cost > 0)
}

/// The numbers that an ask is leased by, at the pace of the request.
fn leased_numbers<'a>(engine: &Engine, plan: &Plan<'a>, ask: &PlannedAsk<'a>) -> Option<LeasedNumbers> {
    let (terms, full) = (lease_terms(plan, ask)?, plan.rule(ask));
    if !plan.is_reduced {
        return Some(LeasedNumbers { capacity: full.capacity(), pace: Pace::FULL, terms });
    }
    let pace = plan.pace(engine, ask);
    let rule = full.at_reduced_rate(pace);
    let terms = rule.lease_terms(terms.sync()).ok()?;
    engine.shared.as_ref()?.lease_store()?.require_lease(&rule).ok()?;
    Some(LeasedNumbers { capacity: rule.capacity(), pace, terms })
}

/// How often the request has waited for a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not yet.
    First,
    /// It has, and has been counted before.
    Again,
    /// It has waited as long as it may, while the store answered draws. It is denied if there is nothing for it now.
    Last,
}

/// One attempt to take what grants have for a plan.
pub(super) struct Attempt<'t, 'a> {
    pub(super) engine: &'t Engine,
    pub(super) plan: &'t Plan<'a>,
    pub(super) asks: &'t LeasedAsks,
    pub(super) stage: Stage,
    /// Whether its keys are on different servers, so that the store cannot decide them together.
    pub(super) spans_servers: bool,
    pub(super) now: Timestamp,
}

impl Attempt<'_, '_> {
    /// Takes what grants have: for all leased limits or for none.
    pub(super) fn take(self, leases: &Arc<Leases>) -> Taken<'_> {
        let mut calls = EntryCalls::new();
        let taken = self.take_locked(leases, &mut calls);
        calls.into_iter().for_each(|call| leases.start(call));
        taken
    }

    fn take_locked<'l>(&self, leases: &'l Arc<Leases>, calls: &mut EntryCalls) -> Taken<'l> {
        let mut shards = LockedShards::lock(leases, self.asks);
        let count = self.plan.asks.len();
        let mut each: LimitDecisions = SmallVec::from_elem(LimitDecision::default(), count);
        let mut is_stored: SmallVec<[bool; USUAL_ASKS]> = SmallVec::from_elem(true, count);
        let mut units: SmallVec<[TakenUnit; USUAL_ASKS]> = SmallVec::new();
        let (mut open, mut is_denied) = (Undecided::default(), false);
        for ask in &self.asks.0 {
            let decision = match self.ask(ask, leases, shards.of(ask.hash), calls) {
                Ok(LeaseAnswer::Taken(unit, decision)) => {
                    units.push(unit);
                    decision
                }
                Ok(LeaseAnswer::Denied(decision)) => {
                    is_denied |= ask.is_all;
                    decision
                }
                Ok(LeaseAnswer::Exact) => continue,
                Ok(LeaseAnswer::Wait(wait)) => {
                    open.add(ask, Taken::Wait(wait));
                    continue;
                }
                Err(unavailable) => {
                    open.add(ask, Taken::NoStore(unavailable));
                    continue;
                }
            };
            (each[usize::from(ask.place)], is_stored[usize::from(ask.place)]) = (decision, false);
        }
        if is_denied {
            // It is denied whatever the store would say of the others. Only limits that decide by themselves are still open.
            units.retain(|unit| {
                if unit.is_all {
                    shards.put_back(unit);
                }
                !unit.is_all
            });
            let all = (0..count).filter(|place| self.plan.asks[*place].group == Group::All);
            for place in all.filter(|place| is_stored[*place]).collect::<SmallVec<[usize; USUAL_ASKS]>>() {
                each[place] = not_asked(self.plan.rule(&self.plan.asks[place]));
                is_stored[place] = false;
            }
        }
        if let Some(open) = if is_denied { open.independent } else { open.all.or(open.independent) } {
            units.iter().for_each(|unit| shards.put_back(unit));
            return open;
        }
        let stored: SmallVec<[usize; USUAL_ASKS]> = (0..count).filter(|place| is_stored[*place]).collect();
        if stored.is_empty() {
            return Taken::All(each);
        }
        let with_counts =
            |unit: TakenUnit| (unit, Arc::clone(shards.of(unit.hash).entries[&unit.hash].counts()));
        let units = TakenUnits { leases, each: units.into_iter().map(with_counts).collect() };
        Taken::Some(Box::new(PartlyTaken { each, stored, is_denied, units }))
    }

    /// Asks one lease, and finds what has to be sent to the store then.
    fn ask(
        &self,
        ask: &LeasedAsk,
        leases: &Arc<Leases>,
        shard: &mut Shard,
        calls: &mut EntryCalls,
    ) -> Result<LeaseAnswer, Unavailable> {
        let planned = &self.plan.asks[usize::from(ask.place)];
        let full = self.plan.rule(planned);
        let Some(LeasedNumbers { capacity, pace, terms }) = leased_numbers(self.engine, self.plan, planned)
        else {
            return Ok(LeaseAnswer::Exact);
        };
        if ask.cost > capacity {
            // A reduced limit may be a full one again, at a time that is not known.
            let retry = if ask.cost > full.capacity() { Retry::Never } else { Retry::Unknown };
            let status = Status { remaining: capacity, ..Status::default() };
            let decision = Decision { outcome: Outcome::Deny { retry }, status };
            let key_state = KeyState::Stored { more_after: None };
            return Ok(LeaseAnswer::Denied(LimitDecision { decision, key_state }));
        }
        let key = || LeasedKey::new(&self.plan.store_ask(self.engine, planned));
        let Some(entry) = self.entry(ask, &terms, leases, shard, key) else {
            return if self.spans_servers { Err(no_lease()) } else { Ok(LeaseAnswer::Exact) };
        };
        let policy = leases.policies.load(Relaxed);
        let is_same = |key: &LeasedKey| key.rule == *full && key.pace == pace;
        entry.use_numbers(is_same, key, &terms, policy, self.now);
        let is_again = self.stage != Stage::First;
        let take = entry.take(&*leases.store, ask.cost, is_again, self.now);
        while let Some(call) = leases.call_of(entry, ask.hash, self.now) {
            calls.push(call);
        }
        Ok(match take? {
            Take::Taken(grant) => {
                let LeasedAsk { hash, cost, is_all, .. } = *ask;
                let unit = TakenUnit { hash, serial: entry.serial, grant, cost, is_all };
                LeaseAnswer::Taken(unit, entry.decision(Outcome::ALLOW, self.now))
            }
            Take::Denied(wait) => LeaseAnswer::Denied(entry.decision(denied_for(wait), self.now)),
            // Its time is over, so that the store cannot be asked either.
            Take::Wait | Take::Exact if self.stage == Stage::Last => {
                LeaseAnswer::Denied(entry.decision(denied_for(terms.sync()), self.now))
            }
            Take::Exact if self.spans_servers => {
                while let Some(call) = entry.single_draw(&*leases.store, ask.cost, self.now) {
                    calls.push(EntryCall { hash: ask.hash, serial: entry.serial, call });
                }
                LeaseAnswer::Wait(entry.wait().ok_or_else(no_lease)?)
            }
            // Without a draw in flight there is nothing to wait for.
            Take::Wait => entry.wait().map_or(LeaseAnswer::Exact, LeaseAnswer::Wait),
            Take::Exact => LeaseAnswer::Exact,
        })
    }

    /// The lease of a key. None as long as the store decides its requests one by one.
    fn entry<'s>(
        &self,
        ask: &LeasedAsk,
        terms: &Terms,
        leases: &Arc<Leases>,
        shard: &'s mut Shard,
        key: impl FnOnce() -> LeasedKey,
    ) -> Option<&'s mut Entry> {
        let Shard { entries, rare } = shard;
        match entries.entry(ask.hash) {
            MapEntry::Occupied(entry) => Some(entry.into_mut()),
            MapEntry::Vacant(place) => {
                let demand = rare.arrive(ask.hash, ask.cost, terms.sync(), self.now);
                let demand = demand.or(self.spans_servers.then_some(0))?;
                leases.add(place, key(), *terms, demand, self.now)
            }
        }
    }
}

/// What keeps a request from being decided now.
#[derive(Default)]
struct Undecided<'l> {
    all: Option<Taken<'l>>,         // of limits that can deny it
    independent: Option<Taken<'l>>, // of limits that decide by themselves
}

impl<'l> Undecided<'l> {
    fn add(&mut self, ask: &LeasedAsk, taken: Taken<'l>) {
        let open = if ask.is_all { &mut self.all } else { &mut self.independent };
        // Without a store, no wait helps.
        if open.is_none() || matches!(taken, Taken::NoStore(_)) {
            *open = Some(taken);
        }
    }
}

/// There is no lease for a key whose requests the store cannot decide together with others.
fn no_lease() -> Unavailable {
    Unavailable {
        why: "this process has no lease for a key on another server: it has too many, or is closing"
            .to_owned(),
        out_for: Duration::ZERO,
        retry_after: Duration::from_secs(1),
    }
}

/// The decision of a limit that was not asked, because another one denies the request.
fn not_asked(rule: &Rule) -> LimitDecision {
    let status = Status { remaining: rule.capacity(), ..Status::default() };
    LimitDecision { decision: Decision { outcome: Outcome::ALLOW, status }, key_state: KeyState::Unknown }
}

/// What grants have left of a plan while the store gives no answer. Dropping it puts the units back.
pub(in crate::engine) struct HeldUnits<'l> {
    /// By place in the plan. None where `on_error` decides.
    pub(in crate::engine) each: SmallVec<[Option<LimitDecision>; USUAL_ASKS]>,
    units: TakenUnits<'l>,
}

impl LeasedAsks {
    /// Takes what grants have left, for each limit by itself.
    pub(super) fn take_held<'l>(&self, plan: &Plan<'_>, leases: &'l Leases, now: Timestamp) -> HeldUnits<'l> {
        let mut each = SmallVec::from_elem(None, plan.asks.len());
        let mut units = TakenUnits { leases, each: SmallVec::new() };
        for ask in &self.0 {
            let mut shard = leases.shard(ask.hash).lock();
            let Some(entry) = shard.entries.get_mut(&ask.hash) else { continue };
            if let Some(grant) = entry.take_held(ask.cost, now) {
                let LeasedAsk { hash, cost, is_all, .. } = *ask;
                let unit = TakenUnit { hash, serial: entry.serial, grant, cost, is_all };
                units.each.push((unit, Arc::clone(entry.counts())));
                each[usize::from(ask.place)] = Some(entry.decision(Outcome::ALLOW, now));
            }
        }
        HeldUnits { each, units }
    }

    /// Notes what the share of this process let pass while the store gave no answer, so that the next draws charge it.
    pub(super) fn owe(&self, leases: &Leases, was_local: impl Fn(usize) -> bool) {
        for ask in self.0.iter().filter(|ask| was_local(usize::from(ask.place))) {
            leases.owe(ask.hash, ask.cost);
        }
    }
}

impl HeldUnits<'_> {
    /// Spends the units if the request passes. Otherwise only those of independent limits.
    pub(in crate::engine) fn settle(&mut self, passes: bool) {
        self.units.settle(passes);
    }
}

/// The shards of the keys of a plan, locked in order.
struct LockedShards<'l>(SmallVec<[(usize, MutexGuard<'l, Shard>); USUAL_ASKS]>);

impl<'l> LockedShards<'l> {
    fn lock(leases: &'l Leases, asks: &LeasedAsks) -> Self {
        let mut places: SmallVec<[usize; USUAL_ASKS]> =
            asks.0.iter().map(|ask| Leases::place(ask.hash)).collect();
        places.sort_unstable();
        places.dedup();
        Self(places.into_iter().map(|place| (place, leases.shards[place].lock())).collect())
    }

    fn of(&mut self, hash: u64) -> &mut Shard {
        let place = Leases::place(hash);
        let found = self.0.iter_mut().find(|(of, _)| *of == place);
        &mut found.expect("the shards of all asks are locked").1
    }

    fn put_back(&mut self, unit: &TakenUnit) {
        let _ = self.of(unit.hash).put_back(unit);
    }
}
