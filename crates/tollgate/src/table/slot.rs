//! One key in the table.

/// Who a key is, under which rule it was last charged, and its state or where that is kept: 16 bytes.
///
/// A key is known by 48 bits of its hash here, and by those that chose its shard. Of ten million keys, two
/// are mistaken for each other with a chance of one in several hundred; they would share a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    tag: u64, // 48 bits of the hash, then 16 of the rule's number, which is never 0
    pub(crate) word: u64,
}

impl Slot {
    /// No key.
    pub(crate) const VACANT: Self = Self { tag: 0, word: 0 };

    pub(crate) fn new(hash: u64, rule: u16, word: u64) -> Self {
        debug_assert!(rule != 0);
        Self { tag: (hash << 16) | u64::from(rule), word }
    }

    #[inline]
    pub(crate) const fn is_vacant(&self) -> bool {
        self.tag == 0
    }

    /// Whether it is the key of this hash.
    #[inline]
    pub(crate) const fn is(&self, hash: u64) -> bool {
        self.tag >> 16 == hash << 16 >> 16 && self.tag != 0
    }

    /// The part of the hash that is kept.
    #[inline]
    pub(crate) const fn hash(&self) -> u64 {
        self.tag >> 16
    }

    #[inline]
    pub(crate) const fn rule(&self) -> u16 {
        (self.tag & 0xffff) as u16
    }

    pub(crate) const fn set_rule(&mut self, rule: u16) {
        self.tag = (self.tag & !0xffff) | rule as u64;
    }
}
