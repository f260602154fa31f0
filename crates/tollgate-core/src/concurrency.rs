//! Concurrency: at most `limit` in flight, each for as long as it holds its permit or its lease lasts.

mod permit_tree;

use std::collections::VecDeque;
use std::time::Duration;

use self::permit_tree::PermitTree;
use crate::rate::MAX_SPAN;
use crate::rule::growth_of;
use crate::{Nanos, Outcome, Retry, RuleError, Status, Timestamp};

/// At most `limit` in flight.
///
/// - Promise: the cost of the permits held is at most `limit` whenever one is given.
/// - Formula: allowed iff `in flight + cost <= limit`. A permit taken at t under a lease holds in
///   `[t, t + lease)`, then it is free without being released.
/// - Memory: 40 bytes per key. A key that holds up to 64 permits needs 32 bytes per permit, a key that holds more needs 56.
/// - Time: O(log n) per call in the number of permits held.
/// - Overshoot: none, but a holder that outlives its lease goes on unseen.
/// - Choose another: to limit how often rather than how many at once, any of the rates.
///
/// It is no [`Algorithm`](crate::Algorithm), since a permit needs an id: `test` it, then
/// [`acquire`](Self::acquire).
///
/// ```
/// use tollgate_core::{Concurrency, Outcome, PermitId, Permits, Retry, Timestamp};
///
/// let rule = Concurrency::new(2, None)?;
/// let (mut key, now) = (Permits::default(), Timestamp::from_nanos(0));
/// rule.acquire(&mut key, PermitId(1), 2, now);
/// assert_eq!(rule.test(&key, 1, now), Outcome::Deny { retry: Retry::Unknown });
/// assert!(rule.release(&mut key, PermitId(1), now));
/// assert!(rule.test(&key, 1, now).is_allowed());
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Concurrency {
    limit: u64,           // never zero
    lease: Option<Nanos>, // never zero
}

/// Who holds a permit. The caller chooses it and never uses one twice for the same key, not even after
/// it was released; so a release that comes late or twice frees nobody else's permit.
///
/// ```
/// use tollgate_core::PermitId;
///
/// let mut ids = (0..).map(PermitId); // one source of ids for all keys will do
/// assert_eq!(ids.next(), Some(PermitId(0)));
/// assert_eq!(ids.next(), Some(PermitId(1)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId(pub u64);

/// The permits of a key that have been given and not been released. None by default.
///
/// ```
/// use tollgate_core::{Concurrency, PermitId, Permits, Timestamp};
///
/// let (mut key, now) = (Permits::default(), Timestamp::from_nanos(0));
/// Concurrency::new(2, None)?.acquire(&mut key, PermitId(1), 1, now);
/// assert_ne!(key, Permits::default());
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Permits {
    holders: Holders,
    newest: Timestamp, // when the last permit was given
}

/// The permits in the order in which their leases end, those without a lease last. Some leases may have ended.
#[derive(Clone, Debug)]
enum Holders {
    Few(VecDeque<Permit>),
    Many(Box<PermitTree>),
}

/// A key with more permits keeps them in a tree. A list of this length is read in less time than a tree.
const FEW: usize = 64;

/// A tree with as few permits as this becomes a list again. The distance to [`FEW`] makes changes of the form rare.
const FEW_AGAIN: usize = FEW / 4;

/// The room of a new tree, in permits.
const FIRST_ROOM: usize = 2 * FEW;

/// At most this many permits whose leases have ended leave a tree when a new one comes. More than one, so that a tree gets rid of
/// them; a small number, so that no call waits for thousands of leases that ended together.
const MOST_REMOVED: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Permit {
    id: PermitId,
    cost: u64,
    ends: Option<Timestamp>,
}

impl Permit {
    #[inline]
    fn is_over(&self, now: Timestamp) -> bool {
        self.ends.is_some_and(|ends| ends <= now)
    }

    /// Whether another permit, given later, comes after this one in the order of their ends.
    #[inline]
    fn is_not_after(&self, other: &Self) -> bool {
        match (self.ends, other.ends) {
            (Some(ends), Some(other)) => ends <= other,
            (Some(_) | None, None) => true,
            (None, Some(_)) => false,
        }
    }
}

impl Default for Holders {
    #[inline]
    fn default() -> Self {
        Self::Few(VecDeque::new())
    }
}

/// The permits of a list that are not over.
#[inline]
fn unended(list: &VecDeque<Permit>, now: Timestamp) -> impl Iterator<Item = &Permit> {
    list.iter().skip_while(move |permit| permit.is_over(now))
}

impl Holders {
    #[inline]
    fn in_flight(&self, now: Timestamp) -> u64 {
        match self {
            Self::Few(list) => unended(list, now).map(|permit| permit.cost).sum(),
            Self::Many(tree) => tree.in_flight(now),
        }
    }

    /// When the permit ends after which at most `most` of what is in flight now remains. None if that permit has no lease.
    #[inline]
    fn end_that_leaves(&self, most: u64, mut in_flight: u64, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Few(list) => {
                let mut list = unended(list, now);
                let leaves_enough = |permit: &&Permit| {
                    in_flight -= permit.cost;
                    in_flight <= most
                };
                list.find(leaves_enough)?.ends
            }
            Self::Many(tree) => tree.first_that_leaves(most, now)?.ends,
        }
    }

    /// When the last lease ends. None if every lease has ended.
    #[inline]
    fn last_end(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Few(list) => unended(list, now).filter_map(|permit| permit.ends).last(),
            Self::Many(tree) => tree.last_end().filter(|ends| *ends > now),
        }
    }

    #[inline]
    fn is_over(&self, now: Timestamp) -> bool {
        match self {
            Self::Few(list) => unended(list, now).next().is_none(),
            Self::Many(tree) => tree.is_over(now),
        }
    }

    #[inline]
    fn insert(&mut self, permit: Permit, now: Timestamp) {
        if let Self::Few(list) = self {
            while list.front().is_some_and(|first| first.is_over(now)) {
                list.pop_front();
            }
            if list.len() < FEW {
                // At the back, except after the lease was shortened or introduced.
                let place = list.partition_point(|earlier| earlier.is_not_after(&permit));
                list.insert(place, permit);
                return;
            }
        }
        self.insert_in_tree(permit, now);
    }

    #[inline(never)]
    fn insert_in_tree(&mut self, permit: Permit, now: Timestamp) {
        match self {
            Self::Few(list) => {
                let mut tree = PermitTree::with_capacity(FIRST_ROOM);
                list.iter().for_each(|earlier| tree.insert(*earlier));
                tree.insert(permit);
                *self = Self::Many(Box::new(tree));
            }
            Self::Many(tree) if tree.is_over(now) => *self = Self::Few(VecDeque::from([permit])),
            Self::Many(tree) => {
                for _ in 0..MOST_REMOVED {
                    tree.remove_first_over(now);
                }
                tree.insert(permit);
            }
        }
    }

    fn take(&mut self, id: PermitId) -> Option<Permit> {
        match self {
            Self::Few(list) => {
                let place = list.iter().position(|permit| permit.id == id)?;
                list.remove(place)
            }
            Self::Many(tree) => {
                let permit = tree.take(id)?;
                if tree.len() <= FEW_AGAIN {
                    *self = Self::Few(tree.in_order().into());
                }
                Some(permit)
            }
        }
    }
}

/// Two states are equal if they hold the same permits. A permit whose lease ended before the last one was given is not held.
impl PartialEq for Permits {
    fn eq(&self, other: &Self) -> bool {
        let permits = |state: &Self| -> Vec<Permit> {
            let mut permits = match &state.holders {
                Holders::Few(list) => list.iter().copied().collect(),
                Holders::Many(tree) => tree.in_order(),
            };
            permits.retain(|permit| !permit.is_over(state.newest));
            // A list has permits that end together in the order in which they came, a tree in the order of their IDs.
            permits.sort_unstable_by_key(|permit| (permit.id, permit.ends, permit.cost));
            permits
        };
        self.newest == other.newest && permits(self) == permits(other)
    }
}

impl Eq for Permits {}

impl Permits {
    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match &self.holders {
            Holders::Few(list) => list.capacity() * size_of::<Permit>(),
            Holders::Many(tree) => tree.bytes(),
        }
    }

    /// Bytes that one more permit may add to them.
    pub(crate) fn heap_growth(&self) -> usize {
        match &self.holders {
            Holders::Few(list) if list.len() < FEW => growth_of(list),
            Holders::Few(_) => PermitTree::bytes_for(FIRST_ROOM).saturating_sub(self.heap_bytes()),
            Holders::Many(tree) => tree.growth(),
        }
    }

    /// A moment before the last permit was given counts as that moment, as in all windows.
    #[inline]
    fn effective(&self, now: Timestamp) -> Timestamp {
        self.newest.max(now)
    }

    #[inline]
    fn in_flight(&self, now: Timestamp) -> u64 {
        self.holders.in_flight(self.effective(now))
    }
}

impl Concurrency {
    /// At most `limit` in flight. With a lease, a permit that is never released frees itself after
    /// that time; without one it is held for ever.
    ///
    /// Refuses a limit of 0, a lease of 0 and one above 146 years.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Concurrency, RuleError};
    ///
    /// assert!(Concurrency::new(5, Some(Duration::from_secs(30))).is_ok());
    /// assert_eq!(Concurrency::new(0, None), Err(RuleError::ZeroCapacity { what: "limit" }));
    /// assert_eq!(Concurrency::new(5, Some(Duration::ZERO)), Err(RuleError::ZeroSpan { what: "lease" }));
    /// ```
    pub fn new(limit: u64, lease: Option<Duration>) -> Result<Self, RuleError> {
        if limit == 0 {
            return Err(RuleError::ZeroCapacity { what: "limit" });
        }
        match lease {
            Some(Duration::ZERO) => Err(RuleError::ZeroSpan { what: "lease" }),
            Some(span) if span > MAX_SPAN => Err(RuleError::TooLong { what: "lease", span, most: MAX_SPAN }),
            _ => Ok(Self { limit, lease: lease.map(Nanos::saturating_from) }),
        }
    }

    /// The most that can be in flight. Never 0.
    ///
    /// ```
    /// use tollgate_core::Concurrency;
    ///
    /// assert_eq!(Concurrency::new(5, None)?.capacity(), 5);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub const fn capacity(&self) -> u64 {
        self.limit
    }

    /// How long a permit holds that nobody gives back. None for as long as it takes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::Concurrency;
    ///
    /// assert_eq!(Concurrency::new(5, None)?.lease(), None);
    /// assert_eq!(Concurrency::new(5, Some(Duration::from_secs(30)))?.lease().unwrap(), Duration::from_secs(30));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub const fn lease(&self) -> Option<Nanos> {
        self.lease
    }

    /// Refuses a cost that could never pass, for those who know costs when they build rules.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, RuleError};
    ///
    /// let rule = Concurrency::new(5, None)?;
    /// assert_eq!([0, 5].map(|cost| rule.require(cost)), [Ok(()), Ok(())]);
    /// assert_eq!(rule.require(6), Err(RuleError::Unreachable { cost: 6, capacity: 5 }));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn require(&self, cost: u64) -> Result<(), RuleError> {
        RuleError::require(cost, self.limit)
    }

    /// Whether a permit of `cost` could be had at `now`. Without leases nobody knows when one denied
    /// could: [`Retry::Unknown`]. Cost 0 always could, a cost above the limit never. A `now` before the last
    /// permit was given counts as that moment, and the wait is told from `now`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Concurrency, Nanos, Outcome, PermitId, Permits, Timestamp};
    ///
    /// let rule = Concurrency::new(2, Some(Duration::from_secs(30)))?;
    /// let (mut key, at) = (Permits::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
    /// rule.acquire(&mut key, PermitId(1), 2, at(10));
    /// let waits = [5, 10, 40].map(|s| rule.test(&key, 1, at(s)).retry_after().map(Nanos::as_secs_ceil));
    /// assert_eq!(waits, [Some(35), Some(30), None]); // the lease ends at 40
    /// assert_eq!(rule.test(&key, 3, at(10)), Outcome::NEVER);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn test(&self, state: &Permits, cost: u64, now: Timestamp) -> Outcome {
        if cost > self.limit {
            return Outcome::NEVER;
        }
        let in_flight = state.in_flight(now);
        if cost == 0 || cost <= self.limit.saturating_sub(in_flight) {
            return Outcome::ALLOW;
        }
        match state.holders.end_that_leaves(self.limit - cost, in_flight, state.effective(now)) {
            Some(ends) => Outcome::deny_for(ends.since(now)),
            None => Outcome::Deny { retry: Retry::Unknown },
        }
    }

    /// Gives the permit that `test` has just allowed for the same state, cost and time. Cost 0 gives
    /// none. It does not ask again: a permit that was denied would be given beyond the limit.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, PermitId, Permits, Timestamp};
    ///
    /// let (rule, now) = (Concurrency::new(2, None)?, Timestamp::from_nanos(0));
    /// let mut key = Permits::default();
    /// rule.acquire(&mut key, PermitId(1), 0, now);
    /// assert_eq!(rule.status(&key, now).remaining, 2);
    /// rule.acquire(&mut key, PermitId(2), 1, now);
    /// assert_eq!(rule.status(&key, now).remaining, 1);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn acquire(&self, state: &mut Permits, id: PermitId, cost: u64, now: Timestamp) {
        if cost == 0 {
            return;
        }
        state.newest = state.effective(now);
        let ends = self.lease.map(|lease| state.newest.after(lease));
        state.holders.insert(Permit { id, cost, ends }, state.newest);
    }

    /// Takes a permit back. False if it was not held: released before, or its lease has ended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Concurrency, PermitId, Permits, Timestamp};
    ///
    /// let rule = Concurrency::new(2, Some(Duration::from_secs(30)))?;
    /// let (mut key, at) = (Permits::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
    /// rule.acquire(&mut key, PermitId(1), 1, at(0));
    /// rule.acquire(&mut key, PermitId(2), 1, at(0));
    /// assert!(rule.release(&mut key, PermitId(1), at(29)));
    /// assert!(!rule.release(&mut key, PermitId(1), at(29))); // a second time
    /// assert!(!rule.release(&mut key, PermitId(2), at(30))); // the lease has ended
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn release(&self, state: &mut Permits, id: PermitId, now: Timestamp) -> bool {
        let now = state.effective(now);
        state.holders.take(id).is_some_and(|permit| !permit.is_over(now))
    }

    /// What could still be taken at once. `reset_after` is when the last lease ends; zero where there
    /// are no leases, since nobody knows.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Concurrency, Nanos, PermitId, Permits, Status, Timestamp};
    ///
    /// let (mut key, now) = (Permits::default(), Timestamp::from_nanos(0));
    /// let rule = Concurrency::new(2, Some(Duration::from_secs(30)))?;
    /// rule.acquire(&mut key, PermitId(1), 1, now);
    /// let reset_after = Nanos::new(30_000_000_000);
    /// assert_eq!(rule.status(&key, now), Status { remaining: 1, reset_after });
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn status(&self, state: &Permits, now: Timestamp) -> Status {
        let last = state.holders.last_end(state.effective(now));
        Status {
            remaining: self.limit.saturating_sub(state.in_flight(now)),
            reset_after: last.map_or(Nanos::ZERO, |ends| ends.since(now)),
        }
    }

    /// Whether nothing is held, so that an absent key would be decided alike. A permit whose lease has ended
    /// is not held. Ask this, not `reset_after`, which is zero also where permits are held without a lease.
    ///
    /// ```
    /// use tollgate_core::{Concurrency, PermitId, Permits, Timestamp};
    ///
    /// let (rule, now) = (Concurrency::new(2, None)?, Timestamp::from_nanos(0));
    /// let mut key = Permits::default();
    /// assert!(rule.is_unused(&key, now));
    /// rule.acquire(&mut key, PermitId(1), 1, now);
    /// assert!(rule.status(&key, now).reset_after.is_zero() && !rule.is_unused(&key, now));
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[inline]
    pub fn is_unused(&self, state: &Permits, now: Timestamp) -> bool {
        state.holders.is_over(state.effective(now))
    }
}

#[cfg(test)]
mod tests;
