//! Several asks decided together.

use tollgate_core::{Decision, Outcome, Plan, Status, Timestamp, Verdict, decide_all};

use super::Table;
use super::shard::{Ask, Shard, Together};
use crate::sync::Guard;

/// The most limits that can be decided together.
pub(crate) const MOST_LIMITS: usize = 32;

/// As many are usual: what is made ready for more is time lost.
pub(crate) const USUAL_LIMITS: usize = 8;

/// Several asks, `N` at most, with all their shards locked. Nothing is allocated.
///
/// Asks that name one key are decided in their order: each is tested with the costs of those before it, and is charged its own.
pub(super) struct Locked<'a, const N: usize> {
    asks: [Ask; N], // each with what it is tested for: its cost, and the costs of those before it that name the same key
    costs: [u64; N], // what each is charged
    guards: [Option<Guard<'a, Shard>>; N],
    guard_of: [usize; N],
    len: usize,
}

impl<'a, const N: usize> Locked<'a, N> {
    pub(super) fn new(table: &'a Table, asks: &'a [Ask]) -> Self {
        let len = asks.len();
        let (ordered, costs) = ordered(table, asks);
        let mut locked = Self { asks: ordered, costs, guards: [const { None }; N], guard_of: [0; N], len };
        let shard = |i: usize| table.shard_number(asks[i].hash);
        let mut order: [usize; N] = std::array::from_fn(|i| i);
        // Always from the first shard to the last, so that no two requests wait for each other.
        order[..len].sort_unstable_by_key(|&i| shard(i));
        let mut last: Option<usize> = None;
        for &i in &order[..len] {
            match last.filter(|&last| shard(last) == shard(i)) {
                Some(last) => locked.guard_of[i] = locked.guard_of[last],
                None => {
                    locked.guards[i] = Some(table.shards[shard(i)].0.lock());
                    locked.guard_of[i] = i;
                }
            }
            last = Some(i);
        }
        locked
    }

    /// Decides them at one instant.
    pub(super) fn decide(&mut self, now: Timestamp, decisions: &mut [Decision]) -> Verdict {
        self.prepare(now);
        let verdict = decide_all(self, now, decisions);
        if !verdict.is_allowed() {
            for (i, decision) in decisions.iter().enumerate().filter(|(_, decision)| !decision.is_allowed()) {
                let ask = self.asks[i];
                self.shard_mut(i).carry_over(&ask, decision.outcome, now);
            }
        }
        verdict
    }

    fn prepare(&mut self, now: Timestamp) {
        for i in 0..self.len {
            let ask = self.asks[i];
            let shard = self.shard_mut(i);
            shard.prepare(&ask, now);
            shard.note_touched();
        }
    }

    /// Whether an ask that passed holds a permit now.
    pub(super) fn has_place(&self, i: usize) -> bool {
        self.shard(i).gives_place(&self.asks[i])
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

/// The asks, each under the tier of the first that names its key and with what it is tested for, and what each is charged.
fn ordered<const N: usize>(table: &Table, asks: &[Ask]) -> ([Ask; N], [u64; N]) {
    // The table takes two hashes for one key if they are of one shard and alike in all that a slot keeps.
    let same = |a: &Ask, b: &Ask| {
        a.hash << 16 == b.hash << 16 && table.shard_number(a.hash) == table.shard_number(b.hash)
    };
    let (mut ordered, mut costs) = ([Ask::NOTHING; N], [0; N]);
    for (i, ask) in asks.iter().enumerate() {
        (ordered[i], costs[i]) = (*ask, ask.cost);
        let Some(first) = ordered[..i].iter().position(|earlier| same(earlier, ask)) else { continue };
        // Two tiers of one key may have different algorithms: the first is the one that counts.
        (ordered[i].hash, ordered[i].tier) = (ordered[first].hash, ordered[first].tier);
        let is_peek = ask.cost == 0 && !ask.in_full;
        if !is_peek {
            let before = asks[..i].iter().filter(|earlier| same(earlier, ask)).map(|earlier| earlier.cost);
            ordered[i].cost = before.fold(ask.cost, u64::saturating_add);
        }
    }
    (ordered, costs)
}

impl<const N: usize> Plan for Locked<'_, N> {
    fn len(&self) -> usize {
        self.len
    }

    fn test(&self, i: usize, now: Timestamp) -> Outcome {
        self.shard(i).test(&self.asks[i], self.together(i), now)
    }

    fn spend(&mut self, i: usize, now: Timestamp) {
        let Self { asks, costs, guards, guard_of, len } = self;
        let shard = guards[guard_of[i]].as_mut().expect(LOCKED);
        let ask = Ask { cost: costs[i], ..asks[i] };
        // By now those before it have been charged.
        shard.spend(&ask, Together { all: &asks[..*len], earlier: &[] }, now);
    }

    fn status(&self, i: usize, now: Timestamp) -> Status {
        self.shard(i).status(&self.asks[i], now)
    }

    fn counts_denied(&self, i: usize) -> bool {
        self.shard(i).counts_denied(&self.asks[i])
    }

    fn is_one_of(&self, i: usize) -> bool {
        self.asks[i].is_one_of
    }
}
