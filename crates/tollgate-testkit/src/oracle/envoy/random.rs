//! Random configurations, and requests that meet them. Alphabets are small, so that collisions are frequent.

use std::collections::HashSet;

use super::{Config, Descriptor, Node, RateLimit, Request, Unit};
use crate::random::Random;

/// A configuration, and requests with the time since the first second of the case, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The configuration.
    pub config: Config,
    /// The requests. Times never decrease.
    pub requests: Vec<(u64, Request)>,
}

/// What a case may contain besides keys, values, patterns in values, nested descriptors, limits of 0, and hits of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Rules that replace other rules.
    pub replaces: bool,
    /// Unlimited rules.
    pub unlimited: bool,
    /// Rules in shadow mode.
    pub shadow_mode: bool,
    /// Rules in quota mode.
    pub quota_mode: bool,
    /// Patterns whose values share one count.
    pub share_threshold: bool,
    /// A `*` or a `_` in a key.
    pub special_keys: bool,
    /// Descriptors with their own hits.
    pub own_hits: bool,
    /// Limits that a request sends.
    pub sent_limits: bool,
    /// Requests that name one descriptor twice, or two descriptors that share a count.
    pub same_counter_twice: bool,
    /// Windows shorter than a day, and time that passes.
    pub time: bool,
}

impl Features {
    /// All of them.
    pub const ALL: Self = Self {
        replaces: true,
        unlimited: true,
        shadow_mode: true,
        quota_mode: true,
        share_threshold: true,
        special_keys: true,
        own_hits: true,
        sent_limits: true,
        same_counter_twice: true,
        time: true,
    };
}

const KEYS: [&str; 3] = ["a", "b", "c"];
const SPECIAL_KEYS: [&str; 5] = ["a_x", "a*", "*", "*b", "a_*"];
const VALUES: [&str; 4] = ["", "x", "y", "x_y"];
const PATTERNS: [&str; 6] = ["x*", "*", "*y", "x*y", "*x*", "x_*"];
const RULE_NAMES: [&str; 3] = ["one", "two", "three"];
const SPECIAL_REQUEST_KEYS: [&str; 5] = ["a", "b", "c", "a_x", "ab"];
const REQUEST_VALUES: [&str; 7] = ["", "x", "y", "x_y", "xzy", "xx", "z"];

/// A case for a domain.
pub fn random_case(random: &mut Random, domain: &str, features: Features) -> Case {
    let descriptors = level(random, features, 1);
    let config = Config { domain: domain.to_owned(), descriptors };
    let mut now = random.below(86_400) * NANOS * u64::from(features.time);
    let mut requests: Vec<(u64, Request)> = Vec::new();
    for _ in 0..random.between(4, 12) {
        let request = match requests.last() {
            // The same descriptors again reach limits.
            Some((_, last)) if random.chance(1, 2) => again(random, last, features),
            _ => request(random, &config, features),
        };
        requests.push((now, request));
        if features.time && random.chance(1, 3) {
            now += pause(random, now);
        }
    }
    Case { config, requests }
}

const NANOS: u64 = 1_000_000_000;

/// Time that passes: a little, or up to an edge of a window, or to the nanosecond before it.
fn pause(random: &mut Random, now: u64) -> u64 {
    let to_edge = |window: u64| window - now % window;
    let window = [1, 60, 3600, 86_400][usize::try_from(random.below(4)).expect("below 4")] * NANOS;
    match random.below(4) {
        0 => random.below(2 * NANOS),
        1 => to_edge(window),
        2 => to_edge(window) - 1,
        _ => random.below(2 * window),
    }
}

fn level(random: &mut Random, features: Features, depth: u64) -> Vec<Node> {
    let mut names = HashSet::new();
    let count = random.between(1, 5 - depth);
    let nodes = (0..count).map(|_| node(random, features, depth));
    nodes.filter(|node| names.insert(node.joined())).collect()
}

fn node(random: &mut Random, features: Features, depth: u64) -> Node {
    let is_special = features.special_keys && random.chance(1, 6);
    let key = *random.pick(if is_special { &SPECIAL_KEYS[..] } else { &KEYS[..] });
    let is_pattern = random.chance(1, 3);
    let value = *random.pick(if is_pattern { &PATTERNS[..] } else { &VALUES[..] });
    let has_next = depth < 3 && random.chance(2, 5);
    let has_limit = random.chance(5, 6);
    Node {
        key: key.to_owned(),
        value: value.to_owned(),
        rate_limit: has_limit.then(|| rate_limit(random, features)),
        shadow_mode: features.shadow_mode && random.chance(1, 6),
        quota_mode: features.quota_mode && random.chance(1, 4),
        // The reference takes `share_threshold` only where the pattern ends with the star.
        share_threshold: features.share_threshold && value.ends_with('*') && random.chance(1, 2),
        descriptors: if has_next { level(random, features, depth + 1) } else { Vec::new() },
    }
}

fn rate_limit(random: &mut Random, features: Features) -> RateLimit {
    let is_unlimited = features.unlimited && random.chance(1, 8);
    let mut name = "";
    let mut replaces = Vec::new();
    if features.replaces {
        if random.chance(1, 3) {
            name = *random.pick(&RULE_NAMES);
        }
        if random.chance(1, 5) {
            replaces.extend(RULE_NAMES.into_iter().filter(|other| *other != name && random.chance(1, 2)));
        }
    }
    RateLimit {
        per_unit: (!is_unlimited).then(|| per_unit(random, features)),
        name: name.to_owned(),
        replaces: replaces.into_iter().map(str::to_owned).collect(),
    }
}

fn per_unit(random: &mut Random, features: Features) -> (u32, Unit) {
    let limit = if random.chance(1, 20) { u32::MAX } else { u32::try_from(random.below(6)).expect("small") };
    (limit, *random.pick(if features.time { &Unit::ALL[..] } else { &Unit::ALL[3..] }))
}

fn request(random: &mut Random, config: &Config, features: Features) -> Request {
    let mut descriptors: Vec<Descriptor> = Vec::new();
    for _ in 0..random.between(1, 4) {
        let again = features.same_counter_twice && random.chance(1, 6);
        let entries = match descriptors.last() {
            Some(last) if again => last.entries.clone(),
            _ => entries(random, config, features),
        };
        // Values that match one pattern may share a count.
        let may_share = |other: &Descriptor| {
            other.entries == entries || features.share_threshold && other.entries.len() == entries.len()
        };
        if !features.same_counter_twice && descriptors.iter().any(may_share) {
            continue;
        }
        descriptors.push(descriptor(random, entries, features));
    }
    let is_unknown = random.chance(1, 40);
    Request {
        domain: if is_unknown { "unknown".to_owned() } else { config.domain.clone() },
        descriptors,
        hits_addend: if random.chance(1, 4) { u32::try_from(random.below(4)).expect("small") } else { 0 },
    }
}

/// The same descriptors, some with other hits or limits.
fn again(random: &mut Random, last: &Request, features: Features) -> Request {
    let mut request = last.clone();
    for known in &mut request.descriptors {
        if random.chance(1, 4) {
            let mut other = descriptor(random, known.entries.clone(), features);
            // Another limit meets the count of the last one only in the same unit.
            if let (Some((_, unit)), true) = (known.limit, random.chance(1, 2)) {
                other.limit = Some((sent(random, features).0, unit));
            }
            *known = other;
        }
    }
    request
}

fn descriptor(random: &mut Random, entries: Vec<(String, String)>, features: Features) -> Descriptor {
    let hits_addend = (features.own_hits && random.chance(1, 4)).then(|| random.below(4));
    let limit = (features.sent_limits && random.chance(1, 6)).then(|| sent(random, features));
    Descriptor { entries, hits_addend, limit }
}

/// A limit that is sent. The protocol has no week there.
fn sent(random: &mut Random, features: Features) -> (u32, Unit) {
    loop {
        let (limit, unit) = per_unit(random, features);
        if unit != Unit::Week {
            return (limit, unit);
        }
    }
}

/// Entries that lead to a node of the tree, or any.
fn entries(random: &mut Random, config: &Config, features: Features) -> Vec<(String, String)> {
    let any = |random: &mut Random| {
        let keys = if features.special_keys { &SPECIAL_REQUEST_KEYS[..] } else { &KEYS[..] };
        let (key, value) = (random.pick(keys), random.pick(&REQUEST_VALUES));
        ((*key).to_owned(), (*value).to_owned())
    };
    let mut entries = Vec::new();
    if random.chance(1, 6) {
        for _ in 0..random.below(4) {
            entries.push(any(random));
        }
        return entries;
    }
    let mut level = &config.descriptors;
    while !level.is_empty() {
        let node = random.pick(level);
        let (key, value) = any(random);
        let key = if node.key.contains('*') { key } else { node.key.clone() };
        let value = if node.value.is_empty() { value } else { filled(random, &node.value) };
        entries.push((key, value));
        if random.chance(1, 3) {
            break;
        }
        level = &node.descriptors;
    }
    entries
}

/// A text that matches a pattern.
fn filled(random: &mut Random, pattern: &str) -> String {
    let letters = pattern.chars().map(|letter| match letter {
        '*' => (*random.pick(&["", "x", "y", "z", "_"])).to_owned(),
        letter => letter.to_string(),
    });
    letters.collect()
}
