//! envoyproxy/ratelimit: which rule applies to a descriptor, and what the service answers.
//!
//! The model reads the configuration as a tree and walks it for each request. It keeps one count per counter name and
//! never forgets one. Facts come from the source of envoyproxy/ratelimit at commits 6c6a8bfe and f9b242bf (2026):
//! `src/config`, `src/service/ratelimit.go`, `src/limiter`, `src/redis/fixed_cache_impl.go`.
//!
//! Not modelled: the local cache, `STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT`, the global shadow and quota modes, negative
//! hits, calendar months, metrics and dynamic metadata.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

mod random;
mod smallest;
#[cfg(test)]
mod tests;

pub use random::{Case, Features, random_case};
pub use smallest::smallest;

/// A configuration file: the rules of one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The domain. It is not empty.
    pub domain: String,
    /// The first level of the tree.
    pub descriptors: Vec<Node>,
}

/// A descriptor of a configuration file. On one level, no two have the same [`joined`](Self::joined) name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The key. It is not empty.
    pub key: String,
    /// The value. Empty stands for any value.
    pub value: String,
    /// The rule, if the descriptor has one.
    pub rate_limit: Option<RateLimit>,
    /// Whether the rule reports `OK` where it would report `OVER_LIMIT`.
    pub shadow_mode: bool,
    /// Whether the rule is a quota: a request passes while one of its quotas has room.
    pub quota_mode: bool,
    /// Whether all values that match a pattern share one count.
    pub share_threshold: bool,
    /// The next level.
    pub descriptors: Vec<Node>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The requests per unit. None stands for `unlimited: true`.
    pub per_unit: Option<(u32, Unit)>,
    /// The name. Empty stands for none.
    pub name: String,
    /// The names of the rules that this rule replaces. Its own name is not among them.
    pub replaces: Vec<String>,
}

/// The length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// A `RateLimitRequest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The domain. It is not empty.
    pub domain: String,
    /// The descriptors, at least one.
    pub descriptors: Vec<Descriptor>,
    /// The hits of each descriptor that has none of its own. 0 stands for 1.
    pub hits_addend: u32,
}

/// A descriptor of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Pairs of a key and a value.
    pub entries: Vec<(String, String)>,
    /// The hits of this descriptor. 0 only checks.
    pub hits_addend: Option<u64>,
    /// A limit that the request sends in place of the configured rule.
    pub limit: Option<(u32, Unit)>,
}

/// A `RateLimitResponse`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Whether the overall code is `OVER_LIMIT`.
    pub is_over: bool,
    /// One status per descriptor, in order.
    pub statuses: Vec<Status>,
}

/// The status of one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Whether the code is `OVER_LIMIT`.
    pub is_over: bool,
    /// The rule, if a count was compared with one.
    pub current_limit: Option<CurrentLimit>,
    /// The hits that the window still has.
    pub limit_remaining: u32,
    /// Whole seconds until the window ends, if a count was compared with a rule.
    pub duration_until_reset: Option<u64>,
}

/// The rule that a status names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentLimit {
    /// The requests per unit.
    pub requests_per_unit: u32,
    /// The unit.
    pub unit: Unit,
    /// The name. Empty stands for none.
    pub name: String,
}

/// How the service counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Whether a denied request is counted, as the reference does.
    ///
    /// Otherwise all or nothing: a denied request charges no descriptor, and a request that passes charges each descriptor
    /// that has room. There are two exceptions. A descriptor with its own `hits_addend` above 0 is charged in any case. A rule in
    /// shadow mode is alone: it is charged if it has room, whatever becomes of the request. `limit_remaining` is what
    /// the window still has, also where the code is `OVER_LIMIT`.
    pub counts_denied: bool,
    /// Whether counters are named as in the reference: by domain, keys and values joined with `_`, and the start of the window.
    ///
    /// Two counters can have one name there: entries whose joined texts are equal, units whose windows start together,
    /// and a limit that is sent beside the rule that it replaces. Otherwise each of these has a count of its own.
    pub joins_names: bool,
    /// Whether, of several limits that one request sends for one counter, the strictest holds for all. In the reference each
    /// holds for its own descriptor.
    pub uses_strictest: bool,
}

/// A running service.
#[derive(Clone, Debug)]
pub struct Service {
    counting: Counting,
    configs: Vec<Config>,
    counts: HashMap<String, u64>,
}

/// The rule that applies to a descriptor of a request.
struct Rule {
    rate_limit: RateLimit,
    shadow_mode: bool,
    quota_mode: bool,
    /// What the counter is named by: each key, and its value or the pattern that stands for it.
    counted_by: Vec<(String, String)>,
    is_sent: bool,
}

/// Gives all limits that were sent for one counter the smallest of their numbers.
fn use_strictest(rules: &mut [Option<Rule>]) {
    let sent: Vec<_> = rules.iter().flatten().filter(|rule| rule.is_sent).collect();
    let sent: Vec<_> =
        sent.iter().filter_map(|rule| Some((rule.counted_by.clone(), rule.rate_limit.per_unit?))).collect();
    for rule in rules.iter_mut().flatten().filter(|rule| rule.is_sent) {
        let Some((limit, unit)) = &mut rule.rate_limit.per_unit else { continue };
        let same = sent.iter().filter(|(name, (_, of))| *name == rule.counted_by && of == unit);
        *limit = same.map(|(_, (limit, _))| *limit).min().unwrap_or(*limit);
    }
}

impl Unit {
    /// All units, shortest first.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// A month has 30 days and a year 365.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        }
    }

    /// The name in the messages of the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Second => "SECOND",
            Self::Minute => "MINUTE",
            Self::Hour => "HOUR",
            Self::Day => "DAY",
            Self::Week => "WEEK",
            Self::Month => "MONTH",
            Self::Year => "YEAR",
        }
    }
}

impl Node {
    /// The name that requests are compared with: `key_value`, or `key` where there is no value.
    pub fn joined(&self) -> String {
        if self.value.is_empty() { self.key.clone() } else { format!("{}_{}", self.key, self.value) }
    }
}

impl Service {
    /// A service that has counted nothing. Each domain has one configuration.
    pub fn new(configs: Vec<Config>, counting: Counting) -> Self {
        Self { counting, configs, counts: HashMap::new() }
    }

    /// Answers a request at a whole second of Unix time.
    pub fn answer(&mut self, request: &Request, now: u64) -> Response {
        let mut rules: Vec<Option<Rule>> =
            request.descriptors.iter().map(|descriptor| self.rule(&request.domain, descriptor)).collect();
        let replaced: HashSet<String> =
            rules.iter().flatten().flat_map(|rule| rule.rate_limit.replaces.clone()).collect();
        // Unlimited rules stay: the reference has set them aside before it looks for names.
        for rule in &mut rules {
            let is_replaced =
                |rule: &Rule| rule.rate_limit.per_unit.is_some() && replaced.contains(&rule.rate_limit.name);
            if rule.as_ref().is_some_and(is_replaced) {
                *rule = None;
            }
        }
        if self.counting.uses_strictest {
            use_strictest(&mut rules);
        }
        if self.counting.counts_denied {
            self.count_all(request, &rules, now)
        } else {
            self.count_all_or_nothing(request, &rules, now)
        }
    }

    /// Adds all hits in order, then compares each count with its limit.
    fn count_all(&mut self, request: &Request, rules: &[Option<Rule>], now: u64) -> Response {
        let mut statuses = Vec::new();
        for (descriptor, rule) in request.descriptors.iter().zip(rules) {
            let Some((rule, limit, unit)) = counted(rule.as_ref()) else {
                statuses.push(uncounted(rule.as_ref()));
                continue;
            };
            let count =
                self.counts.entry(self.counting.counter(&request.domain, rule, unit, now)).or_default();
            *count = count.saturating_add(hits(request, descriptor));
            let is_over = *count > u64::from(limit);
            statuses.push(status(rule, limit, unit, *count, is_over, now));
        }
        Response { is_over: is_denied(rules, &statuses), statuses }
    }

    /// Compares the counts that the hits would make, decides, then adds those that are charged.
    fn count_all_or_nothing(&mut self, request: &Request, rules: &[Option<Rule>], now: u64) -> Response {
        let mut reference =
            Self { counting: Counting { counts_denied: true, ..self.counting }, ..self.clone() };
        let Response { is_over: is_denied, mut statuses } = reference.count_all(request, rules, now);
        // A rule in shadow mode reports `OK`, so that its status does not say whether it has room.
        let mut would_be = self.counts.clone();
        for ((descriptor, rule), status_of) in request.descriptors.iter().zip(rules).zip(&mut statuses) {
            let Some((rule, limit, unit)) = counted(rule.as_ref()) else { continue };
            let name = self.counting.counter(&request.domain, rule, unit, now);
            let hits = hits(request, descriptor);
            let would_be = would_be.entry(name.clone()).or_default();
            *would_be = would_be.saturating_add(hits);
            let is_over = *would_be > u64::from(limit);
            let is_charged =
                descriptor.hits_addend.is_some() || (!is_over && (!is_denied || rule.shadow_mode));
            let count = self.counts.entry(name).or_default();
            if is_charged {
                *count = count.saturating_add(hits);
            }
            *status_of = status(rule, limit, unit, *count, is_over, now);
        }
        Response { is_over: is_denied, statuses }
    }

    /// The rule that applies to a descriptor.
    fn rule(&self, domain: &str, descriptor: &Descriptor) -> Option<Rule> {
        let config = self.configs.iter().find(|config| config.domain == domain)?;
        if let Some(per_unit) = descriptor.limit {
            let rate_limit =
                RateLimit { per_unit: Some(per_unit), name: String::new(), replaces: Vec::new() };
            let counted_by = descriptor.entries.clone();
            return Some(Rule {
                rate_limit,
                shadow_mode: false,
                quota_mode: false,
                counted_by,
                is_sent: true,
            });
        }
        let mut level = &config.descriptors;
        let mut counted_by = Vec::new();
        for (place, (key, value)) in descriptor.entries.iter().enumerate() {
            let (node, by_pattern) = find(level, key, value)?;
            let shares = by_pattern && node.share_threshold;
            // The pattern without the key before it, if it begins with the key of the request.
            let pattern = node.joined();
            let pattern = pattern.strip_prefix(&format!("{key}_")).unwrap_or(&pattern).to_owned();
            counted_by.push((key.clone(), if shares { pattern } else { value.clone() }));
            if place + 1 == descriptor.entries.len() {
                let rate_limit = node.rate_limit.clone()?;
                let (shadow_mode, quota_mode) = (node.shadow_mode, node.quota_mode);
                return Some(Rule { rate_limit, shadow_mode, quota_mode, counted_by, is_sent: false });
            }
            level = &node.descriptors;
        }
        None
    }
}

impl Counting {
    /// The name of a counter.
    fn counter(self, domain: &str, rule: &Rule, unit: Unit, now: u64) -> String {
        let start = now - now % unit.seconds();
        if self.joins_names {
            let joined: String =
                rule.counted_by.iter().map(|(key, value)| format!("{key}_{value}_")).collect();
            format!("{domain}_{joined}{start}")
        } else {
            format!("{domain:?} {:?} {} {} {start}", rule.counted_by, rule.is_sent, unit.name())
        }
    }
}

/// The node of a level for an entry, and whether a pattern found it: the exact name first, then patterns in the order of
/// the file, then the key alone.
fn find<'c>(level: &'c [Node], key: &str, value: &str) -> Option<(&'c Node, bool)> {
    let joined = format!("{key}_{value}");
    let exact = |name: &str| level.iter().find(|node| node.joined() == name);
    if let Some(node) = exact(&joined) {
        return Some((node, false));
    }
    let is_match = |node: &&Node| node.joined().contains('*') && matches(&node.joined(), &joined);
    if let Some(node) = level.iter().find(is_match) {
        return Some((node, true));
    }
    exact(key).map(|node| (node, false))
}

/// Whether a text matches a pattern in which `*` stands for any run of characters, the empty one included.
fn matches(pattern: &str, text: &str) -> bool {
    let mut letters = pattern.chars();
    match letters.next() {
        None => text.is_empty(),
        Some('*') => text
            .char_indices()
            .map(|(start, _)| start)
            .chain([text.len()])
            .any(|start| matches(letters.as_str(), &text[start..])),
        Some(letter) => text.strip_prefix(letter).is_some_and(|rest| matches(letters.as_str(), rest)),
    }
}

/// A rule with its limit and unit, unless there is no rule or it is unlimited.
fn counted(rule: Option<&Rule>) -> Option<(&Rule, u32, Unit)> {
    let rule = rule?;
    let (limit, unit) = rule.rate_limit.per_unit?;
    Some((rule, limit, unit))
}

/// The status of a descriptor whose hits are not counted.
fn uncounted(rule: Option<&Rule>) -> Status {
    let limit_remaining = if rule.is_some() { u32::MAX } else { 0 };
    Status { is_over: false, current_limit: None, limit_remaining, duration_until_reset: None }
}

fn hits(request: &Request, descriptor: &Descriptor) -> u64 {
    descriptor.hits_addend.unwrap_or_else(|| u64::from(request.hits_addend.max(1)))
}

fn status(rule: &Rule, limit: u32, unit: Unit, count: u64, is_over: bool, now: u64) -> Status {
    let name = rule.rate_limit.name.clone();
    let remaining = u64::from(limit).saturating_sub(count);
    Status {
        is_over: is_over && !rule.shadow_mode,
        current_limit: Some(CurrentLimit { requests_per_unit: limit, unit, name }),
        limit_remaining: u32::try_from(remaining).expect("at most the limit"),
        duration_until_reset: Some(unit.seconds() - now % unit.seconds()),
    }
}

/// Whether the overall code is `OVER_LIMIT`: an ordinary rule is over, or there are quotas and all are.
fn is_denied(rules: &[Option<Rule>], statuses: &[Status]) -> bool {
    let is_counted = |rule: &Rule| rule.rate_limit.per_unit.is_some();
    let is_quota =
        |rule: &Option<Rule>| rule.as_ref().is_some_and(|rule| rule.quota_mode && is_counted(rule));
    let (quotas, others): (Vec<_>, Vec<_>) = rules.iter().zip(statuses).partition(|(rule, _)| is_quota(rule));
    let is_over = |(_, status): &(&Option<Rule>, &Status)| status.is_over;
    others.iter().any(is_over) || (!quotas.is_empty() && quotas.iter().all(is_over))
}

impl Config {
    /// The file, in YAML.
    pub fn yaml(&self) -> String {
        let mut text = format!("domain: {:?}\ndescriptors:", self.domain);
        write_nodes(&self.descriptors, 2, &mut text);
        text.push('\n');
        text
    }
}

fn write_nodes(nodes: &[Node], indent: usize, text: &mut String) {
    if nodes.is_empty() {
        text.push_str(" []");
    }
    for node in nodes {
        let mut field = |start: &str, line: String| {
            let _ = write!(text, "\n{:indent$}{start} {line}", "");
        };
        field("-", format!("key: {:?}", node.key));
        if !node.value.is_empty() {
            field(" ", format!("value: {:?}", node.value));
        }
        if let Some(RateLimit { per_unit, name, replaces }) = &node.rate_limit {
            let mut parts = vec![match per_unit {
                Some((limit, unit)) => {
                    format!("unit: {}, requests_per_unit: {limit}", unit.name().to_lowercase())
                }
                None => "unlimited: true".to_owned(),
            }];
            if !name.is_empty() {
                parts.push(format!("name: {name:?}"));
            }
            if !replaces.is_empty() {
                let names: Vec<String> =
                    replaces.iter().map(|name| format!("{{ name: {name:?} }}")).collect();
                parts.push(format!("replaces: [{}]", names.join(", ")));
            }
            field(" ", format!("rate_limit: {{ {} }}", parts.join(", ")));
        }
        let flags = [
            ("shadow_mode", node.shadow_mode),
            ("quota_mode", node.quota_mode),
            ("share_threshold", node.share_threshold),
        ];
        for (name, _) in flags.iter().filter(|(_, is_set)| *is_set) {
            field(" ", format!("{name}: true"));
        }
        if !node.descriptors.is_empty() {
            field(" ", "descriptors:".to_owned());
            write_nodes(&node.descriptors, indent + 4, text);
        }
    }
}

impl Request {
    /// The message, in the JSON of Protocol Buffers.
    pub fn json(&self) -> String {
        let descriptors: Vec<String> = self.descriptors.iter().map(Descriptor::json).collect();
        let (domain, hits) = (&self.domain, self.hits_addend);
        format!(
            "{{\"domain\":{domain:?},\"hits_addend\":{hits},\"descriptors\":[{}]}}",
            descriptors.join(",")
        )
    }
}

impl Descriptor {
    fn json(&self) -> String {
        let entry = |(key, value): &(String, String)| format!("{{\"key\":{key:?},\"value\":{value:?}}}");
        let entries: Vec<String> = self.entries.iter().map(entry).collect();
        let mut json = format!("{{\"entries\":[{}]", entries.join(","));
        if let Some(hits) = self.hits_addend {
            let _ = write!(json, ",\"hits_addend\":\"{hits}\"");
        }
        if let Some((limit, unit)) = self.limit {
            let _ = write!(json, ",\"limit\":{{\"requests_per_unit\":{limit},\"unit\":{:?}}}", unit.name());
        }
        json.push('}');
        json
    }
}
