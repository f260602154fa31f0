//! Traces and metrics on their way through a collector that nobody here wrote (Rotel), to a receiver that reads them with the official
//! protobuf package.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tollgate_testkit::{Process, address_in, free_port, packages, real_time};

use crate::gateway::backend::Backend;
use crate::gateway::running::Gateway;
use crate::service::resp::Resp;
use crate::service::{Directory, Service, TOLLGATE, eventually, repository, timed};

const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A collector, and what it has passed on.
struct Collector {
    _agent: Process,
    receiver: Process,
    address: SocketAddr,
}

impl Collector {
    fn start(venv: &Path) -> Self {
        let script = repository("crates/tollgate-server/tests/telemetry/receiver.py");
        let mut receiver = Process::start(Command::new(venv.join("bin/python3")).arg(script));
        let passed_on_to = address_in(&receiver.line_with("listens on"));
        let rotel = Command::new(venv.join("bin/python3"))
            .args([
                "-c",
                "import importlib.util as u; print(u.find_spec('rotel').submodule_search_locations[0])",
            ])
            .output()
            .unwrap();
        let rotel = String::from_utf8(rotel.stdout).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let grpc = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let agent = Process::start(
            Command::new(Path::new(rotel.trim()).join("rotel-agent"))
                .arg("start")
                .arg(format!("--otlp-http-endpoint={address}"))
                .arg(format!("--otlp-grpc-endpoint={grpc}"))
                .arg("--exporter=otlp")
                .arg(format!("--otlp-exporter-endpoint=http://{passed_on_to}"))
                .args(["--otlp-exporter-protocol=http", "--batch-timeout=200ms"])
                .args(["--otlp-exporter-custom-headers=x-token=word"]),
        );
        eventually("the collector listens", || TcpStream::connect(address).is_ok());
        Self { _agent: agent, receiver, address }
    }

    /// The next span or point whose line has these words.
    fn next(&mut self, words: &str) -> Value {
        serde_json::from_str(&self.receiver.line_with(words)).unwrap()
    }

    fn next_span(&mut self, name: &str) -> Value {
        self.next(&format!("\"span\": \"{name}\""))
    }
}

fn attributes(span: &Value) -> &serde_json::Map<String, Value> {
    span["attributes"].as_object().unwrap()
}

#[test]
fn a_request_through_the_gateway_is_three_spans_of_the_trace_of_its_caller() {
    let Some(venv) = packages("TOLLGATE_VENV") else { return };
    let mut collector = Collector::start(&venv);
    let backend = Backend::start();
    let telemetry = format!(
        "telemetry: {{ otlp: 'http://{}' }}
identity: {{ tenant: header.x-api-key }}
limits: [{{ name: per-tenant, key: [tenant, path], token_bucket: {{ rate: 1/h, burst: 1 }} }}]",
        collector.address
    );
    let gateway = Gateway::start(&backend, "", &telemetry);
    let headers = [("x-api-key", "secret-key"), ("traceparent", SAMPLED), ("tracestate", "vendor=1")];
    let answer = gateway.connect().send("GET", "/secret/path?secret=query", &headers, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    let denied = gateway.connect().send("GET", "/secret/path", &headers, "");
    assert_eq!(denied.status, 429);

    let [mut decides, mut gateways, mut upstreams] = [vec![], vec![], vec![]];
    while gateways.len() < 2 || decides.len() < 2 || upstreams.is_empty() {
        let span = collector.next("\"span\": ");
        assert_eq!((&span["trace_id"], &span["token"]), (&json!(TRACE), &json!("word")), "{span}");
        assert_eq!(span["resource"]["service.name"], "tollgate");
        let text = span.to_string();
        for secret in ["secret", "127.0.0.1", "vendor", "/path"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        match span["span"].as_str().unwrap() {
            "decide" => decides.push(span),
            "gateway" => gateways.push(span),
            "upstream" => upstreams.push(span),
            other => panic!("{other}"),
        }
    }
    let outcomes = |spans: &[Value]| {
        let mut outcomes: Vec<String> = spans
            .iter()
            .map(|span| span["attributes"]["tollgate.outcome"].as_str().unwrap().to_owned())
            .collect();
        outcomes.sort();
        outcomes
    };
    assert_eq!(outcomes(&gateways), ["denied", "forwarded"]);
    assert_eq!(outcomes(&decides), ["allow", "deny"]);
    let forwarded =
        gateways.iter().find(|span| span["attributes"]["tollgate.outcome"] == "forwarded").unwrap();
    assert_eq!((&forwarded["parent_id"], &forwarded["kind"]), (&json!("00f067aa0ba902b7"), &json!(2)));
    assert_eq!(forwarded["attributes"]["http.response.status_code"], 200);
    let [upstream] = &upstreams[..] else { panic!("the denied request was not sent on: {upstreams:?}") };
    assert_eq!((&upstream["parent_id"], &upstream["kind"]), (&forwarded["span_id"], &json!(3)));
    assert!(upstream["seconds"].as_f64().unwrap() <= forwarded["seconds"].as_f64().unwrap());
    let allowed = decides.iter().find(|span| span["attributes"]["tollgate.outcome"] == "allow").unwrap();
    assert_eq!(allowed["parent_id"], forwarded["span_id"]);
    let expected = json!({
        "tollgate.protocol": "gateway", "tollgate.outcome": "allow", "tollgate.source": "memory",
        "tollgate.limit": "per-tenant"
    });
    assert_eq!(Value::Object(attributes(allowed).clone()), expected);

    // The application continues the trace from the span of the call to it.
    let arrived = &backend.arrived()[0];
    let upstream_id = upstream["span_id"].as_str().unwrap();
    assert_eq!(arrived.header("traceparent"), Some(format!("00-{TRACE}-{upstream_id}-01").as_str()));
    assert_eq!(arrived.header("tracestate"), Some("vendor=1"));
    assert_eq!(arrived.headers.iter().filter(|(name, _)| name == "traceparent").count(), 1);
}

#[test]
fn decisions_of_every_protocol_are_spans_and_metrics() {
    let Some(venv) = packages("TOLLGATE_VENV") else { return };
    let mut collector = Collector::start(&venv);
    let directory = Directory::new();
    let policy = format!(
        "listen: {{ http: '127.0.0.1:0', resp: '127.0.0.1:0' }}
telemetry: {{ otlp: 'http://{}/', sample: 1, interval: 1s }}
limits: [{{ name: per-user, key: [user], token_bucket: {{ rate: 1/h, burst: 2 }} }}]",
        collector.address
    );
    let file = directory.write("tollgate.yaml", &policy);
    let mut service = Service::run(
        directory,
        Command::new(TOLLGATE)
            .args(["serve", "--config"])
            .arg(&file)
            .env("OTEL_RESOURCE_ATTRIBUTES", "service.name=limits,deployment.environment=test"),
    );
    let resp = address_in(&service.process.line_with("redis://").replace("redis://", "http://"));
    let mut client = service.connect();
    let headers = [("traceparent", SAMPLED), ("content-type", "application/json")];
    let body = json!({ "attributes": { "user": "ann" } }).to_string();
    assert_eq!(client.0.send("POST", "/v1/check", &headers, &body).status, 200);
    let span = collector.next_span("decide");
    assert_eq!((&span["trace_id"], &span["parent_id"]), (&json!(TRACE), &json!("00f067aa0ba902b7")));
    assert_eq!(span["resource"]["service.name"], "limits");
    assert_eq!(span["attributes"]["tollgate.protocol"], "http");
    assert!(span["seconds"].as_f64().is_some_and(|seconds| (0.0..1.0).contains(&seconds)), "{span}");

    let throttle = json!({ "key": "k", "token_bucket": { "rate": "1/h", "burst": 1 } });
    assert_eq!(client.post("/v1/throttle", &throttle).status, 200);
    let span = collector.next_span("decide");
    assert_eq!(attributes(&span).get("tollgate.limit"), None, "a rule that came with the call has no name");
    assert_ne!(span["trace_id"], TRACE);
    assert_eq!(span["parent_id"], "");
    let mut commands = Resp::connect(resp);
    commands.ask("CL.THROTTLE k 1 1 3600", "*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:3600\r\n");
    assert_eq!(collector.next_span("decide")["attributes"]["tollgate.protocol"], "resp");
    assert_eq!(client.ask("/x", &[]).status, 204);
    assert_eq!(collector.next_span("decide")["attributes"]["tollgate.protocol"], "forward_auth");

    // Metrics have the totals of /metrics.
    eventually("all requests are exported", || {
        let point = collector.next("\"metric\": \"tollgate.requests\"");
        point["attributes"] == json!({ "tollgate.protocol": "http", "tollgate.outcome": "allow" })
            && point["value"] == 2
    });
    let decisions = collector.next("\"metric\": \"tollgate.decisions\"");
    assert_eq!(decisions["attributes"]["tollgate.limit"], "per-user");
    let exported = || "tollgate_telemetry_spans_total{outcome=\"exported\"}".to_owned();
    eventually("the spans are counted", || client.metric(&exported()) == Some(4.0));
}

#[test]
fn a_trace_that_is_not_sampled_is_passed_on_as_it_came() {
    let backend = Backend::start();
    let unsampled = SAMPLED.replace("-01", "-00");
    let telemetry = format!("telemetry: {{ otlp: 'http://127.0.0.1:{}', sample: 1 }}", free_port());
    for (policy, sent) in [("", SAMPLED), ("", "not a trace"), ("", &unsampled), (&*telemetry, &unsampled)] {
        let gateway = Gateway::start(&backend, "", policy);
        let from = backend.count_arrived();
        let headers = [("traceparent", sent), ("tracestate", "vendor=1")];
        assert_eq!(gateway.connect().send("GET", "/", &headers, "").status, 200);
        let arrived = &backend.arrived_from(from)[0];
        assert_eq!(arrived.header("traceparent"), Some(sent), "{policy}");
        assert_eq!(arrived.header("tracestate"), Some("vendor=1"), "{policy}");
    }
    // What cannot be read starts a new trace, and the additions to the old one are left out.
    let gateway = Gateway::start(&backend, "", &telemetry);
    let from = backend.count_arrived();
    let headers = [("traceparent", "not a trace"), ("tracestate", "vendor=1")];
    assert_eq!(gateway.connect().send("GET", "/", &headers, "").status, 200);
    let arrived = &backend.arrived_from(from)[0];
    assert!(arrived.header("traceparent").is_some_and(|trace| trace.ends_with("-01") && trace.len() == 55));
    assert_eq!(arrived.header("tracestate"), None);
}

#[test]
fn a_collector_that_does_not_answer_delays_no_request() {
    // It accepts connections, and never reads from them.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let telemetry = format!(
        "telemetry: {{ otlp: 'http://{}', sample: 1 }}\nlimits: [{{ name: a, key: [], token_bucket: {{ rate: 100k/s }} }}]",
        silent.local_addr().unwrap()
    );
    let mut service = Service::start(&telemetry);
    let mut client = service.connect();
    let checks: Value = (0..1000).map(|_| json!({ "attributes": {} })).collect();
    eventually("the queue of spans is full", || {
        assert_eq!(client.post("/v1/check", &checks).status, 200);
        client
            .metric("tollgate_telemetry_spans_total{outcome=\"dropped\"}")
            .is_some_and(|dropped| dropped > 0.0)
    });
    assert!(client.passes(&[]));
    drop(client);
    service.process.signal("TERM");
    let (took, status) = timed(|| service.process.wait());
    assert!(status.success());
    assert!(took < std::time::Duration::from_secs(20), "{took:?}: an export is not waited for");
}

#[test]
fn a_collector_that_fails_causes_one_log_line() {
    let port = free_port();
    let service = Service::start(&format!("telemetry: {{ otlp: 'http://127.0.0.1:{port}', sample: 1 }}"));
    let mut client = service.connect();
    let failed = || "tollgate_telemetry_spans_total{outcome=\"failed\"}".to_owned();
    for exports in 1..=3 {
        assert!(client.passes(&[]));
        eventually("the export fails", || client.metric(&failed()) == Some(f64::from(exports)));
    }
    let lost = service.process.errors().matches("telemetry is lost").count();
    assert_eq!(lost, 1, "{}", service.process.errors());
    // A collector that comes back is used again.
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // An answer that comes before its request would be an error of the connection.
        let read = stream.read(&mut [0; 1 << 16]).unwrap();
        assert!(read > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
        stream
    });
    assert!(client.passes(&[]));
    real_time::eventually("it is used again", || {
        service.process.errors().contains("accepts telemetry again").then_some(())
    });
    drop(answering.join().unwrap());
}

#[test]
fn a_policy_with_a_wrong_collector_is_refused() {
    let directory = Directory::new();
    let file = directory.write("p.yaml", "telemetry: { otlp: 'collector:4318' }\nlimits: []");
    let output = Command::new(TOLLGATE).arg("check").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("http://127.0.0.1:4318"), "{errors}");
}
