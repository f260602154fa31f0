//! Reading a tree for what it means, and collecting what is wrong with it.
//!
//! Nothing stops at the first fault. What cannot be read is left out, and the file is refused in the end.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use crate::environment_values::{EnvironmentValues, Expansion, hide_at};
use crate::fault::Fault;
use crate::keys::{self, Key, Takes};
use crate::quantity::{self, RateAndBurst};
use crate::yaml::{Node, Value};
use tollgate::{AlgorithmKind, RuleError};

/// What a file is read with.
pub(crate) struct Reader<'a> {
    environment: &'a dyn Fn(&str) -> Option<String>,
    faults: RefCell<Vec<Fault>>,
    expansions: RefCell<Vec<Expansion>>,
    expansion_places: RefCell<HashMap<Range<usize>, usize>>, // in `expansions`, by span
    numbers: RefCell<HashMap<String, String>>,               // from the environment, by the key of the file
}

impl<'a> Reader<'a> {
    /// `environment` tells what `${NAME}` stands for.
    pub(crate) fn new(environment: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            environment,
            faults: RefCell::default(),
            expansions: RefCell::default(),
            expansion_places: RefCell::default(),
            numbers: RefCell::default(),
        }
    }

    /// All that was wrong, as it stands in the file.
    pub(crate) fn into_faults(self) -> Vec<Fault> {
        let mut faults = self.faults.into_inner();
        faults.sort_by_key(|fault| fault.span.start);
        faults
    }

    /// How many faults there are so far.
    pub(crate) fn fault_count(&self) -> usize {
        self.faults.borrow().len()
    }

    /// Notes a fault. It shows the file's own text, and no value of the environment.
    pub(crate) fn fault(&self, fault: Fault) {
        let expansions = self.expansions.borrow();
        let hide = |text: &str| hide_at(&fault.span, text, &expansions);
        let (message, help) = (hide(&fault.message), fault.help.as_deref().map(hide));
        self.faults.borrow_mut().push(Fault { span: fault.span.clone(), message, help });
    }

    /// The values that came from the environment so far.
    pub(crate) fn environment_values(&self) -> EnvironmentValues {
        EnvironmentValues::new(&self.expansions.borrow(), self.numbers.borrow().clone())
    }

    /// Whether any value that was read so far came from the environment.
    pub(crate) fn has_environment_values(&self) -> bool {
        !self.expansions.borrow().is_empty()
    }

    /// The file's own text for a value that has been read, where it came from the environment.
    pub(crate) fn written(&self, node: &Node) -> Option<String> {
        let place = *self.expansion_places.borrow().get(&node.span)?;
        self.expansions.borrow().get(place).map(|found| found.written.clone())
    }

    /// Keeps the file's own text for a number that has been read, by its key, where it came from the environment.
    pub(crate) fn keep_number(&self, key: String, node: &Node) {
        self.numbers.borrow_mut().extend(self.written(node).map(|written| (key, written)));
    }

    /// A section whose keys are these. Nothing at all is one without keys.
    pub(crate) fn section<'n>(&self, node: &'n Node, keys: &'static [Key]) -> Option<Section<'n>> {
        let entries: &[(Node, Node)] = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => &[],
            other => {
                let message = format!("{} where a section should be", other.kind());
                self.fault(
                    Fault::new(node.span.clone(), message).help(format!("its keys are {}", names(keys))),
                );
                return None;
            }
        };
        for (name, _) in entries {
            let Some(text) = self.name(name) else { continue };
            if let Some((_, help)) = not_built(keys, &text) {
                let fault = Fault::new(name.span.clone(), format!("`{text}` is not built yet"));
                self.fault(fault.help(*help));
            } else if !keys.iter().any(|key| key.name == text) {
                let fault = Fault::new(name.span.clone(), format!("unknown key `{text}`"));
                let nearest = nearest(&text, keys.iter().map(|key| key.name));
                self.fault(fault.help(match nearest {
                    Some(nearest) => format!("did you mean `{nearest}`? The keys here are {}", names(keys)),
                    None => format!("the keys here are {}", names(keys)),
                }));
            }
        }
        Some(Section { span: node.span.clone(), keys, entries })
    }

    /// The values of a section under names of the writer's choice.
    pub(crate) fn named<'n>(&self, node: &'n Node) -> Vec<(String, &'n Node, &'n Node)> {
        let Value::Map(entries) = &node.value else {
            if !matches!(node.value, Value::Null) {
                let message = format!("{} where a section should be", node.value.kind());
                self.fault(Fault::new(node.span.clone(), message).help("write `name: …` for each"));
            }
            return Vec::new();
        };
        entries
            .iter()
            .filter_map(|(name, value)| Some((self.name(name)?.into_owned(), name, value)))
            .collect()
    }

    /// A name before a colon.
    fn name<'n>(&self, node: &'n Node) -> Option<Cow<'n, str>> {
        match &node.value {
            Value::Text(text) if !text.contains('$') => Some(text.into()),
            Value::Text(text) if text.replace("$${", "").contains("${") => {
                let fault = Fault::new(node.span.clone(), format!("`{text}` cannot be a key"));
                self.fault(fault.help(
                    "only values are replaced from the environment: write the name itself, or `$${` for `${`",
                ));
                None
            }
            Value::Text(text) => Some(text.replace("$${", "${").into()),
            Value::Integer(number) => Some(number.to_string().into()),
            Value::Bool(flag) => Some(flag.to_string().into()),
            other => {
                let message = format!("{} where a name should be", other.kind());
                self.fault(Fault::new(node.span.clone(), message).help("names are text; put it in quotes"));
                None
            }
        }
    }

    pub(crate) fn list<'n>(&self, node: &'n Node) -> &'n [Node] {
        match &node.value {
            Value::List(items) => items,
            Value::Null => &[],
            other => {
                let message = format!("{} where a list should be", other.kind());
                self.fault(Fault::new(node.span.clone(), message).help("write `[…]`, or one `- …` a line"));
                &[]
            }
        }
    }

    /// One, or a list.
    pub(crate) fn one_or_more<'n>(&self, node: &'n Node) -> &'n [Node] {
        match &node.value {
            Value::List(items) => items,
            _ => std::slice::from_ref(node),
        }
    }

    /// Text, with `${NAME}` replaced from the environment. `$${NAME}` is `${NAME}` itself.
    pub(crate) fn text(&self, node: &Node) -> Option<String> {
        self.expand(node, false).map(Cow::into_owned)
    }

    fn expand<'n>(&self, node: &'n Node, is_quantity: bool) -> Option<Cow<'n, str>> {
        let text = match &node.value {
            Value::Text(text) if !text.contains('$') => return Some(text.into()),
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Bool(flag) => flag.to_string(),
            other => {
                let message = format!("{} where text should be", other.kind());
                self.fault(Fault::new(node.span.clone(), message));
                return None;
            }
        };
        let (mut value, mut parts) = (String::new(), Vec::new());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('$') {
            value.push_str(before);
            if let Some(after) = after.strip_prefix("${") {
                value.push_str("${");
                rest = after;
            } else if let Some(after) = after.strip_prefix('{') {
                let Some((name, after)) = after.split_once('}') else {
                    let fault = Fault::new(node.span.clone(), "`${` without a `}`");
                    self.fault(fault.help("write `${NAME}`, or `$${` for `${` itself"));
                    return None;
                };
                let Some(part) = (self.environment)(name) else {
                    let fault =
                        Fault::new(node.span.clone(), format!("`{name}` is not set in the environment"));
                    self.fault(fault.help(format!(
                        "set {name}, or write the value here; `$${{{name}}}` is `${{{name}}}` itself"
                    )));
                    return None;
                };
                value.push_str(&part);
                parts.push((part, format!("${{{name}}}")));
                rest = after;
            } else {
                value.push('$');
                rest = after;
            }
        }
        value.push_str(rest);
        if !parts.is_empty() {
            let (span, written) = (node.span.clone(), text);
            let value = value.clone();
            let mut expansions = self.expansions.borrow_mut();
            // A value that is read twice has the same text both times.
            self.expansion_places.borrow_mut().insert(span.clone(), expansions.len());
            expansions.push(Expansion { span, value, written, parts, is_quantity });
        }
        Some(value.into())
    }

    pub(crate) fn count(&self, node: &Node) -> Option<u64> {
        if let Value::Integer(number) = node.value {
            let count = u64::try_from(number);
            if count.is_err() {
                let message = format!("{number} where a count should be");
                self.fault(
                    Fault::new(node.span.clone(), message).help("counts go from 0 to 18446744073709551615"),
                );
            }
            return count.ok();
        }
        self.quantity(node, quantity::count)
    }

    /// A count of at least 1.
    pub(crate) fn positive(&self, node: &Node, what: &str) -> Option<u64> {
        let count = self.count(node)?;
        if count == 0 {
            self.fault(Fault::new(node.span.clone(), format!("{what} of 0")).help("it must be at least 1"));
            return None;
        }
        Some(count)
    }

    pub(crate) fn rate(&self, node: &Node) -> Option<RateAndBurst> {
        let rate = |text: &str| {
            let is_zero = |help: &String| *help == RuleError::ZeroRate.to_string();
            quantity::rate(text).map_err(|help| match is_zero(&help) {
                true => format!("a rate has at least 1 token per period; {TO_BLOCK}"),
                false => help,
            })
        };
        self.quantity(node, rate)
    }

    pub(crate) fn time(&self, node: &Node) -> Option<Duration> {
        self.quantity(node, quantity::duration)
    }

    pub(crate) fn bytes(&self, node: &Node) -> Option<usize> {
        self.quantity(node, quantity::bytes)
    }

    pub(crate) fn flag(&self, node: &Node) -> Option<bool> {
        match &node.value {
            Value::Bool(flag) => return Some(*flag),
            Value::Text(text) if text == "on" => return Some(true),
            Value::Text(text) if text == "off" => return Some(false),
            other => {
                let message = format!("{} where true or false should be", other.kind());
                self.fault(Fault::new(node.span.clone(), message));
            }
        }
        None
    }

    /// A number from 0.001 to 1, in thousandths. `message` is the error for any other value.
    pub(crate) fn thousandths(&self, node: &Node, message: &str) -> Option<u32> {
        let value = match node.value {
            Value::Float(number) => number,
            Value::Integer(number) => number as f64,
            _ => -1.0,
        };
        if !(0.001..=1.0).contains(&value) {
            self.fault(Fault::new(node.span.clone(), message).help("write a number from 0.001 to 1"));
            return None;
        }
        #[expect(clippy::cast_sign_loss, reason = "between 1 and 1000")]
        Some((value * 1000.0).round() as u32)
    }

    /// The place of one of these words. `false` is another word for `off`.
    pub(crate) fn word(&self, node: &Node, words: &[&str]) -> Option<usize> {
        let text = match &node.value {
            Value::Bool(false) => "off".into(),
            _ => self.expand(node, true)?, // one of ours, and no secret
        };
        let place = words.iter().position(|word| *word == text);
        if place.is_none() {
            let fault = Fault::new(node.span.clone(), format!("unknown word `{text}`"));
            let known = quoted(words.iter().copied());
            self.fault(fault.help(match nearest(&text, words.iter().copied()) {
                Some(nearest) => format!("did you mean `{nearest}`? It is one of {known}"),
                None => format!("it is one of {known}"),
            }));
        }
        place
    }

    /// A number, a rate or a time that is written as text; whole numbers are, too.
    pub(crate) fn quantity<T>(&self, node: &Node, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.parse(node, true, read)
    }

    /// Anything else that is written as text.
    pub(crate) fn read<T>(&self, node: &Node, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.parse(node, false, read)
    }

    fn parse<T>(
        &self,
        node: &Node,
        is_quantity: bool,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = match node.value {
            Value::Float(number) => number.to_string().into(),
            _ => self.expand(node, is_quantity)?,
        };
        match read(&text) {
            Ok(value) => Some(value),
            Err(help) => {
                self.fault(Fault::new(node.span.clone(), format!("`{text}` cannot be read")).help(help));
                None
            }
        }
    }
}

/// How requests are blocked, for numbers that cannot be 0.
pub(crate) const TO_BLOCK: &str =
    "to block requests, use `limit: 0` in a fixed_window, sliding_log, sliding_counter or concurrency limit";

/// A section that has been checked for unknown keys.
#[derive(Clone, Debug)]
pub(crate) struct Section<'n> {
    pub(crate) span: Range<usize>,
    keys: &'static [Key],
    entries: &'n [(Node, Node)],
}

impl<'n> Section<'n> {
    /// The value of a key, if it is there.
    pub(crate) fn get(&self, name: &str) -> Option<&'n Node> {
        self.entries().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// The entries whose names are strings.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'n str, &'n Node)> {
        self.entries.iter().filter_map(|(key, value)| match &key.value {
            Value::Text(key) => Some((key.as_str(), value)),
            _ => None,
        })
    }

    /// A map without keys, in place of one that cannot be read.
    pub(crate) const fn empty(span: Range<usize>, keys: &'static [Key]) -> Self {
        Self { span, keys, entries: &[] }
    }

    /// The section behind a key, with the keys that the table gives it.
    pub(crate) fn section(&self, reader: &Reader<'_>, name: &str) -> Option<Section<'n>> {
        match self.takes(name) {
            Takes::Section(keys) => reader.section(self.get(name)?, keys),
            other => unreachable!("`{name}` takes {other:?}, not a section"),
        }
    }

    /// The place of the word behind a key among those that the table gives it.
    pub(crate) fn word(&self, reader: &Reader<'_>, name: &str) -> Option<usize> {
        match self.takes(name) {
            Takes::Word(words) => reader.word(self.get(name)?, words),
            other => unreachable!("`{name}` takes {other:?}, not a word"),
        }
    }

    fn takes(&self, name: &str) -> &'static Takes {
        let key = self.keys.iter().find(|key| key.name == name);
        &key.expect("a key of this section's table").takes
    }

    /// The value of a key that must be there.
    pub(crate) fn require(&self, reader: &Reader<'_>, name: &str, example: &str) -> Option<&'n Node> {
        let value = self.get(name);
        if value.is_none() {
            let fault = Fault::new(self.span.clone(), format!("`{name}` is missing"));
            reader.fault(fault.help(format!("write `{name}: {example}`")));
        }
        value
    }
}

/// The planned key of this name that no version has yet, where a map has the keys of a limit.
fn not_built(keys: &[Key], name: &str) -> Option<&'static (&'static str, &'static str)> {
    // Only the map of a limit has a key for each algorithm.
    let is_limit = AlgorithmKind::ALL.iter().all(|kind| keys.iter().any(|key| key.name == kind.name()));
    keys::NOT_BUILT.iter().find(|(planned, _)| is_limit && *planned == name)
}

fn names(keys: &[Key]) -> String {
    quoted(keys.iter().map(|key| key.name))
}

pub(crate) fn quoted<'s>(words: impl Iterator<Item = &'s str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The most names of a policy that a message lists.
const MOST_LISTED: usize = 20;

/// Names that the writer of a policy chose. There may be thousands, of which a message lists some.
pub(crate) fn quoted_names<'s>(names: impl ExactSizeIterator<Item = &'s str>) -> String {
    match names.len().saturating_sub(MOST_LISTED) {
        0 => quoted(names),
        more => format!("{} and {more} more", quoted(names.take(MOST_LISTED))),
    }
}

/// The word that was most likely meant: at most a third of its letters are wrong.
pub(crate) fn nearest<'s>(text: &str, words: impl Iterator<Item = &'s str>) -> Option<&'s str> {
    let distance = |word: &&str| distance(text, word);
    words.filter(|word| distance(word) * 3 <= word.len().max(3)).min_by_key(distance)
}

/// How many letters must be changed, added, left out or swapped with their neighbour (Damerau 1964, without changing
/// the same letters twice).
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|text| text.chars().take(64).collect::<Vec<char>>());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                let are_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if are_swapped { least.min(rows[i - 2][j - 2] + 1) } else { least }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant_is_found() {
        let words = ["rate", "burst", "queue", "limit", "window"];
        for (text, expected) in [
            ("burts", Some("burst")),
            ("Rate", Some("rate")),
            ("wnidow", Some("window")),
            ("limits", Some("limit")),
            ("que", None),
            ("apples", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, words.into_iter()), expected, "{text}");
        }
    }
}
