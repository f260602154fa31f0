//! The state of a slot: in the slot itself, or in the slab.

use tollgate_core::{Rule, State, Tat, Timestamp};

use crate::table::shard_rules::ShardRules;
use crate::table::slab::Slab;
use crate::table::slot::Slot;

/// Whether a rule's states are a word that fits the slot.
#[inline]
pub(super) const fn is_word(rule: &Rule) -> bool {
    matches!(rule, Rule::TokenBucket(_) | Rule::LeakyBucket(_))
}

/// Reads the state of a slot that was last charged by `rule`.
#[inline]
pub(super) fn read<T>(slab: &Slab, slot: &Slot, rule: &Rule, reader: impl FnOnce(&State) -> T) -> T {
    if is_word(rule) {
        reader(&State::Bucket(Tat::from_bits(slot.word)))
    } else {
        reader(slab.get(slot.word))
    }
}

/// Changes the state of a slot that was last charged by `rule`.
#[inline]
pub(super) fn edit<T>(
    slab: &mut Slab,
    slot: &mut Slot,
    rule: &Rule,
    change: impl FnOnce(&mut State) -> T,
) -> T {
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
pub(super) fn free(slab: &mut Slab, rules: &mut ShardRules, slot: &Slot) {
    if !is_word(rules.get(slot.rule())) {
        slab.remove(slot.word);
    }
    rules.remove_key(slot.rule());
}

/// Whether a slot is no longer used; if so, what it kept is given back.
pub(super) fn reclaim(slab: &mut Slab, rules: &mut ShardRules, slot: &Slot, now: Timestamp) -> bool {
    let is_unused = if rules.are_paced() {
        let rule = rules.paced(slot.rule());
        read(slab, slot, rule.full, |state| rule.is_unused(state, now))
    } else {
        let rule = rules.get(slot.rule());
        read(slab, slot, rule, |state| rule.is_unused(state, now))
    };
    let unused = is_unused || is_abandoned(rules, slot);
    if unused {
        free(slab, rules, slot);
    }
    unused
}

/// Whether the limiter of a slot is gone, so that nobody can ask for it. Permits may still be given back.
pub(super) fn is_abandoned(rules: &ShardRules, slot: &Slot) -> bool {
    rules.is_gone(slot.rule()) && !matches!(rules.get(slot.rule()), Rule::Concurrency(_))
}
