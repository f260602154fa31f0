//! The files of envoyproxy/ratelimit, read unchanged.
//!
//! Each rule becomes a limit whose `descriptor` says where it stood in the tree. Which of them applies is then decided
//! in one place, for imported and for written policies alike: `engine/descriptors.rs`.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fault::{Fault, Faults};
use crate::quantity::duration_text;
use crate::reader::{nearest, quoted};
use crate::yaml::{self, Node, Value};

/// A policy that does what files of envoyproxy/ratelimit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyImport {
    /// The policy file.
    pub policy: String,
    /// What was read and has no effect, each with its file and line.
    pub warnings: Vec<String>,
}

/// The longest policy that is made, in bytes. It is about twice as long as the files.
const MOST_IMPORTED_BYTES: usize = 16 << 20;

/// Makes a policy of files of envoyproxy/ratelimit, one domain each, with their names for messages.
///
/// With `count_denied`, denied requests count as they do there, also those that another descriptor denies; without
/// it, a denied request costs nobody anything.
///
/// # Errors
///
/// All that is wrong with each of them.
///
/// ```
/// let file = "domain: edge\ndescriptors: [{ key: path, rate_limit: { unit: minute, requests_per_unit: 10 } }]";
/// let import = tollgate_policy::import_envoy(&[("edge.yaml".into(), file.into())], false).unwrap();
/// assert!(import.policy.contains("fixed_window: { limit: 10, window: 1min }"));
/// ```
pub fn import_envoy(files: &[(PathBuf, String)], count_denied: bool) -> Result<EnvoyImport, Vec<Faults>> {
    let mut import = EnvoyImport { policy: String::new(), warnings: Vec::new() };
    let (mut wrong, mut domains) = (Vec::new(), HashMap::new());
    let mut rules = Vec::new();
    for (path, source) in files {
        let found = File::read(path, source, &mut domains, &mut rules);
        import.warnings.extend(found.warnings);
        if !found.faults.is_empty() {
            let file = path.display().to_string();
            wrong.push(Faults { file, source: source.clone(), faults: found.faults, line_numbers: None });
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    import.policy.push_str("# Made from the files of envoyproxy/ratelimit by `tollgate import envoy`.\n");
    import.policy.push_str(if rules.is_empty() { "limits: []\n" } else { "limits:\n" });
    let mut names = HashSet::new();
    for rule in &rules {
        rule.write(unique(rule.name(), &mut names), count_denied, &mut import.policy);
        if import.policy.len() > MOST_IMPORTED_BYTES {
            return Err(too_long(files));
        }
    }
    Ok(import)
}

/// A name that no other limit has: where two have the same hash, the second ends in a number.
fn unique(name: String, names: &mut HashSet<String>) -> String {
    let mut unique = name.clone();
    let mut number = 2;
    while !names.insert(unique.clone()) {
        let suffix = format!("-{number}");
        unique = format!("{}{suffix}", &name[..name.len().min(MOST_LETTERS - suffix.len())]);
        number += 1;
    }
    unique
}

/// The fault of files that make a longer policy than is read: each rule repeats the entries above it.
fn too_long(files: &[(PathBuf, String)]) -> Vec<Faults> {
    let message = format!("the policy made from these files has more than {MOST_IMPORTED_BYTES} bytes");
    let fault =
        Fault::new(0..0, message).help("shorten long keys and values that have many descriptors below them");
    let longest = files.iter().max_by_key(|(_, source)| source.len());
    let faults = longest.map(|(path, source)| Faults {
        file: path.display().to_string(),
        source: source.clone(),
        faults: vec![fault],
        line_numbers: None,
    });
    faults.into_iter().collect()
}

/// Every key that may stand anywhere in a file.
const KEYS: [&str; 16] = [
    "domain",
    "descriptors",
    "key",
    "value",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// Windows by unit: months have thirty days and years 365, and all begin with the epoch.
const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3600),
    ("day", 86_400),
    ("week", 604_800),
    ("month", 2_592_000),
    ("year", 31_536_000),
];

/// A descriptor of a file, with those above it.
#[derive(Clone, Debug)]
struct Rule {
    domain: String,
    entries: Vec<Entry>,
    limit: Option<Limit>,
    shadow_mode: bool,
    quota_mode: bool,
    detailed_metric: bool,
    metadata: Option<String>, // as YAML in one line
}

#[derive(Clone, Debug)]
struct Entry {
    key: String,
    value: Option<String>,
    share_threshold: bool,
    value_to_metric: bool,
}

/// What stands under `rate_limit`.
#[derive(Clone, Debug)]
struct Limit {
    per_unit: Option<(u64, u64)>, // how many in how many seconds; None for `unlimited`
    name: Option<String>,
    replaces: Vec<String>,
}

/// One file while it is read.
struct File<'a> {
    path: &'a Path,
    source: &'a str,
    faults: Vec<Fault>,
    warnings: Vec<String>,
}

impl<'a> File<'a> {
    fn read(
        path: &'a Path,
        source: &'a str,
        domains: &mut HashMap<String, PathBuf>,
        rules: &mut Vec<Rule>,
    ) -> Self {
        let mut file = Self { path, source, faults: Vec::new(), warnings: Vec::new() };
        match yaml::parse_first(source) {
            Err(fault) => file.faults.push(fault),
            Ok((node, second)) => {
                if let Some(second) = second {
                    // As there: gopkg.in/yaml.v2 decodes the first document of a text.
                    file.warn(
                        second.start,
                        "this document and those after it have no effect: the first is read",
                    );
                }
                match yaml::config_map_fault(&node) {
                    Some(fault) => file.faults.push(fault),
                    None => file.root(&node, domains, rules),
                }
            }
        }
        file
    }

    fn root(&mut self, node: &Node, domains: &mut HashMap<String, PathBuf>, rules: &mut Vec<Rule>) {
        let Some(fields) = self.fields(node, &["domain", "descriptors"]) else { return };
        let domain = fields.get("domain").and_then(|node| self.text(node)).unwrap_or_default();
        if domain.is_empty() {
            let span =
                fields.get("domain").map_or(node.span.start..node.span.start + 1, |node| node.span.clone());
            self.fault(span, "a file without a domain", "write `domain: NAME`, as Envoy's filter names it");
        } else if let Some(other) = domains.insert(domain.clone(), self.path.to_owned()) {
            let span = fields["domain"].span.clone();
            let message = format!("the domain `{domain}` is also in {}", other.display());
            self.fault(span, message, "one file has one domain: merge them");
        }
        if let Some(node) = fields.get("descriptors") {
            let above = Rule::new(domain);
            self.descriptors(node, &above, rules);
        }
    }

    /// The descriptors of one level, below those of `above`.
    fn descriptors(&mut self, node: &Node, above: &Rule, rules: &mut Vec<Rule>) {
        let nodes = match &node.value {
            Value::List(nodes) => nodes,
            Value::Null => return,
            other => {
                let message = format!("{} where a list of descriptors should be", other.kind());
                return self.fault(node.span.clone(), message, "write one `- key: …` a line");
            }
        };
        let mut seen = HashSet::new();
        for node in nodes {
            let known = [
                "key",
                "value",
                "rate_limit",
                "descriptors",
                "shadow_mode",
                "quota_mode",
                "detailed_metric",
                "value_to_metric",
                "share_threshold",
                "metadata",
            ];
            let Some(fields) = self.fields(node, &known) else { continue };
            let text = |file: &mut Self, name: &str| fields.get(name).and_then(|node| file.text(node));
            let faults = self.faults.len();
            let Some(key) = text(self, "key").filter(|key| !key.is_empty()) else {
                if self.faults.len() == faults {
                    self.fault(node.span.clone(), "a descriptor without a key", "write `key: path`");
                }
                continue;
            };
            let value = text(self, "value").filter(|value| !value.is_empty());
            let joined = value.as_ref().map_or(key.clone(), |value| format!("{key}_{value}"));
            if !seen.insert(joined.clone()) {
                let message = format!("`{joined}` is there twice on one level");
                let help = "key and value are compared as `key_value`: each stands there once";
                self.fault(node.span.clone(), message, help);
            }
            let flag = |file: &mut Self, name: &str| fields.get(name).is_some_and(|node| file.flag(node));
            let entry = Entry {
                share_threshold: flag(self, "share_threshold"),
                value_to_metric: flag(self, "value_to_metric"),
                key,
                value,
            };
            if entry.share_threshold && !joined.contains('*') {
                let help = "it makes all values that match a `*` share one count: leave it out";
                self.fault(node.span.clone(), "`share_threshold` without a `*` in the value", help);
            }
            let rule = Rule {
                domain: above.domain.clone(),
                entries: above.entries.iter().cloned().chain([entry]).collect(),
                limit: fields.get("rate_limit").and_then(|node| self.rate_limit(node)),
                shadow_mode: flag(self, "shadow_mode"),
                quota_mode: flag(self, "quota_mode"),
                detailed_metric: flag(self, "detailed_metric"),
                metadata: fields.get("metadata").map(|node| tree(&yaml::json(node))),
            };
            let below = fields.get("descriptors");
            let is_inner =
                below.is_some_and(|node| matches!(&node.value, Value::List(below) if !below.is_empty()));
            if rule.limit.is_some() || !is_inner {
                rules.push(rule.clone());
            }
            if let Some(below) = below {
                self.descriptors(below, &rule, rules);
            }
        }
    }

    fn rate_limit(&mut self, node: &Node) -> Option<Limit> {
        if matches!(node.value, Value::Null) {
            return None;
        }
        let fields = self.fields(node, &["unit", "requests_per_unit", "unlimited", "name", "replaces"])?;
        let name = fields.get("name").and_then(|node| self.text(node)).filter(|name| !name.is_empty());
        let is_unlimited = fields.get("unlimited").is_some_and(|node| self.flag(node));
        let unit = fields.get("unit").and_then(|&node| Some((node, self.text(node)?)));
        let per_unit = match (is_unlimited, unit) {
            (true, None) => None,
            (true, Some((node, _))) => {
                self.fault(node.span.clone(), "`unit` beside `unlimited`", "leave one of them out");
                None
            }
            (false, unit) => {
                let seconds = self.unit(node, unit);
                Some((self.requests_per_unit(&fields), seconds?))
            }
        };
        let replaces = self.replaces(&fields, name.as_deref());
        Some(Limit { per_unit, name, replaces })
    }

    fn unit(&mut self, rate_limit: &Node, unit: Option<(&Node, String)>) -> Option<u64> {
        let help = || format!("it is one of {}", quoted(UNITS.iter().map(|(name, _)| *name)));
        let Some((node, unit)) = unit else {
            self.fault(rate_limit.span.clone(), "a rate limit without a `unit`", help());
            return None;
        };
        let found = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&unit));
        if found.is_none() {
            self.fault(node.span.clone(), format!("unknown unit `{unit}`"), help());
        }
        found.map(|(_, seconds)| *seconds)
    }

    fn requests_per_unit(&mut self, fields: &HashMap<&str, &Node>) -> u64 {
        let Some(node) = fields.get("requests_per_unit") else { return 0 };
        let Value::Integer(number) = node.value else { return self.no_number(node) };
        u32::try_from(number).map_or_else(|_| self.no_number(node), u64::from)
    }

    fn no_number(&mut self, node: &Node) -> u64 {
        self.fault(node.span.clone(), "no number of requests", "write one from 0 to 4294967295");
        0
    }

    fn replaces(&mut self, fields: &HashMap<&str, &Node>, own: Option<&str>) -> Vec<String> {
        let Some(node) = fields.get("replaces") else { return Vec::new() };
        let Value::List(nodes) = &node.value else {
            if !matches!(node.value, Value::Null) {
                self.fault(node.span.clone(), "`replaces` is no list", "write `replaces: [{ name: other }]`");
            }
            return Vec::new();
        };
        let mut names = Vec::new();
        for node in nodes {
            let Some(fields) = self.fields(node, &["name"]) else { continue };
            let name = fields.get("name").and_then(|node| self.text(node)).unwrap_or_default();
            if name.is_empty() {
                self.fault(
                    node.span.clone(),
                    "`replaces` without a name",
                    "write `replaces: [{ name: other }]`",
                );
            } else if Some(name.as_str()) == own {
                self.fault(node.span.clone(), format!("`{name}` replaces itself"), "name another rule");
            } else {
                names.push(name);
            }
        }
        names
    }

    /// The fields of a section. What may stand elsewhere has no effect here, as it has none there.
    fn fields<'n>(&mut self, node: &'n Node, known: &[&str]) -> Option<HashMap<&'n str, &'n Node>> {
        let Value::Map(entries) = &node.value else {
            let help = format!("its keys are {}", quoted(known.iter().copied()));
            self.fault(node.span.clone(), format!("{} where a section should be", node.value.kind()), help);
            return None;
        };
        let mut fields = HashMap::new();
        for (name, value) in entries {
            match &name.value {
                Value::Text(text) if known.contains(&text.as_str()) => {
                    _ = fields.insert(text.as_str(), value)
                }
                Value::Text(text) if KEYS.contains(&text.as_str()) => {
                    self.warn(name.span.start, &format!("`{text}` has no effect here"));
                }
                other => {
                    let text = if let Value::Text(text) = other { text } else { other.kind() };
                    let help = match nearest(text, known.iter().copied()) {
                        Some(nearest) => format!("did you mean `{nearest}`?"),
                        None => format!("the keys here are {}", quoted(known.iter().copied())),
                    };
                    self.fault(name.span.clone(), format!("unknown key `{text}`"), help);
                }
            }
        }
        Some(fields)
    }

    /// A text as it is: nothing is replaced in these files.
    fn text(&mut self, node: &Node) -> Option<String> {
        match &node.value {
            Value::Null => Some(String::new()),
            // As it is written: `1.50` and `0x10` are names here.
            Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {
                Some(self.source.get(node.span.clone()).unwrap_or_default().to_owned())
            }
            Value::Text(text) => Some(text.clone()),
            other @ (Value::List(_) | Value::Map(_)) => {
                let message = format!("{} where text should be", other.kind());
                self.fault(node.span.clone(), message, "write a word, or text in quotes");
                None
            }
        }
    }

    fn flag(&mut self, node: &Node) -> bool {
        match &node.value {
            Value::Bool(flag) => return *flag,
            Value::Null => return false,
            // As YAML had it before 2009, and as those files may.
            Value::Text(text) if ["yes", "on", "y"].contains(&text.to_lowercase().as_str()) => return true,
            Value::Text(text) if ["no", "off", "n"].contains(&text.to_lowercase().as_str()) => return false,
            _ => {}
        }
        self.fault(
            node.span.clone(),
            format!("{} where true or false should be", node.value.kind()),
            "write `true`",
        );
        false
    }

    fn warn(&mut self, at: usize, message: &str) {
        let line = self.source[..at].matches('\n').count() + 1;
        self.warnings.push(format!("{}:{line}: {message}", self.path.display()));
    }

    fn fault(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        self.faults.push(Fault::new(span, message).help(help));
    }
}

impl Rule {
    /// The root of a domain.
    fn new(domain: String) -> Self {
        Self {
            domain,
            entries: Vec::new(),
            limit: None,
            shadow_mode: false,
            quota_mode: false,
            detailed_metric: false,
            metadata: None,
        }
    }

    /// Writes it as an item of `limits`.
    fn write(&self, limit: String, count_denied: bool, policy: &mut String) {
        let mut descriptor = format!("domain: {}, entries: [", text(&self.domain));
        for (i, entry) in self.entries.iter().enumerate() {
            let _ = write!(descriptor, "{}{{ key: {}", if i == 0 { "" } else { ", " }, text(&entry.key));
            if let Some(value) = &entry.value {
                let _ = write!(descriptor, ", value: {}", text(value));
            }
            let flags =
                [("share_threshold", entry.share_threshold), ("value_to_metric", entry.value_to_metric)];
            descriptor
                .extend(flags.iter().filter(|(_, set)| *set).map(|(name, _)| format!(", {name}: true")));
            descriptor.push_str(" }");
        }
        descriptor.push(']');
        let (per_unit, name, replaces) = match &self.limit {
            Some(limit) => (limit.per_unit, limit.name.as_deref(), &limit.replaces[..]),
            None => (None, None, &[][..]),
        };
        if let Some(name) = name {
            let _ = write!(descriptor, ", name: {}", text(name));
        }
        if !replaces.is_empty() {
            let names: Vec<String> = replaces.iter().map(|name| text(name)).collect();
            let _ = write!(descriptor, ", replaces: [{}]", names.join(", "));
        }
        let is_blocked = matches!(per_unit, Some((0, _)));
        let flags = [
            ("quota_mode", self.quota_mode),
            ("detailed_metric", self.detailed_metric),
            ("blocked", is_blocked),
        ];
        descriptor.extend(flags.iter().filter(|(_, set)| *set).map(|(name, _)| format!(", {name}: true")));
        if let Some(metadata) = &self.metadata {
            let _ = write!(descriptor, ", metadata: {metadata}");
        }
        let _ = writeln!(policy, "  - name: {}\n    descriptor: {{ {descriptor} }}", text(&limit));
        match (per_unit, &self.limit) {
            (Some((requests, seconds)), _) => {
                let limit = requests.max(1); // of what is blocked nobody asks how much
                let window = duration_text(Duration::from_secs(seconds));
                let _ = writeln!(policy, "    fixed_window: {{ limit: {limit}, window: {window} }}");
                if self.shadow_mode {
                    policy.push_str("    shadow: true\n");
                }
            }
            (None, Some(_)) => policy.push_str("    unlimited: true\n"),
            (None, None) => {}
        }
        if count_denied {
            policy.push_str("    count_denied: true\n");
        }
    }

    /// The name of its limit: where it stands in the tree, as far as names can tell.
    fn name(&self) -> String {
        let parts = || {
            let entry = |entry: &Entry| match &entry.value {
                Some(value) => format!("{}_{value}", entry.key),
                None => entry.key.clone(),
            };
            std::iter::once(self.domain.clone()).chain(self.entries.iter().map(entry))
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
        let plain = parts().collect::<Vec<_>>().join("/");
        if plain.len() <= MOST_LETTERS && parts().all(|part| part.chars().all(fits)) {
            return plain;
        }
        // What had to be changed may look like another: the hash of all of it does not.
        let changed: String = plain.chars().map(|c| if fits(c) || c == '/' { c } else { '-' }).collect();
        let length = changed.len().min(MOST_LETTERS - 9);
        format!("{}-{:08x}", &changed[..length], hash(parts()))
    }
}

/// As many letters a name may have.
const MOST_LETTERS: usize = 64;

/// FNV-1a of all parts, each with its end, so that a rule has the same name in every run.
fn hash(parts: impl Iterator<Item = String>) -> u32 {
    let bytes = parts.flat_map(|part| part.into_bytes().into_iter().chain([0xff]));
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Text for a value of the policy file, which replaces `${NAME}` there and reads `$${` as `${`.
fn text(text: &str) -> String {
    quoted_text(&text.replace("${", "$${"))
}

/// Text in double quotes, as YAML has it. Characters that YAML does not print, and those that some readers take for the end of a line,
/// are escaped: control characters, line and paragraph separators, the byte order mark and what is no character.
fn quoted_text(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let code = u32::from(c);
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ if c.is_control() => _ = write!(quoted, "\\x{code:02x}"),
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fdd0}'..='\u{fdef}' => {
                _ = write!(quoted, "\\u{code:04x}");
            }
            _ if code & 0xfffe == 0xfffe => _ = write!(quoted, "\\U{code:08x}"),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The longest key of a map that YAML reads without `?` before it, in bytes of its quoted form.
const LONGEST_SIMPLE_KEY: usize = 1000;

/// A tree of free form, as YAML in one line.
fn tree(value: &serde_json::Value) -> String {
    use serde_json::Value as Json;
    match value {
        Json::String(text) => quoted_text(text),
        Json::Array(items) => format!("[{}]", items.iter().map(tree).collect::<Vec<_>>().join(", ")),
        Json::Object(entries) => {
            let entry = |(key, value): (&String, &Json)| {
                let (key, value) = (quoted_text(key), tree(value));
                let mark = if key.len() > LONGEST_SIMPLE_KEY { "? " } else { "" };
                format!("{mark}{key} : {value}")
            };
            format!("{{ {} }}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
