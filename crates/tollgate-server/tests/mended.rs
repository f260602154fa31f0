//! What was wrong once, and must not come back.
#![allow(clippy::unwrap_used)]

mod service;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use service::{Directory, Service, assert_refused, json_of, tollgate};

const POLICY: &str = "
identity: { client_ip: { trusted_proxies: [127.0.0.1] } }
tiers: { pro: {} }
limits:
  - { name: guarded, key: [tenant], match: { attributes: { guard: 'yes' } }, token_bucket: { rate: 1/day, burst: 1000 } }
  - { name: by-address, key: [ip], match: { path: /address }, token_bucket: { rate: 1/day, burst: 1000 } }
  - { name: trips, key: [], match: { path: /api/trips }, token_bucket: { rate: 1/day, burst: 1000 } }
";

/// What comes within a second.
fn within_a_second(service: &Service, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(service.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).unwrap_or(0);
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// RFC 9112, 2.2: old clients send a line more than they should.
#[test]
fn an_answer_does_not_wait_for_the_next_request() {
    let service = Service::start(POLICY);
    for after in ["\r\n", "GET /li"] {
        let answer =
            within_a_second(&service, format!("GET /livez HTTP/1.1\r\nhost: a\r\n\r\n{after}").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200"), "{after:?}: {answer:?}");
    }
}

#[test]
fn broken_http_is_told_so() {
    let service = Service::start(POLICY);
    for bytes in
        ["G(T / HTTP/1.1\r\nhost: a\r\n\r\n", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n"]
    {
        let answer = within_a_second(&service, bytes.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 4"), "{bytes:?}: {answer:?}");
    }
}

/// RFC 9112, 3.2.
#[test]
fn a_request_without_one_host_is_refused() {
    let service = Service::start(POLICY);
    for hosts in ["", "host: a\r\nhost: b\r\n"] {
        let answer = within_a_second(&service, format!("GET /livez HTTP/1.1\r\n{hosts}\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.1 400"), "{hosts:?}: {answer:?}");
    }
}

#[test]
fn a_tenant_that_is_no_text_is_refused_as_everything_else() {
    let service = Service::start(POLICY);
    let answer = service.connect().0.send("PUT", "/v1/tenants/%ff", &[], r#"{"tier": "pro"}"#);
    assert_refused(&answer, "%ff");
}

#[test]
fn what_is_no_object_is_refused_and_costs_nothing() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let attributes = json!({ "tenant": "victim", "guard": "yes" });
    assert_refused(&client.post("/v1/check", &json!([[attributes, 1]])), "a list in a list");
    assert_refused(&client.post("/v1/acquire", &json!([attributes, 1])), "a list");
    assert_refused(&client.post("/v1/release", &json!(["0123456789abcdef0123456789abcdef"])), "a list");
    assert_refused(&client.0.send("PUT", "/v1/tenants/a", &[], r#"["pro"]"#), "a list");
    assert_eq!(client.remaining("guarded", &[("tenant", "victim"), ("guard", "yes")]), 1000);
}

/// An element that cannot be read ends the walk at the one to its right: it does not make the whole line disappear.
#[test]
fn bytes_that_are_no_text_do_not_hide_the_clients_address() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let headers = [("x-forwarded-for", "\u{e9}, 203.0.113.7")];
    assert_eq!(client.ask("/address", &headers).status, 204);
    assert_eq!(client.remaining("by-address", &[("ip", "203.0.113.7"), ("path", "/address")]), 999);
}

/// nginx passes on in `$request_uri` what the client wrote, byte by byte.
#[test]
fn bytes_that_are_no_text_do_not_hide_the_path() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let uris = ["/api/trips", "/api/trips?\u{e9}", "/x%ff/../%61pi/trips", "/x\u{e9}/../api/trips"];
    let mut missed = Vec::new();
    for header in ["x-forwarded-uri", "x-original-uri"] {
        for uri in uris {
            let answer = client.0.send("GET", "/v1/forward-auth", &[(header, uri)], "");
            if answer.header("ratelimit").is_none() {
                missed.push((header, uri));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_fault_of_syntax_is_shown_where_it_is() {
    let directory = Directory::new();
    for fault in ["  - { name: half", "\t}"] {
        let right = "limits:\n  - { name: a, key: [], token_bucket: { rate: 1/s } }\n";
        let file = directory.write("tollgate.yaml", &format!("{right}{fault}"));
        let output = tollgate(&["check", file.to_str().unwrap()]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("tollgate.yaml:3:"), "{errors}");
    }
}

/// The thread that writes has to be waited for; without, this fails now and then.
#[test]
fn what_was_decided_before_the_end_is_recorded() {
    for round in 0..12 {
        let limits = "limits: [{ name: a, key: [tenant], token_bucket: { rate: 1/s } }]";
        let mut service = Service::start(&format!("record: {{ path: ./decisions.log }}\n{limits}"));
        let mut client = service.connect();
        let checks = json!(vec![json!({ "attributes": { "tenant": "x".repeat(200) } }); 1000]);
        for _ in 0..40 {
            assert_eq!(client.post("/v1/check", &checks).status, 200);
        }
        assert_eq!(client.metric("tollgate_record_lost_total"), Some(0.0));
        service.process.signal("TERM");
        assert_eq!(service.process.wait().code(), Some(0));
        let lines = fs::read_to_string(service.directory.path("decisions.log")).unwrap();
        assert_eq!((lines.lines().count(), lines.ends_with('\n')), (40_000, true), "round {round}");
    }
}

#[test]
fn a_policy_that_is_refused_changes_no_token() {
    let directory = Directory::new();
    directory.write("old.token", "old");
    directory.write("new.token", "new");
    let service = Service::start_in(directory, "admin: { token_file: ./old.token }\nlimits: []");
    let mut client = service.connect();
    service.write_policy(
        "admin: { token_file: ./new.token }\nstore: { redis: { url: 'redis://127.0.0.1' } }\nlimits: []",
    );
    let mut reload = |token: &str| client.0.send("POST", "/v1/reload", &[("authorization", token)], "");
    let refused = reload("Bearer old");
    assert_refused(&refused, "store: redis");
    let again = reload("Bearer old");
    assert_eq!(again.status, 422, "{}", json_of(&again));
}

#[test]
fn a_key_that_was_not_meant_is_not_reset() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    for (query, detail) in [
        ("limit=guarded&tenat=bob", "`tenat` is no part of the key: limit `guarded` counts by tenant"),
        ("limit=guarded", "`tenant` is missing: limit `guarded` counts by tenant"),
        (
            "limit=trips&user=bob",
            "`user` is no part of the key: limit `trips` counts by nothing: it has one key",
        ),
    ] {
        for method in ["GET", "DELETE"] {
            let answer = client.0.send(method, &format!("/v1/keys?{query}"), &[], "");
            assert_eq!((answer.status, json_of(&answer)["detail"].as_str()), (400, Some(detail)), "{query}");
        }
    }
    assert_eq!(client.get("/v1/keys?limit=guarded&tenant=bob").status, 200);
    assert_eq!(client.get("/v1/keys?limit=trips&tenant=bob").status, 200);
}

/// However often it is reloaded in between.
#[test]
fn what_needs_a_restart_is_told_until_there_was_one() {
    let service = Service::start("limits: []");
    let mut client = service.connect();
    service.directory.write("tollgate.yaml", "listen: { http: '127.0.0.1:1' }\nlimits: []");
    for _ in 0..2 {
        let answer = client.post("/v1/reload", &json!({}));
        assert_eq!(json_of(&answer)["needs_restart"], json!(["listen"]), "{answer:?}");
    }
}

#[test]
fn a_proxy_that_is_not_trusted_is_told_of_once() {
    let service = Service::start("limits: [{ name: a, key: [ip], token_bucket: { rate: 1/s } }]");
    let mut client = service.connect();
    for _ in 0..3 {
        let _ = client.ask("/x", &[]);
    }
    service::eventually("it is logged", || {
        service.process.errors().contains("trusted_proxies: what is said")
    });
    assert_eq!(service.process.errors().matches("trusted_proxies: what is said").count(), 1);
}

/// Whoever truncates the file and then writes it is not done in between.
#[test]
fn a_file_that_is_being_written_changes_nothing() {
    let policy = "limits: [{ name: a, key: [], token_bucket: { rate: 1/day, burst: 2 } }]";
    let service = Service::start(policy);
    let mut client = service.connect();
    assert_eq!((client.passes(&[]), client.passes(&[]), client.passes(&[])), (true, true, false));
    fs::write(service.directory.path("tollgate.yaml"), "").unwrap();
    let answer = client.post("/v1/reload", &json!({}));
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(answer.body.contains("write `limits: []`"), "{answer:?}");
    service::pause(Duration::from_millis(1300)); // long enough for it to be seen
    assert!(!client.passes(&[]));
    service.write_policy(policy);
    service::pause(Duration::from_millis(1300));
    assert!(!client.passes(&[]));
}

/// What never comes is not waited for.
#[test]
fn a_policy_that_is_no_file_stops_nothing() {
    let mut service = Service::start("limits: []");
    let path = service.directory.path("tollgate.yaml");
    fs::remove_file(&path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    service::eventually("it was looked at", || service.process.errors().contains("this is no file"));
    service.process.signal("TERM");
    assert_eq!(service.process.wait().code(), Some(0));
}

/// The last line is the proxy's own; what is longer than a name can be is matched all the same.
#[test]
fn what_a_client_sends_besides_does_not_choose_the_route() {
    let policy = "
identity: { client_ip: { trusted_proxies: [127.0.0.1] } }
limits:
  - { name: login, key: [], match: { path: /api/login }, token_bucket: { rate: 1/day, burst: 100 } }
  - { name: export, key: [], match: { path: /api/*/export }, token_bucket: { rate: 1/day, burst: 100 } }";
    let service = Service::start(policy);
    let mut client = service.connect();
    let two = [("x-forwarded-uri", "/free"), ("x-forwarded-uri", "/api/login")];
    let answer = client.0.send("GET", "/v1/forward-auth", &two, "");
    assert!(answer.header("ratelimit").is_some_and(|told| told.starts_with("\"login\"")), "{answer:?}");
    let answer = client.ask(&format!("/api/{}/export", "a".repeat(5000)), &[]);
    assert!(answer.header("ratelimit").is_some_and(|told| told.starts_with("\"export\"")), "{answer:?}");
    for path in ["/api%2Flogin", "/api/login;x=1", "/api/;/login"] {
        assert!(client.ask(path, &[]).header("ratelimit").is_some(), "{path}");
    }
}

#[test]
fn only_what_a_shadow_limit_let_pass_is_its_cost() {
    let service = Service::start(
        "limits: [{ name: w, shadow: true, key: [], token_bucket: { rate: 1/day, burst: 1 } }]",
    );
    let mut client = service.connect();
    (0..5).for_each(|_| assert!(client.passes(&[])));
    assert_eq!(client.metric("tollgate_cost_total{limit=\"w\"}"), Some(1.0));
}

/// However long it was held.
#[test]
fn a_permit_of_nothing_can_be_released() {
    let service = Service::start("limits: []");
    let mut client = service.connect();
    let acquired = json_of(&client.post("/v1/acquire", &json!({ "attributes": {} })));
    assert_eq!(acquired["allowed"], true);
    let release = json!({ "permit": acquired["permit"] });
    assert_eq!(json_of(&client.post("/v1/release", &release))["released"], true);
}

#[test]
fn rules_that_are_sent_are_counted() {
    let service = Service::start("limits: []");
    let mut client = service.connect();
    for _ in 0..3 {
        let sent = json!({ "key": "k", "fixed_window": { "limit": 2, "window": "1h" } });
        assert_eq!(client.post("/v1/throttle", &sent).status, 200);
    }
    for (outcome, count) in [("allow", 2.0), ("deny", 1.0)] {
        let name =
            format!("tollgate_decisions_total{{limit=\"(sent)\",outcome=\"{outcome}\",protocol=\"http\"}}");
        assert_eq!(client.metric(&name), Some(count));
    }
}
