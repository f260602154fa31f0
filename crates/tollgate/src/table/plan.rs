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
pub(super) struct Locked<'a, const N: usize> {
    asks: [Ask; N],       // merged
    told: &'a [Ask],      // as they came
    first_of: [usize; N], // the ask that each is merged into
    guards: [Option<Guard<'a, Shard>>; N],
    guard_of: [usize; N],
    len: usize,
}

impl<'a, const N: usize> Locked<'a, N> {
    pub(super) fn new(table: &'a Table, asks: &'a [Ask]) -> Self {
        let len = asks.len();
        let (merged, first_of) = merged(table, asks);
        let mut locked =
            Self { asks: merged, told: asks, first_of, guards: [const { None }; N], guard_of: [0; N], len };
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
            for (i, decision) in decisions.iter().enumerate() {
                let ask = self.asks[i];
                self.shard_mut(i).carry_over(&ask, decision.outcome, now);
            }
        }
        // Those that were merged were decided as one.
        (0..self.len).for_each(|i| decisions[i] = decisions[self.first_of[i]]);
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

    /// Whether an ask, once its plan has been charged, holds a place.
    pub(super) fn has_place(&self, i: usize) -> bool {
        self.told[i].cost > 0 && self.shard(i).gives_place(&self.asks[self.first_of[i]])
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

/// The asks, with the costs of those that name the same key added up in the first of them, whose tier holds for all,
/// and a peek in the others: two limits of a plan may not stand for one state. With each, which that first one is.
fn merged<const N: usize>(table: &Table, asks: &[Ask]) -> ([Ask; N], [usize; N]) {
    // What the table takes for one key: of one shard, and alike in all that a slot keeps.
    let same = |a: &Ask, b: &Ask| {
        a.hash << 16 == b.hash << 16 && table.shard_number(a.hash) == table.shard_number(b.hash)
    };
    let mut merged = [Ask::NOTHING; N];
    let mut first_of = std::array::from_fn(|i| i);
    for (i, ask) in asks.iter().enumerate() {
        merged[i] = *ask;
        if let Some(first) = merged[..i].iter().position(|earlier| same(earlier, ask)) {
            merged[first].cost = merged[first].cost.saturating_add(ask.cost);
            merged[first].is_one_of &= ask.is_one_of;
            merged[i] = Ask { cost: 0, ..merged[first] };
            first_of[i] = first;
        }
    }
    (merged, first_of)
}

impl<const N: usize> Plan for Locked<'_, N> {
    fn len(&self) -> usize {
        self.len
    }

    fn test(&self, i: usize, now: Timestamp) -> Outcome {
        self.shard(i).test(&self.asks[i], self.together(i), now)
    }

    fn spend(&mut self, i: usize, now: Timestamp) {
        let Self { asks, told, first_of, guards, guard_of, len } = self;
        let shard = guards[guard_of[i]].as_mut().expect(LOCKED);
        // By now those before it have been charged.
        let together = Together { all: &asks[..*len], earlier: &[] };
        if !shard.gives_place(&asks[i]) {
            return shard.spend(&asks[i], together, now);
        }
        // Places are held one by one, so that each of those who name the key can give back its own.
        let named = (i..*len).filter(|&j| first_of[j] == i && told[j].cost > 0);
        for (earlier, j) in named.enumerate() {
            let ask = Ask { cost: told[j].cost, permit: told[j].permit, ..asks[i] };
            if earlier == 0 { shard.spend(&ask, together, now) } else { shard.spend_besides(&ask, now) }
        }
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
