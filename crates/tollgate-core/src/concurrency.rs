//! Concurrency: at most `limit` in flight, each for as long as it holds its permit or its lease lasts.

use std::collections::VecDeque;
use std::time::Duration;

use crate::rate::MAX_SPAN;
use crate::rule::growth_of;
use crate::{Nanos, Outcome, Retry, RuleError, Status, Timestamp};

/// At most `limit` in flight.
///
/// - Promise: the cost of the permits held is at most `limit` whenever one is given.
/// - Formula: allowed iff `in flight + cost <= limit`. A permit taken at t under a lease holds in
///   `[t, t + lease)`, then it is free without being released.
/// - Memory: 40 bytes a key, and 32 a permit held.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permits {
    held: VecDeque<Permit>, // those whose leases end first come first; some may have ended
    newest: Timestamp,      // when the last was given
}

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
}

impl Permits {
    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.held.capacity() * size_of::<Permit>()
    }

    /// Bytes that one more permit may add to them.
    pub(crate) fn heap_growth(&self) -> usize {
        growth_of(&self.held)
    }

    /// A moment before the last permit was given counts as that moment, as in all windows.
    #[inline]
    fn effective(&self, now: Timestamp) -> Timestamp {
        self.newest.max(now)
    }

    /// The permits held at `now`.
    #[inline]
    fn held(&self, now: Timestamp) -> impl Iterator<Item = &Permit> {
        let now = self.effective(now);
        self.held.iter().skip_while(move |permit| permit.is_over(now))
    }

    #[inline]
    fn in_flight(&self, now: Timestamp) -> u64 {
        self.held(now).map(|permit| permit.cost).sum()
    }

    #[inline]
    fn forget_ended(&mut self, now: Timestamp) {
        let now = self.effective(now);
        while self.held.front().is_some_and(|permit| permit.is_over(now)) {
            self.held.pop_front();
        }
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
        let mut in_flight = state.in_flight(now);
        if cost == 0 || cost <= self.limit.saturating_sub(in_flight) {
            return Outcome::ALLOW;
        }
        for permit in state.held(now) {
            in_flight -= permit.cost;
            let Some(ends) = permit.ends else { break };
            if cost <= self.limit.saturating_sub(in_flight) {
                return Outcome::deny_for(ends.since(now));
            }
        }
        Outcome::Deny { retry: Retry::Unknown }
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
        state.forget_ended(now);
        state.newest = state.effective(now);
        let ends = self.lease.map(|lease| state.newest.after(lease));
        // At the back, unless the lease has been shortened or introduced since the last was given.
        let place = state.held.partition_point(|permit| match (permit.ends, ends) {
            (Some(earlier), Some(ends)) => earlier <= ends,
            (Some(_), None) | (None, None) => true,
            (None, Some(_)) => false,
        });
        state.held.insert(place, Permit { id, cost, ends });
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
        let place = state.held.iter().position(|permit| permit.id == id);
        let released = place.and_then(|place| state.held.remove(place));
        released.is_some_and(|permit| !permit.is_over(now))
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
        let last = state.held(now).filter_map(|permit| permit.ends).last();
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
        state.held(now).next().is_none()
    }
}

#[cfg(test)]
mod tests;
