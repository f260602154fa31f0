//! `GET` and `DELETE /v1/keys`: looks at one key of a limit, or resets it.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use serde_json::json;
use tollgate_policy::{KeyPart, Policy, Seconds};

use super::problem::Problem;
use super::query::query_pairs;
use super::{Answer, reply, require_admin};
use crate::service::Service;

pub(super) async fn look(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    require_admin(&service, &request)?;
    let (limit, attributes) = limit_and_attributes(&request)?;
    let (policy, now) = (service.engine.policy(), service.engine.clock().now());
    require_key(&policy, &limit, &attributes)?;
    let key = policy.key(&limit, &pairs(&attributes), now).wait().await?.ok_or_else(|| unknown(&limit))?;
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
    let policy = service.engine.policy();
    require_key(&policy, &limit, &attributes)?;
    let reset = policy.reset(&limit, &pairs(&attributes)).wait().await?.ok_or_else(|| unknown(&limit))?;
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
    // Of an Envoy descriptor, the entries whose values count apart.
    let entries = found.descriptor.iter().flat_map(|descriptor| &descriptor.entries);
    let entries = entries.filter(|entry| entry.has_many()).map(|entry| KeyPart(vec![entry.key.clone()]));
    let parts: Vec<KeyPart> = found.key.iter().cloned().chain(entries).collect();
    let key: Vec<String> = parts.iter().map(ToString::to_string).collect();
    let counts_by = || if key.is_empty() { "nothing: it has one key".to_owned() } else { key.join(" and ") };
    let refused =
        |what: String| Problem::bad_request(format!("{what}: limit `{limit}` counts by {}", counts_by()));
    for (name, _) in attributes.iter().filter(|(name, _)| name != "tenant") {
        if !parts.iter().any(|part| part.0.contains(name)) {
            return Err(refused(format!("`{name}` is no part of the key")));
        }
    }
    match parts.iter().find(|part| part.0.as_slice() != ["tier"] && !part.0.iter().any(given)) {
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
