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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    limit: u64,           // never zero
    lease: Option<Nanos>, // never zero
}

/// Who holds a permit. The caller chooses it and never uses one twice for the same key, not even after
/// it was released; so a release that comes late or twice frees nobody else's permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId(pub u64);

/// The permits of a key that have been given and not been released.
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
    /// Refuses a limit of 0 and a lease of 0.
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

    /// The most that can be in flight.
    #[inline]
    pub const fn capacity(&self) -> u64 {
        self.limit
    }

    /// Refuses a cost that could never pass, for those who know costs when they build rules.
    pub fn require(&self, cost: u64) -> Result<(), RuleError> {
        RuleError::require(cost, self.limit)
    }

    /// Whether a permit of `cost` could be had at `now`. Without leases nobody knows when one denied
    /// could: [`Retry::Unknown`].
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
    /// none.
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
    pub fn release(&self, state: &mut Permits, id: PermitId, now: Timestamp) -> bool {
        let now = state.effective(now);
        let place = state.held.iter().position(|permit| permit.id == id);
        let released = place.and_then(|place| state.held.remove(place));
        released.is_some_and(|permit| !permit.is_over(now))
    }

    /// What could still be taken at once. `reset_after` is when the last lease ends; zero where there
    /// are no leases, since nobody knows.
    #[inline]
    pub fn status(&self, state: &Permits, now: Timestamp) -> Status {
        let last = state.held(now).filter_map(|permit| permit.ends).last();
        Status {
            remaining: self.limit.saturating_sub(state.in_flight(now)),
            reset_after: last.map_or(Nanos::ZERO, |ends| ends.since(now)),
        }
    }

    /// Whether nothing is held, so that an absent key would be decided alike.
    #[inline]
    pub fn is_unused(&self, state: &Permits, now: Timestamp) -> bool {
        state.held(now).next().is_none()
    }
}

#[cfg(test)]
mod tests;
