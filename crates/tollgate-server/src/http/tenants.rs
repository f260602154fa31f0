//! `PUT /v1/tenants/{id}`: gives a tenant another tier.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tollgate_policy::TenantError;

use super::json::{self, LONGEST_TEXT, Text};
use super::problem::Problem;
use super::{Answer, reply, require_admin};
use crate::service::Service;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tenant<'b> {
    #[serde(borrow)]
    tier: Text<'b>,
}

pub(super) async fn handle(
    State(service): State<Arc<Service>>,
    id: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Answer {
    require_admin(&service, &request)?;
    let Path(id) = id.map_err(|error| Problem::bad_request(error.body_text()))?;
    let body = json::body(request).await?;
    let tenant: Tenant<'_> = json::parse(&body)?;
    if id.len() > LONGEST_TEXT {
        return Err(Problem::bad_request(format!(
            "the tenant is longer than {LONGEST_TEXT} bytes, which are the most"
        )));
    }
    service.engine.set_tier(&id, &tenant.tier.0)?;
    tracing::info!(tenant = id, tier = %tenant.tier.0, "tenant has another tier");
    Ok(reply(&json!({ "tenant": id, "tier": tenant.tier.0 })))
}

impl From<TenantError> for Problem {
    fn from(error: TenantError) -> Self {
        Self::new(StatusCode::CONFLICT, error.to_string())
    }
}
