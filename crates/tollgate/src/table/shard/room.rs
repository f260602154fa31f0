//! Whether a shard has room for what a request would add, and who makes way if not.

use tollgate_core::{Nanos, Rule, State, StateView, Timestamp};

use super::slot_state::{is_abandoned, is_word, read};
use super::{Ask, Shard};
use crate::WhenFull;
use crate::table::shard_rules::ShardRules;
use crate::table::slot::Slot;

/// Where the charge of a request goes.
pub(super) enum Room {
    /// To its key, new or not.
    Here,
    /// To its key, once the one of this hash has been forgotten.
    Instead {
        other: u64,
        in_use: bool,
    },
    Nowhere,
}

/// The requests of a plan, and those of them that are decided before the one in hand.
#[derive(Clone, Copy)]
pub(crate) struct Together<'a> {
    pub(crate) all: &'a [Ask<'a>],
    pub(crate) earlier: &'a [Ask<'a>],
}

impl Together<'_> {
    /// A request without a plan.
    pub(crate) const ALONE: Self = Self { all: &[], earlier: &[] };
}

/// A part of a table, with bounds of its own. A plan may have keys in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Part {
    #[default]
    First,
    Second,
}

/// Which part of all hashes a shard holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) part: Part,
    pub(crate) number: usize,
    pub(crate) of: usize,
}

impl Place {
    /// The number of the shard of a hash in its part, from the 16 bits that a slot does not keep.
    #[inline]
    pub(crate) const fn number(hash: u64, of: usize) -> usize {
        ((hash >> 48) as usize * of) >> 16
    }

    fn holds(self, ask: &Ask<'_>) -> bool {
        self.part == ask.part && Self::number(ask.hash, self.of) == self.number
    }
}

/// No bound on bytes.
pub(crate) const UNBOUNDED: usize = usize::MAX;

/// Keys that are looked at for one to make way: enough to find one that loses little. Each takes some ten
/// nanoseconds; the system that made sampling popular, Redis, looks at five.
const LOOKED: usize = 16;

impl Shard {
    /// Where the charge of a request would go, after those that come before it in its plan. Only a newcomer takes
    /// somebody's place: a key that has no room for what it would keep besides is told so, lest one busy key drive
    /// out all others.
    pub(super) fn room(&self, ask: &Ask<'_>, together: Together<'_>, now: Timestamp) -> Room {
        let slot = self.segments.find(ask.hash);
        if ShardRules::is_guest(ask.number) {
            return Room::Nowhere;
        }
        let is_new = slot.is_none();
        if is_word(self.rules.get(ask.number)) && slot.is_some_and(|slot| slot.rule() == ask.number) {
            return Room::Here; // it stays in its slot and adds nothing, as most requests do
        }
        let earlier =
            || together.earlier.iter().filter(|other| self.place.holds(other) && self.is_charged(other));
        // One that names the same key takes no place of its own.
        let newcomers =
            || earlier().filter(|other| other.hash != ask.hash && self.segments.find(other.hash).is_none());
        let has_place = !is_new || self.segments.len() + newcomers().count() < self.max_keys;
        // The sum is of interest only where there is a bound.
        let adds = |sum: usize, other: &Ask<'_>| sum.saturating_add(self.adds(other, now));
        if has_place && (self.max_bytes == UNBOUNDED || self.has_bytes(earlier().chain([ask]).fold(0, adds)))
        {
            return Room::Here;
        }
        // Two newcomers of one segment might count on the same place.
        if !is_new || newcomers().any(|other| self.segments.are_together(ask.hash, other.hash)) {
            return Room::Nowhere;
        }
        match self.makes_way(ask.hash, together.all, now) {
            Some((other, in_use)) if self.fits_instead(ask, &other) => {
                Room::Instead { other: other.hash(), in_use }
            }
            _ => Room::Nowhere,
        }
    }

    #[inline]
    pub(super) fn has_bytes(&self, adds: usize) -> bool {
        self.bytes().saturating_add(adds) <= self.max_bytes
    }

    /// The most bytes that a request may add.
    #[inline]
    pub(super) fn adds(&self, ask: &Ask<'_>, now: Timestamp) -> usize {
        let rule = self.rules.get(ask.number);
        match self.segments.find(ask.hash) {
            Some(slot) if slot.rule() == ask.number => match is_word(rule) {
                true => 0,
                false => read(&self.slab, slot, rule, |state| ask.heap_growth(rule, state)),
            },
            Some(slot) => {
                let (adds, _) = self.rules.growth(ask.number, Some(slot.rule()));
                if is_word(rule) {
                    return adds;
                }
                // It moves to a new place, and may keep more there.
                let most =
                    |state: StateView<'_>| state.heap_bytes().saturating_add(ask.heap_growth(rule, state));
                self.read_as(ask, slot, now, most).saturating_add(self.slab.growth() + adds)
            }
            None => {
                let (adds, _) = self.rules.growth(ask.number, None);
                let adds = self.segments.growth() + adds;
                if is_word(rule) {
                    return adds;
                }
                ask.heap_growth(rule, &State::Unused).saturating_add(self.slab.growth() + adds)
            }
        }
    }

    /// Whether there are bytes for a newcomer if `other`, of its segment, is forgotten. There are if it needs no more than that frees.
    fn fits_instead(&self, ask: &Ask<'_>, other: &Slot) -> bool {
        let rule = self.rules.get(ask.number);
        let (mut adds, mut freed) = self.rules.growth(ask.number, Some(other.rule()));
        let is_other_word = is_word(self.rules.get(other.rule()));
        if !is_other_word {
            freed += self.slab.get(other.word).heap_bytes();
        }
        if !is_word(rule) {
            let place = if is_other_word { self.slab.growth() } else { 0 };
            adds = adds.saturating_add(place).saturating_add(ask.heap_growth(rule, &State::Unused));
        }
        adds <= freed || self.has_bytes(adds - freed)
    }

    /// Whose place a newcomer takes, and whether that key is in use. One that is not, if a dozen or so have one;
    /// else, where that is the choice, the one of them that has used the least part of its limit. What is being
    /// limited is never chosen, nor what holds permits, what another request of the same plan is for, or what was
    /// last charged by numbers no longer in force, under which it might be limited: where all of them are so, the
    /// rest of the segment is looked at.
    fn makes_way(&self, hash: u64, plan: &[Ask<'_>], now: Timestamp) -> Option<(Slot, bool)> {
        let mut least: Option<((u64, Nanos), Slot)> = None;
        for (looked, slot) in self.segments.around(hash).enumerate() {
            if looked >= LOOKED && least.is_some() {
                break;
            }
            if plan.iter().any(|other| slot.is(other.hash) && self.place.holds(other)) {
                continue;
            }
            let rule = self.rules.get(slot.rule());
            let paced = self.rules.paced(slot.rule());
            let (status, unused) = read(&self.slab, slot, rule, |state| {
                let status = paced.status(state, now);
                (status, status.reset_after.is_zero() && paced.is_unused(state, now))
            });
            if unused || is_abandoned(&self.rules, slot) {
                return Some((*slot, false));
            }
            let may_go = self.when_full == WhenFull::Evict
                && status.remaining > 0
                && !matches!(rule, Rule::Concurrency(_))
                && self.rules.is_in_force(slot.rule());
            if may_go {
                let used = rule.capacity() - status.remaining.min(rule.capacity());
                let part = used.saturating_mul(1 << 16) / rule.capacity();
                let rank = (part, status.reset_after);
                if least.is_none_or(|(other, _)| rank < other) {
                    least = Some((rank, *slot));
                }
            }
        }
        least.map(|(_, slot)| (slot, true))
    }
}
