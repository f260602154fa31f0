//! What stands on the gRPC port besides decisions: health, reflection, TLS, the end; and messages that do not come whole.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use crate::envoy_client::Envoy;
use crate::service::{Directory, Service, TOLLGATE, self_signed_certificate};
use bytes::Bytes;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use hyper::http::{HeaderMap, Request};
use prost::Message as _;
use tokio::runtime::Runtime;
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const POLICY: &str = "
limits:
  - name: paths
    descriptor: { domain: edge, entries: [{ key: path }] }
    fixed_window: { limit: 10, window: 1day }
";

const RLS: &str = "envoy.service.ratelimit.v3.RateLimitService";

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

#[test]
fn health_is_told_and_watched_until_the_end() {
    let (mut service, address) = Service::start_grpc(POLICY);
    runtime().block_on(async {
        let mut client = HealthClient::new(channel(address).await);
        let ask = |name: &str| HealthCheckRequest { service: name.to_owned() };
        for name in ["", RLS] {
            let status = client.check(ask(name)).await.unwrap().into_inner().status();
            assert_eq!(status, ServingStatus::Serving, "{name:?}");
        }
        assert_eq!(client.check(ask("other")).await.unwrap_err().code(), tonic::Code::NotFound);
        let mut known = client.watch(ask(RLS)).await.unwrap().into_inner();
        let mut unknown = client.watch(ask("other")).await.unwrap().into_inner();
        assert_eq!(known.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
        assert_eq!(unknown.next().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
        let open = tokio::time::timeout(Duration::from_millis(100), unknown.next()).await;
        assert!(open.is_err(), "it stays open: {open:?}");
        service.process.signal("TERM");
        assert_eq!(known.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        assert!(known.next().await.is_none(), "the stream ends");
        assert!(unknown.next().await.is_none());
    });
    assert!(service.process.wait().success());
}

/// The names of all services, and the files of one method, as a version of reflection returns them.
macro_rules! reflected {
    ($address:expr, $version:ident) => {{
        use tonic_reflection::pb::$version::ServerReflectionRequest;
        use tonic_reflection::pb::$version::server_reflection_client::ServerReflectionClient;
        use tonic_reflection::pb::$version::server_reflection_request::MessageRequest;
        use tonic_reflection::pb::$version::server_reflection_response::MessageResponse;
        let mut client = ServerReflectionClient::new(channel($address).await);
        let ask = |request| ServerReflectionRequest { host: String::new(), message_request: Some(request) };
        let requests = [
            ask(MessageRequest::ListServices(String::new())),
            ask(MessageRequest::FileContainingSymbol(format!("{RLS}.ShouldRateLimit"))),
        ];
        let answers = client.server_reflection_info(tokio_stream::iter(requests)).await.unwrap().into_inner();
        let answers: Vec<_> = answers.map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
        let MessageResponse::ListServicesResponse(services) = &answers[0] else { panic!("{answers:?}") };
        let mut names: Vec<String> = services.service.iter().map(|service| service.name.clone()).collect();
        names.sort_unstable();
        let MessageResponse::FileDescriptorResponse(files) = &answers[1] else { panic!("{answers:?}") };
        (names, files.file_descriptor_proto.clone())
    }};
}

#[test]
fn both_versions_of_reflection_list_the_services_and_their_messages() {
    let (_service, address) = Service::start_grpc(POLICY);
    runtime().block_on(async {
        let (names, files) = reflected!(address, v1);
        let expected = [
            RLS,
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
        ];
        assert_eq!(names, expected);
        assert!(!files.is_empty());
        assert_eq!(reflected!(address, v1alpha), (names, files));
    });
}

/// A message of gRPC as it goes over the wire.
fn message(path: &str) -> Vec<u8> {
    let descriptors = vec![crate::envoy_client::descriptor(&[("path", path)])];
    let request = envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest {
        domain: "edge".to_owned(),
        descriptors,
        hits_addend: 0,
    };
    let message = request.encode_to_vec();
    [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), &message].concat()
}

/// Sends pieces of a message, each in a frame of its own and after a moment, and tells the status and the trailers.
async fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    kind: &str,
    pieces: &[&[u8]],
) -> (u16, HeaderMap, Vec<u8>) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    let request = request.header("content-type", kind).header("te", "trailers").body(()).unwrap();
    let (response, mut body) = client.send_request(request, false).unwrap();
    for piece in pieces {
        let _ = body.send_data(Bytes::copy_from_slice(piece), false);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let _ = body.send_data(Bytes::new(), true); // it may have been refused by now
    let response = response.await.unwrap();
    let (head, mut body) = response.into_parts();
    // What is refused is refused in the headers alone: official clients understand nothing else.
    assert!(head.headers.get("grpc-status").is_none() || body.is_end_stream(), "{:?}", head.headers);
    let mut data = Vec::new();
    while let Some(piece) = body.data().await {
        data.extend_from_slice(&piece.unwrap());
    }
    let trailers = body.trailers().await.unwrap().unwrap_or(head.headers);
    (head.status.as_u16(), trailers, data)
}

fn grpc_status(trailers: &HeaderMap) -> &str {
    trailers.get("grpc-status").map_or("none", |status| status.to_str().unwrap())
}

#[test]
fn a_message_may_come_in_any_pieces() {
    let (_service, address) = Service::start_grpc(POLICY);
    let path = format!("/{RLS}/ShouldRateLimit");
    runtime().block_on(async {
        let whole = message("/a");
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        for pieces in
            [&[&whole[..]][..], &[&whole[..5], &whole[5..]], &[&[], &whole[..9], &[], &whole[9..]], &bytes]
        {
            let (status, trailers, data) =
                send(address, "POST", &path, "application/grpc+proto", pieces).await;
            assert_eq!((status, grpc_status(&trailers)), (200, "0"), "{trailers:?}");
            assert_eq!(data[..5], [&[0][..], &u32::try_from(data.len() - 5).unwrap().to_be_bytes()].concat());
        }
    });
    let response = Envoy::connect(address).ask("edge", &[&[("path", "/a")]]);
    assert_eq!(
        (response.overall_code(), response.statuses[0].limit_remaining),
        (Code::Ok, 5),
        "each was charged once"
    );
}

#[test]
fn what_is_no_message_is_refused_and_charges_nothing() {
    let (_service, address) = Service::start_grpc(POLICY);
    let path = format!("/{RLS}/ShouldRateLimit");
    let whole = message("/b");
    let compressed = [&[1], &whole[1..]].concat();
    let garbage = [&[0, 0, 0, 0, 4][..], &[0xff; 4]].concat();
    let truncated = &whole[..whole.len() - 1];
    runtime().block_on(async {
        for (what, method, path, kind, body, expected) in [
            ("no message", "POST", path.as_str(), "application/grpc", &[][..], (200, "13")),
            ("a truncated one", "POST", &path, "application/grpc", truncated, (200, "13")),
            ("a compressed one", "POST", &path, "application/grpc", &compressed, (200, "13")),
            ("no protobuf", "POST", &path, "application/grpc", &garbage, (200, "13")),
            ("no gRPC", "POST", &path, "text/plain", &whole, (415, "none")),
            ("nobody's method", "POST", "/other.Service/Call", "application/grpc", &whole, (200, "12")),
            ("nothing at all", "POST", "/", "application/grpc", &whole, (200, "12")),
            ("almost gRPC", "POST", &path, "application/grpc-web", &whole, (415, "none")),
            (
                "nobody's health",
                "POST",
                "/grpc.health.v1.Health/Check",
                "application/grpc",
                b"\0\0\0\0\x03\x0a\x01x",
                (200, "5"),
            ),
        ] {
            let (status, trailers, _) = send(address, method, path, kind, &[body]).await;
            assert_eq!((status, grpc_status(&trailers)), expected, "{what}: {trailers:?}");
        }
    });
    assert_eq!(Envoy::connect(address).ask("edge", &[&[("path", "/b")]]).statuses[0].limit_remaining, 9);
}

/// Many calls at once on one connection, as Envoy has them, beside one that never ends.
#[test]
fn calls_on_one_connection_do_not_wait_for_each_other() {
    let (_service, address) = Service::start_grpc(&POLICY.replace("limit: 10", "limit: 1000"));
    runtime().block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = || {
            let uri = format!("http://{address}/{RLS}/ShouldRateLimit");
            Request::builder()
                .method("POST")
                .uri(uri)
                .header("content-type", "application/grpc")
                .body(())
                .unwrap()
        };
        let mut client = client.ready().await.unwrap();
        let (_response, mut half) = client.send_request(request(), false).unwrap();
        half.send_data(Bytes::copy_from_slice(&message("/c")[..7]), false).unwrap();
        let mut calls = Vec::new();
        for _ in 0..200 {
            client = client.ready().await.unwrap();
            let (response, mut body) = client.send_request(request(), false).unwrap();
            body.send_data(message("/c").into(), true).unwrap();
            calls.push(response);
        }
        for call in calls {
            let (_, mut body) = call.await.unwrap().into_parts();
            while let Some(piece) = body.data().await {
                piece.unwrap();
            }
            assert_eq!(grpc_status(&body.trailers().await.unwrap().unwrap()), "0");
        }
    });
    assert_eq!(Envoy::connect(address).ask("edge", &[&[("path", "/c")]]).statuses[0].limit_remaining, 799);
}

#[test]
fn with_a_certificate_the_port_speaks_tls() {
    let directory = Directory::new();
    if !self_signed_certificate(&directory) {
        return;
    }
    let policy = format!(
        "listen: {{ http: '127.0.0.1:0', grpc: '127.0.0.1:0' }}\ntls: {{ cert_file: cert.pem, key_file: key.pem }}\n{POLICY}"
    );
    let file = directory.write("tollgate.yaml", &policy);
    let mut service = Service::run(directory, Command::new(TOLLGATE).args(["serve", "--config"]).arg(file));
    let address = tollgate_testkit::address_in(&service.process.line_with("grpcs://"));
    let hello = Command::new("openssl")
        .args(["s_client", "-alpn", "h2", "-connect", &address.to_string()])
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&hello.stdout);
    assert!(told.contains("ALPN protocol: h2"), "{told}");
}

/// Connections that say nothing, or no HTTP/2, are closed; others do not notice.
#[test]
fn what_speaks_something_else_is_closed() {
    use std::io::{Read as _, Write as _};
    let (_service, address) = Service::start_grpc(POLICY);
    for words in [
        "GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        "*1\r\n$4\r\nPING\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxxxxxxx",
    ] {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(words.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        let mut told = Vec::new();
        let ended = stream.read_to_end(&mut told);
        assert!(
            ended.is_ok() || ended.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset,
            "{words:?}"
        );
    }
    assert_eq!(Envoy::connect(address).ask("edge", &[&[("path", "/d")]]).overall_code(), Code::Ok);
}

/// Those who watch and go, with a word or without, leave nothing behind.
#[test]
fn watchers_that_go_are_forgotten() {
    let (service, address) = Service::start_grpc(POLICY);
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", service.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let watch = |count: usize| {
        runtime().block_on(async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection);
            for _ in 0..count {
                client = client.ready().await.unwrap();
                let uri = format!("http://{address}/grpc.health.v1.Health/Watch");
                let request =
                    Request::builder().method("POST").uri(uri).header("content-type", "application/grpc");
                let (response, mut body) = client.send_request(request.body(()).unwrap(), false).unwrap();
                body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
                let mut answers = response.await.unwrap().into_body();
                answers.data().await.unwrap().unwrap();
                // Dropped, it is reset; the last go with the connection.
            }
        });
    };
    watch(1000);
    let before = memory();
    (0..10).for_each(|_| watch(1000));
    let grown = memory().saturating_sub(before);
    assert!(grown < 20_000, "ten thousand of them took {grown} kB"); // 110 000 when they were not
}
