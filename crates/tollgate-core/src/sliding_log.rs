//! Sliding window, exact: the time of every admitted unit is kept.

mod converted;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

pub(crate) use self::converted::ConvertedLog;
use self::converted::{Conversion, Entries};
use crate::adaptive::Pace;
use crate::fixed_window::checked_window;
use crate::{Algorithm, Nanos, Outcome, RuleError, RuleParts, Status, Timestamp};

/// At most `limit` in any span of `window`.
///
/// - Promise: in every span `(t - window, t]`, admitted cost is at most `limit`.
/// - Formula: with room in the log for all but k units of the cost, allowed iff the k-th oldest entry
///   has left the window. No scan: entries are in order.
/// - Memory: 32 bytes a key, and 8 an admitted unit: at most `limit` of them, whatever the traffic.
/// - Overshoot: none.
/// - Choose another: for large limits, [`SlidingCounter`](crate::SlidingCounter) in strict mode.
///
/// A clock that steps back finds the log as it stood at the newest entry:
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Algorithm, Log, Nanos, SlidingLog, Timestamp};
///
/// let rule = SlidingLog::new(3, Duration::from_secs(10))?;
/// let (mut key, at) = (Log::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
/// rule.spend(&mut key, 1, at(1));
/// rule.spend(&mut key, 2, at(5));
/// let waits = [4, 5, 10, 11].map(|s| rule.test(&key, 1, at(s)).retry_after().map(Nanos::as_secs_ceil));
/// assert_eq!(waits, [Some(7), Some(6), Some(1), None]); // until the first has left
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    limit: usize,  // never zero
    window: Nanos, // never zero
}

/// When each admitted unit came, oldest first: at most `limit` of them, or as many as a larger limit that was
/// lowered had let through, until they have left.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Algorithm, Log, SlidingLog, Timestamp};
///
/// let (rule, mut key) = (SlidingLog::new(3, Duration::from_secs(10))?, Log::default());
/// rule.spend(&mut key, 2, Timestamp::from_nanos(0));
/// assert_eq!((key.len(), key.is_empty()), (2, false));
/// assert!(key.allocated() >= 2);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    pub(crate) times: VecDeque<Timestamp>,
}

impl Log {
    /// How many units are remembered, some of them perhaps no longer counted. They are forgotten when room is
    /// needed, so this may be above 0 for a key that is unused.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Algorithm, Log, SlidingLog, Timestamp};
    ///
    /// let (rule, mut key) = (SlidingLog::new(3, Duration::from_secs(10))?, Log::default());
    /// rule.spend(&mut key, 2, Timestamp::from_nanos(0));
    /// let later = Timestamp::from_nanos(10_000_000_000);
    /// assert_eq!((rule.status(&key, later).remaining, key.len()), (3, 2));
    /// rule.spend(&mut key, 2, later);
    /// assert_eq!(key.len(), 2);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Whether nothing is remembered.
    ///
    /// ```
    /// assert!(tollgate_core::Log::default().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The entries for which there is memory. None until the first charge.
    ///
    /// ```
    /// assert_eq!(tollgate_core::Log::default().allocated(), 0);
    /// ```
    pub fn allocated(&self) -> usize {
        self.times.capacity()
    }

    /// The bytes it keeps on the heap, as [`State::heap_bytes`](crate::State::heap_bytes) counts them.
    ///
    /// ```
    /// assert_eq!(tollgate_core::Log::default().heap_bytes(), 0);
    /// ```
    pub fn heap_bytes(&self) -> usize {
        self.allocated() * size_of::<Timestamp>()
    }
}

impl SlidingLog {
    /// At most `limit` in any span of `window`.
    ///
    /// Refuses zero for either and, since each unit takes memory, a limit above 2^32 - 1.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{RuleError, SlidingLog};
    ///
    /// let (minute, most) = (Duration::from_secs(60), u32::MAX.into());
    /// assert_eq!(SlidingLog::new(0, minute), Err(RuleError::ZeroCapacity { what: "limit" }));
    /// let (what, found) = ("limit", most + 1);
    /// assert_eq!(SlidingLog::new(found, minute), Err(RuleError::TooLarge { what, found, most }));
    /// ```
    pub fn new(limit: u64, window: Duration) -> Result<Self, RuleError> {
        if limit == 0 {
            return Err(RuleError::ZeroCapacity { what: "limit" });
        }
        let too_large = RuleError::TooLarge { what: "limit", found: limit, most: u32::MAX.into() };
        let limit = u32::try_from(limit).map_err(|_| too_large)? as usize;
        Ok(Self { limit, window: Nanos::new(checked_window(window)?) })
    }

    pub(crate) const fn window(&self) -> Nanos {
        self.window
    }

    pub(crate) const fn parts(&self) -> RuleParts {
        RuleParts::SlidingLog { limit: self.limit as u64, window: self.window }
    }

    /// With the limit that is left at a pace.
    pub(crate) fn at_pace(self, pace: Pace) -> Self {
        Self { limit: pace.of(self.limit as u64) as usize, ..self } // at most what it was, or 1
    }

    /// Whether an entry no longer counts. The window is half open: of age exactly `window` is out.
    #[inline]
    fn has_left(&self, entry: Timestamp, now: Timestamp) -> bool {
        now.since(entry) >= self.window
    }

    /// How many entries count at `now`.
    #[inline]
    fn counted(&self, log: &impl Entries, now: Timestamp) -> usize {
        log.len() - self.left(log, log.effective(now))
    }

    /// How many entries no longer count. Entries are in order, so a binary search finds the number. Most often the
    /// oldest entry still counts, and no search is needed.
    #[inline]
    fn left(&self, log: &impl Entries, now: Timestamp) -> usize {
        if log.len() == 0 || !self.has_left(log.get(0), now) {
            return 0;
        }
        log.partition_point(|entry| self.has_left(entry, now))
    }

    /// Makes room for `cost` more entries, at most `limit` in all, doubling so that it is seldom done.
    fn reserve(&self, log: &mut Log, cost: usize, most: usize, now: Timestamp) {
        let needed = log.len() + cost;
        if needed <= log.times.capacity() && needed <= self.limit {
            return;
        }
        log.times.drain(..self.left(log, now));
        let needed = log.len() + cost;
        if needed > log.allocated() {
            log.times.reserve_exact(wanted(log, needed, most) - log.len());
        }
    }

    /// The most entries of a log that requests are charged to in full: one limit above the limit.
    const fn most_in_full(&self) -> usize {
        self.limit.saturating_mul(2)
    }

    /// Bytes on the heap that a charge may add.
    pub(crate) fn heap_growth(&self, log: &impl Entries, cost: u64) -> usize {
        growth(log, cost, self.limit)
    }

    /// Bytes on the heap that a charge in full may add.
    pub(crate) fn heap_growth_in_full(&self, log: &impl Entries, cost: u64) -> usize {
        growth(log, cost, self.most_in_full())
    }

    /// [`Algorithm::test`] of a log or a converted log.
    #[inline]
    pub(crate) fn test_entries(&self, log: &impl Entries, cost: u64, now: Timestamp) -> Outcome {
        if cost > self.capacity() {
            return Outcome::NEVER;
        }
        if cost == 0 {
            return Outcome::ALLOW;
        }
        // The last of the oldest entries that must have left for the cost to fit.
        let Some(last) = (log.len() as u64 + cost).checked_sub(self.capacity() + 1) else {
            return Outcome::ALLOW;
        };
        let entry = log.get(last as usize);
        if self.has_left(entry, log.effective(now)) {
            return Outcome::ALLOW;
        }
        Outcome::deny_for(entry.after(self.window).since(now))
    }

    /// [`Algorithm::test_in_full`] of a log or a converted log.
    pub(crate) fn test_entries_in_full(&self, log: &impl Entries, cost: u64, now: Timestamp) -> Outcome {
        let over = self.counted(log, now).saturating_sub(self.limit);
        if cost > 0 || over == 0 {
            return self.test_entries(log, cost, now);
        }
        let last = log.get(log.len() - self.limit - 1); // the newest of the entries that must have left
        Outcome::deny_for(last.after(self.window).since(now))
    }

    /// [`Algorithm::status`] of a log or a converted log.
    #[inline]
    pub(crate) fn status_of_entries(&self, log: &impl Entries, now: Timestamp) -> Status {
        let counted = self.counted(log, now);
        let newest = log.newest().filter(|_| counted > 0);
        Status {
            remaining: self.limit.saturating_sub(counted) as u64,
            reset_after: newest.map_or(Nanos::ZERO, |newest| newest.after(self.window).since(now)),
        }
    }

    /// The places of the entries that [`Algorithm::refund`] would remove.
    pub(crate) fn refundable(
        &self,
        log: &impl Entries,
        cost: u64,
        charged: Timestamp,
        now: Timestamp,
    ) -> Range<usize> {
        if self.has_left(charged, log.effective(now)) {
            return 0..0;
        }
        let first = log.partition_point(|entry| entry < charged);
        let after = log.partition_point(|entry| entry <= charged);
        let given = usize::try_from(cost).map_or(after - first, |cost| cost.min(after - first));
        after - given..after
    }
}

/// The capacity to allocate for `needed` entries: at least twice the present one, and at most `most`.
fn wanted(log: &impl Entries, needed: usize, most: usize) -> usize {
    needed.max(2 * log.allocated()).min(most)
}

fn growth(log: &impl Entries, cost: u64, most: usize) -> usize {
    let needed = log.len().saturating_add(cost as usize);
    if needed <= log.allocated() {
        return 0;
    }
    wanted(log, needed, most).saturating_sub(log.allocated()) * size_of::<Timestamp>()
}

impl Algorithm for SlidingLog {
    type State = Log;

    #[inline]
    fn capacity(&self) -> u64 {
        self.limit as u64
    }

    #[inline]
    fn test(&self, log: &Log, cost: u64, now: Timestamp) -> Outcome {
        self.test_entries(log, cost, now)
    }

    #[inline]
    fn spend(&self, log: &mut Log, cost: u64, now: Timestamp) {
        if cost == 0 {
            return;
        }
        let now = log.effective(now);
        self.reserve(log, cost as usize, self.limit, now);
        log.times.extend(std::iter::repeat_n(now, cost as usize));
    }

    fn test_in_full(&self, log: &Log, cost: u64, now: Timestamp) -> Outcome {
        self.test_entries_in_full(log, cost, now)
    }

    fn spend_in_full(&self, log: &mut Log, cost: u64, now: Timestamp) {
        let effective = log.effective(now);
        let room = self.most_in_full().saturating_sub(self.counted(log, now));
        let units = usize::try_from(cost).map_or(room, |cost| cost.min(room));
        if units > 0 {
            self.reserve(log, units, self.most_in_full(), effective);
            log.times.extend(std::iter::repeat_n(effective, units));
        }
    }

    /// Removes up to `cost` entries that have the time `charged` and still count. It removes nothing if the charge has
    /// another time in the log: because the clock had stepped back, or because a shorter window moved the entries.
    ///
    /// A binary search finds the entries. Then the entries on one side of them move, except if the removed entries are
    /// the newest or the oldest.
    fn refund(&self, log: &mut Log, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        let places = self.refundable(log, cost, charged, now);
        if places.is_empty() {
            return 0;
        }
        let given = places.len() as u64;
        // With the newest gone, a clock that steps back would count again what had left by then.
        let left = self.left(log, log.effective(charged));
        log.times.drain(places);
        log.times.drain(..left);
        given
    }

    #[inline]
    fn status(&self, log: &Log, now: Timestamp) -> Status {
        self.status_of_entries(log, now)
    }

    /// What counted still counts. Where the window shrinks, entries keep their place in it instead of
    /// their age, or all that is older than the new window would be forgiven at once.
    fn convert(&self, old: &Self, log: &mut Log, now: Timestamp) {
        let conversion = Conversion::new(self, old, log, now);
        log.times.drain(..conversion.left);
        if let Some(scale) = conversion.scale {
            log.times.iter_mut().for_each(|entry| *entry = scale.apply(*entry));
        }
        log.times.shrink_to(self.limit);
    }
}

#[cfg(test)]
mod tests;
