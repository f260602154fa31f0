//! A gRPC service behind limits written in Rust: `cargo run -p tollgate-tower --example tonic`.

use std::net::SocketAddr;

use tollgate::{Concurrency, Rate, TokenBucket};
use tollgate_policy::{Engine, Limit, Policy};
use tollgate_tower::TollgateLayer;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const TRY: &str = r"
printf '\0\0\0\0\0' | curl -si --http2-prior-knowledge --data-binary @- -o /dev/null -D - \
  -H 'content-type: application/grpc' -H 'te: trailers' http://127.0.0.1:50051/grpc.health.v1.Health/Check
";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let per_address = Limit::new("per-address", TokenBucket::new(Rate::per_minute(10)?, 3)?).key(["ip"]);
    let in_flight = Limit::new("in-flight", Concurrency::new(100, None)?);
    let engine = Engine::new(Policy::from_limits([per_address, in_flight])?)?;
    let layer = TollgateLayer::new(engine).peer(|request| {
        request.extensions.get::<TcpConnectInfo>()?.remote_addr().as_ref().map(SocketAddr::ip)
    });

    // Every server has this service, or could.
    let (_, health) = tonic_health::server::health_reporter();
    let address: SocketAddr = "127.0.0.1:50051".parse()?;
    let incoming = TcpIncoming::bind(address)?;
    let server = Server::builder().layer(layer).add_service(health).serve_with_incoming(incoming);
    let server = tokio::spawn(server);

    let channel = Channel::from_static("http://127.0.0.1:50051").connect_lazy();
    let mut client = HealthClient::new(channel);
    println!("What a client sees:\n");
    for _ in 0..4 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(answer) => println!("served; RateLimit: {:?}", answer.metadata().get("ratelimit")),
            Err(status) => println!("{:?}: {}", status.code(), status.message()),
        }
    }
    println!("\nTry:\n{TRY}");
    server.await??;
    Ok(())
}
