//! The body of `POST /v1/playground`.

use std::fmt;
use std::ops::Range;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use tollgate_core::AlgorithmKind;

use super::error::shown_number;
use super::{LONGEST_TIMELINE, MOST_SENTENCES, PlaygroundError};

/// A request: the rules to compare, and the arrivals that they decide.
///
/// Its form is that of the body of `POST /v1/playground`. Reading it checks names and types, [`play`](super::play) checks the rest.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaygroundRequest {
    pub(super) rules: Vec<RuleRequest>,
    pub(super) arrivals: Option<Vec<ArrivalRequest>>,
    pub(super) start: Option<f64>, // of `arrivals`: the Unix time of second 0
    pub(super) until: Option<f64>, // the least length of the timeline, in seconds
    pub(super) scenario: Option<String>,
    pub(super) log: Option<String>,
    pub(super) watch: Option<String>,
    pub(super) sentences: Option<SentencesRequest>,
}

/// One rule.
#[derive(Clone, Debug)]
pub(super) struct RuleRequest {
    pub(super) name: Option<String>,
    pub(super) algorithm: AlgorithmKind,
    pub(super) numbers: Map<String, Value>,
    pub(super) view: Option<View>,
    pub(super) by: By,
}

/// Another way to draw and explain an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum View {
    /// A token bucket by its theoretical arrival time.
    Gcra,
}

/// Whose state an arrival is charged to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// One state for everybody.
    #[default]
    Global,
    /// A state per client.
    Client,
}

/// One arrival.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArrivalRequest {
    pub(super) at: f64, // seconds
    #[serde(default = "one")]
    pub(super) cost: u64,
    #[serde(default)]
    pub(super) client: String,
}

const fn one() -> u64 {
    1
}

/// The arrivals that are explained in sentences.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SentencesRequest {
    #[serde(default)]
    from: usize,
    count: usize,
}

impl PlaygroundRequest {
    /// The numbers of the arrivals that are explained.
    pub(super) fn sentences(&self, rules: usize) -> Result<Range<usize>, PlaygroundError> {
        let Some(SentencesRequest { from, count }) = self.sentences else { return Ok(0..0) };
        let found = (count as u64).saturating_mul(rules as u64);
        if found > MOST_SENTENCES as u64 {
            return Err(PlaygroundError::Sentences { found });
        }
        Ok(from..from.saturating_add(count))
    }

    /// The least length of the timeline, in nanoseconds.
    pub(super) fn least_duration(&self) -> Result<u64, PlaygroundError> {
        let until = self.until.unwrap_or(0.0);
        if !(0.0..=LONGEST_TIMELINE as f64).contains(&until) {
            return Err(PlaygroundError::Until { found: shown_number(until) });
        }
        Ok((until * 1e9).round() as u64)
    }
}

impl<'de> Deserialize<'de> for RuleRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RuleVisitor)
    }
}

struct RuleVisitor;

impl<'de> Visitor<'de> for RuleVisitor {
    type Value = RuleRequest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rule such as {\"token_bucket\": {\"rate\": \"5/s\", \"burst\": 10}}")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RuleRequest, A::Error> {
        fn put<T, E: serde::de::Error>(place: &mut Option<T>, name: &str, value: T) -> Result<(), E> {
            if place.replace(value).is_some() {
                return Err(E::custom(format!("`{name}` is twice in a rule: write it once")));
            }
            Ok(())
        }
        let (mut name, mut view, mut by) = (None, None, None);
        let mut algorithm: Option<(AlgorithmKind, Map<String, Value>)> = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => put(&mut name, "name", map.next_value()?)?,
                "view" => put(&mut view, "view", map.next_value::<Option<View>>()?)?,
                "by" => put(&mut by, "by", map.next_value()?)?,
                other => match AlgorithmKind::from_name(other) {
                    Some(kind) if algorithm.is_none() => {
                        let NumbersRequest(numbers) = map.next_value()?;
                        algorithm = Some((kind, numbers));
                    }
                    Some(_) => {
                        return Err(A::Error::custom("a rule has two algorithms: write one rule for each"));
                    }
                    None => return Err(unknown(other)),
                },
            }
        }
        let Some((algorithm, numbers)) = algorithm else {
            return Err(A::Error::custom(format!(
                "a rule without an algorithm: write one of {}",
                algorithms()
            )));
        };
        let (view, by) = (view.flatten(), by.unwrap_or_default());
        Ok(RuleRequest { name, algorithm, numbers, view, by })
    }
}

/// The numbers of a rule. A number that is written twice is refused, as everywhere in requests.
struct NumbersRequest(Map<String, Value>);

impl<'de> Deserialize<'de> for NumbersRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumbersVisitor;

        impl<'de> Visitor<'de> for NumbersVisitor {
            type Value = NumbersRequest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("numbers such as {\"rate\": \"5/s\", \"burst\": 10}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NumbersRequest, A::Error> {
                let mut numbers = Map::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    let shown = super::error::cut(&name);
                    if numbers.insert(name, value).is_some() {
                        return Err(A::Error::custom(format!("`{shown}` is twice in a rule: write it once")));
                    }
                }
                Ok(NumbersRequest(numbers))
            }
        }

        deserializer.deserialize_map(NumbersVisitor)
    }
}

fn unknown<E: serde::de::Error>(field: &str) -> E {
    let field = super::error::cut(field);
    E::custom(format!(
        "unknown field `{field}` in a rule: write `name`, `view`, `by`, and one algorithm of {}",
        algorithms()
    ))
}

/// The algorithms that the playground knows.
pub(super) fn algorithms() -> String {
    let known = AlgorithmKind::ALL.iter().filter(|kind| !kind.has_permits());
    known.map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ")
}
