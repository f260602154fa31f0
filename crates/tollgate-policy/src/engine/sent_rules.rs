//! Rules that come with calls: made when they are used, and kept for a while, because most calls send the same ones.

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

/// The sets of a cache, and the places of a set. The hash of a rule chooses its set, and the rule is in one of the four places of this
/// set or not in the cache. So a call looks at four places.
const SETS: usize = 8192;
const PLACES: usize = 4;

/// Makes the rules of one limiter from what calls send, and keeps those that were used last.
///
/// The table of the limiter keeps a rule only as long as it is the rule that last charged some key.
pub(super) struct SentRules<N> {
    pub(super) limiter: KeyedLimiter,
    cache: OnceLock<Box<[Mutex<Set<N>>]>>, // none before the first rule
    nodes: Option<Nodes>,
}

/// The rules of one set, and the place of the one that is replaced next.
struct Set<N> {
    rules: [Option<Box<(N, KnownRule)>>; PLACES],
    next: usize,
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

    /// The rule of a name. If it is not kept, `make` makes it.
    pub(super) fn get<Q: Hash + Eq + ?Sized>(
        &self,
        name: &Q,
        make: impl FnOnce() -> Result<(N, Rule), ThrottleError>,
    ) -> Result<KnownRule, ThrottleError>
    where
        N: Borrow<Q>,
    {
        let nodes = self.nodes.as_ref().map_or(1, |nodes| nodes.load(Ordering::Relaxed));
        let hash = BuildHasherDefault::<PlaceHasher>::default().hash_one(name);
        let new_set = |_| Mutex::new(Set { rules: [const { None }; PLACES], next: 0 });
        let cache = self.cache.get_or_init(|| (0..SETS).map(new_set).collect());
        let set = &cache[(hash >> 32) as usize % SETS];
        let is_kept = |kept: &(N, KnownRule)| kept.0.borrow() == name && kept.1.nodes == nodes;
        if let Some(kept) = set.lock().rules.iter().flatten().find(|kept| is_kept(kept)) {
            return Ok(kept.1);
        }
        let (made, rule) = make()?;
        let share = if self.nodes.is_some() { rule.share_of(nodes) } else { rule };
        let known = KnownRule { rule, local: self.limiter.request_rule(&(name, nodes), share), nodes };
        let mut set = set.lock();
        let next = set.next;
        set.next = (next + 1) % PLACES;
        let replaced = match &mut set.rules[next] {
            Some(kept) => Some(std::mem::replace(&mut **kept, (made, known))),
            empty => {
                *empty = Some(Box::new((made, known)));
                None
            }
        };
        drop(set);
        drop(replaced); // after the lock
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
