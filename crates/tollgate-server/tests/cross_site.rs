//! Web pages in a browser on this machine.

use tollgate_testkit::http::Answer;

use crate::service::{Client, Directory, Service, assert_refused, eventually};

const LIMITS: &str =
    "limits: [{ name: per-tenant, key: [tenant], token_bucket: { rate: 1/day, burst: 99 } }]\n";

/// Every call that is answered for a name of the service only, with a body that it takes.
const CALLS: [(&str, &str, &str); 10] = [
    ("POST", "/v1/check", r#"{"attributes":{"tenant":"acme"}}"#),
    ("POST", "/v1/throttle", r#"{"key":"acme","token_bucket":{"rate":"1/day","burst":9}}"#),
    ("POST", "/v1/acquire", r#"{"attributes":{"tenant":"acme"}}"#),
    ("POST", "/v1/release", r#"{"permit":"none"}"#),
    ("POST", "/v1/explain", r#"{"attributes":{"tenant":"acme"}}"#),
    ("POST", "/json", r#"{"domain":"d","descriptors":[{"entries":[{"key":"tenant","value":"acme"}]}]}"#),
    ("GET", "/v1/limits", ""),
    ("GET", "/v1/hot", ""),
    ("GET", "/v1/keys?limit=per-tenant&tenant=acme", ""),
    ("POST", "/v1/reload", ""),
];

/// A call by any name.
fn call_as(client: &mut Client, host: &str, (method, target, body): (&str, &str, &str)) -> Answer {
    let length = body.len();
    let call =
        format!("{method} {target} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}\r\n\r\n{body}");
    client.0.send_raw(call.as_bytes()).unwrap()
}

#[test]
fn a_loopback_listener_refuses_names_that_are_not_its_own() {
    let service = Service::start(LIMITS);
    let mut client = service.connect();
    for call in CALLS {
        for host in ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1"] {
            let answer = call_as(&mut client, host, call);
            assert_refused(&answer, (host, call));
            assert_eq!(answer.status, 403, "{host} {call:?}");
            assert!(answer.body.contains("listen: { hosts: […] }"), "{answer:?}");
        }
    }
    assert_eq!(client.remaining("per-tenant", &[("tenant", "acme")]), 99, "nothing was charged");
    for call in CALLS {
        for host in ["localhost", "localhost:1", "127.0.0.1", "[::1]:8080"] {
            assert_eq!(call_as(&mut client, host, call).status, 200, "{host} {call:?}");
        }
    }
    // It carries the client's own Host; the others show nothing and charge nothing.
    for target in ["/v1/forward-auth", "/livez", "/readyz", "/metrics", "/openapi.json"] {
        let answer = call_as(&mut client, "shop.example", ("GET", target, ""));
        assert!((200..300).contains(&answer.status), "{target}: {answer:?}");
    }
}

#[test]
fn a_loopback_listener_answers_to_the_names_in_hosts() {
    let policy = |hosts: &str| format!("listen: {{ http: '127.0.0.1:0', hosts: [{hosts}] }}\n{LIMITS}");
    let directory = Directory::new();
    let file = directory.write("tollgate.yaml", &policy("Limits.Example"));
    let mut command = std::process::Command::new(crate::service::TOLLGATE);
    let service = Service::run(directory, command.args(["serve", "--config"]).arg(file));
    let mut client = service.connect();
    let limits = ("GET", "/v1/limits", "");
    let status = |client: &mut Client, host: &str| call_as(client, host, limits).status;
    assert_eq!(
        ["limits.example", "LIMITS.example:80", "evil.example"].map(|host| status(&mut client, host)),
        [200, 200, 403]
    );
    // A proxy answers to that name, so that its clients are not admins.
    assert_eq!(
        call_as(&mut client, "limits.example", ("GET", "/v1/keys?limit=per-tenant&tenant=a", "")).status,
        403
    );
    service.directory.write("tollgate.yaml", &policy("other.example"));
    eventually("a reload changes the names", || status(&mut client, "other.example") == 200);
    assert_eq!(status(&mut client, "limits.example"), 403);
}

#[test]
fn a_web_page_of_another_site_charges_nothing() {
    let service = Service::start(LIMITS);
    let mut client = service.connect();
    let own = format!("http://{}", service.address);
    for (method, target, body) in CALLS.into_iter().filter(|(method, ..)| *method == "POST") {
        for origin in ["https://evil.example", "http://localhost:3000", "null"] {
            // What a form of any page can send without asking.
            let headers = [("origin", origin), ("content-type", "text/plain")];
            let answer = client.0.send(method, target, &headers, body);
            assert_refused(&answer, (target, origin));
            assert_eq!(answer.status, 403, "{target} {origin}");
            assert!(answer.body.contains("`Origin`"), "{answer:?}");
        }
    }
    assert_eq!(client.remaining("per-tenant", &[("tenant", "acme")]), 99, "nothing was charged");
    let page = [("origin", own.as_str())];
    for (method, target, body) in CALLS {
        assert_eq!(client.0.send(method, target, &page, body).status, 200, "{target}: a page of our own");
    }
    // What the client of a proxy sent is not the proxy's.
    let headers = [("origin", "https://shop.example")];
    assert_eq!(client.0.send("POST", "/v1/forward-auth", &headers, "").status, 204);
}
