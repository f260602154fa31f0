//! Which requests something applies to.

use crate::keys;
use crate::reader::Reader;
use crate::yaml::Node;

/// Conditions on attributes, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match(Vec<Condition>);

/// An attribute must match one of several patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    attribute: String,
    patterns: Vec<Pattern>,
}

/// Text in which `*` stands for any run of characters, none included.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern(String);

impl Match {
    pub(crate) fn read(reader: &Reader<'_>, node: &Node) -> Self {
        let Some(section) = reader.section(node, keys::MATCH) else { return Self::default() };
        let mut conditions = Vec::new();
        for key in keys::MATCH.iter().filter(|key| key.name != "attributes") {
            if let Some(node) = section.get(key.name) {
                conditions.push(Condition::read(reader, key.name.to_owned(), node));
            }
        }
        if let Some(node) = section.get("attributes") {
            for (name, _, value) in reader.named(node) {
                conditions.push(Condition::read(reader, name, value));
            }
        }
        Self(conditions)
    }

    /// Whether a request matches. `attribute` tells what it has of one; a missing attribute matches nothing, not even
    /// `*`.
    pub fn matches<'v>(&self, attribute: impl Fn(&str) -> Option<&'v str>) -> bool {
        self.0.iter().all(|condition| {
            let value = attribute(&condition.attribute);
            value.is_some_and(|value| condition.patterns.iter().any(|pattern| pattern.matches(value)))
        })
    }

    /// The attributes it looks at.
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|condition| condition.attribute.as_str())
    }
}

impl Condition {
    fn read(reader: &Reader<'_>, attribute: String, node: &Node) -> Self {
        let patterns =
            reader.one_or_more(node).iter().filter_map(|node| reader.text(node)).map(Pattern).collect();
        Self { attribute, patterns }
    }
}

impl Pattern {
    /// The parts between the stars must come one after the other; the first at the start, the last at the end. Taking
    /// each as early as possible is enough, so that no text makes this slow.
    fn matches(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let Some(last) = parts.next_back() else { return rest.is_empty() };
        for part in parts {
            let Some(found) = rest.find(part) else { return false };
            rest = &rest[found + part.len()..];
        }
        rest.ends_with(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_run_of_characters() {
        for (pattern, text, expected) in [
            ("/api/trips", "/api/trips", true),
            ("/api/trips", "/api/trips/1", false),
            ("/export/*", "/export/", true),
            ("/export/*", "/export/a/b", true),
            ("/export/*", "/export", false),
            ("*", "", true),
            ("*/admin/*", "/v1/admin/x", true),
            ("*/admin/*", "/v1/admins/x", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*.json", "x.json.json", true),
            ("", "", true),
            ("", "a", false),
            ("é*ü", "é→ü", true),
        ] {
            assert_eq!(Pattern(pattern.to_owned()).matches(text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn no_text_makes_a_pattern_slow() {
        let pattern = Pattern("a*".repeat(1000) + "b");
        assert!(!pattern.matches(&"a".repeat(100_000)));
    }
}
