//! Which requests something applies to.

use crate::keys;
use crate::reader::Reader;
use crate::request_attributes::header_table::normal_scheme;
use crate::yaml::Node;

/// Conditions on attributes, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match(Vec<Condition>);

/// An attribute must match one of several patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) attribute: String,
    pub(crate) patterns: Vec<Pattern>,
}

/// Text in which `*` stands for any run of characters, none included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    written: String,
    text: String, // in the form that values of the attribute have
}

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

    /// What matches attributes of these names, each with a pattern of its value. Of a name that comes twice, the first counts.
    pub(super) fn of<'a>(attributes: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut conditions: Vec<Condition> = Vec::new();
        for (name, value) in attributes {
            if conditions.iter().all(|known| known.attribute != name) {
                let patterns = vec![Pattern::exact(value.to_owned())];
                conditions.push(Condition { attribute: name.to_owned(), patterns });
            }
        }
        Self(conditions)
    }

    /// Each attribute it looks at, with the patterns of which one must match.
    pub fn patterns(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &str>)> {
        self.0
            .iter()
            .map(|condition| (condition.attribute.as_str(), condition.patterns.iter().map(Pattern::written)))
    }

    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.0
    }

    /// Whether no request can match both: an attribute that both look at has patterns without stars, and none in common.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        self.0.iter().any(|condition| {
            let both = other.0.iter().filter(|theirs| theirs.attribute == condition.attribute);
            both.into_iter().any(|theirs| condition.excludes(theirs))
        })
    }

    /// Attributes of a request that matches.
    pub(crate) fn sample(&self) -> Vec<(&str, String)> {
        let sample = |condition: &'_ Condition| condition.patterns.first().map(Pattern::sample);
        self.0
            .iter()
            .filter_map(|condition| Some((condition.attribute.as_str(), sample(condition)?)))
            .collect()
    }

    /// Whether a request may match that has these attributes, and perhaps others.
    pub(crate) fn may_hold(&self, attributes: &[(&str, String)]) -> bool {
        self.0.iter().all(|condition| {
            let known = attributes.iter().find(|(name, _)| *name == condition.attribute);
            known.is_none_or(|(_, value)| condition.patterns.iter().any(|pattern| pattern.matches(value)))
        })
    }
}

impl Condition {
    /// Whether no text matches both. Of two patterns with stars, any text might.
    fn excludes(&self, other: &Self) -> bool {
        let meet = |one: &Pattern, other: &Pattern| match (one.has_star(), other.has_star()) {
            (true, true) => true,
            (true, false) => one.matches(&other.text),
            (false, _) => other.matches(&one.text),
        };
        !self.patterns.iter().any(|one| other.patterns.iter().any(|other| meet(one, other)))
    }

    fn read(reader: &Reader<'_>, attribute: String, node: &Node) -> Self {
        let written = reader.one_or_more(node).iter().filter_map(|node| reader.text(node));
        let patterns = written.map(|written| Pattern::new(&attribute, written)).collect();
        Self { attribute, patterns }
    }
}

impl Pattern {
    /// A pattern of an attribute's values.
    fn new(attribute: &str, written: String) -> Self {
        match attribute.strip_prefix("header.") {
            Some(name) if name.eq_ignore_ascii_case("authorization") => {
                let (scheme, rest) = written.split_at(written.find([' ', '*']).unwrap_or(0));
                Self { text: normal_scheme(scheme) + rest, written }
            }
            _ => Self::exact(written),
        }
    }

    /// A pattern that is compared as it is written.
    pub(crate) fn exact(written: String) -> Self {
        Self { text: written.clone(), written }
    }

    /// The pattern as it stands in the file.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    fn has_star(&self) -> bool {
        self.text.contains('*')
    }

    /// A text that it matches.
    fn sample(&self) -> String {
        self.text.replace('*', "x")
    }

    /// The parts between the stars must come one after the other; the first at the start, the last at the end. Taking
    /// each as early as possible is enough, so that no text makes this slow.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let mut parts = self.text.split('*');
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
            assert_eq!(Pattern::exact(pattern.to_owned()).matches(text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn no_text_makes_a_pattern_slow() {
        let pattern = Pattern::exact("a*".repeat(1000) + "b");
        assert!(!pattern.matches(&"a".repeat(100_000)));
    }
}
