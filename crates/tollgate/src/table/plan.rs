//! Several asks decided together.

use tollgate_core::{Action, Decision, Group, Outcome, Plan, Status, Timestamp, decide_each};

use super::Table;
use super::segments::SlotPlace;
use super::shard::{Ask, Shard, Together};
use crate::sync::Guard;

/// The most limits that can be decided together.
pub(crate) const MOST_LIMITS: usize = 32;

/// The size of the small arrays, which fit most plans. Larger plans use arrays of [`MOST_LIMITS`], which take longer to fill.
pub(crate) const USUAL_LIMITS: usize = 8;

/// Several asks, `N` at most, with all their shards locked. Nothing is allocated.
///
/// Asks that name one key are decided in their order: each is tested with the costs of those before it, and is charged its own.
pub(super) struct Locked<'a, const N: usize> {
    asks: [Ask<'a>; N], // each with what it is tested for: its cost, and the costs of those before it that name the same key
    costs: [u64; N], // what each is charged
    guards: [Option<Guard<'a, Shard>>; N],
    guard_of: [usize; N],
    len: usize,
    places: [Option<SlotPlace>; N], // of keys that were located, as long as they are there
}

impl<'a, const N: usize> Locked<'a, N> {
    pub(super) fn new(table: &'a Table, asks: &[Ask<'a>]) -> Self {
        let len = asks.len();
        let mut locked = Self {
            asks: [Ask::NOTHING; N],
            costs: [0; N],
            guards: [const { None }; N],
            guard_of: [0; N],
            len,
            places: [None; N],
        };
        let mut shards = [0; N];
        for (i, ask) in asks.iter().enumerate() {
            shards[i] = table.shard_number(ask.part, ask.hash);
            locked.add(i, ask, &shards[..i], shards[i]);
        }
        let mut order: [usize; N] = std::array::from_fn(|i| i);
        // Always from the first shard to the last, so that no two requests wait for each other.
        order[..len].sort_unstable_by_key(|&i| shards[i]);
        let mut last: Option<usize> = None;
        for &i in &order[..len] {
            match last.filter(|&last| shards[last] == shards[i]) {
                Some(last) => locked.guard_of[i] = locked.guard_of[last],
                None => {
                    locked.guards[i] = Some(table.shards[shards[i]].0.lock());
                    locked.guard_of[i] = i;
                }
            }
            last = Some(i);
        }
        locked
    }

    /// Ends the decision. Keys may move.
    pub(super) fn end(mut self, now: Timestamp) {
        for i in 0..self.len {
            if self.guard_of[i] == i {
                let shard = self.shard_mut(i);
                shard.free_idle_rules();
                shard.count_decided(now);
            }
        }
    }

    /// Adds the ask `i`. If earlier asks have the same key, the ask is decided under the tier of the first of them, and tested
    /// with the sum of their charges and its own cost.
    fn add(&mut self, i: usize, ask: &Ask<'a>, shards: &[usize], shard: usize) {
        (self.asks[i], self.costs[i]) = (*ask, ask.cost);
        // The table treats two hashes as one key if they have the same shard and agree in the bits that a slot stores.
        let is_same = |j: usize| self.asks[j].hash << 16 == ask.hash << 16 && shards[j] == shard;
        let Some(first) = (0..i).find(|&j| is_same(j)) else { return };
        let is_charge = |action| matches!(action, Action::Charge | Action::ChargeInFull | Action::Hold);
        let is_peek = !is_charge(ask.action) || (ask.cost == 0 && ask.action != Action::ChargeInFull);
        if !is_peek {
            let charged = (first..i).filter(|&j| is_same(j) && is_charge(self.asks[j].action));
            let before = charged.map(|j| self.costs[j]);
            self.asks[i].cost = before.fold(ask.cost, u64::saturating_add);
        }
        // Two tiers of one key may have different algorithms: the first is the one that counts.
        (self.asks[i].hash, self.asks[i].rule) = (self.asks[first].hash, self.asks[first].rule);
    }

    /// Decides them at one instant. Returns whether the request passes.
    pub(super) fn decide(&mut self, now: Timestamp, decisions: &mut [Decision]) -> bool {
        self.locate();
        self.prepare(now);
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

    /// Locates the keys for which nothing has to be added, removed or converted. Each is looked up once, and not again for its test, its
    /// charge and its status.
    fn locate(&mut self) {
        for i in 0..self.len {
            if let Some((place, number)) = self.shard(i).find_usual(&self.asks[i], self.len) {
                (self.places[i], self.asks[i].number) = (Some(place), number);
            }
        }
    }

    /// Makes room for asks whose keys were not located.
    fn prepare(&mut self, now: Timestamp) {
        for i in 0..self.len {
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
        for j in 0..self.len {
            if self.guard_of[j] == self.guard_of[i] {
                self.places[j] = None;
            }
        }
    }

    /// Whether an ask that passed holds a slot now.
    pub(super) fn has_slot(&self, i: usize) -> bool {
        self.shard(i).gives_slot(&self.asks[i])
    }

    fn together(&self, i: usize) -> Together<'_> {
        Together { all: &self.asks[..self.len], earlier: &self.asks[..i] }
    }

    fn shard(&self, i: usize) -> &Shard {
        self.guards[self.guard_of[i]].as_ref().expect(LOCKED)
    }

    fn shard_mut(&mut self, i: usize) -> &mut Shard {
        self.guards[self.guard_of[i]].as_mut().expect(LOCKED)
    }
}

const LOCKED: &str = "the shard of every ask is locked";

impl<const N: usize> Plan for Locked<'_, N> {
    fn len(&self) -> usize {
        self.len
    }

    fn test(&self, i: usize, now: Timestamp) -> Outcome {
        let (shard, ask) = (self.shard(i), &self.asks[i]);
        match self.places[i] {
            Some(place) => shard.read_usual(place, |rule, state| rule.test(state, ask.cost, now)),
            None => shard.test(ask, self.together(i), now),
        }
    }

    fn spend(&mut self, i: usize, now: Timestamp) {
        let cost = self.costs[i];
        if let Some(place) = self.places[i] {
            return self.shard_mut(i).spend_usual(place, cost, now);
        }
        let Self { asks, guards, guard_of, len, .. } = self;
        let shard = guards[guard_of[i]].as_mut().expect(LOCKED);
        let ask = Ask { cost, ..asks[i] };
        // By now those before it have been charged.
        shard.spend(&ask, Together { all: &asks[..*len], earlier: &[] }, now);
        self.lose_places(i);
    }

    fn status(&self, i: usize, now: Timestamp) -> Status {
        match self.places[i] {
            Some(place) => self.shard(i).read_usual(place, |rule, state| rule.status(state, now)),
            None => self.shard(i).status_of(&self.asks[i], now),
        }
    }

    fn counts_denied(&self, i: usize) -> bool {
        self.shard(i).counts_denied(&self.asks[i])
    }

    fn action(&self, i: usize) -> Action {
        self.shard(i).action(&self.asks[i])
    }

    fn group(&self, i: usize) -> Group {
        self.asks[i].group
    }
}
