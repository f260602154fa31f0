//! `GET /v1/hot`: the keys with the most requests, tokens and denials.
//!
//! A shadow limit also has the keys with the most requests that it alone would have denied.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use serde_json::{Map, Value, json};
use tollgate_policy::PolicyInForce;

use super::problem::Problem;
use super::query::query_pairs;
use super::{Answer, reply, require_admin};
use crate::hot_keys::{HotBy, HotKey, Hottest};
use crate::service::{Service, json_seconds};

/// The most keys in each list.
const MOST: usize = 20;

/// What the query asks for.
struct Query {
    limit: Option<String>,
    by: Option<HotBy>,
}

impl Query {
    fn read(query: Option<&str>) -> Result<Self, Problem> {
        let mut read = Self { limit: None, by: None };
        for (name, value) in query_pairs(query)? {
            match name.as_str() {
                "limit" if read.limit.is_none() => read.limit = Some(value),
                "by" if read.by.is_none() => {
                    let by = HotBy::ALL.into_iter().find(|by| by.as_str() == value);
                    read.by = Some(by.ok_or_else(|| {
                        Problem::bad_request(format!(
                            "unknown `by={value}`: use `hits`, `tokens`, `denials` or `newly_denied`"
                        ))
                    })?);
                }
                "limit" | "by" => {
                    return Err(Problem::bad_request(format!(
                        "`{name}` is in the query twice: send it once"
                    )));
                }
                _ => return Err(Problem::bad_request(format!("`{name}`: the query takes `limit` and `by`"))),
            }
        }
        Ok(read)
    }
}

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let is_admin = require_admin(&service, &request).is_ok();
    let query = Query::read(request.uri().query())?;
    // With thousands of limits this takes milliseconds, which other requests do not have to wait for.
    tokio::task::spawn_blocking(move || hottest(&service, query, is_admin))
        .await
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?
}

fn hottest(service: &Service, Query { limit: wanted, by }: Query, is_admin: bool) -> Answer {
    let (policy, now) = (service.engine.policy(), service.engine.clock().now());
    let mut limits = Map::new();
    for (number, name) in
        policy.limit_numbers().filter(|(_, name)| wanted.as_ref().is_none_or(|wanted| wanted == name))
    {
        let Some(metrics) = service.metrics.limit(number) else { continue };
        let mut lists = Map::new();
        for by in metrics.orders().iter().copied().filter(|known| by.is_none_or(|by| by == *known)) {
            let mut hottest = metrics.hot_keys.hottest(by, MOST, now);
            if !is_admin {
                service.key_mask.mask(&mut hottest);
            }
            lists.insert(by.as_str().to_owned(), list(&hottest, &policy));
        }
        limits.insert(name.to_owned(), lists.into());
    }
    match wanted {
        Some(name) if limits.is_empty() => Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!("there is no limit `{name}`: GET /v1/limits lists them"),
        )),
        _ => Ok(reply(&json!({ "keys": if is_admin { "clear" } else { "hashed" }, "limits": limits }))),
    }
}

/// A list as JSON.
pub(crate) fn list(hottest: &Hottest, policy: &PolicyInForce<'_>) -> Value {
    let key = |hot: &HotKey| {
        let since = json_seconds(policy.unix_time_at(hot.since));
        json!({ "key": hot.key, "count": hot.count, "error": hot.error, "since": since })
    };
    let keys: Vec<Value> = hottest.keys.iter().map(key).collect();
    json!({ "keys": keys, "total": hottest.total, "error_bound": hottest.error_bound })
}
