//! An index of patterns: the few that a value may match, found by what the value must contain.
//!
//! A pattern is a text with stars. The texts between the stars are its literals. A value that matches begins with the first one, ends
//! with the last one and contains the others, so each pattern is filed under one literal only. A lookup takes time by the length of
//! the value and by what is filed under the literals that the value has. It does not depend on the number of patterns.

use std::borrow::Cow;
use std::collections::HashMap;

use smallvec::SmallVec;

use super::{PathForm, any_case};
use crate::host::host_parts;
use crate::literal_trie::{Extent, LiteralTrie};

/// A literal inside of a pattern is filed by at most this many bytes. This bounds the walks that start at each byte of a value.
const MOST_INNER_BYTES: usize = 64;
/// At most this many literals inside of a pattern are compared to choose the one that it is filed under.
const MOST_INNER_LITERALS: usize = 8;

/// The form of a value that patterns are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum View {
    /// The value as it is.
    AsIs,
    /// The value as a path.
    Path(PathForm),
    /// The value as a host, without its port.
    Host,
}

/// A literal of a pattern, and where a value must have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Literal<'p> {
    pub(crate) position: Position,
    text: &'p [u8],
}

/// Where a value must have a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Position {
    /// The value is the literal.
    Whole,
    /// The value begins with the literal.
    Beginning,
    /// The value ends with the literal.
    End,
    /// The value contains the literal.
    Inside,
}

/// Bucket numbers by the literals that a value has.
#[derive(Clone, Debug, Default)]
pub(crate) struct PatternIndex(SmallVec<[(View, Literals); 1]>);

#[derive(Clone, Debug, Default)]
struct Literals {
    beginnings: LiteralTrie, // and whole values
    ends: LiteralTrie,       // from the last byte to the first
    longest_end: usize,
    inside: LiteralTrie,
}

impl<'p> Literal<'p> {
    /// The literals of a text with stars, the preferred ones first. None if it has only stars.
    pub(crate) fn all(text: &'p str) -> SmallVec<[Self; 3]> {
        let literal = |position, text: &'p str| Self { position, text: text.as_bytes() };
        let mut parts = text.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(last) = parts.next_back() else {
            return SmallVec::from_iter([literal(Position::Whole, text)]);
        };
        let ends = [literal(Position::Beginning, first), literal(Position::End, last)];
        let inside = parts.filter(|part| !part.is_empty()).take(MOST_INNER_LITERALS).map(|part| {
            let text = &part.as_bytes()[..part.len().min(MOST_INNER_BYTES)];
            Self { position: Position::Inside, text }
        });
        ends.into_iter().filter(|literal| !literal.text.is_empty()).chain(inside).collect()
    }
}

impl View {
    /// The view of a value that ignores nothing but what the view always ignores.
    fn whole(self, value: &str) -> Cow<'_, str> {
        match self {
            Self::AsIs => value.into(),
            Self::Path(form) if form.ignore_case => any_case(value),
            Self::Path(_) => value.into(),
            Self::Host => host_parts(value).0.into(),
        }
    }

    /// How many texts a value has in this view.
    fn texts(self) -> usize {
        if matches!(self, Self::Path(form) if form.any_slash) { 2 } else { 1 }
    }
}

impl PatternIndex {
    /// An index of literals, each with the number of its bucket. No literal comes twice in one view.
    pub(crate) fn new<'p>(filed: impl Iterator<Item = (View, Literal<'p>, u32)>) -> Self {
        #[derive(Default)]
        struct Strings {
            beginnings: Vec<(Vec<u8>, Extent, u32)>,
            ends: Vec<(Vec<u8>, Extent, u32)>,
            inside: Vec<(Vec<u8>, Extent, u32)>,
        }
        let mut by_view: HashMap<View, Strings> = HashMap::new();
        for (view, literal, bucket) in filed {
            let (strings, text) = (by_view.entry(view).or_default(), literal.text.iter().copied());
            match literal.position {
                Position::Whole => strings.beginnings.push((text.collect(), Extent::Whole, bucket)),
                Position::Beginning => strings.beginnings.push((text.collect(), Extent::Beginning, bucket)),
                Position::End => strings.ends.push((text.rev().collect(), Extent::Beginning, bucket)),
                Position::Inside => strings.inside.push((text.collect(), Extent::Beginning, bucket)),
            }
        }
        let literals = |strings: Strings| Literals {
            longest_end: strings.ends.iter().map(|(text, ..)| text.len()).max().unwrap_or(0),
            beginnings: LiteralTrie::new(strings.beginnings),
            ends: LiteralTrie::new(strings.ends),
            inside: LiteralTrie::new(strings.inside),
        };
        Self(by_view.into_iter().map(|(view, strings)| (view, literals(strings))).collect())
    }

    /// Passes the bucket of every literal that a value has. A bucket may come more than once.
    #[inline]
    pub(crate) fn find(&self, value: &str, found: &mut impl FnMut(u32)) {
        for (view, literals) in &self.0 {
            if *view == View::AsIs {
                literals.find(value.as_bytes(), found);
                continue;
            }
            let text = view.whole(value);
            literals.find(text.as_bytes(), found);
            if view.texts() > 1
                && let Some(shorter) = text.strip_suffix('/')
            {
                literals.find(shorter.as_bytes(), found);
            }
        }
    }

    /// The most that a value can find, where each bucket weighs this much.
    pub(crate) fn most(&self, weight: impl Fn(u32) -> usize) -> usize {
        let most = |(view, literals): &(View, Literals)| {
            let inside = literals.inside.total(&weight);
            (literals.beginnings.most(&weight) + literals.ends.most(&weight)) * view.texts() + inside
        };
        self.0.iter().map(most).sum()
    }
}

impl Literals {
    #[inline]
    fn find(&self, text: &[u8], found: &mut impl FnMut(u32)) {
        self.beginnings.walk(text, found);
        if !self.ends.is_empty() {
            let end: SmallVec<[u8; 64]> = text.iter().rev().take(self.longest_end).copied().collect();
            self.ends.walk(&end, found);
        }
        if !self.inside.is_empty() {
            // A value may contain a literal many times. Each bucket is passed once, or a long value could multiply the work.
            let mut inside: SmallVec<[u32; 16]> = SmallVec::new();
            for (start, byte) in text.iter().enumerate() {
                if self.inside.has_first(*byte) {
                    self.inside.walk(&text[start..], &mut |bucket| inside.push(bucket));
                }
            }
            inside.sort_unstable();
            inside.dedup();
            inside.into_iter().for_each(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_that_a_value_has_many_times_is_found_once() {
        let patterns = ["*/a/*", "/a/*", "*/a/"];
        let literals = patterns.map(|pattern| Literal::all(pattern)[0]);
        let index =
            PatternIndex::new((0..).zip(literals).map(|(bucket, literal)| (View::AsIs, literal, bucket)));
        let mut buckets = Vec::new();
        index.find(&"/a".repeat(1000), &mut |bucket| buckets.push(bucket));
        assert_eq!(buckets, [1, 0]);
        assert_eq!(index.most(|_| 1), 3);
    }

    #[test]
    fn the_literals_of_a_text_are_its_parts_between_stars() {
        for (text, expected) in [
            ("/a", &[(Position::Whole, "/a")][..]),
            ("/a*", &[(Position::Beginning, "/a")]),
            ("*.b", &[(Position::End, ".b")]),
            ("/a*b*/c", &[(Position::Beginning, "/a"), (Position::End, "/c"), (Position::Inside, "b")]),
            ("*a**b*", &[(Position::Inside, "a"), (Position::Inside, "b")]),
            ("", &[(Position::Whole, "")]),
            ("*", &[]),
            ("**", &[]),
        ] {
            let expected: Vec<Literal<'_>> = expected
                .iter()
                .map(|&(position, text)| Literal { position, text: text.as_bytes() })
                .collect();
            assert_eq!(Literal::all(text).to_vec(), expected, "{text}");
        }
    }
}
