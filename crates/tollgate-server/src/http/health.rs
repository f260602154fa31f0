//! `GET /livez` and `/readyz`: whether the process turns, and whether to send it requests. Never limited.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::service::Service;

pub(super) async fn live() -> Response {
    text(StatusCode::OK, "ok\n".to_owned())
}

pub(super) async fn ready(State(service): State<Arc<Service>>, RawQuery(query): RawQuery) -> Response {
    let is_verbose =
        query.is_some_and(|query| query.split('&').any(|part| part.split('=').next() == Some("verbose")));
    let (status, word) = match service.is_draining() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        false => (StatusCode::OK, "ok"),
    };
    if !is_verbose {
        return text(status, format!("{word}\n"));
    }
    let limits = service.engine.policy().limits.len();
    text(status, format!("policy ok, {limits} limits\nstore ok, memory\nlisteners {word}\n"))
}

fn text(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
