//! Several asks decided together.

use smallvec::SmallVec;
use tollgate_core::{Action, Decision, Group, Outcome, Plan, Status, Timestamp, decide_each};

use super::prefetch::prefetch_for_write;
use super::segments::SlotPlace;
use super::shard::{Shard, Together};
use super::{Ask, HeldSlot, Table};
use crate::sync::Guard;

/// The most limits that can be decided together.
pub(crate) const MOST_LIMITS: usize = 32;

/// The number of asks that are decided without an allocation: as most plans have. Larger plans use arrays of [`MOST_LIMITS`], which
/// take longer to fill.
pub(crate) const USUAL_LIMITS: usize = 8;

/// Several asks, `N` at most, with all their shards locked.
///
/// Asks that name one key are decided in their order: each is tested with the costs of those before it, and is charged its own.
///
/// Shards that many plans wait for are locked last and unlocked first. Keys in other shards are looked up and tested before that,
/// and charged after it. So a key that all requests have in common, such as that of a global limit, is locked for a short time.
pub(super) struct Locked<'t, 'a, const N: usize> {
    table: &'t Table,
    asks: &'t mut [Ask<'a>], // each with what it is tested for: its cost, and the costs of those before it that name the same key
    costs: [u64; N],         // what each is charged
    shards: [u16; N],
    guards: [Option<Guard<'t, Shard>>; N],
    guard_of: [u8; N], // the ask that has the guard of its shard: the first that is in it
    order: [u8; N],    // of locking
    locks: usize,
    busy: u32, // one bit for each ask whose shard is locked last; read once, because a shard may become busy at any time
    places: [Option<SlotPlace>; N], // of keys that were located, as long as they are there
    outcomes: SmallVec<[Option<Outcome>; N]>, // of keys that were tested before the last locks were taken; none if there is no busy shard
    can_unlock: bool,                         // what has been decided can be unlocked
}

impl<'t, 'a, const N: usize> Locked<'t, 'a, N> {
    /// A plan of asks, those in busy shards first. Nothing is locked yet.
    pub(super) fn new(table: &'t Table, asks: &'t mut [Ask<'a>]) -> Self {
        let len = asks.len();
        assert!(len <= N, "at most {MOST_LIMITS} requests can be decided together");
        let mut locked = Self {
            table,
            asks,
            costs: [0; N],
            shards: [0; N],
            guards: [const { None }; N],
            guard_of: [0; N],
            order: [0; N],
            locks: 0,
            busy: 0,
            places: [None; N],
            outcomes: SmallVec::new(),
            can_unlock: false,
        };
        let is_any_busy = table.is_any_busy();
        for i in 0..len {
            let Ask { part, hash, .. } = locked.asks[i];
            let shard = table.shard_number(part, hash);
            locked.shards[i] = shard as u16;
            let first = (0..i).find(|&j| locked.shards[j] == shard as u16);
            locked.guard_of[i] = first.unwrap_or(i) as u8;
            if first.is_some() {
                locked.add_to_key(i);
            } else {
                locked.costs[i] = locked.asks[i].cost;
                locked.order[locked.locks] = i as u8;
                locked.locks += 1;
                let is_busy = is_any_busy && table.is_busy(shard);
                locked.busy |= u32::from(is_busy) << i;
                if !is_busy {
                    prefetch_for_write(&table.shards[shard]);
                }
            }
        }
        // If all are busy, there is nothing that could be done before.
        if locked.busy.count_ones() as usize == locked.locks {
            locked.busy = 0;
        }
        locked
    }

    /// Looks whether ask `i`, which is not the first in its shard, names the key of an earlier one. Then it is decided under the tier
    /// of the first of them, and tested with the sum of their charges and its own cost.
    fn add_to_key(&mut self, i: usize) {
        let ask = self.asks[i];
        self.costs[i] = ask.cost;
        // The table treats two hashes as one key if they have the same shard and agree in the bits that a slot stores.
        let is_same =
            |j: usize| self.asks[j].hash << 16 == ask.hash << 16 && self.guard_of[j] == self.guard_of[i];
        let Some(first) = (0..i).find(|&j| is_same(j)) else { return };
        let is_charge = |action| matches!(action, Action::Charge | Action::ChargeInFull | Action::Hold);
        let is_peek = !is_charge(ask.action) || (ask.cost == 0 && ask.action != Action::ChargeInFull);
        let cost = if is_peek {
            ask.cost
        } else {
            let charged = (first..i).filter(|&j| is_same(j) && is_charge(self.asks[j].action));
            charged.map(|j| self.costs[j]).fold(ask.cost, u64::saturating_add)
        };
        // Two tiers of one key may have different algorithms: the first is the one that counts.
        let Ask { hash, rule, .. } = self.asks[first];
        self.asks[i] = Ask { hash, rule, cost, ..ask };
    }

    /// Decides them at one instant. Returns whether the request passes.
    pub(super) fn decide(&mut self, now: Timestamp, decisions: &mut [Decision]) -> bool {
        self.lock(now);
        if self.places[..self.asks.len()].iter().any(Option::is_none) {
            self.prepare(now);
        } else {
            self.can_unlock = self.busy > 0;
        }
        let passes = decide_each(self, now, decisions);
        if !passes {
            for (i, decision) in decisions.iter().enumerate() {
                // A key that was located has the numbers in force.
                if !decision.is_allowed() && self.places[i].is_none() {
                    let ask = self.asks[i];
                    self.shard_mut(i).carry_over(&ask, decision.outcome, now);
                }
            }
        }
        passes
    }

    /// Locks all shards, and locates keys.
    #[inline]
    fn lock(&mut self, now: Timestamp) {
        let (locks, first) = (self.locks, self.locks - self.busy.count_ones() as usize);
        // Always from the first shard to the last, so that no two requests wait for each other.
        let (shards, busy) = (&self.shards, self.busy);
        self.order[..locks].sort_unstable_by_key(|&i| (busy >> i & 1, shards[usize::from(i)]));
        (0..first).for_each(|place| self.lock_in_order(place));
        self.locate();
        if self.busy == 0 {
            return;
        }
        self.test_located(now);
        for place in first..locks {
            let i = usize::from(self.order[place]);
            // These are out of order, so a plan that waits for them must not do so for ever.
            let Some((guard, had_to_wait)) = self.table.shards[usize::from(self.shards[i])].0.lock_soon()
            else {
                return self.lock_all_in_order();
            };
            self.keep(i, guard, had_to_wait);
        }
        self.locate();
    }

    /// Begins again, with all locks in order.
    #[cold]
    fn lock_all_in_order(&mut self) {
        self.guards.iter_mut().for_each(|guard| *guard = None);
        self.places = [None; N];
        self.outcomes.clear();
        let shards = &self.shards;
        self.order[..self.locks].sort_unstable_by_key(|&i| shards[usize::from(i)]);
        (0..self.locks).for_each(|place| self.lock_in_order(place));
        self.locate();
    }

    #[inline]
    fn lock_in_order(&mut self, place: usize) {
        let i = usize::from(self.order[place]);
        let (guard, had_to_wait) = self.table.shards[usize::from(self.shards[i])].0.lock_noting_wait();
        self.keep(i, guard, had_to_wait);
    }

    #[inline]
    fn keep(&mut self, i: usize, mut guard: Guard<'t, Shard>, had_to_wait: bool) {
        if let Some(is_busy) = guard.note_contention(had_to_wait) {
            self.table.set_busy(usize::from(self.shards[i]), is_busy);
        }
        self.guards[i] = Some(guard);
    }

    /// Locates the keys in locked shards for which nothing has to be added, removed or converted. Each is looked up once, and not
    /// again for its test, its charge and its status.
    #[inline]
    fn locate(&mut self) {
        let len = self.asks.len();
        // All searches begin before one of them goes on, so that the slots are fetched from memory at the same time.
        let mut starts = [None; N];
        for (i, start) in starts[..len].iter_mut().enumerate() {
            if self.places[i].is_none()
                && let Some(shard) = &self.guards[usize::from(self.guard_of[i])]
            {
                *start = shard.begin_search(&self.asks[i]);
            }
        }
        for (i, start) in starts[..len].iter().enumerate() {
            if let Some(start) = *start
                && let Some((place, number)) = self.shard(i).find_usual(&self.asks[i], start, len)
            {
                (self.places[i], self.asks[i].number) = (Some(place), number);
            }
        }
    }

    /// Tests the keys that were located, before the last locks are taken.
    fn test_located(&mut self, now: Timestamp) {
        let test = |i: usize| self.places[i].map(|place| self.test_at(i, place, now));
        self.outcomes = (0..self.asks.len()).map(test).collect();
    }

    #[inline]
    fn test_at(&self, i: usize, place: SlotPlace, now: Timestamp) -> Outcome {
        let cost = self.asks[i].cost;
        self.shard(i).read_usual(place, |rule, state| rule.test(state, cost, now))
    }

    /// Makes room for asks whose keys were not located.
    fn prepare(&mut self, now: Timestamp) {
        for i in 0..self.asks.len() {
            if self.places[i].is_some() {
                continue;
            }
            let ask = self.asks[i];
            let shard = self.shard_mut(i);
            let ask = shard.numbered(&ask);
            let has_moved = shard.prepare(&ask, now);
            shard.note_touched();
            self.asks[i] = ask;
            if has_moved {
                self.lose_places(i);
            }
        }
    }

    /// Forgets where keys are that share the shard of ask `i`, in which keys have been moved.
    fn lose_places(&mut self, i: usize) {
        for j in 0..self.asks.len() {
            if self.guard_of[j] == self.guard_of[i] {
                self.places[j] = None;
            }
        }
    }

    /// Whether an ask that passed holds a slot now. Keys of concurrency limits are not located.
    pub(super) fn has_slot(&self, i: usize) -> bool {
        self.asks[i].permit.is_some() && self.places[i].is_none() && self.shard(i).gives_slot(&self.asks[i])
    }

    pub(super) fn held_slot(&self, i: usize) -> Option<HeldSlot> {
        self.asks[i].held_slot()
    }

    /// Ends the decision. Keys may move.
    pub(super) fn end(mut self, now: Timestamp) {
        for i in 0..self.asks.len() {
            let hash = self.asks[i].hash;
            if let Some(shard) = self.guards[i].as_mut() {
                shard.free_idle_rules();
                shard.sweep_by_chance(hash, now);
            }
        }
    }

    fn together(&self, i: usize) -> Together<'_> {
        Together { all: self.asks, earlier: &self.asks[..i] }
    }

    #[inline]
    fn shard(&self, i: usize) -> &Shard {
        self.guards[usize::from(self.guard_of[i])].as_ref().expect(LOCKED)
    }

    #[inline]
    fn shard_mut(&mut self, i: usize) -> &mut Shard {
        self.guards[usize::from(self.guard_of[i])].as_mut().expect(LOCKED)
    }
}

const LOCKED: &str = "the shard of every ask is locked";

impl<const N: usize> Plan for Locked<'_, '_, N> {
    fn len(&self) -> usize {
        self.asks.len()
    }

    #[inline]
    fn test(&self, i: usize, now: Timestamp) -> Outcome {
        match self.places[i] {
            Some(place) => match self.outcomes.get(i) {
                Some(Some(outcome)) => *outcome,
                _ => self.test_at(i, place, now),
            },
            None => self.shard(i).test(&self.asks[i], self.together(i), now),
        }
    }

    #[inline]
    fn spend(&mut self, i: usize, now: Timestamp) {
        let cost = self.costs[i];
        if let Some(place) = self.places[i] {
            return self.shard_mut(i).spend_usual(place, cost, now);
        }
        let Self { asks, guards, guard_of, .. } = self;
        let shard = guards[usize::from(guard_of[i])].as_mut().expect(LOCKED);
        let ask = Ask { cost, ..asks[i] };
        // By now those before it have been charged.
        shard.spend(&ask, Together { all: asks, earlier: &[] }, now);
        self.lose_places(i);
    }

    #[inline]
    fn status(&self, i: usize, now: Timestamp) -> Status {
        match self.places[i] {
            Some(place) => self.shard(i).read_usual(place, |rule, state| rule.status(state, now)),
            None => self.shard(i).status_of(&self.asks[i], now),
        }
    }

    #[inline]
    fn counts_denied(&self, i: usize) -> bool {
        self.shard(i).counts_denied(&self.asks[i])
    }

    #[inline]
    fn action(&self, i: usize) -> Action {
        self.shard(i).action(&self.asks[i])
    }

    #[inline]
    fn group(&self, i: usize) -> Group {
        self.asks[i].group
    }

    #[inline]
    fn finished(&mut self, i: usize) {
        // All locks have been taken: what is unlocked here is not locked again.
        if self.can_unlock {
            let guard = self.guard_of[i];
            if !self.guard_of[i + 1..self.asks.len()].contains(&guard) {
                let hash = self.asks[i].hash;
                if self.busy >> guard & 1 == 1 {
                    self.shard_mut(i).vote(hash);
                }
                self.guards[usize::from(guard)] = None;
            }
        }
    }
}
