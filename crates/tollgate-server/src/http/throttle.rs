//! `POST /v1/throttle`: decides by a rule sent with the call.

use std::fmt;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tollgate::AlgorithmKind;
use tollgate_policy::{SentRule, ThrottleError, write_throttle_reply};

use super::json::{self, LONGEST_TEXT, Text};
use super::problem::Problem;
use super::{Answer, counted, json_body};
use crate::metrics::Protocol;
use crate::service::Service;

/// A key, and the numbers of one algorithm.
#[derive(Debug)]
struct Throttle<'b> {
    key: Text<'b>,
    cost: Option<u64>,
    rules: SentRules<'b>,
}

/// The algorithms that were sent, each once, with their numbers.
type SentRules<'b> = SmallVec<[(AlgorithmKind, &'b RawValue); 1]>;

/// A field of the body.
#[derive(Clone, Copy, Debug)]
enum Field {
    Key,
    Cost,
    Numbers(AlgorithmKind),
}

/// The names of all fields: `key`, `cost` and the algorithms.
const FIELDS: [&str; 2 + AlgorithmKind::ALL.len()] = {
    let mut names = ["key"; _];
    names[1] = "cost";
    let mut place = 0;
    while place < AlgorithmKind::ALL.len() {
        names[2 + place] = AlgorithmKind::ALL[place].name();
        place += 1;
    }
    names
};

impl Field {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "key" => Some(Self::Key),
            "cost" => Some(Self::Cost),
            name => AlgorithmKind::from_name(name).map(Self::Numbers),
        }
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Field;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("field identifier")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Field, E> {
                Field::from_name(name).ok_or_else(|| E::unknown_field(name, &FIELDS))
            }
        }
        deserializer.deserialize_identifier(Name)
    }
}

impl<'de> Deserialize<'de> for Throttle<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Throttle<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut key, mut cost) = (None, None);
                let mut rules = SentRules::new();
                while let Some(field) = map.next_key()? {
                    match field {
                        Field::Key if key.is_some() => return Err(A::Error::duplicate_field("key")),
                        Field::Key => key = Some(map.next_value()?),
                        Field::Cost if cost.is_some() => return Err(A::Error::duplicate_field("cost")),
                        Field::Cost => cost = Some(map.next_value::<Cost>()?),
                        Field::Numbers(kind) => {
                            if rules.iter().any(|(earlier, _)| *earlier == kind) {
                                return Err(A::Error::duplicate_field(kind.name()));
                            }
                            // Null counts as numbers here, so that the error names the algorithm.
                            rules.push((kind, map.next_value()?));
                        }
                    }
                }
                let key = key.ok_or_else(|| A::Error::missing_field("key"))?;
                Ok(Throttle { key, cost: cost.and_then(|Cost(cost)| cost), rules })
            }
        }
        deserializer.deserialize_struct("Throttle", &FIELDS, Fields)
    }
}

/// A cost that may be null.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Cost(#[serde(deserialize_with = "json::optional_cost")] Option<u64>);

impl<'b> Throttle<'b> {
    /// The one algorithm that was sent, with its numbers.
    fn rule(&self) -> Result<(AlgorithmKind, &'b str), Problem> {
        match self.rules[..] {
            [(kind, numbers)] => Ok((kind, numbers.get())),
            [_, _, ..] => {
                let mut kinds: Vec<AlgorithmKind> = self.rules.iter().map(|(kind, _)| *kind).collect();
                kinds.sort_unstable();
                Err(unprocessable(format!("two rules, `{}` and `{}`: send one", kinds[0], kinds[1])))
            }
            [] => {
                let names = AlgorithmKind::ALL.iter().map(|kind| format!("`{kind}`"));
                let (names, example) = (names.collect::<Vec<_>>().join(", "), AlgorithmKind::TokenBucket);
                Err(unprocessable(format!(
                    "no rule: send one of {names}, such as \"{example}\": {{\"rate\": \"5/s\"}}"
                )))
            }
        }
    }
}

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    counted(&service, Protocol::http, throttle(&service, request).await)
}

async fn throttle(service: &Service, request: Request<Body>) -> Answer {
    let tracing = service.tracing(request.headers());
    let body = json::body(request).await?;
    let throttle: Throttle<'_> = json::parse(&body)?;
    let (kind, numbers) = throttle.rule()?;
    if throttle.key.0.len() > LONGEST_TEXT {
        return Err(unprocessable(format!(
            "the key is longer than {LONGEST_TEXT} bytes, which are the most"
        )));
    }
    let sent = SentRule { key: &throttle.key.0, algorithm: kind, numbers, cost: throttle.cost.unwrap_or(1) };
    let throttled = service.calls(Protocol::http).traced(tracing).throttle(&sent).wait().await?;
    let mut reply = Vec::with_capacity(256);
    write_throttle_reply(kind.name(), &throttled, &mut reply);
    Ok(json_body(reply))
}

fn unprocessable(detail: String) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
}

impl From<ThrottleError> for Problem {
    fn from(error: ThrottleError) -> Self {
        unprocessable(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(body: &str) -> Result<(AlgorithmKind, String), String> {
        let detail = |problem: Problem| problem.detail().to_owned();
        let throttle: Throttle<'_> = json::parse(body.as_bytes()).map_err(detail)?;
        throttle.rule().map(|(kind, numbers)| (kind, numbers.to_owned())).map_err(detail)
    }

    #[test]
    fn every_algorithm_can_be_sent_as_a_field() {
        for kind in AlgorithmKind::ALL {
            let numbers = "{ \"any\" : 1 }";
            let body = format!("{{\"key\": \"k\", \"{kind}\": {numbers}, \"cost\": null}}");
            assert_eq!(rule(&body), Ok((*kind, numbers.to_owned())), "{body}");
        }
        assert_eq!(rule(r#"{"key": "k", "token\u005fbucket": null}"#).unwrap().1, "null");
    }

    #[test]
    fn a_body_without_exactly_one_rule_is_refused_with_the_names() {
        const NAMES: &str = "`token_bucket`, `leaky_bucket`, `fixed_window`, `sliding_log`, `sliding_counter`, `burst_credits`, \
                             `concurrency`";
        for (body, error) in [
            (
                r#"{"key": "k"}"#,
                format!("no rule: send one of {NAMES}, such as \"token_bucket\": {{\"rate\": \"5/s\"}}"),
            ),
            (
                r#"{"key": "k", "concurrency": {}, "fixed_window": {}}"#,
                "two rules, `fixed_window` and `concurrency`: send one".to_owned(),
            ),
            (
                r#"{"key": "k", "gcra": {}}"#,
                format!("line 1, column 19: unknown field `gcra`, expected one of `key`, `cost`, {NAMES}"),
            ),
            (
                r#"{"key": "k", "sliding_log": {}, "sliding_log": {}}"#,
                "line 1, column 45: duplicate field `sliding_log`".to_owned(),
            ),
            (r#"{"token_bucket": {}}"#, "line 1, column 20: missing field `key`".to_owned()),
        ] {
            assert_eq!(rule(body), Err(error), "{body}");
        }
    }
}
