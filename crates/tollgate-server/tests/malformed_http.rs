//! What is hardly HTTP, leads nowhere or names no address is refused or passed over, and stops nobody else.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::service::{Service, assert_refused};
use tollgate_testkit::{Http, Random};

const POLICY: &str = "
identity: { client_ip: { trusted_proxies: [127.0.0.1] } }
tiers: { pro: {} }
limits:
  - { name: guarded, key: [tenant], match: { attributes: { guard: 'yes' } }, token_bucket: { rate: 1/day, burst: 1000 } }
  - { name: by-address, key: [ip], match: { path: /address }, token_bucket: { rate: 1/day, burst: 50000 } }
";

#[test]
fn targets_and_methods_that_lead_nowhere_are_refused_in_words() {
    let service = Service::start(POLICY);
    let mut client = Http::connect(service.address);
    for (method, target, status) in [
        ("GET", "/nothing", 404),
        ("GET", "/v1/check", 405),
        ("BREW", "/v1/check", 405),
        ("POST", "/v1/limits", 405),
        ("POST", "/v1/check/", 404),
        ("GET", "/v1/keys", 400),
        ("GET", "/v1/keys?limit=nothing", 404),
        ("GET", "/v1/keys?limit=%zz", 400),
        ("GET", "/v1/keys?limit=%ff", 400),
        ("GET", "/v1/hot?limit=nothing", 404),
        ("GET", "/v1/hot?other=1", 400),
        ("DELETE", "/v1/keys?tenant=victim", 400),
        ("GET", "/v1/forward-auth?deny=%", 400),
        ("PUT", "/v1/tenants/", 404),
        ("PUT", "/v1/tenants/a/b", 404),
    ] {
        let answer = client.send(method, target, &[], "");
        assert_refused(&answer, (method, target));
        assert_eq!(answer.status, status, "{method} {target}");
    }
}

#[test]
fn addresses_that_are_none_are_counted_by_the_peers() {
    let wrong = [
        "999.1.1.1",
        "1.2.3",
        "[::1",
        "::1::",
        "1.2.3.4:99999",
        "1.2.3.4:",
        "unknown",
        "_hidden",
        "",
        "x",
        "]",
        "0x7f.1",
        "\"1.2.3.4",
        "\\",
        "for",
        "=",
        ";",
        "for=for=1.2.3.4",
        "for=1.2.3.4;for=1.2.3.4",
        "for=\"[::1\"",
        "for=_x;by=y",
    ];
    for (word, header) in [("xff", "x-forwarded-for"), ("forwarded", "forwarded"), ("x-real-ip", "x-real-ip")]
    {
        let trusted = "trusted_proxies: [127.0.0.1]";
        let service = Service::start(&POLICY.replace(trusted, &format!("{trusted}, header: {word}")));
        let mut client = service.connect();
        let mut random = Random::new(9);
        let most = 500;
        for _ in 0..most {
            let elements: Vec<&str> = (0..random.between(1, 40)).map(|_| *random.pick(&wrong)).collect();
            let separator = *random.pick(&[",", ", ", " ,"]);
            let value = elements.join(separator);
            let answer = client.ask("/address", &[(header, &value)]);
            assert_eq!(answer.status, 204, "{header}: {value}: {answer:?}");
        }
        let peer = [("ip", "127.0.0.1"), ("path", "/address")];
        assert_eq!(client.remaining("by-address", &peer), 50_000 - most, "{header}");
        assert_eq!(client.metric("tollgate_keys"), Some(1.0), "{header}");
    }
}

/// What comes back for bytes as they are, until the server closes. Where it waits for more there is none.
fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    // A server that has heard enough may close before all is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    for patience in [Duration::from_millis(20), Duration::from_secs(8)] {
        stream.set_read_timeout(Some(patience)).unwrap();
        match stream.read_to_end(&mut answer).map_err(|error| error.kind()) {
            Ok(_) | Err(ErrorKind::ConnectionReset) => return String::from_utf8_lossy(&answer).into_owned(),
            Err(_) => _ = stream.shutdown(Shutdown::Write),
        }
    }
    panic!("neither answered nor closed: {:?}", String::from_utf8_lossy(bytes));
}

#[test]
fn what_is_hardly_http_ends_its_own_connection_only() {
    let service = Service::start(POLICY);
    let body = r#"{"attributes":{"tenant":"victim","guard":"yes"}}"#;
    let long = "x".repeat(70_000);
    let head = "POST /v1/check HTTP/1.1\r\nhost: localhost\r\n";
    for bytes in [
        "\r\n\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "GET /\r\n\r\n".to_owned(),
        "G(T / HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\nhost: a\r\n\r\n".to_owned(),
        "GET /a b HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        "GET /\0 HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\u{1}".to_owned(), // TLS, where none is spoken
        format!("GET /{long} HTTP/1.1\r\nhost: a\r\n\r\n"),
        format!("{head}x: {long}\r\n\r\n"),
        format!("{head}{}\r\n", "x: y\r\n".repeat(5000)),
        format!("{head}x y: z\r\n\r\n"),
        format!("{head}x: a\0b\r\n\r\n"),
        format!("{head}content-length: -1\r\n\r\n{body}"),
        format!("{head}content-length: many\r\n\r\n{body}"),
        format!("{head}content-length: 99999999999999999999999\r\n\r\n{body}"),
        format!("{head}content-length: 5\r\ncontent-length: 6\r\n\r\n{body}"),
        format!("{head}content-length: 500\r\n\r\n{body}"), // and then it hangs up
        format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{body}\r\n0\r\n\r\n"),
        format!("{head}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{body}\r\n0\r\n\r\n"),
        format!("{head}content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n{body}"),
        format!("{head}transfer-encoding: gzip\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
    ] {
        let answer = exchange(service.address, bytes.as_bytes());
        let is_refused =
            answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.0 4");
        assert!(is_refused, "{:?}: {answer}", &bytes[..bytes.len().min(300)]);
    }
    let mut random = Random::new(10);
    let right =
        format!("{head}connection: close\r\ncontent-length: 47\r\n\r\n{}", body.replace("victim", "other"));
    for _ in 0..500 {
        let mut bytes = right.clone().into_bytes();
        for _ in 0..random.between(1, 8) {
            let place = random.below(bytes.len() as u64) as usize;
            bytes[place] = random.below(256) as u8;
        }
        let answer = exchange(service.address, &bytes);
        assert!(!answer.starts_with("HTTP/1.1 5"), "{:?}: {answer}", String::from_utf8_lossy(&bytes));
    }
    let mut client = service.connect();
    assert_eq!(client.remaining("guarded", &[("tenant", "victim"), ("guard", "yes")]), 1000);
    assert_eq!(client.get("/livez").status, 200);
}

#[test]
fn a_tenant_that_is_no_text_is_refused_as_everything_else() {
    let service = Service::start(POLICY);
    let answer = service.connect().0.send("PUT", "/v1/tenants/%ff", &[], r#"{"tier": "pro"}"#);
    assert_refused(&answer, "%ff");
}

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
