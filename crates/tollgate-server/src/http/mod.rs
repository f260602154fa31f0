//! The HTTP API: one endpoint a file.

mod check;
mod envoy;
mod events;
mod explain;
mod forward_auth;
mod health;
mod history;
mod hot;
mod json;
mod keys;
mod limits;
mod metrics;
mod pages;
mod permits;
mod playground;
mod pressure;
pub(crate) mod problem;
mod query;
mod reload;
mod server;
mod tenants;
mod throttle;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, any, get, post, put};
use serde::Serialize;

pub(crate) use self::hot::list as hot_list;
pub(crate) use self::json::LONGEST_TEXT;
pub(crate) use self::limits::policy_json;
use self::problem::Problem;
pub(crate) use self::server::Http;
use crate::listener::Connection;
use crate::metrics::Protocol;
use crate::service::Service;

/// What all of it is described in.
const OPENAPI: &str = include_str!("openapi.json");

/// What handlers answer.
type Answer = Result<Response, Problem>;

/// Every endpoint. `openapi.json` tells of them too, and a test that it tells of all.
fn routes() -> Vec<(&'static str, MethodRouter<Arc<Service>>)> {
    vec![
        ("/v1/check", post(check::handle)),
        ("/v1/throttle", post(throttle::handle)),
        ("/v1/acquire", post(permits::acquire)),
        ("/v1/release", post(permits::release)),
        ("/v1/forward-auth", any(forward_auth::handle)),
        ("/v1/explain", post(explain::handle)),
        ("/v1/limits", get(limits::handle)),
        ("/v1/hot", get(hot::handle)),
        ("/v1/events", get(events::handle).post(events::acknowledge)),
        ("/v1/history", get(history::handle)),
        ("/v1/keys", get(keys::look).delete(keys::reset)),
        ("/v1/tenants/{id}", put(tenants::handle)),
        ("/v1/pressure", put(pressure::handle)),
        ("/v1/reload", post(reload::handle)),
        ("/json", post(envoy::handle)),
        ("/metrics", get(metrics::handle)),
        ("/livez", get(health::live)),
        ("/readyz", get(health::ready)),
        ("/healthz", get(health::ready)),
        ("/openapi.json", get(openapi)),
        ("/", get(pages::front)),
        ("/playground", get(pages::playground)),
        ("/v1/playground", get(playground::list).post(playground::evaluate)),
        ("/assets/{hash}/{*name}", get(pages::asset)),
    ]
}

pub(crate) fn router(service: Arc<Service>) -> Router {
    router_of(routes(), service)
}

/// The endpoints of the playground only.
pub(crate) fn playground_router(service: Arc<Service>) -> Router {
    const PATHS: [&str; 4] = ["/playground", "/v1/playground", "/assets/{hash}/{*name}", "/livez"];
    let mut routes = routes();
    routes.retain(|(path, _)| PATHS.contains(path));
    let to_page = get(|| async { axum::response::Redirect::to("/playground") });
    routes.push(("/", to_page));
    router_of(routes, service)
}

fn router_of(routes: Vec<(&'static str, MethodRouter<Arc<Service>>)>, service: Arc<Service>) -> Router {
    routes
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .with_state(service)
}

/// Counts a request for a decision that was refused.
fn counted<T>(service: &Service, protocol: Protocol, answer: Result<T, Problem>) -> Result<T, Problem> {
    answer.inspect_err(|_| service.metrics.count_error(protocol))
}

/// An answer in JSON.
fn reply(value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("made of what JSON has");
    json_body(body)
}

fn json_body(body: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Lets admin calls through.
fn require_admin(service: &Service, request: &Request<Body>) -> Result<(), Problem> {
    let connection = request.extensions().get::<Connection>().expect("every request knows its connection");
    service.admin.allows(request.headers(), connection.is_loopback).map_err(Problem::refused)
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn not_found(request: Request<Body>) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("there is nothing at {}: GET /openapi.json tells what there is", request.uri().path()),
    )
}

async fn wrong_method(request: Request<Body>) -> Problem {
    let (method, path) = (request.method(), request.uri().path());
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{path} does not take {method}: GET /openapi.json tells what it takes"),
    )
}

#[cfg(test)]
mod tests;
