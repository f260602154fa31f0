//! Envoy's rate limit service over gRPC, with health and reflection.

mod answer;
mod ask;
mod body;
#[allow(
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    rust_2018_idioms,
    clippy::all,
    reason = "made from proto/: tests/proto.rs"
)]
#[rustfmt::skip]
mod generated;
mod health;
mod message;
mod metadata;
mod server;

use std::sync::Arc;

use tollgate::Timestamp;
use tollgate_policy::{NotDecided, PolicyInForce, Together};
use tonic::{Request, Response, Status};

pub(crate) use self::generated::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor,
};
use self::generated::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
pub(crate) use self::generated::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response,
};
pub(crate) use self::generated::envoy::r#type::v3::RateLimitUnit;
pub(crate) use self::metadata::json_of;
pub(crate) use self::server::grpc;
use crate::metrics::Protocol;
use crate::service::Service;

/// Answers Envoy.
struct RateLimits(Arc<Service>);

#[tonic::async_trait]
impl RateLimitService for RateLimits {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        should_rate_limit(&self.0, request.get_ref(), Protocol::grpc).await.map(Response::new)
    }
}

/// Decides a request of Envoy, however it came and wherever states are kept.
///
/// # Errors
///
/// What is wrong with it. Nothing is charged then.
pub(crate) async fn should_rate_limit(
    service: &Service,
    request: &RateLimitRequest,
    protocol: Protocol,
) -> Result<RateLimitResponse, Status> {
    if !service.engine.is_shared() {
        return should_rate_limit_here(service, request, protocol);
    }
    let decided = async {
        let entries = ask::entries(request)?;
        let described = ask::described(request, &entries)?;
        let (policy, now) = (service.engine.policy(), service.engine.clock().now());
        let together = service.decide_together(&policy, &described, now, protocol).await;
        respond(service, &policy, request, together, now)
    };
    decided.await.inspect_err(|_| service.metrics.count_error(protocol))
}

/// [`should_rate_limit`], in the table of this process.
///
/// # Errors
///
/// As there.
fn should_rate_limit_here(
    service: &Service,
    request: &RateLimitRequest,
    protocol: Protocol,
) -> Result<RateLimitResponse, Status> {
    let decide = || {
        let entries = ask::entries(request)?;
        let described = ask::described(request, &entries)?;
        let (policy, now) = (service.engine.policy(), service.engine.clock().now());
        let together = service.check_together(&policy, &described, now, protocol);
        respond(service, &policy, request, together, now)
    };
    decide().inspect_err(|_| service.metrics.count_error(protocol))
}

fn respond(
    service: &Service,
    policy: &PolicyInForce<'_>,
    request: &RateLimitRequest,
    together: Result<Together<'_>, NotDecided>,
    asked: Timestamp,
) -> Result<RateLimitResponse, Status> {
    let together = together.map_err(|error| match &error {
        NotDecided::KeptApart { .. } => Status::invalid_argument(error.to_string()),
        _ => Status::resource_exhausted(error.to_string()),
    })?;
    service.took(asked, 1);
    Ok(answer::response(policy, request, &together))
}
