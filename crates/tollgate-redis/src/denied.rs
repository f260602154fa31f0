//! Denials that need no call: while nobody gives anything back, a key that denied a cost until some moment denies it until
//! then.
//!
//! A denial is kept for as long as it holds, and told for at most a second without a look at the store: what a refund, a
//! reset or another policy has improved elsewhere is seen by then, and here at once. For a key that is denied for longer,
//! one request a second asks the store, and those that come meanwhile hear what the last one heard.
//!
//! Only what was asked is told: the same key by the same numbers for the same cost. Another cost has another wait.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tollgate_core::{Decision, Nanos, Outcome, Retry, Status};

use crate::request::Limit;

/// As many denials are remembered. One that is new takes the place of another where they meet.
const PLACES: usize = 1 << 16;

/// As many keys are told apart when one is forgotten. Where two meet, both are asked again.
const KEYS: usize = 1 << 18;

/// The bit of a key's age that says that a denial may be remembered. In an age that is asked or kept, it is always set.
const KNOWN: u32 = 1;

/// For at most so long, a denial is told without asking.
const TOLD_FOR: Duration = Duration::from_secs(1);

/// The denials that are remembered.
#[derive(Debug)]
pub(crate) struct Denied {
    places: Box<[Mutex<Option<Box<Denial>>>]>,
    /// By key: a number that grows when all that is remembered of it no longer holds.
    ages: Box<[AtomicU32]>,
    hasher: std::hash::RandomState,
    asks_for: Duration, // as long as one who asks may take
}

/// What is asked of one limit, and when: what a denial is found by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    key: u64,
    all: u64, // of the key, the numbers and the cost
    age: u32, // of the key when it was asked
}

/// What is known without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A denial, which it is time to ask about again: whoever hears this does.
    Ask,
    /// A denial.
    Denied(Decision),
}

#[derive(Debug)]
struct Denial {
    all: u64,
    age: u32,
    ask_after: Instant,
    holds_until: Instant, // not later than the store would say
    told_until: Instant,  // not earlier
    asked_until: Instant, // somebody asks, and this is how long that may take
    remaining: u64,
    new_at: Instant,
}

impl Denied {
    pub(crate) fn new(asks_for: Duration) -> Self {
        Self {
            places: std::iter::repeat_with(Mutex::default).take(PLACES).collect(),
            ages: std::iter::repeat_with(AtomicU32::default).take(KEYS).collect(),
            hasher: std::hash::RandomState::new(),
            asks_for,
        }
    }

    pub(crate) fn asked(&self, key: &[u8], limit: &Limit) -> Asked {
        // The tag of a window does not tell its limit.
        let numbers = (&limit.tag, limit.rule.capacity(), limit.pace.billionths());
        self.asked_by(key, numbers, limit.cost)
    }

    fn asked_by(&self, key: &[u8], numbers: impl std::hash::Hash, cost: u64) -> Asked {
        let key = self.hasher.hash_one(key);
        Asked {
            key,
            all: self.hasher.hash_one((key, numbers, cost)),
            age: self.age(key).load(Relaxed) | KNOWN,
        }
    }

    /// What is known of a key that this is asked of.
    pub(crate) fn find(&self, asked: Asked, now: Instant) -> Found {
        let mut place = self.place(asked).lock();
        let Some(denial) = place.as_mut().filter(|denial| denial.all == asked.all) else {
            return Found::Nothing;
        };
        if now >= denial.holds_until || denial.age != asked.age {
            *place = None;
            return Found::Nothing;
        }
        if now >= denial.ask_after && now >= denial.asked_until {
            denial.asked_until = now + self.asks_for;
            return Found::Ask;
        }
        let after = |then: Instant| Nanos::saturating_from(then.saturating_duration_since(now));
        let (retry, reset_after) = (after(denial.told_until), after(denial.new_at));
        let status = Status { remaining: denial.remaining, reset_after };
        Found::Denied(Decision { outcome: Outcome::Deny { retry: Retry::After(retry) }, status })
    }

    /// Remembers what the store was asked for at `sent` and told at `now`: a denial; or else that there is none any more, of
    /// any cost, since a smaller one has been charged or this one would not have passed.
    pub(crate) fn note(&self, asked: Asked, decision: &Decision, sent: Instant, now: Instant) {
        let Outcome::Deny { retry } = decision.outcome else { return self.outdate(asked) };
        let Retry::After(retry) = retry else { return };
        let retry = Duration::from(retry);
        let denial = Denial {
            all: asked.all,
            age: asked.age,
            ask_after: sent + retry.min(TOLD_FOR),
            holds_until: sent + retry,
            told_until: now + retry,
            asked_until: now,
            remaining: decision.status.remaining,
            new_at: now + decision.status.reset_after.into(),
        };
        // Not where the key was forgotten since it was asked. Whoever forgets it from here on finds that it is known.
        let age = self.age(asked.key);
        if age.fetch_update(Relaxed, Relaxed, |age| (age | KNOWN == asked.age).then_some(asked.age)).is_ok() {
            *self.place(asked).lock() = Some(Box::new(denial));
        }
    }

    /// Forgets all that is known of a key, also what is under way.
    pub(crate) fn forget(&self, asked: Asked) {
        self.age(asked.key).fetch_update(Relaxed, Relaxed, |age| Some((age | KNOWN).wrapping_add(1))).ok();
    }

    /// The same if anything is known, so that keys that are never denied cost a look and no write.
    fn outdate(&self, asked: Asked) {
        if self.age(asked.key).load(Relaxed) & KNOWN != 0 {
            self.forget(asked);
        }
    }

    fn place(&self, asked: Asked) -> &Mutex<Option<Box<Denial>>> {
        &self.places[asked.all as usize % PLACES]
    }

    fn age(&self, key: u64) -> &AtomicU32 {
        &self.ages[key as usize % KEYS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(retry_ms: u64) -> Decision {
        let retry = Retry::After(Nanos::new(retry_ms * 1_000_000));
        Decision { outcome: Outcome::Deny { retry }, ..Decision::default() }
    }

    fn cache() -> (Denied, Instant) {
        (Denied::new(Duration::from_millis(5)), Instant::now())
    }

    /// Asks for a cost of a key by some numbers.
    fn asked(cache: &Denied, key: &str, numbers: u8, cost: u64) -> Asked {
        cache.asked_by(key.as_bytes(), numbers, cost)
    }

    #[test]
    fn a_denial_holds_for_its_cost_and_numbers_until_its_end() {
        let (cache, start) = cache();
        let at = |ms| start + Duration::from_millis(ms);
        let find = |key, numbers, cost, ms| match cache.find(asked(&cache, key, numbers, cost), at(ms)) {
            Found::Denied(decision) => decision.retry_after(),
            _ => None,
        };
        cache.note(asked(&cache, "a", 1, 3), &denied(400), start, at(2));
        for (ms, wait) in [(10, Some(392)), (399, Some(3))] {
            assert_eq!(find("a", 1, 3, ms), wait.map(|ms: u64| Nanos::new(ms * 1_000_000)), "{ms} ms");
        }
        assert_eq!(find("a", 1, 2, 10), None, "a smaller cost may pass");
        assert_eq!(find("a", 1, 4, 10), None, "a larger one waits longer");
        assert_eq!(find("a", 2, 3, 10), None, "other numbers");
        assert_eq!(find("b", 1, 3, 10), None, "another key");
        assert_eq!(find("a", 1, 3, 400), None);
        assert_eq!(find("a", 1, 3, 10), None, "it was forgotten at its end");
    }

    #[test]
    fn of_a_long_denial_one_a_second_asks() {
        let (cache, start) = cache();
        let at = |ms| start + Duration::from_millis(ms);
        cache.note(asked(&cache, "a", 1, 1), &denied(60_000), start, start);
        let asks = |ms| cache.find(asked(&cache, "a", 1, 1), at(ms)) == Found::Ask;
        assert_eq!([1, 999, 1000, 1001, 1004].map(asks), [false, false, true, false, false]);
        assert!(asks(1006), "the one that asked got no answer");
        cache.note(asked(&cache, "a", 1, 1), &denied(58_990), at(1006), at(1010));
        assert_eq!([1011, 2005, 2006].map(asks), [false, false, true]);
    }

    #[test]
    fn what_passes_or_is_forgotten_is_asked_again() {
        let (cache, start) = cache();
        let [one, two] = [asked(&cache, "a", 1, 1), asked(&cache, "a", 1, 2)];
        let is_known = |cost| cache.find(asked(&cache, "a", 1, cost), start) != Found::Nothing;
        cache.note(two, &denied(400), start, start);
        assert!(is_known(2));
        let passed = Decision { outcome: Outcome::ALLOW, ..Decision::default() };
        cache.note(one, &passed, start, start);
        assert!(!is_known(2), "a smaller cost has passed, so that it waits longer");

        cache.note(asked(&cache, "a", 1, 1), &denied(400), start, start);
        assert!(is_known(1));
        let under_way = asked(&cache, "a", 1, 1);
        cache.forget(asked(&cache, "a", 9, 9));
        assert!(!is_known(1), "whatever numbers it is forgotten by");
        cache.note(under_way, &denied(400), start, start);
        assert!(!is_known(1), "it was asked for before");
        cache.note(asked(&cache, "a", 1, 1), &denied(400), start, start);
        assert!(is_known(1));
    }
}
