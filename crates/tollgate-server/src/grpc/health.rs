//! Whether the service is well, as gRPC's health protocol asks: `grpc.health.v1.Health`.

use std::pin::Pin;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::server::NamedService as _;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use super::RateLimits;
use super::generated::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;

/// Tells whether it is well: false once the process is about to end. Streams end with the sender.
#[derive(Clone, Debug)]
pub(super) struct Health(pub(super) watch::Receiver<bool>);

type Answers = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !is_known(&request.get_ref().service) {
            return Err(Status::not_found("there is no such service here"));
        }
        Ok(Response::new(answer(status(*self.0.borrow()))))
    }

    type WatchStream = Answers;

    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Answers>, Status> {
        let changes = WatchStream::new(self.0.clone());
        // The stream of a service that nobody knows says so, and stays open, should it become known.
        let answers: Answers = if is_known(&request.get_ref().service) {
            Box::pin(changes.map(|is_serving| Ok(answer(status(is_serving)))))
        } else {
            let unknown = tokio_stream::once(Ok(answer(ServingStatus::ServiceUnknown)));
            Box::pin(unknown.chain(changes.filter_map(|_| None)))
        };
        Ok(Response::new(answers))
    }
}

/// The service as a whole, or the one of it that matters.
fn is_known(service: &str) -> bool {
    service.is_empty() || service == RateLimitServiceServer::<RateLimits>::NAME
}

const fn status(is_serving: bool) -> ServingStatus {
    if is_serving { ServingStatus::Serving } else { ServingStatus::NotServing }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}
