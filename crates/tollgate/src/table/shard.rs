//! One part of the table, behind one lock.

mod room;
mod slot_state;

use std::cell::Cell;
use std::sync::Arc;

use tollgate_core::{
    Action, Algorithm, Decision, Group, Nanos, Outcome, PermitId, Retry, Rule, State, StateView, Status, Tat,
    Timestamp,
};

use self::room::Room;
pub(crate) use self::room::{Part, Place, Together, UNBOUNDED};
use self::slot_state::{edit, free, is_word, read, reclaim};
use super::paced::Paced;
use super::rules::Paces;
use super::segments::{Segments, SlotPlace};
use super::shard_rules::ShardRules;
use super::slab::Slab;
use super::slot::Slot;
use super::{Ask, WhenFull};
use crate::until_ready::at_once;

/// One request in 2 to this power sweeps a segment. That takes about a microsecond, so it is 1 ns per request.
const SWEPT_BITS: u32 = 10;

/// Each plan that waits for the lock adds `WAITED` to the contention, up to `MOST_WAITED`. Each other plan subtracts
/// one. A shard becomes busy when its contention reaches `BUSY`, and stays busy until its contention is zero. So a
/// shard becomes busy if more than one plan in 17 has to wait.
const WAITED: u8 = 16;
const BUSY: u8 = 64;
const MOST_WAITED: u8 = 240;

/// The keys whose hashes begin alike. `repr(C)` keeps the first fields in the cache line of the lock.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    contention: u8, // grows if plans wait for the lock, and falls if they do not
    segments: Segments,
    slab: Slab,
    rules: ShardRules,
    place: Place,
    max_keys: usize,
    max_bytes: usize,
    when_full: WhenFull,
    pub(crate) evictions: u64,
    pub(crate) refused: Cell<u64>,
    pub(crate) most_touched: usize,
}

impl Shard {
    pub(crate) fn new(place: Place, max_keys: usize, max_bytes: usize, when_full: WhenFull) -> Self {
        Self {
            segments: Segments::new(),
            slab: Slab::default(),
            rules: ShardRules::default(),
            place,
            max_keys,
            max_bytes,
            when_full,
            evictions: 0,
            refused: Cell::new(0),
            most_touched: 0,
            contention: 0,
        }
    }

    /// Tests and, if it passes, charges one request.
    #[inline]
    pub(crate) fn check(&mut self, ask: &Ask<'_>, now: Timestamp) -> Decision {
        self.sweep_by_chance(ask.hash, now);
        let id = ask.rule.id();
        // The way of nearly all requests, with nothing in it that they do not need: the key is there, and was last charged by the
        // rule in force.
        if ask.is_usual()
            && let Some(slot) = self.segments.find_mut(ask.hash)
            && let Some(Rule::TokenBucket(rule)) = self.rules.find(slot.rule(), id)
            && !self.rules.are_paced()
        {
            let mut tat = Tat::from_bits(slot.word);
            let decision = rule.decide(&mut tat, ask.cost, now);
            slot.word = tat.to_bits();
            return decision;
        }
        // The same for other algorithms, if there is room for what the key may keep besides.
        let most = self.max_bytes.saturating_sub(self.bytes());
        let Self { segments, slab, rules, .. } = self;
        if ask.is_usual()
            && ask.takes()
            && let Some(slot) = segments.find_mut(ask.hash)
            && let Some(rule) = rules.find(slot.rule(), id)
            && (ask.permit.is_some() || !matches!(rule, Rule::Concurrency(_)))
            && read(slab, slot, rule, |state| rule.heap_growth(state, ask.cost)) <= most
        {
            let permit = ask.permit.unwrap_or(PermitId(0));
            if !rules.are_paced() {
                return edit(slab, slot, rule, |state| rule.decide(state, permit, ask.cost, now));
            }
            let paced = rules.paced(slot.rule());
            return edit(slab, slot, rule, |state| paced.decide(state, permit, ask.cost, now));
        }
        self.decide(ask, true, now, |outcome| outcome).0
    }

    /// [`check`](Self::check), but denies what would have to be held back, until it would not.
    pub(crate) fn check_at_once(&mut self, ask: &Ask<'_>, now: Timestamp) -> Decision {
        self.decide(ask, true, now, at_once).0
    }

    /// Decides one ask by itself. Returns the decision, and whether the ask holds a slot of a concurrency limit now. `passes`: whether
    /// the other limits of the request, which were decided before, let it pass. It is true if there are no other limits.
    pub(crate) fn decide(
        &mut self,
        ask: &Ask<'_>,
        passes: bool,
        now: Timestamp,
        judge: impl Fn(Outcome) -> Outcome,
    ) -> (Decision, bool) {
        let mut numbered = self.numbered(ask);
        if ShardRules::is_guest(numbered.number) {
            // No number is left for its rule: perhaps there is one after a sweep.
            self.sweep_in_passing(now);
            numbered = self.numbered(ask);
        }
        let ask = &numbered;
        self.prepare(ask, now);
        let (outcome, room) = self.test_with_room(ask, Together::ALONE, now);
        let outcome = judge(outcome);
        let passes = passes && (ask.group == Group::Independent || outcome.is_allowed());
        if self.action(ask).is_done(ask.group, outcome.is_allowed(), passes, self.counts_denied(ask)) {
            match room {
                Some(room) => self.spend_into(room, ask, now),
                None => self.spend(ask, Together::ALONE, now),
            }
        }
        self.carry_over(ask, outcome, now);
        self.note_touched();
        let decision = Decision { outcome, status: self.status_of(ask, now) };
        let has_slot = passes && outcome.is_allowed() && self.gives_slot(ask);
        self.rules.free_idle();
        (decision, has_slot)
    }

    /// The ask with the number that its rule has here. The number is valid until [`free_idle_rules`](Self::free_idle_rules) is
    /// called.
    #[inline]
    pub(crate) fn numbered<'a>(&mut self, ask: &Ask<'a>) -> Ask<'a> {
        Ask { number: self.rules.number(&ask.rule), ..*ask }
    }

    /// Ends what was begun with [`numbered`](Self::numbered).
    #[inline]
    pub(crate) fn free_idle_rules(&mut self) {
        self.rules.free_idle();
    }

    /// The number of rules that keys here have, and of some that they had.
    pub(crate) fn rules(&self) -> usize {
        self.rules.len()
    }

    /// Goes at other paces. Returns the old ones, to be dropped when the shard is no longer locked.
    pub(crate) fn set_paces(&mut self, paces: Arc<Paces>) -> Arc<Paces> {
        self.rules.set_paces(paces)
    }

    #[cfg(test)]
    pub(crate) fn are_paced(&self) -> bool {
        self.rules.are_paced()
    }

    /// Starts to fetch the slot of a key from memory, and does not wait for it.
    pub(crate) fn prefetch(&self, hash: u64) {
        let _ = self.segments.begin_search(hash);
    }

    /// Counts what one request made of this shard.
    pub(crate) fn note_touched(&mut self) {
        self.most_touched = self.segments.take_touched().max(self.most_touched);
    }

    /// If bytes or numbers of rules are short, forgets the unused keys of one segment. That changes no answer.
    /// Returns whether a segment was swept: then keys may have moved.
    pub(crate) fn prepare(&mut self, ask: &Ask<'_>, now: Timestamp) -> bool {
        if self.has_bytes(self.adds(ask, now)) && !ShardRules::is_guest(ask.number) {
            return false;
        }
        let Self { segments, slab, rules, .. } = self;
        segments.sweep_next(&mut |slot| reclaim(slab, rules, slot, now));
        true
    }

    /// Whether a request may pass. A key that is not there is unused, but where it could not be remembered,
    /// the table was told what then.
    pub(crate) fn test(&self, ask: &Ask<'_>, together: Together<'_>, now: Timestamp) -> Outcome {
        self.test_with_room(ask, together, now).0
    }

    /// [`test`](Self::test), with where the charge goes if there is one.
    fn test_with_room(
        &self,
        ask: &Ask<'_>,
        together: Together<'_>,
        now: Timestamp,
    ) -> (Outcome, Option<Room>) {
        let outcome = self.test_alone(ask, now);
        if !outcome.is_allowed() || !self.is_charged(ask) {
            return (outcome, None);
        }
        match self.room(ask, together, now) {
            Room::Nowhere if self.when_full != WhenFull::Allow => {
                self.refused.set(self.refused.get() + 1);
                (Outcome::Deny { retry: Retry::Unknown }, None)
            }
            room => (outcome, Some(room)),
        }
    }

    /// [`test`](Self::test), wherever the charge would go.
    fn test_alone(&self, ask: &Ask<'_>, now: Timestamp) -> Outcome {
        let rule = self.rules.paced(ask.number);
        match self.segments.find(ask.hash) {
            Some(slot) => self.read_as(ask, slot, now, |state| ask.test(&rule, state, now)),
            None => ask.test(&rule, &State::Unused, now),
        }
    }

    /// Does the action of a request, which was tested just before.
    pub(crate) fn spend(&mut self, ask: &Ask<'_>, together: Together<'_>, now: Timestamp) {
        if ask.action == Action::Refund {
            self.refund_numbered(ask, now, now);
        } else if self.is_charged(ask) {
            self.spend_into(self.room(ask, together, now), ask, now);
        }
        self.note_touched();
    }

    fn spend_into(&mut self, room: Room, ask: &Ask<'_>, now: Timestamp) {
        match room {
            Room::Here => {}
            Room::Instead { other, in_use } => {
                self.evictions += u64::from(in_use);
                self.reset(other);
            }
            Room::Nowhere => {
                // Let through and not remembered, by `WhenFull::Allow`.
                self.refused.set(self.refused.get() + 1);
                return;
            }
        }
        self.convert(ask, now);
        let Self { segments, slab, rules, .. } = self;
        let rule = rules.paced(ask.number);
        let permit = ask.permit.unwrap_or(PermitId(0));
        if let Some(slot) = segments.find_mut(ask.hash) {
            return edit(slab, slot, rule.full, |state| ask.spend(&rule, state, permit, now));
        }
        let mut state = State::Unused;
        ask.spend(&rule, &mut state, permit, now);
        let word = match state {
            State::Bucket(tat) => tat.to_bits(),
            state => slab.add(state),
        };
        let slot = Slot::new(ask.hash, ask.number, word);
        rules.add_key(ask.number);
        if let Room::Instead { .. } = room {
            segments.insert_instead(slot);
        } else {
            segments.insert(slot, |slot| reclaim(slab, rules, slot, now));
        }
    }

    /// How a key stands.
    pub(crate) fn status(&mut self, ask: &Ask<'_>, now: Timestamp) -> Status {
        let ask = self.numbered(ask);
        let status = self.status_of(&ask, now);
        self.rules.free_idle();
        status
    }

    /// [`status`](Self::status) of an ask that has its number.
    pub(crate) fn status_of(&self, ask: &Ask<'_>, now: Timestamp) -> Status {
        let current = self.rules.paced(ask.number);
        match self.segments.find(ask.hash) {
            None => current.status(&State::Unused, now),
            Some(slot) => self.read_as(ask, slot, now, |state| current.status(state, now)),
        }
    }

    /// What [`check`](Self::check) would answer if there is room for the key. Nothing is changed.
    pub(crate) fn preview(&mut self, ask: &Ask<'_>, now: Timestamp) -> Decision {
        let ask = &self.numbered(ask);
        let decision = Decision { outcome: self.test_alone(ask, now), status: self.status_of(ask, now) };
        self.rules.free_idle();
        decision
    }

    /// Gives back what was charged, as far as it still counts. How much that is.
    pub(crate) fn refund(&mut self, ask: &Ask<'_>, charged: Timestamp, now: Timestamp) -> u64 {
        let ask = self.numbered(ask);
        let given = self.refund_numbered(&ask, charged, now);
        self.rules.free_idle();
        given
    }

    fn refund_numbered(&mut self, ask: &Ask<'_>, charged: Timestamp, now: Timestamp) -> u64 {
        let Some(slot) = self.segments.find(ask.hash) else { return 0 };
        let rule = self.rules.paced(ask.number);
        // Under other numbers than it was charged by, a key that gets nothing back stays as it is.
        if slot.rule() != ask.number
            && self.read_as(ask, slot, now, |state| rule.refundable(state, ask.cost, charged, now)) == 0
        {
            return 0;
        }
        if ShardRules::is_guest(ask.number) {
            return 0;
        }
        self.convert(ask, now);
        let Self { segments, slab, rules, .. } = self;
        let rule = rules.paced(ask.number);
        let Some(slot) = segments.find_mut(ask.hash) else { return 0 };
        edit(slab, slot, rule.full, |state| rule.refund(state, ask.cost, charged, now))
    }

    /// Gives up a place whose turn has not come, and returns by how much those behind it go sooner.
    pub(crate) fn withdraw(&mut self, ask: &Ask<'_>, now: Timestamp) -> Nanos {
        self.edit_queue(ask, |rule, state| rule.withdraw(state, ask.cost, now)).unwrap_or(Nanos::ZERO)
    }

    /// All who wait go later by this, the last of them then.
    pub(crate) fn postpone(&mut self, ask: &Ask<'_>, by: Nanos, last_turn: Timestamp, now: Timestamp) {
        self.edit_queue(ask, |rule, state| rule.postpone(state, by, last_turn, now));
    }

    /// Changes a key in which somebody waits. Under other numbers than it was charged by, it stays as it is: those who wait have
    /// their turns by the old ones.
    fn edit_queue<T>(
        &mut self,
        ask: &Ask<'_>,
        change: impl FnOnce(&Paced<'_>, &mut State) -> T,
    ) -> Option<T> {
        let Self { segments, slab, rules, .. } = self;
        let id = ask.rule.id();
        let slot = segments.find_mut(ask.hash).filter(|slot| rules.is(slot.rule(), id))?;
        let rule = rules.paced(slot.rule());
        Some(edit(slab, slot, rule.full, |state| change(&rule, state)))
    }

    /// Takes a permit back. False if it was not held any more.
    pub(crate) fn release(&mut self, hash: u64, id: PermitId, now: Timestamp) -> bool {
        let Some(slot) = self.segments.find(hash) else { return false };
        let Rule::Concurrency(rule) = self.rules.get(slot.rule()) else {
            return false; // the limiter has another algorithm by now
        };
        self.slab.edit(slot.word, |state| match state {
            State::Permits(permits) => rule.release(permits, id, now),
            _ => false,
        })
    }

    /// Forgets a key. False if it was not there.
    pub(crate) fn reset(&mut self, hash: u64) -> bool {
        match self.segments.remove(hash) {
            Some(slot) => {
                free(&mut self.slab, &mut self.rules, &slot);
                true
            }
            None => false,
        }
    }

    /// Sweeps a segment for one request in 1024: keys that are no longer used are forgotten even if only others are asked for. It
    /// goes by the hash and the time, because a counter would be one more write per request.
    #[inline]
    pub(crate) fn sweep_by_chance(&mut self, hash: u64, now: Timestamp) {
        let mixed = (hash ^ now.as_nanos()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if mixed >> (u64::BITS - SWEPT_BITS) == 0 {
            self.sweep_in_passing(now);
        }
    }

    /// Notes whether a plan had to wait for the lock. Returns whether the shard is busy, if that has changed.
    #[inline]
    pub(crate) fn note_contention(&mut self, had_to_wait: bool) -> Option<bool> {
        let before = self.contention;
        if !had_to_wait && before == 0 {
            return None; // nothing is written
        }
        self.contention =
            if had_to_wait { before.saturating_add(WAITED).min(MOST_WAITED) } else { before - 1 };
        match self.contention {
            0 => Some(false),
            now if now >= BUSY && before < BUSY => Some(true),
            _ => None,
        }
    }

    /// [`Segments::vote`]. Places of slots are no longer valid.
    pub(crate) fn vote(&mut self, hash: u64) {
        self.segments.vote(hash);
    }

    #[cold]
    fn sweep_in_passing(&mut self, now: Timestamp) {
        let looked = self.sweep_next(now);
        self.most_touched = looked.max(self.most_touched);
    }

    /// Forgets the keys of the next segment that are no longer used. Returns the number of slots it looked at.
    pub(crate) fn sweep_next(&mut self, now: Timestamp) -> usize {
        let Self { segments, slab, rules, .. } = self;
        segments.sweep_next(&mut |slot| reclaim(slab, rules, slot, now));
        rules.free_idle();
        segments.take_touched()
    }

    pub(crate) fn segments(&self) -> usize {
        self.segments.count()
    }

    pub(crate) fn keys(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.segments.bytes() + self.slab.bytes() + self.rules.bytes()
    }

    /// Reads a key's state under the rule in force. If another rule charged the key last, the reader gets the state
    /// as a conversion would leave it. The key itself does not change.
    #[inline]
    fn read_as<T>(
        &self,
        ask: &Ask<'_>,
        slot: &Slot,
        now: Timestamp,
        reader: impl FnOnce(StateView<'_>) -> T,
    ) -> T {
        if slot.rule() == ask.number {
            return read(&self.slab, slot, self.rules.get(ask.number), |state| reader(state.into()));
        }
        let (old, new) = (self.rules.paced(slot.rule()), self.rules.paced(ask.number));
        read(&self.slab, slot, old.full, |state| reader(new.view(&old, state, now)))
    }

    /// Brings a key that was last charged by another rule of its limiter under the one in force.
    fn convert(&mut self, ask: &Ask<'_>, now: Timestamp) {
        let Self { segments, slab, rules, .. } = self;
        let number = ask.number;
        let Some(slot) = segments.find_mut(ask.hash).filter(|slot| slot.rule() != number) else { return };
        let (old, new) = (rules.paced(slot.rule()), rules.paced(number));
        let mut state = match is_word(old.full) {
            true => State::Bucket(Tat::from_bits(slot.word)),
            false => slab.edit(slot.word, std::mem::take),
        };
        new.convert(&old, &mut state, now);
        let is_word = is_word(new.full);
        free(slab, rules, slot);
        slot.set_rule(number);
        rules.add_key(number);
        slot.word = match state {
            State::Bucket(tat) => tat.to_bits(),
            State::Unused if is_word => Tat::default().to_bits(),
            state => slab.add(state),
        };
    }

    /// Converts a key to the numbers that deny it, if those have replaced the ones it was last charged by. From then on it
    /// refills by the numbers in force, so that the wait of the denial is exact.
    ///
    /// The numbers of another tier replace nothing, except for a key that has one tier at a time. Otherwise a caller could
    /// move a key between tiers by requests that are denied, for example from a long window to a short one that ends soon.
    pub(crate) fn carry_over(&mut self, ask: &Ask<'_>, outcome: Outcome, now: Timestamp) {
        let Outcome::Deny { retry: Retry::After(_) } = outcome else { return };
        let Some(number) = self.segments.find(ask.hash).map(Slot::rule) else { return };
        if number != ask.number
            && !ShardRules::is_guest(ask.number)
            && (ask.has_one_tier || self.rules.is_replaced(number, ask.number))
            && self.is_charged(ask)
            && self.has_bytes(self.adds(ask, now))
        {
            self.convert(ask, now);
        }
    }

    /// Whether the action takes something from its key. A concurrency limit is charged only for a caller that holds a permit.
    fn is_charged(&self, ask: &Ask<'_>) -> bool {
        ask.takes() && (ask.permit.is_some() || !self.is_concurrency(ask))
    }

    /// Whether a request that passes holds a slot.
    pub(crate) fn gives_slot(&self, ask: &Ask<'_>) -> bool {
        ask.cost > 0 && ask.permit.is_some() && self.is_concurrency(ask)
    }

    /// The action to do. A rate has no slots, so `Hold` charges it.
    pub(crate) fn action(&self, ask: &Ask<'_>) -> Action {
        match ask.action {
            Action::Hold if !self.is_concurrency(ask) => Action::Charge,
            action => action,
        }
    }

    /// Whether the rule counts denied requests.
    pub(crate) fn counts_denied(&self, ask: &Ask<'_>) -> bool {
        self.rules.get(ask.number).counts_denied()
    }

    /// [`Segments::begin_search`], for [`find_usual`](Self::find_usual). Returns none if the ask cannot be decided in
    /// place.
    #[inline]
    pub(crate) fn begin_search(&self, ask: &Ask<'_>) -> Option<SlotPlace> {
        if !ask.is_usual() || ask.cost == 0 || self.rules.are_paced() {
            return None;
        }
        self.segments.begin_search(ask.hash)
    }

    /// The place of a key's slot and the number of its rule, if the ask can be decided in place. Then the ask is a
    /// charge or a hold of a rate, the slot exists and was written by the current numbers, and the state has room to
    /// grow. `of` is the number of asks that share that room.
    #[inline]
    pub(crate) fn find_usual(&self, ask: &Ask<'_>, start: SlotPlace, of: usize) -> Option<(SlotPlace, u16)> {
        let place = self.segments.locate(ask.hash, start)?;
        let slot = self.segments.at(place);
        let rule = self.rules.find(slot.rule(), ask.rule.id())?;
        if matches!(rule, Rule::Concurrency(_)) {
            return None;
        }
        let is_large = !is_word(rule)
            && self.max_bytes != UNBOUNDED
            && read(&self.slab, slot, rule, |state| rule.heap_growth(state, ask.cost))
                > self.max_bytes.saturating_sub(self.bytes()) / of;
        (!is_large).then_some((place, slot.rule()))
    }

    /// Reads a key that [`find_usual`](Self::find_usual) found, with its rule.
    #[inline]
    pub(crate) fn read_usual<T>(&self, place: SlotPlace, reader: impl FnOnce(&Rule, &State) -> T) -> T {
        let slot = self.segments.at(place);
        let rule = self.rules.get(slot.rule());
        read(&self.slab, slot, rule, |state| reader(rule, state))
    }

    /// Charges a key that [`find_usual`](Self::find_usual) found.
    #[inline]
    pub(crate) fn spend_usual(&mut self, place: SlotPlace, cost: u64, now: Timestamp) {
        let Self { segments, slab, rules, .. } = self;
        let slot = segments.at_mut(place);
        let rule = rules.get(slot.rule());
        edit(slab, slot, rule, |state| rule.spend(state, PermitId(0), cost, now));
    }

    fn is_concurrency(&self, ask: &Ask<'_>) -> bool {
        matches!(self.rules.get(ask.number), Rule::Concurrency(_))
    }
}
