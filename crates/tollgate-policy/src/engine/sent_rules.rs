//! Rules that come with calls. A rule is made when a call sends it, and cached because most calls send the same rules.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tollgate::{KeyedLimiter, RequestRule, Rule};

/// Why a call with a rule was not decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThrottleError {
    /// The rule is invalid: what is wrong, and what would be right.
    #[error("{0}")]
    Rule(String),
}

/// The number of processes among which a rule is divided during an outage of the store that they share. None without a store.
pub(super) type Nodes = Arc<AtomicU32>;

/// The number of sets of a cache, and of places per set. The hash of a rule chooses its set. The rule is in one of
/// the four places of this set or not in the cache. A call compares four tags, which are in the set itself. It reads
/// a rule only if the tag of the rule is equal.
const SETS: usize = 8192;
const PLACES: usize = 4;

/// Makes the rules of one limiter from the numbers that calls send, and caches them.
///
/// The table of the limiter keeps a rule only as long as it is the rule that last charged some key.
pub(super) struct SentRules<N> {
    pub(super) limiter: KeyedLimiter,
    cache: OnceLock<Box<[Mutex<Set<N>>]>>, // none before the first rule
    nodes: Option<Nodes>,
}

/// A full set adds one of this many new rules and leaves the others out. If callers send a few times as many rules as
/// the cache has places, most cached rules stay and are found again. Most misses then read no cached rule in order to
/// evict it. A cache that adds every rule finds no rule if the rules come in turn (Qureshi et al. 2007, Adaptive
/// Insertion Policies for High Performance Caching).
const NEW_RULES_PER_ADDED: u8 = 8;

/// The rules of one set, and their tags.
struct Set<N> {
    rules: [Option<Box<(N, KnownRule)>>; PLACES],
    tags: [u16; PLACES],
    next: u8,     // the place of the rule that is replaced next
    left_out: u8, // new rules since the last one that was added
}

impl<N> Set<N> {
    const EMPTY: Self = Self { rules: [const { None }; PLACES], tags: [0; PLACES], next: 0, left_out: 0 };

    /// The rule with this tag for which `is_match` is true.
    fn find(&self, tag: u16, is_match: impl Fn(&(N, KnownRule)) -> bool) -> Option<KnownRule> {
        let tagged = self.tags.iter().zip(&self.rules).filter(|(known, _)| **known == tag);
        tagged.filter_map(|(_, rule)| rule.as_deref()).find(|rule| is_match(rule)).map(|(_, known)| *known)
    }

    /// Adds a new rule or leaves it out. Returns the rule that it replaces.
    fn add(&mut self, tag: u16, rule: impl FnOnce() -> (N, KnownRule)) -> Option<(N, KnownRule)> {
        let place = usize::from(self.next);
        let replaced = match &mut self.rules[place] {
            Some(_) if self.left_out + 1 < NEW_RULES_PER_ADDED => {
                self.left_out += 1;
                return None;
            }
            Some(kept) => Some(std::mem::replace(&mut **kept, rule())),
            empty => {
                *empty = Some(Box::new(rule()));
                None
            }
        };
        self.tags[place] = tag;
        self.next = (self.next + 1) % PLACES as u8;
        self.left_out = 0;
        replaced
    }
}

/// A rule that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownRule {
    pub(super) rule: Rule,
    /// What the table of this process decides by: the rule, or the share that this process has of it.
    pub(super) local: RequestRule,
    nodes: u32, // among which it is divided
}

impl<N: Eq + Hash> SentRules<N> {
    pub(super) fn new(limiter: KeyedLimiter, nodes: Option<Nodes>) -> Self {
        Self { limiter, cache: OnceLock::new(), nodes }
    }

    /// The rule of a name. If it is not cached, `make` makes it, and `copy_name` copies the name for the cache.
    pub(super) fn get<Q: Hash + Eq + ?Sized>(
        &self,
        name: &Q,
        copy_name: impl FnOnce(&Q) -> N,
        make: impl FnOnce() -> Result<Rule, ThrottleError>,
    ) -> Result<KnownRule, ThrottleError>
    where
        N: Borrow<Q>,
    {
        let nodes = self.nodes.as_ref().map_or(1, |nodes| nodes.load(Ordering::Relaxed));
        let hash = BuildHasherDefault::<PlaceHasher>::default().hash_one(name);
        let cache = self.cache.get_or_init(|| (0..SETS).map(|_| Mutex::new(Set::EMPTY)).collect());
        let (set, tag) = (&cache[(hash >> 32) as usize % SETS], (hash >> 48) as u16);
        let is_match = |kept: &(N, KnownRule)| kept.0.borrow() == name && kept.1.nodes == nodes;
        if let Some(known) = set.lock().find(tag, is_match) {
            return Ok(known);
        }
        let rule = make()?;
        let share = if self.nodes.is_some() { rule.share_of(nodes) } else { rule };
        let known = KnownRule { rule, local: self.limiter.request_rule(&(name, nodes), share), nodes };
        let replaced = set.lock().add(tag, || (copy_name(name), known));
        drop(replaced); // after the lock is released
        Ok(known)
    }
}

/// Chooses a set. A caller that finds names which share a set gains nothing: their rules are made again for each call.
#[derive(Default)]
struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        let last = rest.iter().fold(0, |last, &byte| (last << 8) | u64::from(byte));
        self.write_u64(last);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl<N> fmt::Debug for SentRules<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SentRules(..)")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ops::Range;

    use tollgate::{Rate, TokenBucket};

    use super::*;

    const CAPACITY: u64 = (SETS * PLACES) as u64;

    fn sent_rules() -> SentRules<u64> {
        let rule = TokenBucket::new(Rate::per_second(1).unwrap(), 1).unwrap();
        SentRules::new(KeyedLimiter::new(rule), None)
    }

    /// Sends each rule once. Returns the number of rules that were not cached.
    fn cache_misses(rules: &SentRules<u64>, names: Range<u64>) -> u64 {
        let misses = Cell::new(0);
        for name in names {
            let make = || {
                misses.set(misses.get() + 1);
                Ok(TokenBucket::new(Rate::per_second(1).unwrap(), name + 1).unwrap().into())
            };
            let known = rules.get(&name, |name| *name, make).unwrap();
            assert_eq!(known.rule.capacity(), name + 1, "the rule of another name");
        }
        misses.into_inner()
    }

    #[test]
    fn a_rule_that_is_sent_again_is_found_in_the_cache() {
        let rules = sent_rules();
        assert_eq!((cache_misses(&rules, 0..1000), cache_misses(&rules, 0..1000)), (1000, 0));
    }

    #[test]
    fn rules_that_are_sent_in_turn_are_found_though_the_cache_is_too_small() {
        let (rules, count) = (sent_rules(), 2 * CAPACITY);
        cache_misses(&rules, 0..count);
        for round in 0..3 {
            let misses = cache_misses(&rules, 0..count);
            assert!(misses < count * 7 / 10, "round {round}: {misses} of {count} rules were made again");
        }
    }

    #[test]
    fn rules_that_are_sent_from_now_on_replace_the_earlier_ones() {
        let rules = sent_rules();
        cache_misses(&rules, 0..2 * CAPACITY);
        let later = 3 * CAPACITY..3 * CAPACITY + 1000;
        let last = (0..10 * PLACES).map(|_| cache_misses(&rules, later.clone())).last();
        assert_eq!(last, Some(0));
    }
}
