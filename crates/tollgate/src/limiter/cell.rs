//! One state that many threads charge.

use tollgate_core::{Algorithm, Decision, PermitId, Rule, State, Tat, Timestamp};

use crate::sync::{AtomicU64, Lock, Ordering};
use crate::until_ready::at_once;

/// A rule and the state of its one key.
///
/// The state of a bucket is a word, and a denial writes nothing: threads that are refused only read, and those
/// that pass swap one word. The word means something under the rule that wrote it alone. So the first change
/// of numbers seals it for good, and from then on rule and state stand behind a lock together, where those
/// of other algorithms have been from the start.
#[derive(Debug)]
pub(super) struct Cell {
    first: Rule,
    word: AtomicU64, // the state under `first`, or SEALED
    locked: Lock<(Rule, State)>,
}

/// No bucket's state: the word is not in use any more.
const SEALED: u64 = u64::MAX - 1;

/// The word of a state. The one that means sealed is taken by its neighbour: late, never early.
const fn word(tat: Tat) -> u64 {
    match tat.to_bits() {
        SEALED => u64::MAX,
        bits => bits,
    }
}

impl Cell {
    pub(super) fn new(rule: Rule) -> Self {
        let is_word = matches!(rule, Rule::TokenBucket(_) | Rule::LeakyBucket(_));
        let word = if is_word { word(Tat::default()) } else { SEALED };
        Self { first: rule, word: AtomicU64::new(word), locked: Lock::new((rule, State::Unused)) }
    }

    /// Tests and, if it passes, charges one request. A concurrency limit is only tested where nobody would
    /// hold the permit.
    #[inline]
    pub(super) fn check(&self, cost: u64, permit: Option<PermitId>, now: Timestamp) -> Decision {
        let decision = match &self.first {
            Rule::TokenBucket(rule) => self.swap(|tat| rule.decide(tat, cost, now)),
            Rule::LeakyBucket(rule) => self.swap(|tat| rule.decide(tat, cost, now)),
            _ => None,
        };
        match decision {
            Some(decision) => decision,
            None => self.check_locked(cost, permit, now),
        }
    }

    /// [`check`](Self::check), but denies what would have to be held back, until it would not.
    pub(super) fn check_at_once(&self, cost: u64, permit: Option<PermitId>, now: Timestamp) -> Decision {
        self.edit(|rule, state| {
            let outcome = at_once(rule.test(state, cost, now));
            if outcome.is_allowed() && (permit.is_some() || !matches!(rule, Rule::Concurrency(_))) {
                rule.spend(state, permit.unwrap_or(PermitId(0)), cost, now);
            }
            Decision { outcome, status: rule.status(state, now) }
        })
    }

    /// Changes the state, or only looks at it.
    pub(super) fn edit<T>(&self, mut change: impl FnMut(&Rule, &mut State) -> T) -> T {
        let result = self.swap(|tat| {
            let mut state = State::Bucket(*tat);
            let result = change(&self.first, &mut state);
            *tat = if let State::Bucket(tat) = state { tat } else { Tat::default() };
            result
        });
        match result {
            Some(result) => result,
            None => {
                let (rule, state) = &mut *self.locked.lock();
                change(rule, state)
            }
        }
    }

    /// Puts another rule in force, under which the key has what it had.
    pub(super) fn set_rule(&self, new: Rule, now: Timestamp) {
        let (rule, state) = &mut *self.locked.lock();
        if *rule == new {
            return;
        }
        // Whoever finds the word sealed waits for the lock, and so for the state that goes behind it.
        match self.word.swap(SEALED, Ordering::Relaxed) {
            SEALED => {}
            word => *state = State::Bucket(Tat::from_bits(word)),
        }
        new.convert(rule, state, now);
        *rule = new;
    }

    fn check_locked(&self, cost: u64, permit: Option<PermitId>, now: Timestamp) -> Decision {
        let (rule, state) = &mut *self.locked.lock();
        if permit.is_none() && matches!(rule, Rule::Concurrency(_)) {
            return Decision { outcome: rule.test(state, cost, now), status: rule.status(state, now) };
        }
        rule.decide(state, permit.unwrap_or(PermitId(0)), cost, now)
    }

    /// Replaces the word by what `change` makes of it, or leaves it where that is the same. None if it is
    /// sealed.
    #[inline]
    fn swap<T>(&self, mut change: impl FnMut(&mut Tat) -> T) -> Option<T> {
        // Relaxed: the word is all there is to know, and nothing else is read or written because of it.
        let mut found = self.word.load(Ordering::Relaxed);
        while found != SEALED {
            let mut tat = Tat::from_bits(found);
            let result = change(&mut tat);
            let wanted = word(tat);
            if wanted == found {
                return Some(result);
            }
            match self.word.compare_exchange_weak(found, wanted, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(result),
                Err(other) => found = other,
            }
        }
        None
    }
}

#[cfg(all(test, loom_model))]
mod models;
