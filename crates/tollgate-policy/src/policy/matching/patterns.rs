//! A list of patterns of which one must match.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use super::{Literal, Pattern, PatternIndex, View};

/// A longer list has an index. It is faster from about this length on.
const MOST_SCANNED: usize = 8;

/// Patterns of which one must match. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patterns(Arc<PatternList>);

#[derive(Debug, Default)]
struct PatternList {
    patterns: Vec<Pattern>,
    index: Option<IndexedPatterns>,
}

/// The places of patterns by their literals.
#[derive(Debug)]
struct IndexedPatterns {
    index: PatternIndex,
    buckets: Vec<Vec<u32>>,
    unfiled: Vec<u32>, // patterns without a literal
}

impl Patterns {
    pub(crate) fn new(patterns: Vec<Pattern>) -> Self {
        let index = (patterns.len() > MOST_SCANNED).then(|| IndexedPatterns::new(&patterns));
        Self(Arc::new(PatternList { patterns, index }))
    }

    /// Whether a value matches one of them.
    #[inline]
    pub(crate) fn match_value(&self, value: &str) -> bool {
        match &self.0.index {
            None => self.iter().any(|pattern| pattern.matches(value)),
            Some(_) => self.first_match(value).is_some(),
        }
    }

    /// The first pattern that a value matches.
    pub(crate) fn first_match(&self, value: &str) -> Option<&Pattern> {
        let Some(index) = &self.0.index else { return self.iter().find(|pattern| pattern.matches(value)) };
        let mut first: Option<u32> = None;
        index.candidates(value, &mut |place| {
            if first.is_none_or(|first| place < first) && self[place as usize].matches(value) {
                first = Some(place);
            }
        });
        first.map(|place| &self[place as usize])
    }
}

impl Deref for Patterns {
    type Target = [Pattern];

    fn deref(&self) -> &[Pattern] {
        &self.0.patterns
    }
}

impl PartialEq for Patterns {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl Eq for Patterns {}

impl Hash for Patterns {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl IndexedPatterns {
    fn new(patterns: &[Pattern]) -> Self {
        let texts = || {
            (0..).zip(patterns).flat_map(|(place, pattern)| {
                pattern.texts().into_iter().map(move |text| (place, pattern.view(), text))
            })
        };
        let mut counts: HashMap<(View, Literal<'_>), usize> = HashMap::new();
        for (_, view, text) in texts() {
            Literal::all(text)
                .into_iter()
                .for_each(|literal| *counts.entry((view, literal)).or_default() += 1);
        }
        let mut numbers: HashMap<(View, Literal<'_>), u32> = HashMap::new();
        let (mut buckets, mut unfiled): (Vec<Vec<u32>>, Vec<u32>) = (Vec::new(), Vec::new());
        for (place, view, text) in texts() {
            let rarest = Literal::all(text).into_iter().min_by_key(|literal| counts[&(view, *literal)]);
            let Some(literal) = rarest else {
                unfiled.push(place);
                continue;
            };
            let number = *numbers.entry((view, literal)).or_insert_with(|| {
                buckets.push(Vec::new());
                buckets.len() as u32 - 1
            });
            buckets[number as usize].push(place);
        }
        let index =
            PatternIndex::new(numbers.into_iter().map(|((view, literal), number)| (view, literal, number)));
        Self { index, buckets, unfiled }
    }

    /// Passes the places of the patterns that a value may match.
    fn candidates(&self, value: &str, found: &mut impl FnMut(u32)) {
        self.unfiled.iter().for_each(|&place| found(place));
        self.index.find(value, &mut |number| {
            self.buckets[number as usize].iter().for_each(|&place| found(place));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_looked_at_do_not_grow_with_the_list() {
        type Kind = (&'static str, fn(usize) -> String, fn(usize) -> String);
        let kinds: [Kind; 4] = [
            ("exact", |i| format!("t{i}"), |i| format!("t{i}")),
            ("prefix", |i| format!("/p{i}/*"), |i| format!("/p{i}/x")),
            ("suffix", |i| format!("/*.e{i}"), |i| format!("/x.e{i}")),
            ("inside", |i| format!("*/p{i}/*"), |i| format!("/x/p{i}/y")),
        ];
        for (kind, pattern, value) in kinds {
            for count in [10, 1_000, 100_000] {
                let patterns = Patterns::new((0..count).map(|i| Pattern::exact(pattern(i))).collect());
                for place in [0, 7, count / 2, count - 1] {
                    let (value, mut looked_at) = (value(place), 0);
                    let index = patterns.0.index.as_ref().expect("a long list has an index");
                    index.candidates(&value, &mut |_| looked_at += 1);
                    assert_eq!(looked_at, 1, "{kind}: {value} of {count}");
                    assert_eq!(patterns.first_match(&value), Some(&patterns[place]), "{kind}");
                }
                assert!(!patterns.match_value("/none"), "{kind}");
            }
        }
    }

    #[test]
    fn the_first_pattern_that_matches_is_found() {
        let many = (0..20).map(|i| Pattern::exact(format!("unused-{i}")));
        let some = ["*b", "a*", "*", "ab"].map(|text| Pattern::exact(text.to_owned()));
        let patterns = Patterns::new(many.chain(some).collect());
        for (value, expected) in [("ab", "*b"), ("ac", "a*"), ("c", "*"), ("unused-7", "unused-7")] {
            assert_eq!(patterns.first_match(value).map(Pattern::written), Some(expected), "{value}");
        }
    }
}
