//! `GET /v1/hot`: the keys asked for most, and those denied most.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::query::query_pairs;
use super::{Answer, reply, require_admin};
use crate::hot_keys::Hottest;
use crate::service::Service;

/// As many keys are told of.
const MOST: usize = 20;

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let is_admin = require_admin(&service, &request).is_ok();
    let pairs = query_pairs(request.uri().query())?;
    let wanted = match &pairs[..] {
        [] => None,
        [(name, value)] if name == "limit" => Some(value),
        _ => return Err(Problem::bad_request("the query takes `limit`, once, and nothing else")),
    };
    let (policy, now) = (service.engine.policy(), service.engine.clock().now());
    let mut limits = Map::new();
    for (number, name) in
        policy.limit_numbers().filter(|(_, name)| wanted.is_none_or(|wanted| wanted == name))
    {
        let Some(metrics) = service.metrics.limit(number) else { continue };
        let (mut hits, mut denials) = metrics.hot_keys.hottest(MOST, now);
        if !is_admin {
            service.key_mask.mask(&mut hits);
            service.key_mask.mask(&mut denials);
        }
        limits.insert(name.to_owned(), json!({ "hits": told(&hits), "denials": told(&denials) }));
    }
    match wanted {
        Some(name) if limits.is_empty() => Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!("there is no limit `{name}`: GET /v1/limits lists them"),
        )),
        _ => Ok(reply(&json!({ "keys": if is_admin { "clear" } else { "hashed" }, "limits": limits }))),
    }
}

fn told(hottest: &Hottest) -> Value {
    let keys: Vec<Value> = hottest
        .keys
        .iter()
        .map(|hot| json!({ "key": hot.key, "count": hot.count, "error": hot.error }))
        .collect();
    json!({ "keys": keys, "total": hottest.total, "error_bound": hottest.error_bound })
}
