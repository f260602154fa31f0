//! `GET /metrics`: for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use super::problem::Problem;
use crate::service::Service;

pub(super) async fn handle(State(service): State<Arc<Service>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let is_openmetrics = accept.contains("application/openmetrics-text");
    let kind = match is_openmetrics {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; version=0.0.4; charset=utf-8",
    };
    // With thousands of limits this takes milliseconds, which other requests do not have to wait for.
    match tokio::task::spawn_blocking(move || service.metrics.encode(is_openmetrics)).await {
        Ok(metrics) => ([(header::CONTENT_TYPE, kind)], metrics).into_response(),
        Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
