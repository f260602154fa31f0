//! Limits read a request as the application does: what they could read otherwise is refused, or not handed on.

use super::application::application;
use super::backend::Backend;
use super::running::Gateway;

const KEYED: &str = "identity: { tenant: header.x-api-key }\n\
                     limits: [{ name: per-tenant, key: [tenant], token_bucket: { rate: 1/hour, burst: 9 } }]";

#[test]
fn a_path_with_detours_is_refused() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    for (target, status) in [
        ("/a/../b", 400),
        ("/a/./b", 400),
        ("/..", 400),
        ("/a/%2e%2E/b", 400),
        ("/a%2f..%2fb", 400),
        ("/a/..;x/b", 400),
        ("/.well-known/x", 200),
        ("/a/...", 200),
        ("/a..b/c.", 200),
        ("/a?x=/../b", 200),
    ] {
        assert_eq!(gateway.connect().send("GET", target, &[], "").status, status, "{target}");
    }
    assert!(backend.arrived().iter().all(|arrived| !arrived.request.contains("/../b HTTP")));
}

#[test]
fn who_asks_is_said_once_and_not_in_disguise() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", KEYED);
    let mut client = gateway.connect();
    let twice = client.send("GET", "/", &[("x-api-key", "acme"), ("X-Api-Key", "globex")], "");
    assert_eq!(twice.status, 400, "{twice:?}");
    assert!(twice.body.contains("identity"), "{twice:?}");
    let mut client = gateway.connect();
    let disguised = [("x-api-key", "acme"), ("x_api_key", "globex"), ("x_other", "kept")];
    assert_eq!(client.send("GET", "/", &disguised, "").status, 200);
    let arrived = backend.arrived().pop().unwrap();
    assert_eq!(arrived.header("x-api-key"), Some("acme"));
    assert_eq!((arrived.header("x_api_key"), arrived.header("x_other")), (None, Some("kept")));
}

/// The header that this gateway does not read as an address, the application may.
#[test]
fn no_client_says_where_it_is_by_another_name() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let names = ["cf-connecting-ip", "x-client-ip", "true-client-ip", "x-forwarded", "x_forwarded_for"];
    let said = names.map(|name| (name, "9.9.9.9"));
    assert_eq!(gateway.connect().send("GET", "/", &said, "").status, 200);
    let arrived = backend.arrived().pop().unwrap();
    assert!(arrived.headers.iter().all(|(_, value)| value != "9.9.9.9"), "{arrived:?}");
}

#[test]
fn a_host_is_one_however_it_is_written() {
    let backend = Backend::start();
    let policy = "limits: [{ name: per-host, key: [host], token_bucket: { rate: 1/hour, burst: 9 } }]";
    let gateway = Gateway::start(&backend, "", policy);
    let ask = |line: &str, host: &str| {
        let answer =
            gateway.connect().send_raw(format!("GET {line} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
        answer.unwrap()
    };
    let same = ["site.example", "SITE.Example", "site.example:80", "site.example.", "site.example:443"];
    for (used, host) in same.into_iter().enumerate() {
        let left = (8 - used).to_string();
        assert_eq!(ask("/", host).header("x-ratelimit-remaining"), Some(left.as_str()), "{host}");
    }
    // Where the target says it, it is that one which counts.
    assert_eq!(ask("http://site.example/", "other").header("x-ratelimit-remaining"), Some("3"));
    for host in ["[::1]", "[::1]:8000", "10.0.0.1:8000", "xn--caf-dma.example"] {
        assert_eq!(ask("/", host).status, 200, "{host}");
    }
    for host in ["a;b", "a=b", "a,b", "a:b", "a:123456", "[::1", "[::1]x", "[a]", "::1", "a'b", ":80"] {
        assert_eq!(ask("/", host).status, 400, "{host}");
    }
}

/// Nothing but WebSocket: what speaks HTTP by another name would go round the limits.
#[test]
fn a_client_may_change_to_websocket_and_to_nothing_else() {
    let address = application(|head, talk| {
        let upgrade = head.lines().filter(|line| line.to_ascii_lowercase().starts_with("upgrade")).count();
        talk.say(&format!("HTTP/1.1 200 OK\r\nx-upgrades: {upgrade}\r\ncontent-length: 0\r\n\r\n"));
    });
    let gateway = Gateway::before(&format!("http://{address}"), "", "");
    for (request, headers, upgrades) in [
        ("GET /", "Upgrade: WebSocket\r\n", "1"),
        ("GET /", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n", "0"),
        ("GET /", "Upgrade: TLS/1.0\r\n", "0"),
        ("POST /", "Upgrade: websocket\r\nContent-Length: 0\r\n", "0"),
    ] {
        let request = format!("{request} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n{headers}\r\n");
        let answer = gateway.connect().send_raw(request.as_bytes()).unwrap();
        assert_eq!((answer.status, answer.header("x-upgrades")), (200, Some(upgrades)), "{request}");
    }
}

#[test]
fn an_application_that_changes_unasked_has_not_answered() {
    let address = application(|_, talk| {
        talk.say("HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n");
    });
    let gateway = Gateway::before(&format!("http://{address}"), "", "");
    assert_eq!(gateway.connect().send("GET", "/", &[], "").status, 502);
}
