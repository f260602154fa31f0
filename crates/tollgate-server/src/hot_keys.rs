//! Which keys are asked for most, and which are denied most: the Space-Saving sketch of Metwally, Agrawal and El Abbadi
//! (2005).
//!
//! It keeps a fixed number of counters. A key that has none takes over the smallest and goes on from its count, which is
//! then by how much it may be too high. So a key is counted too high, never too low; by at most the part of all that was
//! counted which is one over the number of counters; and every key above that part is in it.
//!
//! What was hot yesterday is of little use: two sketches take turns, so that what is told covers the last five to ten
//! minutes, and nothing older. A key that only one of them has may have been counted in the other too, before it lost its
//! counter there: by as much as the smallest that is left, which is added.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;
use tollgate::{Nanos, Timestamp};
use tollgate_policy::Key;

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

/// Hides names of keys from callers that are not admins.
///
/// A hash under a secret of this process: equal keys have equal hashes while it runs, and nobody outside can compute them.
#[derive(Debug, Default)]
pub(crate) struct KeyMask(RandomState);

impl KeyMask {
    /// The keys, each as 16 hexadecimal digits instead of its name.
    pub(crate) fn mask(&self, hottest: &mut Hottest) {
        for hot in &mut hottest.keys {
            hot.key = vec![format!("{:016x}", self.0.hash_one(&hot.key))];
        }
        // Keys of one count were in the order of their names.
        hottest.keys.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
    }
}

impl HotKeys {
    /// Counts a request to a key, whose hash is its own. The key is looked at only where it has to be remembered.
    pub(crate) fn count<'k>(&self, hash: u64, key: impl Fn() -> Key<'k>, is_denied: bool, now: Timestamp) {
        let mut turns = self.0.lock();
        turns.turn(now);
        turns.now.hits.count(hash, &key);
        if is_denied {
            turns.now.denials.count(hash, &key);
        }
    }

    /// The keys asked for most, and those denied most.
    pub(crate) fn hottest(&self, most: usize, now: Timestamp) -> (Hottest, Hottest) {
        let mut turns = self.0.lock();
        turns.turn(now);
        let merged = |of: fn(&Both) -> &Sketch| Sketch::merged([of(&turns.now), of(&turns.before)], most);
        (merged(|both| &both.hits), merged(|both| &both.denials))
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
        self.before = if passed == 1 { last } else { Both::default() };
        self.began = self.began.after(Nanos::new(passed * TURN.get()));
    }
}

/// The sketch. Counters stay where they are; a small table tells where the counter of a hash is.
#[derive(Debug)]
struct Sketch {
    counts: Vec<u64>,
    keys: Vec<Counted>, // whose they are
    places: [u8; PLACES],
    smallest: u64, // no count is smaller
    looked: usize, // counters before this one are larger than that
    total: u64,
}

#[derive(Debug)]
struct Counted {
    hash: u64,
    error: u64,
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
            smallest: 0,
            looked: 0,
            total: 0,
        }
    }
}

impl Sketch {
    fn count<'k>(&mut self, hash: u64, key: impl Fn() -> Key<'k>) {
        self.total += 1;
        let place = self.place(hash);
        let counter = match self.places[place] {
            EMPTY if self.keys.len() < COUNTERS => {
                self.keys.push(Counted { hash, error: 0, name: name(String::new(), &key()) });
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
                counted.name = name(std::mem::take(&mut counted.name), &key());
                let place = self.place(hash);
                self.places[place] = counter as u8; // fewer than 128
                counter
            }
            counter => usize::from(counter),
        };
        self.counts[counter] += 1;
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

    /// A counter with the smallest count. Counts only grow, so that those looked at before need not be again until there
    /// is none left of that count.
    fn smallest(&mut self) -> usize {
        let of_smallest = |sketch: &Self| {
            let ahead = &sketch.counts[sketch.looked..];
            ahead.iter().position(|&count| count == sketch.smallest).map(|ahead| sketch.looked + ahead)
        };
        let counter = of_smallest(self).or_else(|| {
            self.smallest = self.counts.iter().copied().min().unwrap_or(0);
            self.looked = 0;
            of_smallest(self)
        });
        self.looked = counter.expect("one of them is the smallest");
        self.looked
    }

    /// The most that a key may have been counted which has no counter.
    fn floor(&self) -> u64 {
        if self.counts.len() < COUNTERS { 0 } else { self.counts.iter().copied().min().unwrap_or(0) }
    }

    /// The count of a hash, and by how much it may be too high.
    fn counted(&self, hash: u64) -> (u64, u64) {
        match self.places[self.place(hash)] {
            EMPTY => (self.floor(), self.floor()),
            counter => (self.counts[usize::from(counter)], self.keys[usize::from(counter)].error),
        }
    }

    fn merged(sketches: [&Self; 2], most: usize) -> Hottest {
        let mut merged: HashMap<u64, HotKey> = HashMap::new();
        for known in sketches.iter().flat_map(|sketch| &sketch.keys) {
            merged.entry(known.hash).or_insert_with(|| {
                let [(count, error), (other_count, other_error)] =
                    sketches.map(|sketch| sketch.counted(known.hash));
                HotKey {
                    key: known.name.split(SEPARATOR).map(str::to_owned).collect(),
                    count: count + other_count,
                    error: error + other_error,
                }
            });
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

    fn count(hot: &HotKeys, key: u64, is_denied: bool, now: Timestamp) {
        let name = key.to_string();
        hot.count(hash(key), || [name.as_str()].into_iter().collect(), is_denied, now);
    }

    const fn minute(minute: u64) -> Timestamp {
        Timestamp::from_nanos(minute * 60_000_000_000)
    }

    #[test]
    fn few_keys_are_counted_exactly() {
        let hot = HotKeys::default();
        for key in 1..=100 {
            (0..key).for_each(|time| count(&hot, key, time == 0, minute(0)));
        }
        let (hits, denials) = hot.hottest(3, minute(0));
        let told: Vec<_> = hits.keys.iter().map(|hot| (hot.key[0].as_str(), hot.count, hot.error)).collect();
        assert_eq!(told, [("100", 100, 0), ("99", 99, 0), ("98", 98, 0)]);
        assert_eq!((hits.total, hits.error_bound, denials.total), (5050, 0, 100));
    }

    /// Against exact counts, on a stream where few keys are hot and very many are not; within a turn, and over two, where
    /// others are hot in the second.
    #[test]
    fn no_count_is_too_low_and_none_too_high_by_more_than_is_said() {
        for turns in [1, 2] {
            let (hot, mut exact) = (HotKeys::default(), HashMap::<u64, u64>::new());
            let mut random = tollgate_testkit::Random::new(7);
            for step in 0..200_000_u64 {
                let turn = step * turns / 200_000;
                // A third goes to ten keys, one twice as often as the next; the rest to a hundred thousand.
                let key = if step.is_multiple_of(3) {
                    u64::from(random.bits().leading_zeros().min(9)) + 5 * turn
                } else {
                    15 + random.below(100_000)
                };
                *exact.entry(key).or_default() += 1;
                count(&hot, key, false, minute(5 * turn));
            }
            let (hits, _) = hot.hottest(2 * COUNTERS, minute(5 * (turns - 1)));
            assert!(hits.keys.len() >= COUNTERS);
            assert_eq!(hits.total, 200_000);
            assert!(
                hits.error_bound <= hits.total / COUNTERS as u64,
                "{} of {}",
                hits.error_bound,
                hits.total
            );
            for hot in &hits.keys {
                let exact = exact[&hot.key[0].parse().unwrap()];
                assert!(hot.count >= exact && hot.count - hot.error <= exact, "{hot:?} is {exact}");
                assert!(hot.error <= hits.error_bound);
            }
            for (key, count) in exact.iter().filter(|(_, count)| **count > hits.error_bound) {
                assert!(hits.keys.iter().any(|hot| hot.key[0] == key.to_string()), "{key} with {count}");
            }
            assert_eq!(hits.keys[0].key, [["0", "5"][turns as usize - 1]]);
        }
    }

    #[test]
    fn what_was_hot_more_than_ten_minutes_ago_is_forgotten() {
        let told = |hot: &HotKeys, now| {
            hot.hottest(9, now).0.keys.into_iter().map(|hot| hot.key.concat()).collect::<Vec<_>>()
        };
        let hot = HotKeys::default();
        count(&hot, 1, false, minute(0));
        count(&hot, 2, false, minute(6));
        assert_eq!(told(&hot, minute(6)), ["1", "2"]);
        count(&hot, 3, false, minute(12));
        assert_eq!(told(&hot, minute(12)), ["2", "3"]);
        // Though nobody comes.
        assert_eq!(told(&hot, minute(14)), ["2", "3"]);
        assert_eq!(told(&hot, minute(15)), ["3"]);
        assert!(told(&hot, minute(20)).is_empty());
        // And though the next comes late: what it finds may be as old as the turn before.
        count(&hot, 4, false, minute(20));
        count(&hot, 5, false, minute(29));
        assert_eq!(told(&hot, minute(29)), ["4", "5"]);
        assert_eq!(told(&hot, minute(30)), ["5"]);
        count(&hot, 6, false, minute(100));
        assert_eq!(told(&hot, minute(100)), ["6"]);
    }

    #[test]
    fn long_keys_are_cut_at_a_character() {
        let long = "ü".repeat(1000);
        assert_eq!(name(String::new(), &[&long]).len(), LONGEST_NAME);
        assert!(name(String::new(), &["x", &long]).starts_with("x\u{1f}üüü"));
    }
}
