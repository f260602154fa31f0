//! Which keys are asked for most, and which are denied most: the Space-Saving sketch of Metwally, Agrawal and El Abbadi
//! (2005).
//!
//! It keeps a fixed number of counters. A key that has none takes over the smallest and goes on from its count, which is
//! then by how much it may be too high. So a key is counted too high, never too low; by at most the part of all that was
//! counted which is one over the number of counters; and every key above that part is in it.
//!
//! What was hot yesterday is of little use: two sketches take turns, so that what is told covers the last five to ten
//! minutes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use parking_lot::Mutex;
use tollgate::{Nanos, Timestamp};

/// Counters of a sketch: whatever is asked more than once in 128 times is in it.
const COUNTERS: usize = 128;

/// How long a sketch counts before the other takes over.
const TURN: Nanos = Nanos::new(300_000_000_000);

/// As much of a key is kept to show it.
const LONGEST_NAME: usize = 256;

/// The hot keys of one limit.
#[derive(Debug, Default)]
pub(crate) struct HotKeys(Mutex<Turns>);

#[derive(Debug, Default)]
struct Turns {
    began: Timestamp,
    now: Both,
    before: Both,
}

/// All requests, and those that were denied.
#[derive(Debug, Default)]
struct Both {
    hits: Sketch,
    denials: Sketch,
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
}

impl HotKeys {
    /// Counts a request to a key, whose hash is its own.
    pub(crate) fn count(&self, hash: u64, key: &[&str], is_denied: bool, now: Timestamp) {
        let mut turns = self.0.lock();
        if now.since(turns.began) >= TURN {
            let turns = &mut *turns;
            std::mem::swap(&mut turns.now, &mut turns.before);
            turns.now = Both::default();
            turns.began = now;
        }
        turns.now.hits.count(hash, key);
        if is_denied {
            turns.now.denials.count(hash, key);
        }
    }

    /// The keys asked for most, and those denied most.
    pub(crate) fn hottest(&self, most: usize) -> (Hottest, Hottest) {
        let turns = self.0.lock();
        let merged = |of: fn(&Both) -> &Sketch| Sketch::merged([of(&turns.now), of(&turns.before)], most);
        (merged(|both| &both.hits), merged(|both| &both.denials))
    }
}

/// The sketch: counters in a heap with the smallest on top.
#[derive(Debug, Default)]
struct Sketch {
    counters: Vec<Counter>, // a heap
    places: HashMap<u64, usize, BuildHasherDefault<Hashed>>,
    total: u64,
}

#[derive(Debug)]
struct Counter {
    hash: u64,
    count: u64,
    error: u64,
    name: String,
}

/// What stands between the parts of a key in a counter's name.
const SEPARATOR: char = '\u{1f}';

impl Sketch {
    fn count(&mut self, hash: u64, key: &[&str]) {
        self.total += 1;
        let place = match self.places.get(&hash) {
            Some(&place) => place,
            None if self.counters.len() < COUNTERS => {
                self.counters.push(Counter { hash, count: 0, error: 0, name: name(String::new(), key) });
                let place = self.rise(self.counters.len() - 1);
                self.places.insert(hash, place);
                place
            }
            None => {
                let smallest = &mut self.counters[0];
                self.places.remove(&smallest.hash);
                smallest.hash = hash;
                smallest.error = smallest.count;
                smallest.name = name(std::mem::take(&mut smallest.name), key);
                self.places.insert(hash, 0);
                0
            }
        };
        self.counters[place].count += 1;
        self.sink(place);
    }

    /// Moves a counter down to where it belongs.
    fn sink(&mut self, mut place: usize) {
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let Some(mut child) = self.counters.get(left).map(|_| left) else { return };
            if self.counters.get(right).is_some_and(|right| right.count < self.counters[left].count) {
                child = right;
            }
            if self.counters[child].count >= self.counters[place].count {
                return;
            }
            self.swap(place, child);
            place = child;
        }
    }

    /// Moves a counter up to where it belongs, and tells where that is.
    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 && self.counters[(place - 1) / 2].count > self.counters[place].count {
            self.swap(place, (place - 1) / 2);
            place = (place - 1) / 2;
        }
        place
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.counters.swap(a, b);
        for place in [a, b] {
            self.places.insert(self.counters[place].hash, place);
        }
    }

    /// The most that a key may have been counted which has no counter.
    fn floor(&self) -> u64 {
        if self.counters.len() < COUNTERS { 0 } else { self.counters[0].count }
    }

    fn merged(sketches: [&Self; 2], most: usize) -> Hottest {
        let mut merged: HashMap<u64, HotKey> = HashMap::new();
        for sketch in sketches {
            for counter in &sketch.counters {
                let hot = merged.entry(counter.hash).or_insert_with(|| HotKey {
                    key: counter.name.split(SEPARATOR).map(str::to_owned).collect(),
                    count: 0,
                    error: 0,
                });
                hot.count += counter.count;
                hot.error += counter.error;
            }
        }
        let mut keys: Vec<HotKey> = merged.into_values().collect();
        keys.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        keys.truncate(most);
        Hottest {
            keys,
            total: sketches.iter().map(|sketch| sketch.total).sum(),
            error_bound: sketches.iter().map(|sketch| sketch.floor()).sum(),
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
        name.push_str(&part[..part.floor_char_boundary(room)]);
    }
    name
}

/// A hash that was one already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are hashed");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(key: u64) -> u64 {
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15) // distinct, as hashes of distinct keys are
    }

    fn count(hot: &HotKeys, key: u64, is_denied: bool) {
        hot.count(hash(key), &[&key.to_string()], is_denied, Timestamp::default());
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let hot = HotKeys::default();
        for key in 1..=100 {
            (0..key).for_each(|time| count(&hot, key, time == 0));
        }
        let (hits, denials) = hot.hottest(3);
        let told: Vec<_> = hits.keys.iter().map(|hot| (hot.key[0].as_str(), hot.count, hot.error)).collect();
        assert_eq!(told, [("100", 100, 0), ("99", 99, 0), ("98", 98, 0)]);
        assert_eq!((hits.total, hits.error_bound, denials.total), (5050, 0, 100));
    }

    /// Against exact counts, on a stream where few keys are hot and very many are not.
    #[test]
    fn no_count_is_too_low_and_none_too_high_by_more_than_is_said() {
        let (hot, mut exact) = (HotKeys::default(), HashMap::<u64, u64>::new());
        let mut random = tollgate_testkit::Random::new(7);
        for step in 0..200_000_u64 {
            // A third goes to ten keys, one twice as often as the next; the rest to a hundred thousand.
            let key = if step.is_multiple_of(3) {
                u64::from(random.next().leading_zeros().min(9))
            } else {
                10 + random.next() % 100_000
            };
            *exact.entry(key).or_default() += 1;
            count(&hot, key, false);
        }
        let (hits, _) = hot.hottest(COUNTERS);
        assert_eq!(hits.keys.len(), COUNTERS);
        assert!(hits.error_bound <= hits.total / COUNTERS as u64, "{} of {}", hits.error_bound, hits.total);
        for hot in &hits.keys {
            let exact = exact[&hot.key[0].parse().unwrap()];
            assert!(hot.count >= exact && hot.count - hot.error <= exact, "{hot:?} is {exact}");
            assert!(hot.error <= hits.error_bound);
        }
        for (key, count) in exact.iter().filter(|(_, count)| **count > hits.error_bound) {
            assert!(hits.keys.iter().any(|hot| hot.key[0] == key.to_string()), "{key} with {count}");
        }
        assert_eq!(hits.keys[0].key, ["0"]);
    }

    #[test]
    fn what_was_hot_long_ago_is_forgotten() {
        let hot = HotKeys::default();
        let at = |minute: u64| Timestamp::from_nanos(minute * 60_000_000_000);
        hot.count(hash(1), &["old"], false, at(0));
        hot.count(hash(2), &["newer"], false, at(6));
        let told =
            |hot: &HotKeys| hot.hottest(9).0.keys.into_iter().map(|hot| hot.key.concat()).collect::<Vec<_>>();
        assert_eq!(told(&hot), ["newer", "old"]);
        hot.count(hash(3), &["newest"], false, at(12));
        assert_eq!(told(&hot), ["newer", "newest"]);
    }

    #[test]
    fn long_keys_are_cut_at_a_character() {
        let long = "ü".repeat(1000);
        assert_eq!(name(String::new(), &[&long]).len(), LONGEST_NAME);
        assert!(name(String::new(), &["x", &long]).starts_with("x\u{1f}üüü"));
    }
}
