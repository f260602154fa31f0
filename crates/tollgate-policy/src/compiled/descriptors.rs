//! Which limit applies to an Envoy descriptor: the lookup of envoyproxy/ratelimit, rule by rule.

use std::collections::HashMap;

use crate::policy::{Descriptor, Entry, Pattern, Patterns, Policy};

/// Every descriptor of a policy, by domain.
#[derive(Debug, Default)]
pub(crate) struct Descriptors(HashMap<String, Domain>);

#[derive(Debug, Default)]
struct Domain {
    level: Level,
    counts_denied: bool, // one of its limits does
}

/// The nodes for one entry of a descriptor.
#[derive(Debug, Default)]
struct Level {
    nodes: HashMap<String, Node>, // by `key_value`, or by `key` alone
    patterns: Patterns,           // of the nodes that have a star, in the order of the file
}

/// A level that nodes are still added to.
#[derive(Debug, Default)]
struct OpenLevel {
    nodes: HashMap<String, OpenNode>,
    patterns: Vec<Pattern>,
}

#[derive(Debug, Default)]
struct OpenNode {
    leaf: Option<Leaf>,
    next: OpenLevel,
}

#[derive(Debug, Default)]
struct Node {
    leaf: Option<Leaf>,
    next: Level,
}

/// The policy's entry for a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaf {
    /// The limit of this place.
    Limit(u32),
    /// An entry without a limit, by its index in `Policy::descriptors`.
    Uncounted(u32),
}

impl Descriptors {
    pub(crate) fn new(policy: &Policy) -> Self {
        let limits = (0..).zip(&policy.limits);
        let limits = limits.filter_map(|(i, limit)| Some((limit.descriptor.as_ref()?, Leaf::Limit(i))));
        let uncounted = (0..).zip(&policy.descriptors).map(|(i, of)| (&of.descriptor, Leaf::Uncounted(i)));
        let mut all: Vec<(&Descriptor, Leaf)> = limits.chain(uncounted).collect();
        all.sort_by_key(|(descriptor, _)| descriptor.place);
        let mut domains: HashMap<String, (OpenLevel, bool)> = HashMap::new();
        for (descriptor, leaf) in all {
            let (level, counts_denied) = domains.entry(descriptor.domain.clone()).or_default();
            *counts_denied |= match leaf {
                Leaf::Limit(place) => policy.limits[place as usize].rule.counts_denied(),
                Leaf::Uncounted(place) => policy.descriptors[place as usize].counts_denied,
            };
            if let Some((last, before)) = descriptor.entries.split_last() {
                let level = before.iter().fold(level, |level, entry| &mut level.node(entry).next);
                level.node(last).leaf = Some(leaf);
            }
        }
        let domain =
            |(level, counts_denied): (OpenLevel, bool)| Domain { level: level.close(), counts_denied };
        Self(domains.into_iter().map(|(name, open)| (name, domain(open))).collect())
    }

    /// Whether a descriptor of this domain may come to something. Where there are none at all, any may.
    pub(crate) fn may_have(&self, domain: &str) -> bool {
        self.0.is_empty() || self.0.contains_key(domain)
    }

    /// Whether the limits of this domain count denied requests.
    pub(crate) fn counts_denied(&self, domain: &str) -> bool {
        self.0.get(domain).is_some_and(|domain| domain.counts_denied)
    }

    /// The policy's entry for a descriptor. At each level, the exact value is tried first, then patterns, then the key alone. The
    /// lookup does not backtrack. Only a match of the last entry counts.
    pub(crate) fn find(&self, domain: &str, entries: &[(&str, &str)]) -> Option<Leaf> {
        let (last, before) = entries.split_last()?;
        let (mut level, mut joined) = (&self.0.get(domain)?.level, String::new());
        for entry in before {
            level = &level.find(entry, &mut joined)?.next;
        }
        level.find(last, &mut joined)?.leaf
    }
}

impl Level {
    fn find(&self, (key, value): &(&str, &str), joined: &mut String) -> Option<&Node> {
        joined.clear();
        joined.extend([key, "_", value]);
        let by_pattern = || {
            let pattern = self.patterns.first_match(joined)?;
            self.nodes.get(pattern.written())
        };
        self.nodes.get(joined.as_str()).or_else(by_pattern).or_else(|| self.nodes.get(*key))
    }
}

impl OpenLevel {
    fn close(self) -> Level {
        let node = |node: OpenNode| Node { leaf: node.leaf, next: node.next.close() };
        let nodes = self.nodes.into_iter().map(|(joined, open)| (joined, node(open))).collect();
        Level { nodes, patterns: Patterns::new(self.patterns) }
    }

    fn node(&mut self, entry: &Entry) -> &mut OpenNode {
        let joined = entry.joined();
        if let Some(pattern) = entry.pattern().filter(|_| !self.nodes.contains_key(&joined)) {
            self.patterns.push(pattern);
        }
        self.nodes.entry(joined).or_default()
    }
}

#[cfg(test)]
mod tests;
