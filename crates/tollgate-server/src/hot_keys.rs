//! The keys with the most requests, the most tokens and the most denials: the Space-Saving sketch of Metwally, Agrawal and
//! El Abbadi (2005), with weights.
//!
//! A sketch has a fixed number of counters. A key without a counter takes over the smallest one and adds to its count. The count
//! before that is the most by which the new count may be too high. So a count is never too low. It is too high by at most
//! the sum of all weights divided by the number of counters, and every key with more than that has a counter.
//!
//! Threads count in shards, so that they do not wait for each other. An answer adds the counts of all shards. The sum of their
//! errors is at most the sum of all weights divided by the number of counters, as with one sketch.
//!
//! Old counts are of little use. Two sketches take turns, so that an answer covers the last five to ten minutes. A key that has a
//! counter in only one of them may have lost its counter in the other. There it had at most the smallest count that is left,
//! which is added.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

use parking_lot::Mutex;
use tollgate::{Nanos, Timestamp};
use tollgate_policy::Key;

use crate::metrics::sharded::{OwnLines, own_shard, shard_count};

/// Counters of a sketch: every key with more than 1/128 of the sum has one.
const COUNTERS: usize = 128;

/// Counters whose smallest count is remembered together, so that the smallest of all is found in few steps.
const BLOCK: usize = 8;

/// How long a sketch counts before the other takes over.
const TURN: Nanos = Nanos::new(300_000_000_000);

/// As much of a key is kept to show it.
const LONGEST_NAME: usize = 256;

/// The most shards per limit. A sketch is large, so there are fewer shards than for counters.
const MOST_SHARDS: usize = 4;

/// The hot keys of one limit. It takes little memory before the first key is counted.
#[derive(Debug, Default)]
pub(crate) struct HotKeys(OnceLock<Box<[OwnLines<Mutex<Turns>>]>>);

#[derive(Debug, Default)]
struct Turns {
    began: Timestamp,
    now: Sketches,
    before: Sketches,
}

/// What keys are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HotBy {
    /// Requests.
    Hits,
    /// Tokens that the limit has charged.
    Tokens,
    /// Requests that the limit denied.
    Denials,
    /// Requests that a shadow limit would have denied although all other limits allowed them.
    NewlyDenied,
}

impl HotBy {
    pub(crate) const ALL: [Self; 4] = [Self::Hits, Self::Tokens, Self::Denials, Self::NewlyDenied];

    /// The orders of a limit. Only a shadow limit has requests that it alone would deny.
    pub(crate) fn of(is_shadow: bool) -> &'static [Self] {
        if is_shadow { &Self::ALL } else { &Self::ALL[..3] }
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Hits => "hits",
            Self::Tokens => "tokens",
            Self::Denials => "denials",
            Self::NewlyDenied => "newly_denied",
        }
    }
}

/// A sketch for each order, from its first key on.
type Sketches = [Option<Box<Sketch>>; HotBy::ALL.len()];

/// A request to a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// What the limit has charged.
    pub(crate) tokens: u64,
    pub(crate) is_denied: bool,
    /// Whether a shadow limit would have denied a request that all other limits allowed.
    pub(crate) is_newly_denied: bool,
}

/// Some of the keys that were counted most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hottest {
    /// Those, the most counted first.
    pub(crate) keys: Vec<HotKey>,
    /// All that was counted.
    pub(crate) total: u64,
    /// No count is too high by more than this, and no key that is missing has more.
    pub(crate) error_bound: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HotKey {
    /// The key, part by part.
    pub(crate) key: Vec<String>,
    pub(crate) count: u64,
    /// By how much the count may be too high.
    pub(crate) error: u64,
    /// When the key got its counter: it may have been counted before.
    pub(crate) since: Timestamp,
}

/// Hides names of keys from callers that are not admins.
///
/// A hash under a secret of this process: equal keys have equal hashes while it runs, and nobody outside can compute them.
#[derive(Debug, Default)]
pub(crate) struct KeyMask(RandomState);

impl KeyMask {
    /// The keys, each as 16 hexadecimal digits instead of its name.
    pub(crate) fn mask(&self, hottest: &mut Hottest) {
        for hot in &mut hottest.keys {
            hot.key = vec![self.hash(&hot.key)];
        }
        // Keys of one count were in the order of their names.
        hottest.keys.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    }

    /// The hash that is shown instead of the name of a key.
    pub(crate) fn hash(&self, key: &[String]) -> String {
        format!("{:016x}", self.0.hash_one(key))
    }
}

impl HotKeys {
    /// Counts a request to a key, whose hash no other key has. The key is read only if it gets a counter.
    pub(crate) fn count<'k>(&self, hash: u64, key: impl Fn() -> Key<'k>, hit: Hit, now: Timestamp) {
        self.count_in(own_shard(), hash, key, hit, now);
    }

    fn count_in<'k>(&self, shard: usize, hash: u64, key: impl Fn() -> Key<'k>, hit: Hit, now: Timestamp) {
        let new = || (0..shard_count().min(MOST_SHARDS)).map(|_| OwnLines::default()).collect();
        let shards = self.0.get_or_init(new);
        let mut turns = shards[shard % shards.len()].0.lock();
        turns.turn(now);
        for by in HotBy::ALL {
            let weight = match by {
                HotBy::Hits => 1,
                HotBy::Tokens => hit.tokens,
                HotBy::Denials => hit.is_denied.into(),
                HotBy::NewlyDenied => hit.is_newly_denied.into(),
            };
            if weight > 0 {
                turns.now[by as usize].get_or_insert_default().add(hash, &key, weight, now);
            }
        }
    }

    /// The keys that come first in an order.
    pub(crate) fn hottest(&self, by: HotBy, most: usize, now: Timestamp) -> Hottest {
        // They are copied, so that no request waits until they are compared.
        let mut sketches = Vec::new();
        for shard in self.0.get().into_iter().flatten() {
            let mut turns = shard.0.lock();
            turns.turn(now);
            sketches
                .extend([&turns.now, &turns.before].into_iter().filter_map(|all| all[by as usize].clone()));
        }
        Sketch::merged(&sketches, most)
    }

    /// The share of all requests that the key with the most requests certainly had: its count without the error, divided by all
    /// requests. 0 without requests. None if no key was ever counted.
    pub(crate) fn hottest_share(&self, now: Timestamp) -> Option<f64> {
        let (mut counts, mut total) = (Vec::new(), 0_u64);
        for shard in self.0.get()? {
            let mut turns = shard.0.lock();
            turns.turn(now);
            let sketches = [&turns.now, &turns.before];
            for sketch in sketches.into_iter().filter_map(|all| all[HotBy::Hits as usize].as_deref()) {
                total = total.saturating_add(sketch.total);
                let certain = |(count, key): (&u64, &Counted)| (key.hash, count - key.error);
                counts.extend(sketch.counts.iter().zip(&sketch.keys).map(certain));
            }
        }
        counts.sort_unstable();
        let of_one_key = counts.chunk_by(|(one, _), (other, _)| one == other);
        let most = of_one_key.map(|counts| counts.iter().map(|(_, count)| count).sum::<u64>()).max();
        Some(most.unwrap_or(0) as f64 / total.max(1) as f64)
    }

    /// Frees the memory of counts that are too old.
    pub(crate) fn forget_old(&self, now: Timestamp) {
        self.0.get().into_iter().flatten().for_each(|shard| shard.0.lock().turn(now));
    }
}

impl Turns {
    /// Begins another turn when it is time for one. Turns are equally long, however late somebody comes to begin one.
    fn turn(&mut self, now: Timestamp) {
        let since = now.since(self.began);
        if since < TURN {
            return;
        }
        let passed = since.get() / TURN.get();
        let last = std::mem::take(&mut self.now);
        // After two, what was counted in the last is too old as well.
        self.before = if passed == 1 { last } else { Sketches::default() };
        self.began = self.began.after(Nanos::new(passed * TURN.get()));
    }
}

/// The sketch. Counters stay where they are. A small hash table has the number of the counter of each hash.
#[derive(Clone, Debug)]
struct Sketch {
    counts: Vec<u64>,
    keys: Vec<Counted>, // whose they are
    places: [u8; PLACES],
    smallest: [u64; COUNTERS / BLOCK], // count in each block, of the counters that are taken
    total: u64,
}

#[derive(Clone, Debug)]
struct Counted {
    hash: u64,
    error: u64,
    since: Timestamp,
    name: String,
}

/// Four times as many as there are counters, so that what is looked for is found at once.
const PLACES: usize = 4 * COUNTERS;

/// A place without a counter. Counters have smaller numbers.
const EMPTY: u8 = u8::MAX;

/// What stands between the parts of a key in a counter's name.
const SEPARATOR: char = '\u{1f}';

impl Default for Sketch {
    fn default() -> Self {
        Self {
            counts: Vec::new(),
            keys: Vec::new(),
            places: [EMPTY; PLACES],
            smallest: [0; COUNTERS / BLOCK],
            total: 0,
        }
    }
}

impl Sketch {
    /// Adds to the count of a key. Sums that do not fit stay at the largest number.
    fn add<'k>(&mut self, hash: u64, key: impl Fn() -> Key<'k>, weight: u64, now: Timestamp) {
        self.total = self.total.saturating_add(weight);
        let place = self.place(hash);
        let counter = match self.places[place] {
            EMPTY if self.keys.len() < COUNTERS => {
                self.keys.push(Counted { hash, error: 0, since: now, name: name(String::new(), &key()) });
                self.counts.push(0);
                self.places[place] = (self.keys.len() - 1) as u8; // fewer than 128
                self.keys.len() - 1
            }
            EMPTY => {
                let counter = self.smallest();
                self.forget(self.keys[counter].hash);
                let counted = &mut self.keys[counter];
                counted.hash = hash;
                counted.error = self.counts[counter];
                counted.since = now;
                counted.name = name(std::mem::take(&mut counted.name), &key());
                let place = self.place(hash);
                self.places[place] = counter as u8; // fewer than 128
                counter
            }
            counter => usize::from(counter),
        };
        let before = self.counts[counter];
        self.counts[counter] = before.saturating_add(weight);
        let block = counter / BLOCK;
        // A count above the smallest of its block leaves that as it is. A new counter begins with 0.
        if before <= self.smallest[block] {
            let counts = self.counts[block * BLOCK..].iter().take(BLOCK);
            self.smallest[block] = counts.copied().min().unwrap_or(0);
        }
    }

    /// Where the counter of a hash is told, or would be.
    fn place(&self, hash: u64) -> usize {
        let mut place = hash as usize % PLACES;
        while self.places[place] != EMPTY && self.keys[usize::from(self.places[place])].hash != hash {
            place = (place + 1) % PLACES;
        }
        place
    }

    /// Tells no longer where a counter is. Those that were told further on because of it move up.
    fn forget(&mut self, hash: u64) {
        let mut free = self.place(hash);
        let mut next = free;
        loop {
            next = (next + 1) % PLACES;
            let counter = self.places[next];
            if counter == EMPTY {
                break;
            }
            let wanted = self.keys[usize::from(counter)].hash as usize % PLACES;
            // Whether `free` lies between where it would be and where it is, round the end.
            if (next + PLACES - wanted) % PLACES >= (next + PLACES - free) % PLACES {
                self.places[free] = counter;
                free = next;
            }
        }
        self.places[free] = EMPTY;
    }

    /// A counter with the smallest count, when all counters are taken: found in at most as many steps as there are blocks, and
    /// counters in one.
    fn smallest(&self) -> usize {
        let (block, smallest) =
            self.smallest.iter().enumerate().min_by_key(|(_, count)| **count).expect("there are blocks");
        let begin = block * BLOCK;
        let place = self.counts[begin..begin + BLOCK].iter().position(|count| count == smallest);
        begin + place.expect("the smallest count of the block is in it")
    }

    /// The most that the count of a key without a counter may be.
    fn floor(&self) -> u64 {
        if self.counts.len() < COUNTERS { 0 } else { self.counts[self.smallest()] }
    }

    /// The count of a hash, and by how much it may be too high.
    fn counted(&self, hash: u64) -> (u64, u64) {
        match self.places[self.place(hash)] {
            EMPTY => (self.floor(), self.floor()),
            counter => (self.counts[usize::from(counter)], self.keys[usize::from(counter)].error),
        }
    }

    fn merged(sketches: &[Box<Self>], most: usize) -> Hottest {
        let mut merged: HashMap<u64, HotKey> = HashMap::new();
        for known in sketches.iter().flat_map(|sketch| &sketch.keys) {
            let hot = merged.entry(known.hash).or_insert_with(|| {
                let key = known.name.split(SEPARATOR).map(str::to_owned).collect();
                let counts = sketches.iter().map(|sketch| sketch.counted(known.hash));
                let hot = HotKey { key, count: 0, error: 0, since: known.since };
                counts.fold(hot, |hot, (count, error)| HotKey {
                    count: hot.count.saturating_add(count),
                    error: hot.error.saturating_add(error),
                    ..hot
                })
            });
            hot.since = hot.since.min(known.since);
        }
        let mut keys: Vec<HotKey> = merged.into_values().collect();
        keys.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        keys.truncate(most);
        Hottest {
            keys,
            total: sketches.iter().fold(0, |sum, sketch| sum.saturating_add(sketch.total)),
            error_bound: sketches.iter().fold(0, |sum, sketch| sum.saturating_add(sketch.floor())),
        }
    }
}

/// The parts of a key in one text, in a string that was used before.
fn name(mut name: String, key: &[&str]) -> String {
    name.clear();
    for (i, part) in key.iter().enumerate() {
        if i > 0 {
            name.push(SEPARATOR);
        }
        let room = LONGEST_NAME.saturating_sub(name.len());
        // Nobody makes one part look like two.
        name.extend(
            part[..part.floor_char_boundary(room)].chars().map(|c| if c == SEPARATOR { '?' } else { c }),
        );
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15) // distinct, as hashes of distinct keys are
    }

    fn count(hot: &HotKeys, key: u64, hit: Hit, now: Timestamp) {
        count_in(hot, 0, key, hit, now);
    }

    fn count_in(hot: &HotKeys, shard: usize, key: u64, hit: Hit, now: Timestamp) {
        let name = key.to_string();
        hot.count_in(shard, hash(key), || [name.as_str()].into_iter().collect(), hit, now);
    }

    const HIT: Hit = Hit { tokens: 1, is_denied: false, is_newly_denied: false };

    const fn minute(minute: u64) -> Timestamp {
        Timestamp::from_nanos(minute * 60_000_000_000)
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let hot = HotKeys::default();
        for key in 1..=100 {
            (0..key).for_each(|time| {
                count(
                    &hot,
                    key,
                    Hit { tokens: 1000 - key, is_denied: time == 0, is_newly_denied: false },
                    minute(0),
                )
            });
        }
        let [hits, tokens, denials, _] = HotBy::ALL.map(|by| hot.hottest(by, 3, minute(0)));
        let told: Vec<_> = hits.keys.iter().map(|hot| (hot.key[0].as_str(), hot.count, hot.error)).collect();
        assert_eq!(told, [("100", 100, 0), ("99", 99, 0), ("98", 98, 0)]);
        assert_eq!((hits.total, hits.error_bound, denials.total), (5050, 0, 100));
        assert_eq!(
            (tokens.total, tokens.keys[0].count),
            ((1..=100).map(|key| key * (1000 - key)).sum(), 90_000)
        );
    }

    /// Against exact counts, on a stream where few keys are hot and very many are not; within a turn, and over two, where
    /// others are hot in the second. Tokens per request are 1, or from 0 to 2^40.
    #[test]
    fn no_count_is_too_low_and_none_too_high_by_more_than_is_said() {
        for (turns, is_weighted) in [(1, false), (2, false), (1, true), (2, true)] {
            let (hot, mut exact) = (HotKeys::default(), HotBy::ALL.map(|_| HashMap::<u64, u64>::new()));
            let mut random = tollgate_testkit::Random::new(7);
            for step in 0..200_000_u64 {
                let turn = step * turns / 200_000;
                // A third goes to ten keys, one twice as often as the next; the rest to a hundred thousand.
                let key = if step.is_multiple_of(3) {
                    u64::from(random.bits().leading_zeros().min(9)) + 5 * turn
                } else {
                    15 + random.below(100_000)
                };
                let tokens = if is_weighted { random.bits() >> (24 + random.below(40)) } else { 1 };
                let is_denied = random.below(4) == 0;
                let is_newly_denied = is_denied && step.is_multiple_of(2);
                let weights = [1, tokens, is_denied.into(), is_newly_denied.into()];
                for (by, weight) in HotBy::ALL.into_iter().zip(weights) {
                    *exact[by as usize].entry(key).or_default() += weight;
                }
                let hit = Hit { tokens, is_denied, is_newly_denied };
                count_in(&hot, random.below(4) as usize, key, hit, minute(5 * turn));
            }
            for by in HotBy::ALL {
                let (exact, of) = (&exact[by as usize], (by, turns, is_weighted));
                let hottest = hot.hottest(by, 2 * COUNTERS, minute(5 * (turns - 1)));
                assert!(hottest.keys.len() >= COUNTERS, "{of:?}");
                assert_eq!(hottest.total, exact.values().sum::<u64>(), "{of:?}");
                let bound = hottest.total / COUNTERS as u64;
                assert!(hottest.error_bound <= bound, "{of:?}: {} of {bound}", hottest.error_bound);
                for hot in &hottest.keys {
                    let exact = exact[&hot.key[0].parse().unwrap()];
                    assert!(
                        hot.count >= exact && hot.count - hot.error <= exact,
                        "{of:?}: {hot:?} is {exact}"
                    );
                    assert!(hot.error <= hottest.error_bound, "{of:?}: {hot:?}");
                }
                for (key, count) in exact.iter().filter(|(_, count)| **count > hottest.error_bound) {
                    let is_found = hottest.keys.iter().any(|hot| hot.key[0] == key.to_string());
                    assert!(is_found, "{of:?}: {key} with {count}");
                }
                let first = exact[&hottest.keys[0].key[0].parse().unwrap()];
                assert!(first + hottest.error_bound >= exact.values().copied().max().unwrap(), "{of:?}");
                if by == HotBy::Hits && !is_weighted {
                    assert_eq!(hottest.keys[0].key, [["0", "5"][turns as usize - 1]], "{of:?}");
                }
            }
        }
    }

    #[test]
    fn the_smallest_counter_is_found_whatever_the_weights_are() {
        let (mut sketch, mut random) = (Sketch::default(), tollgate_testkit::Random::new(11));
        for step in 0..50_000_u64 {
            let key = random.below(300);
            let name = key.to_string();
            let weight = 1 + (random.bits() >> (30 + random.below(34)));
            sketch.add(hash(key), || [name.as_str()].into_iter().collect(), weight, minute(0));
            if sketch.counts.len() == COUNTERS {
                let smallest = sketch.counts.iter().copied().min();
                assert_eq!(Some(sketch.counts[sketch.smallest()]), smallest, "step {step}");
            }
        }
    }

    #[test]
    fn the_share_of_the_hottest_key_is_never_too_high() {
        let hot = HotKeys::default();
        assert_eq!(hot.hottest_share(minute(0)), None);
        (0..3).for_each(|_| count(&hot, 0, HIT, minute(0)));
        assert_eq!(hot.hottest_share(minute(0)), Some(1.0), "the only key");
        count(&hot, 1, HIT, minute(0));
        assert_eq!(hot.hottest_share(minute(0)), Some(0.75));
        // The second turn has far more keys than counters: six of ten requests come from one key.
        for request in 0..10_000 {
            let key = if request % 10 < 6 { 0 } else { request };
            count_in(&hot, request as usize % 4, key, HIT, minute(5));
        }
        let (share, exact) = (hot.hottest_share(minute(5)).unwrap(), 6003.0 / 10_004.0);
        assert!(share <= exact && share > exact - 0.05, "{share}");
        assert_eq!(hot.hottest_share(minute(15)), Some(0.0), "no requests any more");
    }

    #[test]
    fn counts_that_do_not_fit_stay_at_the_largest_number() {
        let hot = HotKeys::default();
        for key in 0..300 {
            (0..2).for_each(|_| {
                count(
                    &hot,
                    key,
                    Hit { tokens: u64::MAX, is_denied: false, is_newly_denied: false },
                    minute(key / 60),
                )
            });
        }
        let tokens = hot.hottest(HotBy::Tokens, 1, minute(5));
        assert_eq!((tokens.keys[0].count, tokens.total), (u64::MAX, u64::MAX));
    }

    #[test]
    fn what_was_hot_more_than_ten_minutes_ago_is_forgotten() {
        let told = |hot: &HotKeys, now| {
            hot.hottest(HotBy::Hits, 9, now).keys.into_iter().map(|hot| hot.key.concat()).collect::<Vec<_>>()
        };
        let hot = HotKeys::default();
        count(&hot, 1, HIT, minute(0));
        count(&hot, 2, HIT, minute(6));
        assert_eq!(told(&hot, minute(6)), ["1", "2"]);
        count(&hot, 3, HIT, minute(12));
        assert_eq!(told(&hot, minute(12)), ["2", "3"]);
        // Though nobody comes.
        assert_eq!(told(&hot, minute(14)), ["2", "3"]);
        assert_eq!(told(&hot, minute(15)), ["3"]);
        assert!(told(&hot, minute(20)).is_empty());
        // And though the next comes late: what it finds may be as old as the turn before.
        count(&hot, 4, HIT, minute(20));
        count(&hot, 5, HIT, minute(29));
        assert_eq!(told(&hot, minute(29)), ["4", "5"]);
        assert_eq!(told(&hot, minute(30)), ["5"]);
        count(&hot, 6, HIT, minute(100));
        assert_eq!(told(&hot, minute(100)), ["6"]);
    }

    #[test]
    fn long_keys_are_cut_at_a_character() {
        let long = "ü".repeat(1000);
        assert_eq!(name(String::new(), &[&long]).len(), LONGEST_NAME);
        assert!(name(String::new(), &["x", &long]).starts_with("x\u{1f}üüü"));
    }

    #[test]
    fn hot_keys_take_memory_only_while_they_are_counted() {
        let hot = HotKeys::default();
        assert!(size_of::<HotKeys>() <= 32 && hot.0.get().is_none());
        let sketches = |hot: &HotKeys| -> usize {
            let shards = hot.0.get().unwrap().iter();
            shards.map(|shard| shard.0.lock()).map(|t| t.now.iter().chain(&t.before).flatten().count()).sum()
        };
        count(&hot, 1, HIT, minute(0));
        assert_eq!(sketches(&hot), 2, "of hits and of tokens");
        hot.forget_old(minute(9));
        assert_eq!(sketches(&hot), 2);
        hot.forget_old(minute(10));
        assert_eq!(sketches(&hot), 0);
    }
}
