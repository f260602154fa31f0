//! `GET` and `DELETE /v1/keys`: looks at one key of a limit, or resets it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use serde_json::json;
use tollgate_policy::{Policy, Seconds};

use super::problem::Problem;
use super::{Answer, reply, require_admin};
use crate::service::Service;

pub(super) async fn look(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    require_admin(&service, &request)?;
    let (limit, attributes) = limit_and_attributes(&request)?;
    let (policy, now) = (service.engine.policy(), service.engine.clock().now());
    require_key(&policy, &limit, &attributes)?;
    let key = policy.key(&limit, &pairs(&attributes), now).ok_or_else(|| unknown(&limit))?;
    Ok(reply(&json!({
        "limit": limit,
        "key": key.key,
        "capacity": key.capacity,
        "remaining": key.status.remaining,
        "reset_after": Seconds(key.status.reset_after),
    })))
}

pub(super) async fn reset(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    require_admin(&service, &request)?;
    let (limit, attributes) = limit_and_attributes(&request)?;
    require_key(&service.engine.policy(), &limit, &attributes)?;
    let reset = service.engine.policy().reset(&limit, &pairs(&attributes)).ok_or_else(|| unknown(&limit))?;
    Ok(reply(&json!({ "reset": reset })))
}

/// The limit that the query names, and everything else in it.
fn limit_and_attributes(request: &Request<Body>) -> Result<(String, Vec<(String, String)>), Problem> {
    let mut attributes = query_pairs(request.uri().query())?;
    let Some(place) = attributes.iter().position(|(name, _)| name == "limit") else {
        return Err(Problem::bad_request("say which limit: ?limit=NAME, then the attributes of its key"));
    };
    Ok((attributes.remove(place).1, attributes))
}

/// Refuses attributes that the limit does not count by, and a key of which a part is missing: a key that was not meant
/// is easily reset. (The tenant also tells the tier.)
fn require_key(policy: &Policy, limit: &str, attributes: &[(String, String)]) -> Result<(), Problem> {
    let Some(found) = policy.limits.iter().find(|known| known.name == limit) else {
        return Err(unknown(limit));
    };
    let given = |name: &String| attributes.iter().any(|(given, _)| given == name);
    let key: Vec<String> = found.key.iter().map(ToString::to_string).collect();
    let counts_by = || if key.is_empty() { "nothing: it has one key".to_owned() } else { key.join(" and ") };
    let refused =
        |what: String| Problem::bad_request(format!("{what}: limit `{limit}` counts by {}", counts_by()));
    for (name, _) in attributes.iter().filter(|(name, _)| name != "tenant") {
        if !found.key.iter().any(|part| part.0.contains(name)) {
            return Err(refused(format!("`{name}` is no part of the key")));
        }
    }
    match found.key.iter().find(|part| part.0.as_slice() != ["tier"] && !part.0.iter().any(given)) {
        Some(part) => Err(refused(format!("`{part}` is missing"))),
        None => Ok(()),
    }
}

fn pairs(attributes: &[(String, String)]) -> Vec<(&str, &str)> {
    attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn unknown(limit: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("there is no limit `{limit}`: GET /v1/limits lists them"))
}

/// The names and values of a query, unescaped.
pub(super) fn query_pairs(query: Option<&str>) -> Result<Vec<(String, String)>, Problem> {
    let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            Ok((unescaped(name)?, unescaped(value)?))
        })
        .collect()
}

fn unescaped(text: &str) -> Result<String, Problem> {
    let refused =
        || Problem::bad_request(format!("`{text}` in the query is not UTF-8 text in percent escapes"));
    let bytes = text.as_bytes();
    let (mut unescaped, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let byte = match bytes[at] {
            b'+' => b' ',
            b'%' => {
                let digits =
                    bytes.get(at + 1..at + 3).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
                let digits = std::str::from_utf8(digits.ok_or_else(refused)?).map_err(|_| refused())?;
                at += 2;
                u8::from_str_radix(digits, 16).map_err(|_| refused())?
            }
            byte => byte,
        };
        unescaped.push(byte);
        at += 1;
    }
    String::from_utf8(unescaped).map_err(|_| refused())
}
