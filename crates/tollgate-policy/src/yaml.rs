//! A YAML document as a tree that knows where everything stands.
//!
//! The file is read into plain values first and given its meaning afterwards, so that all its faults are found at
//! once and each is shown where it stands.

use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, Spanned};

use crate::fault::Fault;

/// A value, and which bytes of the source it stands in.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Range<usize>,
}

#[derive(Clone, Debug)]
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

/// The largest text that is read. A policy of ten thousand tenants takes a fortieth of it; one that was made from files of
/// another limiter is twice as long as they are.
pub(crate) const MOST_BYTES: usize = 16 << 20;

/// Reads a document. JSON is one, too.
pub(crate) fn parse(source: &str) -> Result<Node, Fault> {
    if source.len() > MOST_BYTES {
        let message = format!("the file has {} bytes", source.len());
        return Err(Fault::new(0..0, message).help(format!("at most {MOST_BYTES} are read")));
    }
    // `no` and `y` are text, as YAML has had it since 2009.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        // As many as a text of that length may have: how long it is has been looked at.
        budget: serde_saphyr::budget! { max_nodes: MOST_BYTES, max_events: 2 * MOST_BYTES },
    };
    match serde_saphyr::from_str_with_options::<Spanned<Tree>>(source, options) {
        Ok(tree) => Ok(node(tree)),
        Err(error) => {
            let span = error.location().map_or(0..0, |location| place(source, &location));
            // Its own rendering would show the source a second time, and its advice is for programmers.
            let message = error.without_snippet().to_string();
            let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or_default();
            Err(Fault::new(span, message))
        }
    }
}

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
