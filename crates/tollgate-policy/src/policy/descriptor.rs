//! Envoy descriptors: what a limit applies to where Envoy asks, by the rules of envoyproxy/ratelimit.

use std::fmt;

use super::matching::{Match, Pattern};
use crate::fault::Fault;
use crate::keys;
use crate::reader::{Reader, Section};
use crate::yaml::{self, Node, Value};

/// A descriptor that a limit counts, or that none does.
#[derive(Clone, Debug, PartialEq)]
pub struct Descriptor {
    /// The domain it belongs to.
    pub domain: String,
    /// Its entries, in order: a request's descriptor has as many, each of which matches.
    pub entries: Vec<Entry>,
    /// What Envoy is told it is called, and what others may replace it by.
    pub name: Option<String>,
    /// The names of those that do not count where this one does.
    pub replaces: Vec<String>,
    /// Any of those that say so is enough.
    pub quota_mode: bool,
    /// Whether nothing passes at all.
    pub blocked: bool,
    /// Whether its metrics tell the values of all entries.
    pub detailed_metric: bool,
    /// What Envoy is told besides, where it asked for it.
    pub metadata: Option<serde_json::Value>,
    /// Its place among the limits of the file.
    pub(crate) place: usize,
}

/// One entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key. A `*` in it stands for any run of characters of key and value, which are compared as `key_value`.
    pub key: String,
    /// Its value, in which `*` stands for any run of characters; any value if there is none.
    pub value: Option<String>,
    /// Whether all values that match count as one.
    pub share_threshold: bool,
    /// Whether its value is told in metrics.
    pub value_to_metric: bool,
}

/// A descriptor that no limit counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Uncounted {
    /// The descriptor.
    pub descriptor: Descriptor,
    /// Whether Envoy is told that there is no end of it, rather than nothing.
    pub unlimited: bool,
    /// Whether limits that Envoy sends with descriptors of its domain count denied requests.
    pub counts_denied: bool,
}

/// How Envoy is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envoy {
    /// Whether no request is denied, though every descriptor tells what it would have been.
    pub shadow_mode: bool,
    /// Whether of all limits of a request any is enough.
    pub quota_mode: bool,
    /// Whether answers carry dynamic metadata.
    pub dynamic_metadata: bool,
    /// Whether answers carry headers for the client.
    pub response_headers: bool,
}

impl Default for Envoy {
    fn default() -> Self {
        Self { shadow_mode: false, quota_mode: false, dynamic_metadata: false, response_headers: true }
    }
}

impl Envoy {
    pub(super) fn read(reader: &Reader<'_>, node: &Node) -> Self {
        let Some(section) = reader.section(node, keys::ENVOY) else { return Self::default() };
        let flag = |key: &str| section.get(key).and_then(|node| reader.flag(node));
        Self {
            shadow_mode: flag("shadow_mode").unwrap_or(false),
            quota_mode: flag("quota_mode").unwrap_or(false),
            dynamic_metadata: flag("dynamic_metadata").unwrap_or(false),
            response_headers: flag("response_headers").unwrap_or(true),
        }
    }
}

impl Descriptor {
    /// What matches the attributes of requests that it is found for.
    pub(super) fn as_match(&self) -> Match {
        let entries = self.entries.iter().map(|entry| (&*entry.key, entry.value.as_deref().unwrap_or("*")));
        Match::of([("domain", &*self.domain)].into_iter().chain(entries))
    }

    /// Reads the descriptor of a limit.
    pub(super) fn read(reader: &Reader<'_>, node: &Node, place: usize) -> Option<Self> {
        let section = reader.section(node, keys::DESCRIPTOR)?;
        let text = |key: &str| section.get(key).and_then(|node| reader.text(node));
        let flag = |key: &str| section.get(key).and_then(|node| reader.flag(node)).unwrap_or(false);
        let domain = section.require(reader, "domain", "edge").and_then(|node| reader.text(node));
        let written = section.require(reader, "entries", "[{ key: path, value: /login }]");
        let nodes = written.map_or(&[][..], |node| reader.list(node));
        let entries: Vec<Entry> = nodes.iter().filter_map(|node| Entry::read(reader, node)).collect();
        if written.is_some_and(|node| matches!(&node.value, Value::List(nodes) if nodes.is_empty())) {
            let fault = Fault::new(section.span.clone(), "a descriptor without entries");
            reader.fault(fault.help("write `entries: [{ key: path, value: /login }]`"));
        }
        let replaces = section.get("replaces").map_or(&[][..], |node| reader.list(node));
        let descriptor = Self {
            domain: domain.clone().unwrap_or_default(),
            name: text("name"),
            replaces: replaces.iter().filter_map(|node| reader.text(node)).collect(),
            quota_mode: flag("quota_mode"),
            blocked: flag("blocked"),
            detailed_metric: flag("detailed_metric"),
            metadata: section.get("metadata").map(yaml::json),
            place,
            entries,
        };
        let is_whole = domain.is_some() && descriptor.entries.len() == nodes.len();
        is_whole.then_some(descriptor)
    }

    /// The keys of its entries as they are looked up, one below the other.
    pub(crate) fn path(&self) -> impl Iterator<Item = String> {
        self.entries.iter().map(Entry::joined)
    }

    /// What its metrics are called for a request with these entries: as envoyproxy/ratelimit has it. None where it has
    /// no metrics of its own.
    pub fn metric(&self, entries: &[(&str, &str)]) -> Option<String> {
        if !self.detailed_metric && self.entries.iter().all(|entry| !entry.value_to_metric) {
            return None;
        }
        let mut name = self.domain.clone();
        for (entry, (_, value)) in self.entries.iter().zip(entries) {
            name.push('.');
            let tells = (self.detailed_metric || entry.value_to_metric) && !entry.share_threshold;
            match entry.value.as_deref().filter(|_| !tells).or(tells.then_some(*value)) {
                Some(value) => name.extend([&entry.key, "_", value]),
                None => name.push_str(&entry.key),
            }
        }
        Some(name)
    }
}

/// `edge: path=/api/*, user`.
impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |entry: &Entry| match &entry.value {
            Some(value) => format!("{}={value}", entry.key),
            None => entry.key.clone(),
        };
        let entries: Vec<String> = self.entries.iter().map(entry).collect();
        write!(f, "{}: {}", self.domain, entries.join(", "))
    }
}

impl Uncounted {
    /// Reads what stands among the limits without an algorithm.
    pub(super) fn read(reader: &Reader<'_>, section: &Section<'_>, place: usize) -> Option<Self> {
        for key in keys::LIMIT
            .iter()
            .filter(|key| !["name", "descriptor", "unlimited", "count_denied"].contains(&key.name))
        {
            if let Some(node) = section.get(key.name) {
                let message = format!("`{}` of a descriptor that nobody counts", key.name);
                reader.fault(
                    Fault::new(node.span.clone(), message).help("give it an algorithm, or leave this out"),
                );
            }
        }
        let descriptor = section.get("descriptor").and_then(|node| Descriptor::read(reader, node, place));
        let flag = |key: &str| section.get(key).and_then(|node| reader.flag(node)).unwrap_or(false);
        let (unlimited, counts_denied) = (flag("unlimited"), flag("count_denied"));
        Some(Self { descriptor: descriptor?, unlimited, counts_denied })
    }
}

impl Entry {
    fn read(reader: &Reader<'_>, node: &Node) -> Option<Self> {
        let section = reader.section(node, keys::ENTRY)?;
        let key_node = section.require(reader, "key", "path");
        let key = key_node.and_then(|node| reader.text(node));
        let flag = |key: &str| section.get(key).and_then(|node| reader.flag(node)).unwrap_or(false);
        let entry = Self {
            key: key.clone().unwrap_or_default(),
            value: section.get("value").and_then(|node| reader.text(node)).filter(|value| !value.is_empty()),
            share_threshold: flag("share_threshold"),
            value_to_metric: flag("value_to_metric"),
        };
        if let (Some(node), Some("")) = (key_node, key.as_deref()) {
            reader.fault(Fault::new(node.span.clone(), "an empty key").help("a key has at least one letter"));
        }
        if entry.share_threshold && !entry.has_star() {
            let fault = Fault::new(section.span.clone(), "`share_threshold` without a `*` in the value");
            reader.fault(fault.help("one value has one count anyway: leave it out"));
        }
        key.map(|_| entry)
    }

    /// Key and value as one text, which is what a request's entry is compared with.
    pub(crate) fn joined(&self) -> String {
        match &self.value {
            Some(value) => format!("{}_{value}", self.key),
            None => self.key.clone(),
        }
    }

    /// Whether it applies to entries with different keys or values that are counted apart.
    pub fn has_many(&self) -> bool {
        self.has_key_star() || !self.share_threshold && (self.value.is_none() || self.has_star())
    }

    /// Whether it is a pattern: a `*` in the key makes it one, as a `*` in the value does.
    fn has_star(&self) -> bool {
        self.has_key_star() || self.value.as_deref().is_some_and(|value| value.contains('*'))
    }

    /// Whether it applies to entries with different keys, which are counted apart also with `share_threshold`.
    pub(crate) fn has_key_star(&self) -> bool {
        self.key.contains('*')
    }

    /// The pattern of key and value as one text, if there is a `*` in it.
    pub(crate) fn pattern(&self) -> Option<Pattern> {
        self.has_star().then(|| Pattern::exact(self.joined()))
    }
}
