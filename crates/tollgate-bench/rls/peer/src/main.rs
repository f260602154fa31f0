//! The library limitador behind tonic, put together as limitador's own server does, which is in no registry: one limit
//! by two entries of the descriptor, counters in memory, no headers.

use std::collections::HashMap;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use limitador::RateLimiter;
use limitador::limit::{Context, Expression, Limit, Namespace};
use tonic::{Request, Response, Status};

struct Limiter(RateLimiter);

#[tonic::async_trait]
impl RateLimitService for Limiter {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let RateLimitRequest { domain, descriptors, hits_addend } = request.into_inner();
        let entries = descriptors.into_iter().map(|descriptor| descriptor.entries.into_iter());
        let values: Vec<HashMap<String, String>> =
            entries.map(|entries| entries.map(|entry| (entry.key, entry.value)).collect()).collect();
        let mut context = Context::default();
        context.list_binding("descriptors".to_owned(), values);
        let namespace = Namespace::from(domain);
        let checked = self.0.check_rate_limited_and_update(&namespace, &context, u64::from(hits_addend.max(1)));
        let checked = checked.map_err(|error| Status::unavailable(error.to_string()))?;
        let code = if checked.limited { Code::OverLimit } else { Code::Ok };
        Ok(Response::new(RateLimitResponse { overall_code: code.into(), ..RateLimitResponse::default() }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = RateLimiter::new(10_000_000);
    let by = [Expression::parse("descriptors[0].path")?, Expression::parse("descriptors[0].user")?];
    limiter.add_limit(Limit::new("edge", 4_000_000_000, 3600, [], by));
    let address = std::env::args().nth(1).expect("an address").parse()?;
    let service = RateLimitServiceServer::new(Limiter(limiter));
    Ok(tonic::transport::Server::builder().add_service(service).serve(address).await?)
}
