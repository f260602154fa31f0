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

use tollgate_policy::{NotDecided, Verdict};
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
use crate::telemetry::Tracing;

/// Answers Envoy.
struct RateLimits(Arc<Service>);

#[tonic::async_trait]
impl RateLimitService for RateLimits {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let tracing = self.0.tracing(request.metadata().as_ref());
        should_rate_limit(&self.0, request.get_ref(), Protocol::grpc, tracing).await.map(Response::new)
    }
}

/// Decides a call of Envoy, however it came.
///
/// # Errors
///
/// What is wrong with it. Nothing is charged then.
pub(crate) async fn should_rate_limit(
    service: &Service,
    request: &RateLimitRequest,
    protocol: Protocol,
    tracing: Tracing,
) -> Result<RateLimitResponse, Status> {
    let calls = service.calls(protocol).traced(tracing);
    let decided = async {
        let entries = ask::entries(request)?;
        let described = ask::described(request, &entries)?;
        let policy = service.engine.policy();
        let respond = |verdict: Verdict<'_>| answer::response(&policy, request, &verdict);
        calls.check_descriptors(&policy, &described, respond).wait().await.map_err(refusal)
    };
    decided.await.inspect_err(|_| calls.count_error())
}

/// [`should_rate_limit`] without waiting. None, and nothing is decided, if a store has to be waited for.
fn should_rate_limit_now(
    service: &Service,
    request: &RateLimitRequest,
    protocol: Protocol,
    tracing: Tracing,
) -> Option<Result<RateLimitResponse, Status>> {
    let calls = service.calls(protocol).traced(tracing);
    let decide = || {
        let entries = ask::entries(request)?;
        let described = ask::described(request, &entries)?;
        let policy = service.engine.policy();
        let respond = |verdict: Verdict<'_>| answer::response(&policy, request, &verdict);
        let answer = calls.check_descriptors(&policy, &described, respond).now();
        answer.map(|decided| decided.map_err(refusal)).transpose()
    };
    decide().inspect_err(|_: &Status| calls.count_error()).transpose()
}

fn refusal(error: NotDecided) -> Status {
    match &error {
        NotDecided::KeptApart { .. } => Status::invalid_argument(error.to_string()),
        _ => Status::resource_exhausted(error.to_string()),
    }
}
