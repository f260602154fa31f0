//! A service that is asked over gRPC, by a client made from all of Envoy's own protos.

use std::net::SocketAddr;
use std::process::Command;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::runtime::Runtime;
use tollgate_testkit::address_in;
use tonic::transport::Channel;

use crate::service::{Directory, Service, TOLLGATE};

impl Service {
    /// Starts the service with a policy, on free ports for HTTP and gRPC.
    pub(crate) fn start_grpc(policy: &str) -> (Self, SocketAddr) {
        let directory = Directory::new();
        let listen = "listen: { http: '127.0.0.1:0', grpc: '127.0.0.1:0' }";
        let file = directory.write("tollgate.yaml", &format!("{listen}\n{policy}"));
        Self::run_grpc(directory, Command::new(TOLLGATE).args(["serve", "--config"]).arg(&file))
    }

    /// Starts the service by any command line that has it listen for gRPC.
    pub(crate) fn run_grpc(directory: Directory, command: &mut Command) -> (Self, SocketAddr) {
        let mut service = Self::run(directory, command);
        let grpc = address_in(&service.process.line_with("grpc://"));
        (service, grpc)
    }
}

/// A client, and the runtime it lives on.
pub(crate) struct Envoy {
    pub(crate) runtime: Runtime,
    client: RateLimitServiceClient<Channel>,
}

impl Envoy {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(RateLimitServiceClient::connect(format!("http://{address}"))).unwrap();
        Self { runtime, client }
    }

    pub(crate) fn call(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, tonic::Status> {
        self.runtime.block_on(self.client.should_rate_limit(request)).map(tonic::Response::into_inner)
    }

    /// Asks of descriptors that say nothing but their entries.
    pub(crate) fn ask(&mut self, domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitResponse {
        let descriptors = descriptors.iter().map(|entries| descriptor(entries)).collect();
        self.call(RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }).unwrap()
    }
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}
