//! What was spent, and whether that is within the promises of the contract.

use super::model::{BURST, HALVES_PER_UNIT, LIFE};

/// A promise about one step. The others are about sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Promise {
    /// LE-1: each unit that is spent was charged for its grant.
    Charged,
    /// LE-6: a draw charges its grant and nothing else, except after a change of the primary.
    NothingElseCharged,
    /// LE-8: a node spends grants of its present numbers only.
    PresentNumbers,
}

/// The units that were spent, except those of grants that the store has forgotten. All amounts are in half units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ledger {
    /// The store has charged a grant.
    has_begun: bool,
    /// What may still be spent in total.
    left: i16,
    /// What was spent in a span that ends now, less what came in it: the most of all spans.
    peak: i16,
    /// What was spent of a grant before the store forgot it.
    forgotten: i16,
    broken: Option<Promise>,
}

impl Ledger {
    /// Before the first charge.
    pub(super) const fn new() -> Self {
        Self { has_begun: false, left: BURST * HALVES_PER_UNIT, peak: 0, forgotten: 0, broken: None }
    }

    pub(super) fn charge(&mut self) {
        self.has_begun = true;
    }

    pub(super) fn spend(&mut self, units: u8) {
        let spent = i16::from(units) * HALVES_PER_UNIT;
        self.left -= spent;
        self.peak += spent;
    }

    pub(super) fn pass(&mut self, halves: u8) {
        if self.has_begun {
            self.left += i16::from(halves);
        }
        self.peak = (self.peak - i16::from(halves)).max(0);
    }

    /// The store has forgotten a grant. The field is the number of units that were spent of it.
    pub(super) fn forget(&mut self, units: u8) {
        self.forgotten += i16::from(units) * HALVES_PER_UNIT;
    }

    /// The store has forgotten the key.
    pub(super) fn reset(&mut self) {
        *self = Self { broken: self.broken, ..Self::new() };
    }

    pub(super) fn note_broken(&mut self, promise: Promise) {
        self.broken = self.broken.or(Some(promise));
    }

    pub(super) fn keeps(&self, promise: Promise) -> bool {
        self.broken != Some(promise)
    }

    /// LE-1, and LE-6 for what the store has forgotten.
    pub(super) const fn keeps_total(&self) -> bool {
        self.left + self.forgotten >= 0
    }

    /// All that the rule allows was spent.
    pub(super) const fn is_used_up(&self) -> bool {
        self.has_begun && self.left < HALVES_PER_UNIT
    }

    /// LE-2 by the life of grants. It is longer by the time that the clock of a node has not seen.
    pub(super) fn keeps_spans(&self, unseen: u8) -> bool {
        self.peak <= BURST * HALVES_PER_UNIT + i16::from(LIFE + unseen) + self.forgotten
    }
}
