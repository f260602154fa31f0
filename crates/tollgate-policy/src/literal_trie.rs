//! A radix trie of byte strings: one walk along a text finds every string that the text begins with.
//!
//! A walk costs the length of the text at most, however many strings there are. Memory: 32 bytes per node plus the bytes of the
//! strings, with at most two nodes per string. The strings together have fewer than 2^32 bytes.

use std::ops::Range;

/// Numbers by string. A string has one number for texts that it begins, and one for the text that it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiteralTrie {
    nodes: Vec<Node>, // the root first, the children of a node one after another, behind their parent
    first_bytes: Vec<u8>, // of the label of each node
    labels: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Node {
    label: Range<u32>,    // in `labels`: the bytes between the parent and this node
    children: Range<u32>, // in `nodes`
    beginning: Option<u32>,
    whole: Option<u32>,
}

/// How a string is compared with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Extent {
    /// The text begins with the string.
    Beginning,
    /// The text is the string.
    Whole,
}

impl LiteralTrie {
    /// A trie of strings, each with its number. If a string comes twice with the same extent, one of its numbers is kept.
    pub(crate) fn new(mut strings: Vec<(Vec<u8>, Extent, u32)>) -> Self {
        if strings.is_empty() {
            return Self::default();
        }
        strings.sort_unstable();
        let mut trie = Self { nodes: Vec::new(), first_bytes: Vec::new(), labels: Vec::new() };
        trie.push(&[]);
        // Each item is a node, the strings below it, and the length of what they have in common. Nodes come in order.
        let mut open = vec![(0..strings.len(), 0)];
        let mut node = 0;
        while node < open.len() {
            let (mut range, depth) = open[node].clone();
            while let Some((string, extent, number)) = strings.get(range.start)
                && string.len() == depth
                && !range.is_empty()
            {
                match extent {
                    Extent::Beginning => trie.nodes[node].beginning = Some(*number),
                    Extent::Whole => trie.nodes[node].whole = Some(*number),
                }
                range.start += 1;
            }
            let first_child = trie.nodes.len() as u32;
            while !range.is_empty() {
                let byte = strings[range.start].0[depth];
                let same = strings[range.clone()].partition_point(|(string, ..)| string[depth] == byte);
                let group = range.start..range.start + same;
                let (first, last) = (&strings[group.start].0, &strings[group.end - 1].0);
                let end = first.iter().zip(last).take_while(|(a, b)| a == b).count();
                trie.push(&first[depth..end]);
                range.start = group.end;
                open.push((group, end));
            }
            trie.nodes[node].children = first_child..trie.nodes.len() as u32;
            node += 1;
        }
        trie
    }

    fn push(&mut self, label: &[u8]) {
        let start = self.labels.len() as u32;
        self.labels.extend(label);
        self.first_bytes.push(label.first().copied().unwrap_or_default());
        let label = start..self.labels.len() as u32;
        self.nodes.push(Node { label, children: 0..0, beginning: None, whole: None });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether a string of the trie begins with this byte.
    pub(crate) fn has_first(&self, byte: u8) -> bool {
        self.nodes.first().is_some_and(|root| self.child(root, byte).is_some())
    }

    /// Passes the number of every string that the text begins with, or is.
    #[inline]
    pub(crate) fn walk(&self, text: &[u8], found: &mut impl FnMut(u32)) {
        let (Some(mut node), mut rest) = (self.nodes.first(), text) else { return };
        loop {
            if let Some(number) = node.beginning {
                found(number);
            }
            let Some(&byte) = rest.first() else {
                node.whole.iter().for_each(|&number| found(number));
                return;
            };
            let Some(child) = self.child(node, byte) else { return };
            let label = &self.labels[child.label.start as usize..child.label.end as usize];
            let Some(behind) = rest.strip_prefix(label) else { return };
            (node, rest) = (child, behind);
        }
    }

    #[inline]
    fn child(&self, node: &Node, byte: u8) -> Option<&Node> {
        let (start, end) = (node.children.start as usize, node.children.end as usize);
        let children = &self.first_bytes[start..end];
        let place = match children.len() {
            ..=16 => children.iter().position(|&first| first == byte)?,
            _ => children.binary_search(&byte).ok()?,
        };
        Some(&self.nodes[start + place])
    }

    /// What all strings weigh together, where each number weighs this much.
    pub(crate) fn total(&self, weight: impl Fn(u32) -> usize) -> usize {
        let numbers = self.nodes.iter().flat_map(|node| node.beginning.into_iter().chain(node.whole));
        numbers.map(weight).sum()
    }

    /// The most that one walk can find, where each number weighs this much.
    pub(crate) fn most(&self, weight: impl Fn(u32) -> usize) -> usize {
        let weight = |number: Option<u32>| number.map_or(0, &weight);
        let mut most = vec![0; self.nodes.len()];
        for (place, node) in self.nodes.iter().enumerate().rev() {
            let below = most[node.children.start as usize..node.children.end as usize].iter().copied().max();
            most[place] = weight(node.beginning) + below.unwrap_or(0).max(weight(node.whole));
        }
        most.first().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(trie: &LiteralTrie, text: &str) -> Vec<u32> {
        let mut numbers = Vec::new();
        trie.walk(text.as_bytes(), &mut |number| numbers.push(number));
        numbers
    }

    fn trie(strings: &[(&str, Extent, u32)]) -> LiteralTrie {
        LiteralTrie::new(
            strings
                .iter()
                .map(|(text, extent, number)| (text.as_bytes().to_vec(), *extent, *number))
                .collect(),
        )
    }

    #[test]
    fn a_walk_finds_each_string_that_the_text_begins_with_or_is() {
        use Extent::{Beginning, Whole};
        let trie = trie(&[
            ("/api/", Beginning, 1),
            ("/api/trips", Whole, 2),
            ("/api/trips/", Beginning, 3),
            ("/apis", Whole, 4),
            ("", Beginning, 5),
            ("", Whole, 6),
            ("\u{e9}", Whole, 7),
        ]);
        for (text, expected) in [
            ("", &[5, 6][..]),
            ("/", &[5]),
            ("/api/", &[5, 1]),
            ("/api/trips", &[5, 1, 2]),
            ("/api/trips/1", &[5, 1, 3]),
            ("/apis", &[5, 4]),
            ("/apiss", &[5]),
            ("\u{e9}", &[5, 7]),
            ("\u{e8}", &[5]),
        ] {
            assert_eq!(found(&trie, text), expected, "{text}");
        }
        assert!(trie.has_first(b'/') && !trie.has_first(b'a'));
        assert!(found(&LiteralTrie::default(), "a").is_empty());
    }

    #[test]
    fn a_node_with_many_children_finds_each() {
        let strings: Vec<(Vec<u8>, Extent, u32)> =
            (0..=255).map(|byte| (vec![byte, 0], Extent::Whole, u32::from(byte))).collect();
        let trie = LiteralTrie::new(strings);
        for byte in 0..=255 {
            let mut numbers = Vec::new();
            trie.walk(&[byte, 0], &mut |number| numbers.push(number));
            assert_eq!(numbers, [u32::from(byte)]);
        }
    }

    #[test]
    fn most_is_the_heaviest_walk() {
        use Extent::{Beginning, Whole};
        let strings = [("a", Beginning, 1), ("ab", Beginning, 2), ("ab", Whole, 4), ("ac", Whole, 8)];
        assert_eq!(trie(&strings).most(|number| number as usize), 9);
        assert_eq!(LiteralTrie::default().most(|number| number as usize), 0);
    }
}
