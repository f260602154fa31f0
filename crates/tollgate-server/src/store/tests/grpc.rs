use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::SendRequest;
use hyper::http::{Request, header};
use prost::Message as _;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::*;
use crate::grpc::{
    RateLimitDescriptor, RateLimitRequest, RateLimitResponse, grpc, rate_limit_descriptor,
    rate_limit_response, should_rate_limit,
};
use crate::listener::Speak as _;
use crate::metrics::Protocol;
use crate::telemetry::Tracing;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

/// A connection, what stops the server, and what ends with it.
async fn talk(service: Arc<Service>) -> (SendRequest<Bytes>, oneshot::Sender<()>, JoinHandle<()>) {
    let (stream, theirs) = tokio::io::duplex(1 << 16);
    let (stop, stopped) = oneshot::channel();
    let stopped = async move { _ = stopped.await };
    tokio::spawn(async move {
        let (_serving, is_serving) = watch::channel(true);
        grpc(service, None, is_serving).speak(theirs, connection(), activity(), stopped).await;
    });
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let ended = tokio::spawn(async move { _ = connection.await });
    (client, stop, ended)
}

/// The message that is answered to this one.
async fn call(mut client: SendRequest<Bytes>, path: &str, message: Vec<u8>) -> Bytes {
    client = client.ready().await.unwrap();
    let request = Request::builder()
        .method("POST")
        .uri(format!("http://localhost{path}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .body(())
        .unwrap();
    let (response, mut stream) = client.send_request(request, false).unwrap();
    let mut data = BytesMut::new();
    data.put_u8(0);
    data.put_u32(u32::try_from(message.len()).unwrap());
    data.put_slice(&message);
    stream.send_data(data.freeze(), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    let mut answer = BytesMut::new();
    while let Some(piece) = body.data().await {
        answer.extend_from_slice(&piece.unwrap());
    }
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    answer.freeze().slice(5..)
}

fn hit() -> Vec<u8> {
    let entry = rate_limit_descriptor::Entry { key: "path".to_owned(), value: "/".to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![descriptor], hits_addend: 1 }
        .encode_to_vec()
}

/// As many calls at once.
fn calls(client: &SendRequest<Bytes>, count: usize) -> JoinSet<Bytes> {
    (0..count).map(|_| call(client.clone(), SHOULD_RATE_LIMIT, hit())).collect()
}

/// How many of these were allowed.
async fn allowed(mut calls: JoinSet<Bytes>) -> usize {
    let mut allowed = 0;
    while let Some(answer) = calls.join_next().await {
        let response = RateLimitResponse::decode(answer.unwrap()).unwrap();
        allowed += usize::from(response.overall_code() == rate_limit_response::Code::Ok);
    }
    allowed
}

#[tokio::test]
async fn no_call_waits_for_another() {
    let store = Slow::new(TAKES);
    let (client, _stop, _ended) = talk(shared(policy("deny"), &store)).await;
    let calls = calls(&client, 30);
    eventually("all are asked at once", || store.under_way() > 8).await;
    // Whoever asks nothing of the store does not wait for it.
    assert_eq!(&call(client.clone(), HEALTH, Vec::new()).await[..], [8, 1]);
    assert!(store.under_way() > 0);
    assert_eq!(allowed(calls).await, 10);
}

#[tokio::test]
async fn what_was_asked_is_answered_before_the_end() {
    let store = Slow::new(TAKES);
    let (client, stop, ended) = talk(shared(policy("deny"), &store)).await;
    let calls = calls(&client, 20);
    eventually("all are asked", || store.under_way() == 20).await;
    stop.send(()).unwrap();
    assert_eq!(allowed(calls).await, 10);
    drop(client);
    ended.await.unwrap();
}

#[tokio::test]
async fn nobody_is_asked_for_a_client_that_has_gone() {
    let store = Slow::new(Duration::from_secs(60));
    let (client, _stop, ended) = talk(shared(policy("deny"), &store)).await;
    let calls = calls(&client, 20);
    eventually("all are asked", || store.under_way() == 20).await;
    drop((calls, client));
    ended.abort();
    eventually("nothing is asked any more", || store.under_way() == 0).await;
}

#[tokio::test]
async fn without_the_store_the_policy_says_what_is_decided() {
    for (on_error, expected) in [("allow", 3), ("deny", 0)] {
        let store = Slow::new(Duration::ZERO);
        let (client, _stop, _ended) = talk(shared(policy(on_error), &store)).await;
        store.go();
        assert_eq!(allowed(calls(&client, 3)).await, expected, "{on_error}");
    }
}

#[tokio::test]
async fn descriptors_that_a_cluster_keeps_apart_are_an_invalid_argument() {
    let text = "
store: { redis: { urls: ['redis://127.0.0.1'], cluster: true } }
limits: [{ name: a, key: [user], token_bucket: { rate: 1/day, burst: 10 } }]
";
    let policy = Policy::read(Path::new("tollgate.yaml"), text).unwrap();
    let service = shared(policy, &Slow::new(Duration::ZERO));
    let descriptor = |user: &str| {
        let entry = rate_limit_descriptor::Entry { key: "user".to_owned(), value: user.to_owned() };
        RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
    };
    let request = RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors: ["u1", "u2"].map(descriptor).to_vec(),
        hits_addend: 1,
    };
    let refused = should_rate_limit(&service, &request, Protocol::grpc, Tracing::Off).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused}");
}
