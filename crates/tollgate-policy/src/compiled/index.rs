//! An index from a request to the limits that may apply to it.
//!
//! Each limit is filed under one of its conditions, the one that it shares with the fewest others, by the literals of its patterns. A
//! bucket that many limits share is an index again, by what is left of their conditions. A limit that has no usable literal is a
//! candidate for every request. A lookup takes time by the request and by the candidates, not by the number of limits.
//!
//! The index finds candidates only. [`Conditions`](super::conditions::Conditions) decide.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::attributes::{NameId, Values};
use crate::policy::{Literal, Pattern, PatternIndex, Position, View};

/// Up to this many limits, or attributes, are looked at one by one, which is faster than a lookup.
const MOST_SCANNED: usize = 8;
/// A bucket of this size is as good as a smaller one.
const FEW: usize = 4;
/// The most indexes inside of each other.
const MOST_LEVELS: usize = 8;

/// Places of limits, or of anything else with conditions, by the requests that they may apply to.
#[derive(Debug, Default)]
pub(crate) struct MatchIndex {
    always: Vec<u32>,                          // candidates for every request, in order
    by_attribute: Vec<(NameId, PatternIndex)>, // in order of the attributes
    buckets: Vec<Bucket>,
    most: usize,
}

#[derive(Debug)]
enum Bucket {
    Places(Vec<u32>),
    Index(Box<MatchIndex>),
}

/// The conditions of one place: attributes, each with patterns of which one must match.
#[derive(Clone, Debug)]
pub(crate) struct IndexEntry<'p> {
    pub(crate) place: u32,
    pub(crate) conditions: SmallVec<[(NameId, &'p [Pattern]); 2]>,
}

/// The values of a request, by attribute.
pub(crate) trait AttributeValues<'v> {
    fn get(&self, attribute: NameId) -> Option<&'v str>;

    /// The attributes that the request has.
    fn iter(&self) -> impl Iterator<Item = (NameId, &'v str)>;
}

impl<'v> AttributeValues<'v> for Values<'v> {
    #[inline]
    fn get(&self, attribute: NameId) -> Option<&'v str> {
        Values::get(self, attribute)
    }

    fn iter(&self) -> impl Iterator<Item = (NameId, &'v str)> {
        Values::iter(self)
    }
}

/// The places that may apply to a request, each once, in order.
pub(crate) type Candidates = SmallVec<[u32; 16]>;

/// What a bucket is found by.
type BucketKey<'p> = (NameId, View, Literal<'p>);
/// What the conditions of all entries of a bucket were filed under.
type UsedLiterals = SmallVec<[(NameId, Position); MOST_LEVELS]>;

impl MatchIndex {
    /// An index of entries, which come in order of their places.
    pub(crate) fn new<'p>(entries: impl Iterator<Item = IndexEntry<'p>>) -> Self {
        // Without a pattern, a condition never holds.
        let can_hold =
            |entry: &IndexEntry<'p>| entry.conditions.iter().all(|(_, patterns)| !patterns.is_empty());
        let entries: Vec<IndexEntry<'p>> = entries.filter(can_hold).collect();
        Self::of(&entries.iter().collect::<Vec<_>>(), &UsedLiterals::new())
    }

    fn of<'p>(entries: &[&IndexEntry<'p>], used: &UsedLiterals) -> Self {
        if entries.len() <= MOST_SCANNED || used.len() == MOST_LEVELS {
            return Self::scanned(entries);
        }
        let filing = Filing::new(entries, used);
        let mut always = Vec::new();
        let mut filed: HashMap<BucketKey<'p>, Vec<&IndexEntry<'p>>> = HashMap::new();
        for entry in entries {
            match filing.keys(entry) {
                Some(keys) => keys.into_iter().for_each(|key| filed.entry(key).or_default().push(entry)),
                None => always.push(entry.place),
            }
        }
        let mut by_attribute: HashMap<NameId, Vec<(View, Literal<'p>, u32)>> = HashMap::new();
        let mut buckets = Vec::with_capacity(filed.len());
        for ((attribute, view, literal), mut entries) in filed {
            entries.dedup_by_key(|entry| entry.place);
            by_attribute.entry(attribute).or_default().push((view, literal, buckets.len() as u32));
            let mut used = used.clone();
            used.push((attribute, literal.position));
            buckets.push(Bucket::new(&entries, &used));
        }
        let index = |literals: Vec<_>| PatternIndex::new(literals.into_iter());
        let mut by_attribute: Vec<(NameId, PatternIndex)> =
            by_attribute.into_iter().map(|(attribute, literals)| (attribute, index(literals))).collect();
        by_attribute.sort_unstable_by_key(|(attribute, _)| *attribute);
        let weight = |bucket: u32| buckets[bucket as usize].most();
        let filed: usize = by_attribute.iter().map(|(_, index)| index.most(weight)).sum();
        let most = entries.len().min(always.len() + filed);
        Self { always, by_attribute, buckets, most }
    }

    fn scanned(entries: &[&IndexEntry<'_>]) -> Self {
        let always: Vec<u32> = entries.iter().map(|entry| entry.place).collect();
        Self { most: always.len(), always, ..Self::default() }
    }

    /// The most candidates that a request can have. May be more than any request has.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// All places, if each is a candidate for every request.
    #[inline]
    pub(crate) fn all(&self) -> Option<&[u32]> {
        self.by_attribute.is_empty().then_some(&self.always)
    }

    /// The places that may apply to a request with these values.
    pub(crate) fn candidates<'v>(&self, values: &impl AttributeValues<'v>) -> Candidates {
        let mut places = Candidates::new();
        self.collect(values, &mut places);
        places.sort_unstable();
        places.dedup();
        places
    }

    fn collect<'v>(&self, values: &impl AttributeValues<'v>, places: &mut Candidates) {
        places.extend_from_slice(&self.always);
        let mut find = |value: &str, index: &PatternIndex| {
            index.find(value, &mut |bucket| match &self.buckets[bucket as usize] {
                Bucket::Places(found) => places.extend_from_slice(found),
                Bucket::Index(index) => index.collect(values, places),
            });
        };
        if self.by_attribute.len() <= MOST_SCANNED {
            for (attribute, index) in &self.by_attribute {
                values.get(*attribute).into_iter().for_each(|value| find(value, index));
            }
            return;
        }
        for (attribute, value) in values.iter() {
            let place = self.by_attribute.binary_search_by_key(&attribute, |(known, _)| *known);
            place.into_iter().for_each(|place| find(value, &self.by_attribute[place].1));
        }
    }
}

impl Bucket {
    fn new(entries: &[&IndexEntry<'_>], used: &UsedLiterals) -> Self {
        let index = MatchIndex::of(entries, used);
        match index.by_attribute.is_empty() {
            true => Self::Places(index.always),
            false => Self::Index(Box::new(index)),
        }
    }

    fn most(&self) -> usize {
        match self {
            Self::Places(places) => places.len(),
            Self::Index(index) => index.most,
        }
    }
}

/// How many entries each literal could have filed under it.
struct Filing<'p, 'u> {
    counts: HashMap<BucketKey<'p>, usize>,
    used: &'u UsedLiterals,
    entries: usize,
}

impl<'p, 'u> Filing<'p, 'u> {
    fn new(entries: &[&IndexEntry<'p>], used: &'u UsedLiterals) -> Self {
        let mut filing = Self { counts: HashMap::new(), used, entries: entries.len() };
        for entry in entries {
            for &(attribute, patterns) in &entry.conditions {
                for (view, text) in texts(patterns) {
                    for literal in filing.literals(attribute, text) {
                        *filing.counts.entry((attribute, view, literal)).or_default() += 1;
                    }
                }
            }
        }
        filing
    }

    /// The literals of a text that the entries are not filed under yet.
    fn literals(&self, attribute: NameId, text: &'p str) -> impl Iterator<Item = Literal<'p>> + use<'p, 'u> {
        let used = self.used;
        let is_new = move |literal: &Literal<'p>| !used.contains(&(attribute, literal.position));
        Literal::all(text).into_iter().filter(is_new)
    }

    /// What to file an entry under: literals of one condition, one for each text of its patterns. None where that would not tell
    /// it from the other entries.
    fn keys(&self, entry: &IndexEntry<'p>) -> Option<Vec<BucketKey<'p>>> {
        let conditions = entry.conditions.iter().filter_map(|&(attribute, patterns)| {
            let largest = texts(patterns)
                .map(|(view, text)| self.rarest(attribute, view, text).map(|(_, count)| count))
                .try_fold(0, |largest, count| Some(largest.max(count?)))?;
            (largest < self.entries).then_some((largest.max(FEW), patterns.len(), attribute, patterns))
        });
        let (.., attribute, patterns) =
            conditions.min_by_key(|(largest, patterns, ..)| (*largest, *patterns))?;
        let key = |(view, text)| Some((attribute, view, self.rarest(attribute, view, text)?.0));
        texts(patterns).map(key).collect()
    }

    /// The literal of a text that the fewest entries have, and how many. The first one that only a few have is good enough.
    fn rarest(&self, attribute: NameId, view: View, text: &'p str) -> Option<(Literal<'p>, usize)> {
        let counted = |literal| (literal, self.counts[&(attribute, view, literal)]);
        self.literals(attribute, text).map(counted).min_by_key(|(_, count)| (*count).max(FEW))
    }
}

/// The texts of patterns, with the form of a value that each is compared with.
fn texts(patterns: &[Pattern]) -> impl Iterator<Item = (View, &str)> {
    patterns.iter().flat_map(|pattern| pattern.texts().into_iter().map(|text| (pattern.view(), text)))
}

#[cfg(test)]
mod tests;
