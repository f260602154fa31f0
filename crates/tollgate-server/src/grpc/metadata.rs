//! What Envoy is told of a request besides the answer, where the policy asks for it.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tollgate_policy::{DescriptorVerdict, Verdict};

use super::RateLimitRequest;

/// What was asked, and the metadata of the rules that let it pass.
pub(super) fn of(request: &RateLimitRequest, verdict: &Verdict<'_>) -> Struct {
    let descriptors = request.descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter().map(|entry| text(&format!("{}={}", entry.key, entry.value)));
        let mut fields = vec![("entries", list(entries.collect()))];
        if let Some(limit) = &descriptor.limit {
            let unit = limit.unit().as_str_name();
            let limit = [("requestsPerUnit", number(limit.requests_per_unit.into())), ("unit", text(unit))];
            fields.push(("limit", object(limit)));
        }
        if let Some(hits) = descriptor.hits_addend {
            fields.push(("hitsAddend", number(hits as f64)));
        }
        object(fields)
    });
    let mut fields =
        BTreeMap::from([("domain", text(&request.domain)), ("descriptors", list(descriptors.collect()))]);
    if request.hits_addend > 0 {
        fields.insert("hitsAddend", number(request.hits_addend.into()));
    }
    let mut merged = BTreeMap::new();
    for one in verdict.descriptors().filter(DescriptorVerdict::is_allowed) {
        let metadata = one.descriptor().and_then(|descriptor| descriptor.metadata.as_ref());
        if let Some(serde_json::Value::Object(metadata)) = metadata {
            merged.extend(metadata.iter().map(|(name, value)| (name.clone(), json(value))));
        }
    }
    if !merged.is_empty() {
        fields.insert("metadata", Value { kind: Some(Kind::StructValue(Struct { fields: merged })) });
    }
    Struct { fields: fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect() }
}

fn json(value: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match value {
        Json::Null => Value { kind: Some(Kind::NullValue(0)) },
        Json::Bool(flag) => Value { kind: Some(Kind::BoolValue(*flag)) },
        Json::Number(value) => number(value.as_f64().unwrap_or_default()),
        Json::String(value) => text(value),
        Json::Array(items) => list(items.iter().map(json).collect()),
        Json::Object(fields) => {
            object(fields.iter().map(|(name, value)| (name.as_str(), json(value))).collect::<Vec<_>>())
        }
    }
}

fn text(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn number(number: f64) -> Value {
    Value { kind: Some(Kind::NumberValue(number)) }
}

fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values })) }
}

fn object<'n>(fields: impl IntoIterator<Item = (&'n str, Value)>) -> Value {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Value { kind: Some(Kind::StructValue(Struct { fields })) }
}

/// The same as JSON.
pub(crate) fn json_of(metadata: &Struct) -> serde_json::Value {
    let fields = metadata.fields.iter().map(|(name, value)| (name.clone(), json_of_value(value)));
    serde_json::Value::Object(fields.collect())
}

fn json_of_value(value: &Value) -> serde_json::Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => serde_json::Value::Null,
        Some(Kind::BoolValue(flag)) => (*flag).into(),
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::ListValue(list)) => list.values.iter().map(json_of_value).collect(),
        Some(Kind::StructValue(fields)) => json_of(fields),
    }
}
