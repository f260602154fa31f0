//! Which requests something applies to.

mod pattern_index;
mod patterns;

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::fault::Fault;
use crate::host::{host_parts, is_host_attribute, normal_host};
use crate::keys::{self, Takes};
use crate::reader::Reader;
use crate::request_attributes::header_table::normal_scheme;
use crate::yaml::Node;

pub(crate) use self::pattern_index::{Literal, PatternIndex, Position, View};
pub(crate) use self::patterns::Patterns;

/// Conditions on attributes, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    conditions: Vec<Condition>,
    path: PathForm,
}

/// Which paths are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PathForm {
    ignore_case: bool,
    any_slash: bool, // at the end
}

/// An attribute must match one of several patterns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) attribute: String,
    pub(crate) patterns: Patterns,
}

/// Text in which `*` stands for any run of characters, none included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    written: String,
    text: String, // in the form that values of the attribute have
    form: Form,
}

/// How values of an attribute are compared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// As they are.
    Exact,
    /// As paths. `without_slash` is the pattern without the slash that it ends with, also before a star.
    Path { form: PathForm, without_slash: Option<String> },
    /// As hosts: the name by the pattern, the port by this.
    Host(Port),
}

/// The ports of a host that match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Port {
    Any,
    Usual, // none, 80 and 443
    Pattern(String),
}

impl Match {
    pub(crate) fn read(reader: &Reader<'_>, node: &Node) -> Self {
        let Some(section) = reader.section(node, keys::MATCH) else { return Self::default() };
        let path = PathForm {
            ignore_case: section.get("ignore_case").and_then(|node| reader.flag(node)).unwrap_or(false),
            any_slash: section.word(reader, "trailing_slash") == Some(1),
        };
        let mut conditions = Vec::new();
        for key in keys::MATCH.iter().filter(|key| matches!(key.takes, Takes::OneOrMore(_))) {
            if let Some(node) = section.get(key.name) {
                conditions.push(Condition::read(reader, key.name.to_owned(), node, path));
            }
        }
        if let Some(node) = section.get("attributes") {
            for (name, _, value) in reader.named(node) {
                conditions.push(Condition::read(reader, name, value, path));
            }
        }
        for key in ["ignore_case", "trailing_slash"] {
            if let Some(node) = section.get(key)
                && conditions.iter().all(|condition| condition.attribute != "path")
            {
                let fault = Fault::new(node.span.clone(), format!("`{key}` without a `path`"));
                reader.fault(
                    fault.help("it sets how the `path` of the same `match` is compared; add a `path`"),
                );
            }
        }
        Self { conditions, path }
    }

    /// Whether the path matches in any case.
    pub fn ignores_case(&self) -> bool {
        self.path.ignore_case
    }

    /// Whether the path matches with a slash at its end and without.
    pub fn ignores_trailing_slash(&self) -> bool {
        self.path.any_slash
    }

    /// What matches attributes of these names, each with a pattern of its value. Of a name that comes twice, the first counts.
    pub(super) fn of<'a>(attributes: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut conditions: Vec<Condition> = Vec::new();
        for (name, value) in attributes {
            if conditions.iter().all(|known| known.attribute != name) {
                let patterns = Patterns::new(vec![Pattern::exact(value.to_owned())]);
                conditions.push(Condition { attribute: name.to_owned(), patterns });
            }
        }
        Self { conditions, path: PathForm::default() }
    }

    /// Each attribute it looks at, with the patterns of which one must match.
    pub fn patterns(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = &str>)> {
        self.conditions
            .iter()
            .map(|condition| (condition.attribute.as_str(), condition.patterns.iter().map(Pattern::written)))
    }

    pub(crate) fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Whether no request can match both: an attribute that both look at has patterns without stars, and none in common.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        self.conditions.iter().any(|condition| {
            let both = other.conditions.iter().filter(|theirs| theirs.attribute == condition.attribute);
            both.into_iter().any(|theirs| condition.excludes(theirs))
        })
    }

    /// Attributes of a request that matches.
    pub(crate) fn sample(&self) -> Vec<(&str, String)> {
        let sample = |condition: &'_ Condition| condition.patterns.first().map(Pattern::sample);
        self.conditions
            .iter()
            .filter_map(|condition| Some((condition.attribute.as_str(), sample(condition)?)))
            .collect()
    }

    /// Whether a request may match that has these attributes, and perhaps others. [`MatchGroups`](super::match_groups::MatchGroups)
    /// does this for many matches.
    #[cfg(test)]
    pub(crate) fn may_hold(&self, attributes: &[(&str, String)]) -> bool {
        self.conditions.iter().all(|condition| {
            let known = attributes.iter().find(|(name, _)| *name == condition.attribute);
            known.is_none_or(|(_, value)| condition.patterns.match_value(value))
        })
    }
}

impl Condition {
    /// Whether no text matches both. Of two patterns with stars, any text might.
    fn excludes(&self, other: &Self) -> bool {
        let meet = |one: &Pattern, other: &Pattern| match (one.has_star(), other.has_star()) {
            (true, true) => true,
            (false, false) => one.matches(&other.text) || other.matches(&one.text),
            // What one takes for the same text, the other may not.
            _ if one.form != other.form => true,
            (true, false) => one.matches(&other.text),
            (false, true) => other.matches(&one.text),
        };
        !self.patterns.iter().any(|one| other.patterns.iter().any(|other| meet(one, other)))
    }

    fn read(reader: &Reader<'_>, attribute: String, node: &Node, path: PathForm) -> Self {
        let written = reader.one_or_more(node).iter().filter_map(|node| reader.text(node));
        let patterns = written.map(|written| Pattern::new(&attribute, written, path)).collect();
        Self { attribute, patterns: Patterns::new(patterns) }
    }
}

impl Pattern {
    /// A pattern of an attribute's values.
    fn new(attribute: &str, written: String, path: PathForm) -> Self {
        let header = attribute.strip_prefix("header.");
        match attribute {
            "path" if path != PathForm::default() => Self::path(written, path),
            // Requests have it in capitals; what callers of the API send is compared in any case.
            "method" if written.bytes().any(|byte| byte.is_ascii_lowercase()) => {
                Self::path(written, PathForm { ignore_case: true, any_slash: false })
            }
            _ if is_host_attribute(attribute) => Self::host(written),
            _ if header.is_some_and(|name| name.eq_ignore_ascii_case("authorization")) => {
                let (scheme, rest) = written.split_at(written.find([' ', '*']).unwrap_or(0));
                Self { text: normal_scheme(scheme) + rest, written, form: Form::Exact }
            }
            _ => Self::exact(written),
        }
    }

    fn path(written: String, form: PathForm) -> Self {
        let text = if form.ignore_case { any_case(&written).into_owned() } else { written.clone() };
        let without_slash = text.trim_end_matches('*').strip_suffix('/').filter(|rest| !rest.is_empty());
        let without_slash = without_slash.filter(|_| form.any_slash).map(str::to_owned);
        Self { text, written, form: Form::Path { form, without_slash } }
    }

    fn host(written: String) -> Self {
        let (name, port) = host_parts(&written);
        let port = match port {
            Some("*") => Port::Any,
            Some(port) => Port::Pattern(port.to_owned()),
            None if written[name.len()..].len() > 1 => Port::Usual,
            None => Port::Any,
        };
        let text = normal_host(name.into()).into_owned();
        Self { text, written, form: Form::Host(port) }
    }

    /// Whether the port of a host counts.
    pub(crate) fn has_port(&self) -> bool {
        matches!(self.form, Form::Host(Port::Usual | Port::Pattern(_)))
    }

    /// A pattern that is compared as it is written.
    pub(crate) fn exact(written: String) -> Self {
        Self { text: written.clone(), written, form: Form::Exact }
    }

    /// The pattern as it stands in the file.
    pub(crate) fn written(&self) -> &str {
        &self.written
    }

    /// The form of a value that it is compared with.
    pub(crate) fn view(&self) -> View {
        match &self.form {
            Form::Exact => View::AsIs,
            Form::Path { form, .. } => View::Path(*form),
            Form::Host(_) => View::Host,
        }
    }

    /// Texts with stars. Each value that matches the pattern matches one of them in its [view](Self::view).
    pub(crate) fn texts(&self) -> SmallVec<[&str; 2]> {
        let without_slash = match &self.form {
            Form::Path { without_slash, .. } => without_slash.as_deref(),
            Form::Exact | Form::Host(_) => None,
        };
        [Some(self.text.as_str()), without_slash].into_iter().flatten().collect()
    }

    fn has_star(&self) -> bool {
        self.text.contains('*')
    }

    /// The value that it requires, if it has no star: without differences that some form of comparison ignores. If a value matches
    /// two patterns, both require the same value.
    pub(super) fn rough_value(&self) -> Option<String> {
        (!self.has_star()).then(|| any_case(&self.text).trim_end_matches('/').to_owned())
    }

    /// A text that it matches.
    fn sample(&self) -> String {
        let port =
            if let Form::Host(Port::Pattern(port)) = &self.form { format!(":{port}") } else { String::new() };
        (self.text.clone() + &port).replace('*', "x")
    }

    /// Whether a value matches.
    pub(crate) fn matches(&self, value: &str) -> bool {
        match &self.form {
            Form::Exact => matches_text(&self.text, value),
            Form::Path { form, without_slash } => {
                let path = if form.ignore_case { any_case(value) } else { value.into() };
                let is_without = |text: &String| matches_text(text, &path);
                let shorter = path.strip_suffix('/').filter(|rest| form.any_slash && !rest.is_empty());
                matches_text(&self.text, &path)
                    || shorter.is_some_and(|path| matches_text(&self.text, path))
                    || without_slash.as_ref().is_some_and(is_without)
            }
            Form::Host(port) => {
                let (name, found) = host_parts(value);
                let is_port = match port {
                    Port::Any => true,
                    Port::Usual => found.is_none(),
                    Port::Pattern(port) => found.is_some_and(|found| matches_text(port, found)),
                };
                is_port && matches_text(&self.text, name)
            }
        }
    }
}

/// Whether a text matches a pattern with stars. The parts between the stars must come one after the other; the first at the start, the
/// last at the end. Taking each as early as possible is enough, so that no text makes this slow.
fn matches_text(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(found) = rest.find(part) else { return false };
        rest = &rest[found + part.len()..];
    }
    rest.ends_with(last)
}

/// A text in a form that is the same in any case. Applications go by capitals or by small letters, which are not quite the
/// same; by both, it is the same for all that one of them takes for the same.
fn any_case(text: &str) -> Cow<'_, str> {
    if !text.is_ascii() {
        // The small letter of U+0130 (İ) has a dot above it as a second character. Python, for one, takes it for an `i`.
        return text.to_uppercase().to_lowercase().replace("i\u{307}", "i").into();
    }
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        text.to_ascii_lowercase().into()
    } else {
        text.into()
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
    fn a_path_is_the_same_in_any_case_and_with_a_slash_where_that_is_said() {
        let (case, slash) = (
            PathForm { ignore_case: true, any_slash: false },
            PathForm { ignore_case: false, any_slash: true },
        );
        let both = PathForm { ignore_case: true, any_slash: true };
        for (form, pattern, path, expected) in [
            (case, "/Login", "/LOGIN", true),
            (case, "/login", "/login/", false),
            (case, "/CAF\u{c9}/*", "/caf\u{e9}/x", true),
            (case, "/login", "/log\u{130}n", true), // a capital I with a dot
            (case, "/log\u{130}n", "/login", true),
            (case, "/login", "/log\u{131}n", true), // a small i without one
            (slash, "/login", "/login/", true),
            (slash, "/login/", "/login", true),
            (slash, "/login", "/LOGIN", false),
            (slash, "/login", "/login//", false), // which no normal path is
            (slash, "/export/*", "/export", true),
            (slash, "/export/*", "/exports", false),
            (slash, "/export*", "/export/", true),
            (slash, "/*/list", "/a/list/", true),
            (slash, "/", "/", true),
            (slash, "/*", "/", true),
            (slash, "/", "/a", false),
            (both, "/Login/", "/LOGIN", true),
            (both, "/login", "/LOGIN/", true),
        ] {
            assert_eq!(
                Pattern::path(pattern.to_owned(), form).matches(path),
                expected,
                "{pattern} on {path}"
            );
        }
    }

    #[test]
    fn patterns_that_one_path_can_match_do_not_exclude_each_other() {
        let both = PathForm { ignore_case: true, any_slash: true };
        let condition = |patterns: &[Pattern]| Condition {
            attribute: "path".to_owned(),
            patterns: Patterns::new(patterns.to_vec()),
        };
        let (exact, wide) =
            (|text: &str| Pattern::exact(text.to_owned()), |text: &str| Pattern::path(text.to_owned(), both));
        for (one, other, excludes) in [
            (exact("/a"), exact("/b"), true),
            (exact("/a/"), wide("/A"), false),
            (exact("/b/"), wide("/A"), true),
            (exact("/A*"), wide("/a"), false),
            (wide("/x"), wide("/y"), true),
        ] {
            let (one, other) = (condition(&[one]), condition(&[other]));
            assert_eq!(
                (one.excludes(&other), other.excludes(&one)),
                (excludes, excludes),
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn a_host_matches_on_every_port_unless_the_pattern_has_one() {
        for (pattern, host, expected) in [
            ("API.example.com", "api.example.com", true),
            ("api.example.com", "api.example.com:1", true),
            ("api.example.com:", "api.example.com:1", true),
            ("api.example.com:*", "api.example.com", true),
            ("api.example.com:8443", "api.example.com:8443", true),
            ("api.example.com:08443", "api.example.com:8443", true),
            ("api.example.com:8443", "api.example.com", false),
            ("api.example.com:443", "api.example.com", true),
            ("api.example.com:443", "api.example.com:8443", false),
            ("*.example.com", "a.example.com:9", true),
            ("*.example.com", "example.com", false),
            ("*:8443", "a:8443", true),
            ("*:80", "a:8443", false),
            ("*", "a:1", true),
            ("[::1]:8080", "[::1]:8080", true),
            ("[::1]", "[::1]:8080", true),
        ] {
            assert_eq!(Pattern::host(pattern.to_owned()).matches(host), expected, "{pattern} on {host}");
        }
    }

    #[test]
    fn no_text_makes_a_pattern_slow() {
        let pattern = Pattern::exact("a*".repeat(1000) + "b");
        assert!(!pattern.matches(&"a".repeat(100_000)));
    }
}
