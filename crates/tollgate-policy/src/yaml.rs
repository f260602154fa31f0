//! A YAML document as a tree that knows where everything stands.
//!
//! The file is read into plain values first and given its meaning afterwards, so that all its faults are found at
//! once and each is shown where it stands.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, MessageFormatter as _, Spanned, UserMessageFormatter};

use crate::fault::Fault;

mod flat_json;

/// A value, and which bytes of the source it stands in.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Range<usize>,
}

#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// The value of a key, where this is a map that has it.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        let Value::Map(entries) = &self.value else { return None };
        let entry = entries.iter().find(|(key, _)| matches!(&key.value, Value::Text(key) if key == name));
        entry.map(|(_, value)| value)
    }
}

impl Value {
    /// What it is called in messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a section",
        }
    }
}

/// The largest text that is read as a policy, in bytes. Check the size of a file against a smaller bound before it is read.
pub const MAX_POLICY_BYTES: usize = 1 << 30;

/// The nodes that any text may have, also where aliases repeat some of them. A longer text may have as many as it has bytes.
const MOST_NODES: usize = 16 << 20;

/// Reads a text with one document, which may be JSON. A text with several documents is refused, because it is unclear
/// which one counts.
pub(crate) fn parse(source: &str) -> Result<Node, Fault> {
    if let Some(node) = flat_json::parse(source) {
        return Ok(node);
    }
    let (node, second) = parse_first(source)?;
    match second {
        None => Ok(node),
        Some(second) => {
            let fault = Fault::new(second, "a second document in one file");
            Err(fault.help("keep one document, or split the file at its `---` lines"))
        }
    }
}

/// Reads the first document of a text that has any content, and finds where the next one begins, if there is one.
pub(crate) fn parse_first(source: &str) -> Result<(Node, Option<Range<usize>>), Fault> {
    let [first, second] = documents(source);
    let Some(first) = first else { return Ok((document(source, 0..source.len())?, None)) };
    Ok((document(source, first)?, second))
}

/// The first two documents of a text that have any content. Each begins with its directives or its marker `---`, and ends before
/// the next marker. A marker at the start of a line is one in every context, also inside of a string (YAML 1.2, 9.1.2).
fn documents(source: &str) -> [Option<Range<usize>>; 2] {
    let (mut first, mut start, mut at) = (None, 0, 0);
    let (mut is_open, mut has_content) = (false, false);
    for line in source.split_inclusive('\n') {
        let text = if at == 0 { line.trim_start_matches('\u{feff}') } else { line };
        let after = |marker: &str| {
            let rest = text.strip_prefix(marker)?;
            (rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n'])).then_some(rest)
        };
        let (opens, closes) = (after("---"), after("..."));
        if has_content && (opens.is_some() || closes.is_some()) {
            if first.is_some() {
                return [first, Some(start..at)];
            }
            (first, start, is_open, has_content) = (Some(start..at), at, false, false);
        }
        if closes.is_some() || opens.is_some() && is_open {
            start = if opens.is_some() { at } else { at + line.len() };
        }
        is_open = opens.is_some() || is_open && closes.is_none();
        let content = closes.map_or(opens.unwrap_or(text), |_| "").trim_start();
        let is_directive = content.starts_with('%') && !is_open;
        has_content |= !content.is_empty() && !content.starts_with('#') && !is_directive;
        at += line.len();
    }
    let last = has_content.then_some(start..at);
    if first.is_some() { [first, last] } else { [last, None] }
}

/// Reads the document at this place of a text.
fn document(source: &str, place: Range<usize>) -> Result<Node, Fault> {
    if source.len() > MAX_POLICY_BYTES {
        let message = format!("the file has {} bytes", source.len());
        return Err(Fault::new(0..0, message).help(format!("at most {MAX_POLICY_BYTES} are read")));
    }
    let max_nodes = source.len().max(MOST_NODES);
    // `no` and `y` are text, as YAML has had it since 2009.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! { max_nodes: max_nodes, max_events: 2 * max_nodes, max_total_scalar_bytes: 4 * max_nodes },
    };
    // Documents before this one have no content. Blanks in their place keep the places of all that follows.
    let text = if place.start == 0 {
        Cow::Borrowed(&source[place])
    } else {
        let blank = |byte: u8| if byte == b'\n' { '\n' } else { ' ' };
        let blanks: String = source[..place.start].bytes().map(blank).collect();
        Cow::Owned(blanks + &source[place])
    };
    match serde_saphyr::from_str_with_options::<Spanned<Tree>>(&text, options) {
        Ok(tree) => Ok(node(tree)),
        Err(error) => {
            let span = error.location().map_or(0..0, |location| self::place(source, &location));
            let (message, help) = in_words(error.without_snippet());
            let line = source[..source.floor_char_boundary(span.start)].rfind('\n').map_or(0, |end| end + 1);
            let line = source[line..].lines().next().unwrap_or_default();
            let help =
                help.filter(|_| !line.contains("${")).or(line.contains("${").then_some(QUOTE_VARIABLE));
            let fault = Fault::new(span, message);
            Err(if let Some(help) = help { fault.help(help) } else { fault })
        }
    }
}

/// An error of the parser, and what would be right. Its own text names its types and options, which are not the writer's.
fn in_words(error: &serde_saphyr::Error) -> (String, Option<&'static str>) {
    use serde_saphyr::Error;
    let (message, help) = match error {
        Error::AliasError { error, .. } => return in_words(error),
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            return (format!("duplicate key `{key}`"), Some("keep one of them"));
        }
        Error::DuplicateMappingKey { key: None, .. } => ("duplicate key", "keep one of them"),
        Error::Eof { .. } => ("the file ends too early", "close every bracket and quote"),
        Error::UnknownAnchor { .. } => (
            "an alias without its anchor",
            "`*name` repeats what `&name` marks before it; put text that begins with `*` in quotes",
        ),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            ("an alias inside of what it repeats", "write the value itself")
        }
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            ("aliases repeat too much", "write the values themselves, or split the file")
        }
        Error::Budget { .. } => {
            ("the file is too complex", "use fewer aliases, and fewer maps and lists inside of each other")
        }
        Error::MergeValueNotMapOrSeqOfMaps { .. } | Error::MergeKeyNotAllowed { .. } => {
            ("`<<` without a map to merge", "write `<<: *name` with the anchor of a map")
        }
        Error::InvalidBinaryBase64 { .. }
        | Error::BinaryNotUtf8 { .. }
        | Error::TaggedScalarCannotDeserializeIntoString { .. }
        | Error::UnsupportedTag { .. }
        | Error::TaggedEnumMismatch { .. } => (
            "a tag that does not fit its value",
            "leave the tag out; put text that begins with `!` in quotes",
        ),
        Error::InvalidScalar { .. } | Error::NonFiniteFloat { .. } => {
            ("a number that cannot be read", "put it in quotes if it is text")
        }
        error => return (UserMessageFormatter.format_message(error).into_owned(), None),
    };
    (message.to_owned(), Some(help))
}

const QUOTE_VARIABLE: &str = "a variable inside of `{ }` or `[ ]` needs quotes: `rate: \"${RATE}\"`";

/// Whether a document is a file of envoyproxy/ratelimit, handed over in place of a policy.
pub(crate) fn envoy_file_fault(node: &Node) -> Option<Fault> {
    let domain = node.get("domain")?;
    node.get("descriptors")?;
    let fault = Fault::new(domain.span.clone(), "this is a file of envoyproxy/ratelimit, not a policy");
    Some(fault.help("`tollgate import envoy FILE` prints it as a policy, and `tollgate serve --envoy-config FILE` serves it"))
}

/// Whether a document is a Kubernetes ConfigMap, which people hand over in place of the file that is in it.
pub(crate) fn config_map_fault(node: &Node) -> Option<Fault> {
    let kind =
        node.get("kind").filter(|kind| matches!(&kind.value, Value::Text(text) if text == "ConfigMap"))?;
    node.get("apiVersion")?;
    let keys = match node.get("data").map(|data| &data.value) {
        Some(Value::Map(entries)) => entries.iter().filter_map(|(key, _)| match &key.value {
            Value::Text(text) => Some(format!("`{text}`")),
            _ => None,
        }),
        _ => return Some(Fault::new(kind.span.clone(), CONFIG_MAP).help(CONFIG_MAP_HELP)),
    };
    let keys: Vec<String> = keys.take(5).collect();
    let help = format!("{CONFIG_MAP_HELP}. Its `data` has {}", keys.join(", "));
    Some(Fault::new(kind.span.clone(), CONFIG_MAP).help(help))
}

const CONFIG_MAP: &str = "this is a Kubernetes ConfigMap, not the file inside of it";
const CONFIG_MAP_HELP: &str = "write the text under a key of `data` to a file of its own, or mount the ConfigMap as a directory and name the file in it";

/// Whatever stands there, as JSON.
pub(crate) fn json(node: &Node) -> serde_json::Value {
    use serde_json::Value as Json;
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(*flag),
        Value::Integer(number) => {
            i64::try_from(*number).map_or_else(|_| number.to_string().into(), Json::from)
        }
        Value::Float(number) => Json::from(*number),
        Value::Text(text) => Json::from(text.as_str()),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => {
            let name = |node: &Node| match &node.value {
                Value::Text(text) => text.clone(),
                Value::Integer(number) => number.to_string(),
                other => other.kind().to_owned(),
            };
            Json::Object(entries.iter().map(|(key, value)| (name(key), json(value))).collect())
        }
    }
}

fn node(tree: Spanned<Tree>) -> Node {
    let span = bytes(&tree.referenced);
    let value = match tree.value {
        Tree::Scalar(value) => value,
        Tree::List(items) => Value::List(items.into_iter().map(node).collect()),
        Tree::Map(entries) => Value::Map(entries.into_iter().map(|(k, v)| (node(k), node(v))).collect()),
    };
    Node { value, span }
}

/// Where a fault of syntax is: a line and a column, from 1, where the parser has no more.
fn place(source: &str, location: &Location) -> Range<usize> {
    if location.span().byte_offset().is_some() {
        return bytes(location);
    }
    let lines = source.split_inclusive('\n');
    let line_start: usize = lines.take((location.line() as usize).saturating_sub(1)).map(str::len).sum();
    let column = (location.column() as usize).saturating_sub(1);
    let into =
        source[line_start..].char_indices().nth(column).map_or(source.len() - line_start, |(at, _)| at);
    line_start + into..line_start + into
}

fn bytes(location: &Location) -> Range<usize> {
    let span = location.span();
    let start = span.byte_offset().unwrap_or(0) as usize;
    start..start + span.byte_len().unwrap_or(0) as usize
}

/// What the parser hands over.
enum Tree {
    Scalar(Value),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<Self>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Growing)
    }
}

struct Growing;

impl<'de> Visitor<'de> for Growing {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Integer(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Integer(value.into())))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Integer(value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Float(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Scalar(Value::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tree, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Tree::Map(map))
    }
}

#[cfg(test)]
mod tests;
