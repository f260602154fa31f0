//! What `record:` in a policy file makes the service write: one JSON object a request.

use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};

use super::time::unix_nanos;

/// A decision of the service.
#[derive(Debug, Deserialize)]
pub(crate) struct Recorded<'l> {
    #[serde(borrow)]
    time: Cow<'l, str>,
    #[serde(borrow, default)]
    pub(crate) attributes: Pairs<'l>,
    #[serde(default)]
    pub(crate) cost: Option<u64>,
    #[serde(borrow, default)]
    pub(crate) descriptors: Vec<RecordedDescriptor<'l>>,
    pub(crate) allowed: bool,
    #[serde(borrow, default)]
    retry_after: Option<&'l RawValue>,
    #[serde(borrow, default)]
    delay: Option<&'l RawValue>,
}

/// One of several descriptors that were decided together.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordedDescriptor<'l> {
    #[serde(borrow)]
    pub(crate) entries: Vec<(Cow<'l, str>, Cow<'l, str>)>,
    pub(crate) cost: u64,
    pub(crate) refund: Option<u64>,
    #[serde(default)]
    pub(crate) in_full: bool,
    pub(crate) limit: Option<(u32, u64)>,
}

/// Names and values in their order.
#[derive(Debug, Default)]
pub(crate) struct Pairs<'l>(pub(crate) Vec<(Cow<'l, str>, Cow<'l, str>)>);

impl<'de: 'l, 'l> Deserialize<'de> for Pairs<'l> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap;
        impl<'de> Visitor<'de> for OfMap {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names and values")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some((Text(name), Text(value))) = map.next_entry()? {
                    pairs.push((name, value));
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(OfMap)
    }
}

#[derive(Deserialize)]
struct Text<'l>(#[serde(borrow)] Cow<'l, str>);

impl<'l> Recorded<'l> {
    pub(crate) fn read(line: &'l [u8]) -> Option<(u64, Self)> {
        let recorded: Self = serde_json::from_slice(line).ok()?;
        Some((unix_nanos(recorded.time.as_bytes())?, recorded))
    }

    /// How long the caller was told to wait, in nanoseconds.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        nanos(self.retry_after)
    }

    /// How long the request was held.
    pub(crate) fn delay(&self) -> u64 {
        nanos(self.delay).unwrap_or(0)
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// Seconds, exactly: as text, for a float could not hold all of them. It holds those that are so few that they are written as `1e-6`.
fn nanos(seconds: Option<&RawValue>) -> Option<u64> {
    let text = seconds?.get();
    let few = || text.parse::<f64>().ok().map(|seconds| (seconds * 1e9).round() as u64);
    unix_nanos(text.as_bytes()).or_else(few)
}
