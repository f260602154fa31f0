//! `GET /livez` and `/readyz`: whether the process turns, and whether to send it requests. Never limited.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::service::Service;
use crate::store::ShardHealth;

pub(super) async fn live() -> Response {
    text(StatusCode::OK, "ok\n".to_owned())
}

/// Without its store, a process is as ready as the policy says: where a limit denies then, others may do better; where all
/// allow or have their share, it goes on.
pub(super) async fn ready(State(service): State<Arc<Service>>, RawQuery(query): RawQuery) -> Response {
    let is_verbose =
        query.is_some_and(|query| query.split('&').any(|part| part.split('=').next() == Some("verbose")));
    let shards = service.store.as_ref().map_or_else(Vec::new, |store| store.shards());
    let up = shards.iter().filter(|shard| shard.breaker.is_up()).count();
    let store = match shards.len() {
        all if up == all => "ok",
        _ if up > 0 => "degraded",
        _ => "down",
    };
    let (status, word) = match service.is_draining() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        false if store == "down" && service.engine.policy().fails_closed() => {
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
        }
        false => (StatusCode::OK, "ok"),
    };
    if !is_verbose {
        let of_store = if store == "ok" { String::new() } else { format!(", store {store}") };
        return text(status, format!("{word}{of_store}\n"));
    }
    let limits = service.engine.policy().limits.len();
    let kept = match service.store {
        None => "memory".to_owned(),
        Some(_) => {
            let shards = shards.iter().map(told).collect::<Vec<_>>().join(", ");
            service.engine.policy().environment_values.hide(&shards).into_owned()
        }
    };
    let listeners = if service.is_draining() { "draining" } else { "ok" };
    text(status, format!("policy ok, {limits} limits\nstore {store}, {kept}\nlisteners {listeners}\n"))
}

/// `10.0.0.1:6379 unreachable for 7 s: connection refused`.
fn told(shard: &ShardHealth) -> String {
    let ShardHealth { address, breaker, since, reason, .. } = shard;
    let told = format!("{address} {} for {} s", breaker.as_str(), since.as_secs());
    match reason {
        None => told,
        // Most reasons begin with the address.
        Some(reason) => {
            let reason = reason.strip_prefix(&format!("{address}: ")).unwrap_or(reason);
            format!("{told}: {reason}")
        }
    }
}

fn text(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}
