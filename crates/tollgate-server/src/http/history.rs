//! `GET /v1/history?limit=NAME`: the requests to a limit in the last 15 minutes, in steps of 5 seconds.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};

use super::problem::Problem;
use super::query::query_pairs;
use super::{Answer, reply};
use crate::dashboard::history_of;
use crate::service::Service;

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    let mut limit = None;
    for (name, value) in query_pairs(request.uri().query())? {
        if name != "limit" || limit.is_some() {
            return Err(Problem::bad_request(format!("`{name}`: the query takes one `limit`")));
        }
        limit = Some(value);
    }
    let limit = limit.ok_or_else(|| Problem::bad_request("`limit` is missing: send `?limit=NAME`"))?;
    if !service.engine.policy().limit_numbers().any(|(_, name)| name == limit) {
        return Err(Problem::new(
            StatusCode::NOT_FOUND,
            format!("there is no limit `{limit}`: GET /v1/limits lists them"),
        ));
    }
    Ok(reply(&history_of(&service, &limit)))
}
