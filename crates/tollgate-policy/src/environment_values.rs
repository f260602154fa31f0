//! Values that came from the environment, and the text that the file has for them.
//!
//! `${NAME}` may stand for a secret. Requests are decided by the value; the file's own text is shown.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use crate::quantity;

/// A value of the file with `${NAME}` in it.
#[derive(Clone, Debug)]
pub(crate) struct Expansion {
    pub(crate) span: Range<usize>,
    pub(crate) value: String,
    /// The text of the file.
    pub(crate) written: String,
    /// What each `${NAME}` stands for, and `${NAME}`.
    pub(crate) parts: Vec<(String, String)>,
    /// Whether it is a number, a rate or a time.
    pub(crate) is_quantity: bool,
}

impl Expansion {
    /// Texts by which the value might be seen, each with what is shown instead.
    fn replacements(&self) -> impl Iterator<Item = (String, &str)> {
        let parts = self.parts.iter().map(|(value, name)| (value.clone(), name.as_str()));
        let numbers = if self.is_quantity { counts(&self.value) } else { Vec::new() };
        let whole = [self.value.clone()].into_iter().chain(authority(&self.value)).chain(numbers);
        whole.map(|value| (value, self.written.as_str())).chain(parts)
    }
}

/// The counts of a quantity, as messages have them: 5000 of `5k/min`.
fn counts(quantity: &str) -> Vec<String> {
    let words = quantity.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    words.filter_map(|word| quantity::count(word).ok()).map(|count| count.to_string()).collect()
}

/// The host and port of a URL, which messages have without the rest. Also of one whose scheme was forgotten.
fn authority(url: &str) -> Option<String> {
    let rest = url.split_once("://").map(|(_, rest)| rest).or_else(|| url.contains('@').then_some(url))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    Some(authority.rsplit_once('@').map_or(authority, |(_user, host)| host).to_owned())
}

/// Values of a policy that came from the environment. Shows the file's own text instead of them.
///
/// ```
/// use std::path::Path;
/// use tollgate_policy::Policy;
///
/// let file = "limits: [{ name: a, key: [], match: { path: '/${PLACE}/*' }, token_bucket: { rate: 1/s } }]";
/// let policy = Policy::read_with(Path::new("tollgate.yaml"), file, &|_| Some("hidden".into()))?;
/// assert_eq!(policy.environment_values.as_written("/hidden/*"), "/${PLACE}/*");
/// assert_eq!(policy.environment_values.hide("what is in /hidden/* is slow"), "what is in /${PLACE}/* is slow");
/// # Ok::<(), tollgate_policy::Faults>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentValues {
    written: HashMap<String, String>,         // by value
    numbers: HashMap<String, String>,         // by the key of the file, such as `tiers.pro.weight`
    texts: Vec<(String, String)>,             // values that are hidden in any text, the longest first
    texts_and_numbers: Vec<(String, String)>, // and with them numbers
}

/// Shorter values stay in texts such as lines of a log, which would be unreadable without them.
const SHORTEST_HIDDEN: usize = 3;

impl EnvironmentValues {
    pub(crate) fn new(expansions: &[Expansion], numbers: HashMap<String, String>) -> Self {
        let texts = || expansions.iter().filter(|expansion| !expansion.is_quantity);
        let long = |(value, _): &(String, &str)| value.len() >= SHORTEST_HIDDEN;
        Self {
            written: texts().map(|expansion| (expansion.value.clone(), expansion.written.clone())).collect(),
            numbers,
            texts: longest_first(texts().flat_map(Expansion::replacements).filter(long)),
            texts_and_numbers: longest_first(expansions.iter().flat_map(Expansion::replacements)),
        }
    }

    /// The file's own text for a value that came from the environment, and any other value as it is.
    pub fn as_written<'a>(&'a self, value: &'a str) -> &'a str {
        self.written.get(value).map_or(value, String::as_str)
    }

    /// The file's own text for a number, by the key of the file such as `tiers.pro.weight`, where it came from the environment.
    pub fn number(&self, key: &str) -> Option<&str> {
        self.numbers.get(key).map(String::as_str)
    }

    /// A text, such as a line of a log, without the values that came from the environment. Numbers stay.
    pub fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        hidden(text, &self.texts)
    }

    /// [`hide`](Self::hide), and numbers that came from the environment with it.
    pub fn hide_numbers<'a>(&self, text: &'a str) -> Cow<'a, str> {
        hidden(text, &self.texts_and_numbers)
    }

    /// Hides those of another policy, too.
    pub fn extend(&mut self, other: Self) {
        self.written.extend(other.written);
        self.numbers.extend(other.numbers);
        for (own, others) in
            [(&mut self.texts, other.texts), (&mut self.texts_and_numbers, other.texts_and_numbers)]
        {
            own.extend(others);
            sort_longest_first(own);
        }
    }
}

/// A message about the value at `span`, without values that came from the environment.
pub(crate) fn hide_at(span: &Range<usize>, text: &str, expansions: &[Expansion]) -> String {
    let replacements = expansions.iter().flat_map(|expansion| {
        let is_there = span.start <= expansion.span.start && expansion.span.end <= span.end;
        let fits = move |(value, _): &(String, &str)| is_there || value.len() >= SHORTEST_HIDDEN;
        expansion.replacements().filter(fits)
    });
    hidden(text, &longest_first(replacements)).into_owned()
}

fn longest_first<'a>(replacements: impl Iterator<Item = (String, &'a str)>) -> Vec<(String, String)> {
    let replacements = replacements.filter(|(value, _)| !value.is_empty());
    // Logs may have it with escapes.
    let spellings =
        |(value, shown): (String, &str)| [escaped(&value), value].map(|value| (value, shown.to_owned()));
    let mut all: Vec<(String, String)> = replacements.flat_map(spellings).collect();
    sort_longest_first(&mut all);
    all
}

/// Of two that could be replaced at one place, the longer one is.
fn sort_longest_first(replacements: &mut Vec<(String, String)>) {
    replacements.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
    replacements.dedup();
}

/// As in a JSON string.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A text with each value replaced where it is not part of a longer word.
fn hidden<'a>(text: &'a str, replacements: &[(String, String)]) -> Cow<'a, str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let are_one_word = |left: Option<char>, right: Option<char>| {
        left.zip(right).is_some_and(|(left, right)| is_word(left) && is_word(right))
    };
    let mut shown = String::new();
    let (mut from, mut at) = (0, 0); // what is before `from` is in `shown`
    while let Some(next) = text[at..].chars().next() {
        let before = text[..at].chars().next_back();
        let found = replacements.iter().find(|(value, _)| {
            let (first, last) = (value.chars().next(), value.chars().next_back());
            text[at..].strip_prefix(value.as_str()).is_some_and(|after| {
                !are_one_word(before, first) && !are_one_word(last, after.chars().next())
            })
        });
        match found {
            Some((value, instead)) => {
                shown.push_str(&text[from..at]);
                shown.push_str(instead);
                at += value.len();
                from = at;
            }
            None => at += next.len_utf8(),
        }
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    shown.push_str(&text[from..]);
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_hidden_where_they_are_not_part_of_a_word() {
        let url = "redis://:s3cret@10.1.2.3:6379/2";
        let expansion = |value: &str, written: &str, is_quantity| Expansion {
            span: 0..0,
            value: value.to_owned(),
            written: written.to_owned(),
            parts: vec![(value.to_owned(), written.to_owned())],
            is_quantity,
        };
        let environment_values = EnvironmentValues::new(
            &[
                expansion(url, "${URL}", false),
                expansion("prod", "${STAGE}", false),
                expansion("42", "${N}", true),
                expansion("5k/min", "${RATE}", true),
                expansion("", "${EMPTY}", false),
            ],
            HashMap::new(),
        );
        for (text, expected) in [
            ("no connection to redis://:s3cret@10.1.2.3:6379/2", "no connection to ${URL}"),
            ("10.1.2.3:6379: refused", "${URL}: refused"),
            ("110.1.2.3:6379", "110.1.2.3:6379"),
            ("products of prod, prod-1 and prod_2", "products of ${STAGE}, ${STAGE}-1 and prod_2"),
            ("42 in ü", "42 in ü"),
            ("", ""),
        ] {
            assert_eq!(environment_values.hide(text), expected);
        }
        assert_eq!(environment_values.hide_numbers("holds 42 of 420"), "holds ${N} of 420");
        assert_eq!(environment_values.hide_numbers("a burst of 5000"), "a burst of ${RATE}");
    }
}
