//! What callers send: read within bounds, without copying where nothing has to be unescaped.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use smallvec::SmallVec;

use super::problem::Problem;

/// The largest body.
const MOST_BYTES: usize = 1 << 20;

/// How long a body may take to come.
const MOST_TIME: Duration = Duration::from_secs(10);

/// The longest name or value of an attribute.
pub(crate) const LONGEST_TEXT: usize = 4096;

/// The most attributes of a request.
const MOST_ATTRIBUTES: usize = 64;

/// The most checks in one request.
const MOST_CHECKS: usize = 1024;

/// Reads the whole body.
pub(crate) async fn body(request: Request<Body>) -> Result<Bytes, Problem> {
    let collected =
        tokio::time::timeout(MOST_TIME, Limited::new(request.into_body(), MOST_BYTES).collect()).await;
    match collected {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("the body is larger than {MOST_BYTES} bytes, which are the most");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail))
        }
        Ok(Err(error)) => Err(Problem::bad_request(format!("the body could not be read: {error}"))),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not come within 10 seconds")),
    }
}

/// Reads a JSON object, or says what is wrong with it and where.
pub(crate) fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Problem> {
    parse_any(body).map(|Object(value)| value)
}

fn parse_any<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Problem> {
    // Once for all, which is faster than text by text.
    let text = std::str::from_utf8(body).map_err(|error| {
        Problem::bad_request(format!("byte {} of the body is not UTF-8 text; JSON is", error.valid_up_to()))
    })?;
    serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let text = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        if body.trim_ascii().is_empty() {
            return Problem::bad_request("the body is empty; it should be JSON, as GET /openapi.json tells");
        }
        let status = if error.is_data() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::BAD_REQUEST };
        Problem::new(status, format!("line {line}, column {column}: {text}"))
    })
}

/// What is written as an object. A list of its fields in order, which a derived reader takes as well, is not one.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// One check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check<'b> {
    #[serde(borrow)]
    pub(crate) attributes: Attributes<'b>,
    #[serde(default, deserialize_with = "optional_cost")]
    pub(crate) cost: Option<u64>,
}

/// One check, or several.
#[derive(Debug)]
pub(crate) enum Checks<'b> {
    One(Check<'b>),
    Many(Vec<Check<'b>>),
}

impl<'b> Checks<'b> {
    pub(crate) fn parse(body: &'b [u8]) -> Result<Self, Problem> {
        if !body.trim_ascii_start().starts_with(b"[") {
            return parse(body).map(Self::One);
        }
        let checks: Vec<Object<Check<'b>>> = parse_any(body)?;
        if checks.len() > MOST_CHECKS {
            let detail = format!("{} checks in one request: {MOST_CHECKS} are the most", checks.len());
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail));
        }
        Ok(Self::Many(checks.into_iter().map(|Object(check)| check).collect()))
    }
}

/// Names and values.
#[derive(Debug, Default)]
pub(crate) struct Attributes<'b>(Vec<(Text<'b>, Text<'b>)>);

impl Attributes<'_> {
    /// As the engine takes them.
    pub(crate) fn pairs(&self) -> SmallVec<[(&str, &str); 8]> {
        self.0.iter().map(|(name, value)| (&*name.0, &*value.0)).collect()
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Attributes<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Attributes<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of attributes, such as {\"tenant\": \"acme\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs: Vec<(Text<'de>, Text<'de>)> = Vec::with_capacity(4);
                while let Some((name, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
                    let shown = || name.0.chars().take(40).collect::<String>();
                    if name.0.len() > LONGEST_TEXT || value.0.len() > LONGEST_TEXT {
                        return Err(A::Error::custom(format_args!(
                            "attribute `{}` is longer than {LONGEST_TEXT} bytes, which are the most",
                            shown()
                        )));
                    }
                    if pairs.iter().any(|(earlier, _)| earlier.0 == name.0) {
                        return Err(A::Error::custom(format_args!("attribute `{}` comes twice", shown())));
                    }
                    if pairs.len() == MOST_ATTRIBUTES {
                        return Err(A::Error::custom(format_args!("more than {MOST_ATTRIBUTES} attributes")));
                    }
                    pairs.push((name, value));
                }
                Ok(Attributes(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// Text, borrowed from the body where nothing had to be unescaped.
#[derive(Debug, Default)]
pub(crate) struct Text<'b>(pub(crate) Cow<'b, str>);

impl<'de: 'b, 'b> Deserialize<'de> for Text<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyText;
        impl<'de> Visitor<'de> for AnyText {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(AnyText)
    }
}

/// A cost that may be missing, or null.
pub(crate) fn optional_cost<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    struct Cost;
    impl<'de> Visitor<'de> for Cost {
        type Value = Option<u64>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a cost: a whole number, 0 to peek")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_u64<E>(self, cost: u64) -> Result<Self::Value, E> {
            Ok(Some(cost))
        }

        /// For JSON, 2.0 is a whole number.
        fn visit_f64<E: Error>(self, cost: f64) -> Result<Self::Value, E> {
            let is_whole = cost.fract() == 0.0 && (0.0..1e15).contains(&cost);
            #[expect(clippy::cast_sign_loss, reason = "it is not below zero")]
            if is_whole {
                Ok(Some(cost as u64))
            } else {
                Err(E::invalid_value(serde::de::Unexpected::Float(cost), &self))
            }
        }
    }
    deserializer.deserialize_any(Cost)
}
