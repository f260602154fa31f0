//! Denials that need no call: while nobody gives anything back, a key that denied a cost until some moment denies it, and
//! every larger one, until then.
//!
//! A denial is kept for as long as it holds, and told for at most a second without a look at the store: what a refund, a
//! reset or another policy has improved is seen by then. For a key that is denied for longer, one request a second asks
//! the store, and those that come meanwhile hear what the last one heard.

use std::hash::BuildHasher;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_core::{Decision, Nanos, Outcome, Retry, Status};

/// As many keys are remembered. One that is new takes the place of another where they meet.
const PLACES: usize = 1 << 16;

/// For at most so long, a denial is told without asking.
const TOLD_FOR: Duration = Duration::from_secs(1);

/// The denials that are remembered.
#[derive(Debug)]
pub(crate) struct Denied {
    places: Box<[Mutex<Option<Box<Denial>>>]>,
    hasher: std::hash::RandomState,
    asks_for: Duration, // as long as one who asks may take
}

#[derive(Debug)]
struct Denial {
    hash: u64,
    cost: u64,
    ask_after: Instant,
    holds_until: Instant, // not later than the store would say
    told_until: Instant,  // not earlier
    asked_until: Instant, // somebody asks, and this is how long that may take
    remaining: u64,
    new_at: Instant,
}

impl Denied {
    pub(crate) fn new(asks_for: Duration) -> Self {
        let places = std::iter::repeat_with(Mutex::default).take(PLACES).collect();
        Self { places, hasher: std::hash::RandomState::new(), asks_for }
    }

    /// What a key is known by: its name, and the numbers it is decided by.
    pub(crate) fn hash(&self, key: &[u8], tag: &[u8]) -> u64 {
        self.hasher.hash_one((key, tag))
    }

    /// The decision of a key that denies so much. None where the store has to be asked.
    pub(crate) fn find(&self, hash: u64, cost: u64, now: Instant) -> Option<Decision> {
        let mut place = self.place(hash).lock();
        let denial = place.as_mut().filter(|denial| denial.hash == hash && cost >= denial.cost)?;
        if now >= denial.holds_until {
            *place = None;
            return None;
        }
        if now >= denial.ask_after && now >= denial.asked_until {
            denial.asked_until = now + self.asks_for;
            return None;
        }
        let after = |then: Instant| Nanos::saturating_from(then.saturating_duration_since(now));
        let (retry, reset_after) = (after(denial.told_until), after(denial.new_at));
        let status = Status { remaining: denial.remaining, reset_after };
        Some(Decision { outcome: Outcome::Deny { retry: Retry::After(retry) }, status })
    }

    /// Remembers a denial that the store was asked for at `sent` and told at `now`.
    pub(crate) fn keep(&self, hash: u64, cost: u64, decision: &Decision, sent: Instant, now: Instant) {
        let Outcome::Deny { retry: Retry::After(retry) } = decision.outcome else { return };
        let retry = Duration::from(retry);
        let denial = Denial {
            hash,
            cost,
            ask_after: sent + retry.min(TOLD_FOR),
            holds_until: sent + retry,
            told_until: now + retry,
            asked_until: now,
            remaining: decision.status.remaining,
            new_at: now + decision.status.reset_after.into(),
        };
        *self.place(hash).lock() = Some(Box::new(denial));
    }

    /// Forgets a key.
    pub(crate) fn forget(&self, hash: u64) {
        let mut place = self.place(hash).lock();
        if place.as_ref().is_some_and(|denial| denial.hash == hash) {
            *place = None;
        }
    }

    fn place(&self, hash: u64) -> &Mutex<Option<Box<Denial>>> {
        &self.places[hash as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(retry_ms: u64) -> Decision {
        let retry = Retry::After(Nanos::new(retry_ms * 1_000_000));
        Decision { outcome: Outcome::Deny { retry }, ..Decision::default() }
    }

    #[test]
    fn a_denial_holds_for_its_cost_and_larger_ones_until_its_end() {
        let (cache, start) = (Denied::new(Duration::from_millis(5)), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        cache.keep(7, 3, &denied(400), start, at(2));
        for (ms, cost, wait) in
            [(10, 3, Some(392)), (10, 9, Some(392)), (10, 2, None), (399, 3, Some(3)), (400, 3, None)]
        {
            let found = cache.find(7, cost, at(ms)).and_then(|decision| decision.retry_after());
            assert_eq!(found, wait.map(|ms: u64| Nanos::new(ms * 1_000_000)), "cost {cost} at {ms} ms");
        }
        assert_eq!(cache.find(7, 3, at(10)), None, "it was forgotten at its end");
        assert_eq!(cache.find(8, 3, at(10)), None, "another key");
    }

    #[test]
    fn of_a_long_denial_one_a_second_asks() {
        let (cache, start) = (Denied::new(Duration::from_millis(5)), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        cache.keep(7, 1, &denied(60_000), start, start);
        let asks = |ms| cache.find(7, 1, at(ms)).is_none();
        assert_eq!([1, 999, 1000, 1001, 1004].map(asks), [false, false, true, false, false]);
        assert!(asks(1006), "the one that asked got no answer");
        cache.keep(7, 1, &denied(58_990), at(1006), at(1010));
        assert_eq!([1011, 2005, 2006].map(asks), [false, false, true]);
    }

    #[test]
    fn what_is_reset_is_asked_again() {
        let (cache, start) = (Denied::new(Duration::from_millis(5)), Instant::now());
        cache.keep(7, 1, &denied(400), start, start);
        cache.forget(8);
        assert!(cache.find(7, 1, start).is_some());
        cache.forget(7);
        assert_eq!(cache.find(7, 1, start), None);
    }
}
