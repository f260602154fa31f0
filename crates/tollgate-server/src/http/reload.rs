//! `POST /v1/reload`: reads the policy file and the tenants file again.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};

use super::problem::Problem;
use super::{Answer, reply, require_admin};
use crate::service::Service;

pub(super) async fn handle(State(service): State<Arc<Service>>, request: Request<Body>) -> Answer {
    require_admin(&service, &request)?;
    // A file of a million tenants takes about a second, during which the workers answer other requests.
    let reloading = tokio::task::spawn_blocking(move || service.reload("asked by POST /v1/reload"));
    let reloaded = reloading
        .await
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    reloaded
        .map(|reloaded| reply(&reloaded))
        .map_err(|error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error))
}
