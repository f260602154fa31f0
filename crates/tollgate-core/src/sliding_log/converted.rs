//! A log as a conversion to other numbers would leave it, read without the conversion.
//!
//! A conversion writes every entry. A denied request under another tier does not convert the key, so a caller can
//! repeat it at will. Such a request computes only the entries that it reads.

use super::{Log, SlidingLog};
use crate::{Nanos, Timestamp};

/// The times of the admitted units, oldest first.
pub(crate) trait Entries {
    fn len(&self) -> usize;

    /// The number of entries for which memory is allocated.
    fn allocated(&self) -> usize;

    /// The entry at a place below [`len`](Self::len).
    fn get(&self, place: usize) -> Timestamp;

    /// The number of entries at the start for which `is_before` is true. It must be false for all entries after them.
    fn partition_point(&self, is_before: impl Fn(Timestamp) -> bool) -> usize;

    #[inline]
    fn newest(&self) -> Option<Timestamp> {
        self.len().checked_sub(1).map(|last| self.get(last))
    }

    /// The time at which a request is decided. A time before the newest entry counts as the time of that entry.
    /// Otherwise the log would lose its order, and a clock that steps back would free capacity.
    #[inline]
    fn effective(&self, now: Timestamp) -> Timestamp {
        self.newest().map_or(now, |newest| newest.max(now))
    }
}

impl Entries for Log {
    #[inline]
    fn len(&self) -> usize {
        self.times.len()
    }

    #[inline]
    fn allocated(&self) -> usize {
        self.times.capacity()
    }

    #[inline]
    fn get(&self, place: usize) -> Timestamp {
        self.times[place]
    }

    #[inline]
    fn partition_point(&self, is_before: impl Fn(Timestamp) -> bool) -> usize {
        self.times.partition_point(|&entry| is_before(entry))
    }
}

/// What a conversion does to a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conversion {
    pub(super) left: usize, // the number of oldest entries that no longer count and are removed
    pub(super) scale: Option<Scale>, // moves the other entries; none if they keep their times
}

impl Conversion {
    pub(super) fn new(new: &SlidingLog, old: &SlidingLog, log: &Log, now: Timestamp) -> Self {
        let at = log.effective(now);
        let shrinks = new.window < old.window;
        Self {
            left: old.left(log, at),
            scale: shrinks.then_some(Scale { at, old_window: old.window, new_window: new.window }),
        }
    }
}

/// Moves entries to the same relative place in a shorter window that ends at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    at: Timestamp, // not before the newest entry
    old_window: Nanos,
    new_window: Nanos,
}

impl Scale {
    /// The new time of an entry. The order of entries stays the same.
    pub(super) fn apply(&self, entry: Timestamp) -> Timestamp {
        let age = u128::from(self.at.since(entry).get()) * u128::from(self.new_window.get())
            / u128::from(self.old_window.get());
        Timestamp::from_nanos(self.at.as_nanos() - age as u64) // at most the old age, so it fits
    }
}

/// A log as a conversion would leave it. Each entry is computed when it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvertedLog<'a> {
    source: Source<'a>,
    allocated: usize,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    /// A log under other numbers.
    Log(&'a Log, Conversion),
    /// The number of units of a log that were all charged at one time, and this time.
    Units(usize, Timestamp),
}

impl<'a> ConvertedLog<'a> {
    /// The log after [`convert`](crate::Algorithm::convert) from `old` to `new`.
    pub(crate) fn new(new: &SlidingLog, old: &SlidingLog, log: &'a Log, now: Timestamp) -> Self {
        let conversion = Conversion::new(new, old, log, now);
        let kept = log.len() - conversion.left;
        // The conversion frees the memory above the new limit, except what the entries need.
        let allocated = log.allocated().min(kept.max(new.limit));
        Self { source: Source::Log(log, conversion), allocated }
    }

    /// The log after `units` were charged to an empty log at `now`. They must be within its limit.
    pub(crate) fn of_units(units: usize, now: Timestamp) -> Self {
        Self { source: Source::Units(units, now), allocated: units }
    }

    /// The bytes on the heap that the log would have.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.allocated * size_of::<Timestamp>()
    }
}

impl Entries for ConvertedLog<'_> {
    fn len(&self) -> usize {
        match self.source {
            Source::Log(log, conversion) => log.len() - conversion.left,
            Source::Units(units, _) => units,
        }
    }

    fn allocated(&self) -> usize {
        self.allocated
    }

    fn get(&self, place: usize) -> Timestamp {
        match self.source {
            Source::Log(log, Conversion { left, scale }) => {
                let entry = log.times[left + place];
                scale.map_or(entry, |scale| scale.apply(entry))
            }
            Source::Units(_, time) => time,
        }
    }

    fn partition_point(&self, is_before: impl Fn(Timestamp) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if is_before(self.get(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
