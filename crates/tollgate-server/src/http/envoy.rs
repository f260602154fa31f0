//! `POST /json`: Envoy's rate limit service without gRPC, as envoyproxy/ratelimit has it: messages in the JSON of
//! Protocol Buffers, and the status of the answer tells the code.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{Deserializer, Error, Unexpected};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json;
use super::problem::Problem;
use super::{Answer, counted, reply};
use crate::grpc::{self, RateLimitRequest, RateLimitResponse};
use crate::metrics::Protocol;
use crate::service::Service;

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let tracing = service.tracing(request.headers());
    let asked = counted(&service, Protocol::http, read(request).await)?;
    let response = grpc::should_rate_limit(&service, &asked.into(), Protocol::http, tracing)
        .await
        .map_err(|status| Problem::bad_request(status.message()))?;
    let told = Told::from(response);
    let mut answer = reply(&told);
    if told.overall_code != "OK" {
        *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    }
    Ok(answer)
}

async fn read(request: Request<Body>) -> Result<Asked, Problem> {
    let body = json::body(request).await?;
    json::parse(&body).map_err(|problem| problem.with_status(StatusCode::BAD_REQUEST))
}

/// A `RateLimitRequest`: names as in the proto or as JSON has them, and null for what is not there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    #[serde(default)]
    domain: Option<String>,
    #[serde(default)]
    descriptors: Option<Vec<Descriptor>>,
    #[serde(default, alias = "hitsAddend", deserialize_with = "small_number")]
    hits_addend: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    #[serde(default)]
    entries: Option<Vec<Entry>>,
    #[serde(default)]
    limit: Option<Limit>,
    #[serde(default, alias = "hitsAddend", deserialize_with = "number")]
    hits_addend: Option<u64>,
    #[serde(default, alias = "isNegativeHits")]
    is_negative_hits: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    #[serde(default, alias = "requestsPerUnit", deserialize_with = "small_number")]
    requests_per_unit: Option<u32>,
    #[serde(default)]
    unit: Option<Unit>,
}

/// By name, or by number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Unit {
    Name(String),
    Number(i32),
}

/// A whole number that fits the field it is for.
fn small_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let Some(number) = number(deserializer)? else { return Ok(None) };
    let fitting = u32::try_from(number);
    fitting.map(Some).map_err(|_| D::Error::custom(format!("{number} is more than 4294967295, the most")))
}

/// A whole number, which JSON has as a number or, lest it be rounded, as text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::Number(number) if number.as_u64().is_some() => Ok(number.as_u64()),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
            let refused = |_| D::Error::invalid_value(Unexpected::Str(&text), &"a whole number");
            text.parse().map(Some).map_err(refused)
        }
        other => Err(D::Error::custom(format!("invalid value: {other}, expected a whole number"))),
    }
}

impl From<Asked> for RateLimitRequest {
    fn from(asked: Asked) -> Self {
        Self {
            domain: asked.domain.unwrap_or_default(),
            descriptors: asked.descriptors.unwrap_or_default().into_iter().map(Into::into).collect(),
            hits_addend: asked.hits_addend.unwrap_or_default(),
        }
    }
}

impl From<Descriptor> for grpc::RateLimitDescriptor {
    fn from(descriptor: Descriptor) -> Self {
        let entry = |entry: Entry| grpc::rate_limit_descriptor::Entry {
            key: entry.key.unwrap_or_default(),
            value: entry.value.unwrap_or_default(),
        };
        let limit = |limit: Limit| grpc::rate_limit_descriptor::RateLimitOverride {
            requests_per_unit: limit.requests_per_unit.unwrap_or_default(),
            unit: match limit.unit {
                Some(Unit::Name(name)) => grpc::RateLimitUnit::from_str_name(&name).map_or(0, Into::into),
                Some(Unit::Number(number)) => number,
                None => 0,
            },
        };
        Self {
            entries: descriptor.entries.unwrap_or_default().into_iter().map(entry).collect(),
            limit: descriptor.limit.map(limit),
            hits_addend: descriptor.hits_addend,
            is_negative_hits: descriptor.is_negative_hits.unwrap_or(false),
        }
    }
}

/// A `RateLimitResponse`. What is 0 or empty is left out.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    overall_code: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<Status>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<Header>,
    #[serde(skip_serializing_if = "String::is_empty")]
    raw_body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic_metadata: Option<Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<CurrentLimit>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CurrentLimit {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
}

#[derive(Serialize)]
struct Header {
    key: String,
    value: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl From<RateLimitResponse> for Told {
    fn from(response: RateLimitResponse) -> Self {
        let overall_code = response.overall_code().as_str_name();
        let headers = response.response_headers_to_add.into_iter();
        Self {
            overall_code,
            statuses: response.statuses.into_iter().map(Status::from).collect(),
            response_headers_to_add: headers
                .map(|header| Header { key: header.key, value: header.value })
                .collect(),
            raw_body: BASE64_STANDARD.encode(response.raw_body),
            dynamic_metadata: response.dynamic_metadata.map(|metadata| grpc::json_of(&metadata)),
        }
    }
}

impl From<grpc::rate_limit_response::DescriptorStatus> for Status {
    fn from(status: grpc::rate_limit_response::DescriptorStatus) -> Self {
        let code = status.code().as_str_name();
        Self {
            code,
            current_limit: status.current_limit.map(|limit| CurrentLimit {
                unit: Some(limit.unit().as_str_name()).filter(|unit| *unit != "UNKNOWN"),
                requests_per_unit: limit.requests_per_unit,
                name: limit.name,
            }),
            limit_remaining: status.limit_remaining,
            duration_until_reset: status.duration_until_reset.map(|wait| format!("{}s", wait.seconds)),
        }
    }
}
