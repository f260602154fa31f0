//! The rules that the keys of one shard use.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use tollgate_core::Rule;

use super::paced::Paced;
use super::rules::{AskRule, Paces, RuleId, TableRule};
use crate::{Numbers, Shed};

/// The most rules that keys of one shard can have at one time. Unit tests have a lower bound, so that they reach it.
pub(crate) const MOST_RULES: usize = if cfg!(test) { 300 } else { u16::MAX as usize - MOST_GUESTS };

/// The most rules without a number that one plan can have in a shard: one for each of its asks.
const MOST_GUESTS: usize = super::MOST_LIMITS;

/// Rules without a key that a shard keeps, because keys of them may come back soon.
const KEPT_IDLE: usize = 64;

/// After a request, the shard looks at this many rules to find some without a key, and at more rules if no number was
/// left.
const LOOKED: usize = 64;
const LOOKED_WHEN_FULL: usize = 4096;

/// Up to this many rules, a shard searches the list of entries and has no map.
const UNMAPPED: usize = 16;

/// The bytes that a rule takes: its entry, its place in the map, and the rule itself, which shards share or not.
const RULE_BYTES: usize = 2 * (size_of::<Entry>() + size_of::<(RuleId, u16)>()) + size_of::<TableRule>() + 16;

/// The rules that keys of one shard were last charged by. A slot has the number of its rule, in 16 bits.
///
/// A rule gets a number when a key needs it, and loses the number some time after the last key. So adding, changing
/// or removing a tier changes nothing in a shard and copies nothing. A rule for which no number is left is a guest:
/// requests are tested by it, but no key is charged by it.
#[derive(Debug, Default)]
pub(crate) struct ShardRules {
    entries: Vec<Entry>, // that of number n stands at n - 1
    by_id: HashMap<RuleId, u16, BuildHasherDefault<IdHasher>>, // empty while there are few entries
    free: Vec<u16>,
    used: usize, // rules that have a key
    hand: usize, // the entry to be looked at next for one that has none
    guests: Vec<Arc<TableRule>>,
    paces: Arc<Paces>,
}

#[derive(Debug)]
struct Entry {
    id: RuleId,
    rule: Option<Arc<TableRule>>, // none where the number is free
    keys: u32,                    // how many were last charged by it
}

impl ShardRules {
    /// Whether the rule of a slot has this ID.
    #[inline]
    pub(crate) fn is(&self, number: u16, id: RuleId) -> bool {
        self.entries[place(number)].id == id
    }

    /// The rule of a slot, if it has this ID.
    #[inline]
    pub(crate) fn find(&self, number: u16, id: RuleId) -> Option<&Rule> {
        let entry = &self.entries[place(number)];
        if entry.id == id { entry.rule.as_ref().map(|rule| &rule.numbers.rule) } else { None }
    }

    /// The rule of a slot.
    #[inline]
    fn of_slot(&self, number: u16) -> &TableRule {
        self.entries[place(number)].rule.as_ref().expect("a number that is in use")
    }

    /// The number of the rule of a request, which gets one if it has none. It is valid until
    /// [`free_idle`](Self::free_idle) is called, and longer if a key is charged by it.
    #[inline]
    pub(crate) fn number(&mut self, rule: &AskRule<'_>) -> u16 {
        let id = rule.id();
        let known = match self.entries.len() {
            0..=UNMAPPED => self.entries.iter().position(|entry| entry.id == id).map(|i| (i + 1) as u16),
            _ => self.by_id.get(&id).copied(),
        };
        known.unwrap_or_else(|| self.add(rule.make()))
    }

    #[cold]
    fn add(&mut self, rule: Arc<TableRule>) -> u16 {
        let entry = Entry { id: rule.id, rule: Some(rule), keys: 0 };
        let id = entry.id;
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[place(number)] = entry;
                number
            }
            None if self.entries.len() < MOST_RULES => {
                self.entries.push(entry);
                self.entries.len() as u16
            }
            None => return self.add_guest(entry.rule.expect("the rule to be added")),
        };
        if self.entries.len() == UNMAPPED + 1 && self.by_id.is_empty() {
            let numbers = self.entries.iter().map(|entry| entry.id).zip(1..);
            self.by_id.extend(numbers.filter(|(id, _)| *id != RuleId::NONE));
        } else if self.entries.len() > UNMAPPED {
            self.by_id.insert(id, number);
        }
        number
    }

    fn add_guest(&mut self, rule: Arc<TableRule>) -> u16 {
        let place = match self.guests.iter().position(|guest| guest.id == rule.id) {
            Some(place) => place,
            None => {
                self.guests.push(rule);
                self.guests.len() - 1
            }
        };
        (MOST_RULES + 1 + place) as u16
    }

    /// Whether a number is that of a guest, by which no key can be charged.
    #[inline]
    pub(crate) const fn is_guest(number: u16) -> bool {
        number as usize > MOST_RULES
    }

    /// Counts a key that is charged by a rule from now on.
    pub(crate) fn add_key(&mut self, number: u16) {
        let entry = &mut self.entries[place(number)];
        self.used += usize::from(entry.keys == 0);
        entry.keys += 1;
    }

    /// Counts a key that is no longer charged by a rule.
    pub(crate) fn remove_key(&mut self, number: u16) {
        let entry = &mut self.entries[place(number)];
        entry.keys -= 1;
        self.used -= usize::from(entry.keys == 0);
    }

    /// Frees the numbers of some rules that no key has, if there are many. Called when a request has been decided.
    #[inline]
    pub(crate) fn free_idle(&mut self) {
        if self.len() - self.used > KEPT_IDLE || !self.guests.is_empty() {
            self.free_some();
        }
    }

    #[cold]
    fn free_some(&mut self) {
        let looked = if self.guests.is_empty() { LOOKED } else { LOOKED_WHEN_FULL };
        self.guests.clear();
        for _ in 0..looked.min(self.entries.len()) {
            self.hand = if self.hand + 1 < self.entries.len() { self.hand + 1 } else { 0 };
            let entry = &mut self.entries[self.hand];
            if entry.keys == 0 && entry.rule.is_some() {
                self.by_id.remove(&entry.id);
                (entry.rule, entry.id) = (None, RuleId::NONE);
                self.free.push((self.hand + 1) as u16);
            }
        }
    }

    #[inline]
    fn table_rule(&self, number: u16) -> &Arc<TableRule> {
        if Self::is_guest(number) {
            return &self.guests[usize::from(number) - MOST_RULES - 1];
        }
        self.entries[place(number)].rule.as_ref().expect("a number that is in use")
    }

    /// The rule of a number at full pace.
    #[inline]
    pub(crate) fn get(&self, number: u16) -> &Rule {
        &self.table_rule(number).numbers.rule
    }

    /// Whether any class ever went at another pace than full.
    #[inline]
    pub(crate) fn are_paced(&self) -> bool {
        self.paces.0.is_some()
    }

    /// The rule of a number at the pace of its class, with the time of its class.
    #[inline]
    pub(crate) fn paced(&self, number: u16) -> Paced<'_> {
        let Numbers { rule, shed } = &self.table_rule(number).numbers;
        let Some(clocks) = &self.paces.0 else { return Paced { full: rule, reduced: None, clock: None } };
        let clock = &clocks[*shed as usize];
        let is_real = *shed == Shed::Exempt || !rule.has_schedule();
        Paced { full: rule, reduced: Some(rule.at_pace(clock.pace())), clock: (!is_real).then_some(clock) }
    }

    pub(crate) fn set_paces(&mut self, paces: Arc<Paces>) -> Arc<Paces> {
        std::mem::replace(&mut self.paces, paces)
    }

    /// Whether the rule of this number was one of the tier that a request is for, which has another one now.
    pub(crate) fn is_replaced(&self, number: u16, by: u16) -> bool {
        let (old, new) = (self.table_rule(number), self.table_rule(by));
        old.tier == new.tier && old.tier != 0
    }

    /// Whether requests are decided by the rule of this number.
    pub(crate) fn is_in_force(&self, number: u16) -> bool {
        !self.table_rule(number).is_replaced.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether the limiter of this rule was dropped, so that no request can name its keys.
    pub(crate) fn is_gone(&self, number: u16) -> bool {
        self.of_slot(number).is_gone()
    }

    /// The bytes of the rules that keys have. The first are not counted: every table has some.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        Self::bytes_of(self.used)
    }

    const fn bytes_of(used: usize) -> usize {
        used.saturating_sub(KEPT_IDLE) * RULE_BYTES
    }

    /// The bytes that are added and freed if one more key is charged by the rule of `number`, and one that was charged by the rule of
    /// `removed` goes.
    pub(crate) fn growth(&self, number: u16, removed: Option<u16>) -> (usize, usize) {
        let keys = |number: u16| self.entries.get(place(number)).map_or(0, |entry| entry.keys);
        let added = usize::from(keys(number) == 0);
        let freed = removed.filter(|removed| *removed != number && keys(*removed) == 1).map_or(0, |_| 1);
        let after = Self::bytes_of(self.used + added - freed);
        (after.saturating_sub(self.bytes()), self.bytes().saturating_sub(after))
    }

    /// How many rules have a number.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

/// Where the rule of a number stands.
#[inline]
const fn place(number: u16) -> usize {
    number as usize - 1
}

/// IDs are counted or are hashes: they are spread by one multiplication.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}
