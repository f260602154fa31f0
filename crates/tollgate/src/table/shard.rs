//! One part of the table, behind one lock.

mod room;

use std::cell::Cell;
use std::sync::Arc;

use tollgate_core::{
    Action, Algorithm, Decision, Group, Nanos, Outcome, PermitId, Retry, Rule, State, Status, Tat, Timestamp,
};

use self::room::Room;
pub(crate) use self::room::{Place, Together, UNBOUNDED};
use super::WhenFull;
use super::paced::Paced;
use super::rules::{Rules, TierId, UsedNumbers};
use super::segments::{Segments, SlotPlace};
use super::slab::Slab;
use super::slot::Slot;
use crate::until_ready::at_once;

/// A key of one limiter, by hash, and what a request does to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) hash: u64,
    pub(crate) cost: u64,
    pub(crate) permit: Option<PermitId>, // that holds the slot, if the rule is a concurrency limit
    pub(crate) tier: TierId,
    pub(crate) action: Action,
    pub(crate) group: Group,
    pub(crate) is_denied: bool,    // whatever the rule says
    pub(crate) has_one_tier: bool, // the key has one tier at a time: asked under another, it has moved there
}

impl Ask {
    pub(crate) const NOTHING: Self = Self {
        hash: 0,
        cost: 0,
        permit: None,
        tier: TierId::NONE,
        action: Action::Charge,
        group: Group::All,
        is_denied: false,
        has_one_tier: false,
    };

    /// Whether it is tested and charged as most are.
    #[inline]
    pub(crate) const fn is_usual(&self) -> bool {
        matches!(self.action, Action::Charge | Action::Hold) && !self.is_denied
    }

    #[inline]
    fn test(&self, rule: &Paced<'_>, state: &State, now: Timestamp) -> Outcome {
        if self.is_denied {
            return self.action.test_denied(self.cost, rule.status(state, now));
        }
        match self.action {
            Action::Charge | Action::Hold | Action::Peek => rule.test(state, self.cost, now),
            Action::ChargeInFull => rule.test_in_full(state, self.cost, now),
            Action::Refund => Outcome::ALLOW,
        }
    }

    #[inline]
    fn spend(&self, rule: &Paced<'_>, state: &mut State, permit: PermitId, now: Timestamp) {
        if self.action == Action::ChargeInFull {
            rule.spend_in_full(state, self.cost, now);
        } else {
            rule.spend(state, permit, self.cost, now);
        }
    }

    /// The most bytes that a charge adds to a state.
    #[inline]
    fn heap_growth(&self, rule: &Rule, state: &State) -> usize {
        if self.action == Action::ChargeInFull {
            rule.heap_growth_in_full(state, self.cost)
        } else {
            rule.heap_growth(state, self.cost)
        }
    }
}

/// The keys whose hashes begin alike.
#[derive(Debug)]
pub(crate) struct Shard {
    segments: Segments,
    slab: Slab,
    users: Users,
    pub(crate) rules: Arc<Rules>,
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
            users: Users::default(),
            rules: Arc::default(),
            place,
            max_keys,
            max_bytes,
            when_full,
            evictions: 0,
            refused: Cell::new(0),
            most_touched: 0,
        }
    }

    /// Tests and, if it passes, charges one request.
    #[inline]
    pub(crate) fn check(&mut self, ask: &Ask, now: Timestamp) -> Decision {
        let number = self.rules.current(ask.tier);
        // The way of nearly all requests, with nothing in it that they do not need.
        if let Rule::TokenBucket(rule) = self.rules.get(number)
            && !self.rules.are_paced()
            && ask.is_usual()
            && let Some(slot) = self.segments.find_mut(ask.hash)
            && slot.rule() == number
        {
            let mut tat = Tat::from_bits(slot.word);
            let decision = rule.decide(&mut tat, ask.cost, now);
            slot.word = tat.to_bits();
            return decision;
        }
        // The same for other algorithms, where the key is there and there is room for what it may keep besides.
        let (most, is_charged) = (self.max_bytes.saturating_sub(self.bytes()), self.is_charged(ask));
        let Self { segments, slab, rules, .. } = self;
        if is_charged
            && ask.is_usual()
            && let Some(slot) = segments.find_mut(ask.hash)
            && slot.rule() == number
        {
            let rule = rules.get(number);
            if read(slab, slot, rule, |state| rule.heap_growth(state, ask.cost)) <= most {
                let permit = ask.permit.unwrap_or(PermitId(0));
                if !rules.are_paced() {
                    return edit(slab, slot, rule, |state| rule.decide(state, permit, ask.cost, now));
                }
                let paced = rules.paced(number);
                return edit(slab, slot, rule, |state| paced.decide(state, permit, ask.cost, now));
            }
        }
        self.decide(ask, true, now, |outcome| outcome)
    }

    /// [`check`](Self::check), but denies what would have to be held back, until it would not.
    pub(crate) fn check_at_once(&mut self, ask: &Ask, now: Timestamp) -> Decision {
        self.decide(ask, true, now, at_once)
    }

    /// Decides one ask by itself. `passes`: whether the other limits of the request, which were decided before, let it pass. It
    /// is true if there are none.
    pub(crate) fn decide(
        &mut self,
        ask: &Ask,
        passes: bool,
        now: Timestamp,
        judge: impl Fn(Outcome) -> Outcome,
    ) -> Decision {
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
        Decision { outcome, status: self.status(ask, now) }
    }

    /// Has the slot of a key fetched from memory, without waiting for it.
    pub(crate) fn prefetch(&self, hash: u64) {
        self.segments.prefetch(hash);
    }

    /// Counts what one request made of this shard.
    pub(crate) fn note_touched(&mut self) {
        self.most_touched = self.segments.take_touched().max(self.most_touched);
    }

    /// Sweeps a segment of keys that are no longer used, if bytes are short. That changes no answer. Returns whether it did: keys may
    /// have moved then.
    pub(crate) fn prepare(&mut self, ask: &Ask, now: Timestamp) -> bool {
        if self.has_bytes(self.adds(ask, now)) {
            return false;
        }
        let Self { segments, slab, users, rules, .. } = self;
        segments.sweep_next(&mut |slot| reclaim(slab, users, rules, slot, now));
        true
    }

    /// Whether a request may pass. A key that is not there is unused, but where it could not be remembered,
    /// the table was told what then.
    pub(crate) fn test(&self, ask: &Ask, together: Together<'_>, now: Timestamp) -> Outcome {
        self.test_with_room(ask, together, now).0
    }

    /// [`test`](Self::test), with where the charge goes if there is one.
    fn test_with_room(&self, ask: &Ask, together: Together<'_>, now: Timestamp) -> (Outcome, Option<Room>) {
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
    fn test_alone(&self, ask: &Ask, now: Timestamp) -> Outcome {
        let rule = self.rules.paced(self.rules.current(ask.tier));
        match self.segments.find(ask.hash) {
            Some(slot) => self.read_as(ask, slot, now, |state| ask.test(&rule, state, now)),
            None => ask.test(&rule, &State::Unused, now),
        }
    }

    /// Does the action of a request, which was tested just before.
    pub(crate) fn spend(&mut self, ask: &Ask, together: Together<'_>, now: Timestamp) {
        if ask.action == Action::Refund {
            self.refund(ask, now, now);
        } else if self.is_charged(ask) {
            self.spend_into(self.room(ask, together, now), ask, now);
        }
        self.note_touched();
    }

    fn spend_into(&mut self, room: Room, ask: &Ask, now: Timestamp) {
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
        let number = self.rules.current(ask.tier);
        let Self { segments, slab, users, rules, .. } = self;
        let rule = rules.paced(number);
        let permit = ask.permit.unwrap_or(PermitId(0));
        if let Some(slot) = segments.find_mut(ask.hash) {
            return edit(slab, slot, rule.rule, |state| ask.spend(&rule, state, permit, now));
        }
        let mut state = State::Unused;
        ask.spend(&rule, &mut state, permit, now);
        let word = match state {
            State::Bucket(tat) => tat.to_bits(),
            state => slab.add(state),
        };
        let slot = Slot::new(ask.hash, number, word);
        if let Room::Instead { .. } = room {
            segments.insert_instead(slot);
        } else {
            segments.insert(slot, |slot| reclaim(slab, users, rules, slot, now));
        }
        users.add(number);
    }

    /// How a key stands.
    pub(crate) fn status(&self, ask: &Ask, now: Timestamp) -> Status {
        let current = self.rules.paced(self.rules.current(ask.tier));
        match self.segments.find(ask.hash) {
            None => current.status(&State::Unused, now),
            Some(slot) => self.read_as(ask, slot, now, |state| current.status(state, now)),
        }
    }

    /// What [`check`](Self::check) would answer if there is room for the key. Nothing is changed.
    pub(crate) fn preview(&self, ask: &Ask, now: Timestamp) -> Decision {
        Decision { outcome: self.test_alone(ask, now), status: self.status(ask, now) }
    }

    /// Gives back what was charged, as far as it still counts. How much that is.
    pub(crate) fn refund(&mut self, ask: &Ask, charged: Timestamp, now: Timestamp) -> u64 {
        let Some(slot) = self.segments.find(ask.hash) else { return 0 };
        let rule = self.rules.paced(self.rules.current(ask.tier));
        // Under other numbers than it was charged by, a key that gets nothing back stays as it is.
        if slot.rule() != self.rules.current(ask.tier)
            && self.read_as(ask, slot, now, |state| rule.refund(&mut state.clone(), ask.cost, charged, now))
                == 0
        {
            return 0;
        }
        self.convert(ask, now);
        let Self { segments, slab, rules, .. } = self;
        let rule = rules.paced(rules.current(ask.tier));
        let Some(slot) = segments.find_mut(ask.hash) else { return 0 };
        edit(slab, slot, rule.rule, |state| rule.refund(state, ask.cost, charged, now))
    }

    /// Gives up a place whose turn has not come, and returns by how much those behind it go sooner.
    pub(crate) fn withdraw(&mut self, ask: &Ask, now: Timestamp) -> Nanos {
        self.edit_queue(ask, |rule, state| rule.withdraw(state, ask.cost, now)).unwrap_or(Nanos::ZERO)
    }

    /// All who wait go later by this, the last of them then.
    pub(crate) fn postpone(&mut self, ask: &Ask, by: Nanos, last_turn: Timestamp, now: Timestamp) {
        self.edit_queue(ask, |rule, state| rule.postpone(state, by, last_turn, now));
    }

    /// Changes a key in which somebody waits. Under other numbers than it was charged by, it stays as it is: those who wait have
    /// their turns by the old ones.
    fn edit_queue<T>(&mut self, ask: &Ask, change: impl FnOnce(&Paced<'_>, &mut State) -> T) -> Option<T> {
        let Self { segments, slab, rules, .. } = self;
        let current = rules.current(ask.tier);
        let slot = segments.find_mut(ask.hash).filter(|slot| slot.rule() == current)?;
        let rule = rules.paced(current);
        Some(edit(slab, slot, rule.rule, |state| change(&rule, state)))
    }

    /// Takes a permit back. False if it was not held any more.
    pub(crate) fn release(&mut self, ask: &Ask, now: Timestamp) -> bool {
        let (Some(id), Some(slot)) = (ask.permit, self.segments.find(ask.hash)) else { return false };
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
                free(&mut self.slab, &mut self.users, &self.rules, &slot);
                true
            }
            None => false,
        }
    }

    /// Forgets all keys that are no longer used.
    pub(crate) fn sweep(&mut self, now: Timestamp) {
        let Self { segments, slab, users, rules, .. } = self;
        segments.sweep_all(&mut |slot| reclaim(slab, users, rules, slot, now));
    }

    pub(crate) fn keys(&self) -> usize {
        self.segments.len()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.segments.bytes() + self.slab.bytes()
    }

    /// Adds the numbers of the rules that keys here were last charged by.
    pub(crate) fn add_used(&self, used: &mut UsedNumbers) {
        let numbers = self.users.0.iter().zip(0_u16..).filter(|(users, _)| **users > 0);
        numbers.for_each(|(_, number)| used.add(number));
    }

    /// Reads a key's state as it stands under the rule in force. One that was last charged by another rule is carried
    /// over in a copy: nothing but a charge, or a refund, changes a key.
    #[inline]
    fn read_as<T>(&self, ask: &Ask, slot: &Slot, now: Timestamp, reader: impl FnOnce(&State) -> T) -> T {
        let number = self.rules.current(ask.tier);
        if slot.rule() == number {
            return read(&self.slab, slot, self.rules.get(number), reader);
        }
        let (old, new) = (self.rules.paced(slot.rule()), self.rules.paced(number));
        let mut state = read(&self.slab, slot, old.rule, Clone::clone);
        new.convert(&old, &mut state, now);
        reader(&state)
    }

    /// Brings a key that was last charged by another rule of its limiter under the one in force.
    fn convert(&mut self, ask: &Ask, now: Timestamp) {
        let Self { segments, slab, users, rules, .. } = self;
        let number = rules.current(ask.tier);
        let Some(slot) = segments.find_mut(ask.hash).filter(|slot| slot.rule() != number) else { return };
        let (old, new) = (rules.paced(slot.rule()), rules.paced(number));
        let mut state = read(slab, slot, old.rule, Clone::clone);
        free(slab, users, rules, slot);
        new.convert(&old, &mut state, now);
        slot.set_rule(number);
        users.add(number);
        slot.word = match state {
            State::Bucket(tat) => tat.to_bits(),
            State::Unused if is_word(new.rule) => Tat::default().to_bits(),
            state => slab.add(state),
        };
    }

    /// Converts a key to the numbers that deny it, if those have replaced the ones it was last charged by. From then on it
    /// refills by the numbers in force, so that the wait of the denial is exact.
    ///
    /// The numbers of another tier replace nothing, except for a key that has one tier at a time. Otherwise a caller could
    /// move a key between tiers by requests that are denied, for example from a long window to a short one that ends soon.
    pub(crate) fn carry_over(&mut self, ask: &Ask, outcome: Outcome, now: Timestamp) {
        let Outcome::Deny { retry: Retry::After(_) } = outcome else { return };
        let Some(number) = self.segments.find(ask.hash).map(Slot::rule) else { return };
        let is_replaced = ask.has_one_tier || self.rules.is_replaced(number, ask.tier);
        if number != self.rules.current(ask.tier)
            && is_replaced
            && self.is_charged(ask)
            && self.has_bytes(self.adds(ask, now))
        {
            self.convert(ask, now);
        }
    }

    /// Whether the action takes something from its key. A concurrency limit is charged only for a caller that holds a permit.
    fn is_charged(&self, ask: &Ask) -> bool {
        let takes = matches!(ask.action, Action::Charge | Action::ChargeInFull | Action::Hold);
        takes && ask.cost > 0 && (ask.permit.is_some() || !self.is_concurrency(ask))
    }

    /// Whether a request that passes holds a slot.
    pub(crate) fn gives_slot(&self, ask: &Ask) -> bool {
        ask.cost > 0 && ask.permit.is_some() && self.is_concurrency(ask)
    }

    /// The action to do. A rate has no slots, so `Hold` charges it.
    pub(crate) fn action(&self, ask: &Ask) -> Action {
        match ask.action {
            Action::Hold if !self.is_concurrency(ask) => Action::Charge,
            action => action,
        }
    }

    /// Whether the rule counts denied requests.
    pub(crate) fn counts_denied(&self, ask: &Ask) -> bool {
        self.rules.get(self.rules.current(ask.tier)).counts_denied()
    }

    /// The place of a key's slot, if the ask can be decided in place: it is a charge or a hold of a rate, the slot exists and was
    /// written by the current numbers, and the state has room to grow. `of` is the number of asks that share that room.
    #[inline]
    pub(crate) fn find_usual(&self, ask: &Ask, of: usize) -> Option<SlotPlace> {
        let number = self.rules.current(ask.tier);
        let rule = self.rules.get(number);
        if !ask.is_usual() || ask.cost == 0 || self.rules.are_paced() || matches!(rule, Rule::Concurrency(_))
        {
            return None;
        }
        let place = self.segments.locate(ask.hash)?;
        let slot = self.segments.at(place);
        if slot.rule() != number {
            return None;
        }
        let is_large = !is_word(rule)
            && self.max_bytes != UNBOUNDED
            && read(&self.slab, slot, rule, |state| rule.heap_growth(state, ask.cost))
                > self.max_bytes.saturating_sub(self.bytes()) / of;
        (!is_large).then_some(place)
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

    fn is_concurrency(&self, ask: &Ask) -> bool {
        matches!(self.rules.get(self.rules.current(ask.tier)), Rule::Concurrency(_))
    }
}

/// Whether a rule's states are a word that fits the slot.
#[inline]
const fn is_word(rule: &Rule) -> bool {
    matches!(rule, Rule::TokenBucket(_) | Rule::LeakyBucket(_))
}

/// Reads the state of a slot that was last charged by `rule`.
#[inline]
fn read<T>(slab: &Slab, slot: &Slot, rule: &Rule, reader: impl FnOnce(&State) -> T) -> T {
    if is_word(rule) {
        reader(&State::Bucket(Tat::from_bits(slot.word)))
    } else {
        reader(slab.get(slot.word))
    }
}

/// Changes the state of a slot that was last charged by `rule`.
#[inline]
fn edit<T>(slab: &mut Slab, slot: &mut Slot, rule: &Rule, change: impl FnOnce(&mut State) -> T) -> T {
    if !is_word(rule) {
        return slab.edit(slot.word, change);
    }
    let mut state = State::Bucket(Tat::from_bits(slot.word));
    let result = change(&mut state);
    let State::Bucket(tat) = state else { unreachable!("a bucket's state is a bucket's") };
    slot.word = tat.to_bits();
    result
}

/// Gives back what a slot keeps outside itself.
fn free(slab: &mut Slab, users: &mut Users, rules: &Rules, slot: &Slot) {
    users.remove(slot.rule());
    if !is_word(rules.get(slot.rule())) {
        slab.remove(slot.word);
    }
}

/// Whether a slot is no longer used; if so, what it kept is given back.
fn reclaim(slab: &mut Slab, users: &mut Users, rules: &Rules, slot: &Slot, now: Timestamp) -> bool {
    let rule = rules.paced(slot.rule());
    let unused = is_abandoned(rules, slot) || read(slab, slot, rule.rule, |state| rule.is_unused(state, now));
    if unused {
        free(slab, users, rules, slot);
    }
    unused
}

/// Whether the limiter of a slot is gone, so that nobody can ask for it. Permits may still be given back.
fn is_abandoned(rules: &Rules, slot: &Slot) -> bool {
    rules.is_gone(slot.rule()) && !matches!(rules.get(slot.rule()), Rule::Concurrency(_))
}

/// How many keys were last charged by each rule, by number.
#[derive(Debug, Default)]
struct Users(Vec<u32>);

impl Users {
    fn add(&mut self, number: u16) {
        let number = usize::from(number);
        if number >= self.0.len() {
            self.0.resize(number + 1, 0);
        }
        self.0[number] += 1;
    }

    fn remove(&mut self, number: u16) {
        self.0[usize::from(number)] -= 1;
    }
}
