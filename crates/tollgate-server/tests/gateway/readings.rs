//! Limits read a request as the application does: what they could read otherwise is refused, or not handed on.

use super::application::application;
use super::backend::Backend;
use super::running::Gateway;
use crate::service::json_of;
use serde_json::json;

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

const PATHS: &str =
    "limits: [{ name: login, key: [], match: { path: /login }, token_bucket: { rate: 1/hour, burst: 9 } }]";

/// A browser's parser takes a backslash for a slash and what follows two slashes for a host. Frameworks let `$` match before a line's end.
#[test]
fn a_path_that_applications_read_in_two_ways_is_refused_where_limits_match_on_paths() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", PATHS);
    for (target, fault) in [
        ("//x/login", "`//`"),
        ("///login", "`//`"),
        ("http://site//x/login", "`//`"),
        ("/x\\..\\login", "backslash"),
        ("/\\x/login", "backslash"),
        ("/x%5c..%5Clogin", "backslash"),
        ("/login%0a", "control character"),
        ("/login%0D", "control character"),
        ("/login%00", "control character"),
        ("/login%1f", "control character"),
        ("/%7Flogin", "control character"),
    ] {
        let answer = gateway.connect().send("GET", target, &[], "");
        assert_eq!(answer.status, 400, "{target}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        assert!(answer.body.contains(fault), "{target}: {answer:?}");
    }
    assert_eq!(backend.count_arrived(), 0);
    for target in ["/a?x=//b\\c%5c%0a", "/a//b", "/a%20b%80", "/100%", "/%zz", "/a%5"] {
        assert_eq!(gateway.connect().send("GET", target, &[], "").status, 200, "{target}");
    }
    let by_user = "limits: [{ name: a, key: [user], token_bucket: { rate: 1/hour, burst: 9 } }]";
    let gateway = Gateway::start(&backend, "", by_user);
    for target in ["//x/login", "/a\\b", "/a%0a"] {
        assert_eq!(gateway.connect().send("GET", target, &[], "").status, 200, "{target}");
    }
}

/// Methods have capitals and small letters; frameworks such as Werkzeug make capitals of both.
#[test]
fn a_method_in_small_letters_meets_the_same_limits() {
    let backend = Backend::start();
    let policy = "limits: [{ name: posts, key: [], match: { method: POST }, token_bucket: { rate: 1/hour, burst: 9 } }]";
    let gateway = Gateway::start(&backend, "", policy);
    for (method, left) in [("POST", Some("8")), ("post", Some("7")), ("pOST", Some("6")), ("get", None)] {
        let answer = gateway.connect().send(method, "/", &[], "");
        assert_eq!(answer.header("x-ratelimit-remaining"), left, "{method}: {answer:?}");
    }
}

/// A policy that reads a header for each purpose there is.
const HEADERS: &str = "
identity: { tenant: header.x-api-key, user: header.x-user }
costs: [{ match: { attributes: { header.x-export: '*' } }, cost: 2 }]
limits:
  - { name: keyed, key: [header.x-device], token_bucket: { rate: 1/hour, burst: 99 } }
  - { name: matched, key: [], match: { attributes: { header.x-plan: free } }, token_bucket: { rate: 1/hour, burst: 99 } }";

#[test]
fn a_header_that_the_policy_reads_comes_once_and_not_in_disguise() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", HEADERS);
    for name in ["x-api-key", "x-user", "x-device", "x-plan", "x-export"] {
        let (shouted, disguised) = (name.to_ascii_uppercase(), name.replacen('-', "_", 1));
        for said in [
            &[(name, "a"), (&*shouted, "b")][..],
            &[(name, "a"), (name, "a")],
            &[(name, ""), (name, "a")],
            &[(&*disguised, "a")],
            &[(name, "a"), (&*disguised, "b")],
            // The gateway would take it out: the application would not see it.
            &[(name, "a"), ("connection", &format!("keep-alive, {shouted}"))],
        ] {
            let answer = gateway.connect().send("GET", "/", said, "");
            assert_eq!(answer.status, 400, "{said:?}: {answer:?}");
            assert!(answer.body.contains(name), "{said:?}: {answer:?}");
        }
    }
    assert_eq!(backend.count_arrived(), 0);
    let fine = [("x-api-key", "acme"), ("x_other", "kept"), ("x-other", "a"), ("x-other", "b")];
    assert_eq!(gateway.connect().send("GET", "/", &fine, "").status, 200);
    let arrived = backend.arrived().pop().unwrap();
    assert_eq!((arrived.header("x-api-key"), arrived.header("x_other")), (Some("acme"), Some("kept")));
}

#[test]
fn an_authorization_header_is_one_key_however_its_scheme_is_written() {
    let backend = Backend::start();
    let policy = "limits:
  - { name: all, key: [header.authorization], match: { attributes: { header.authorization: 'bearer *' } }, token_bucket: { rate: 1/hour, burst: 9 } }";
    let gateway = Gateway::start(&backend, "", policy);
    let ask = |value: &str| gateway.connect().send("GET", "/", &[("authorization", value)], "");
    for (used, value) in
        ["Bearer x", "bearer x", "BEARER   x", "Bearer  x ", "bEARER\tx"].into_iter().enumerate()
    {
        let left = (8 - used).to_string();
        assert_eq!(ask(value).header("x-ratelimit-remaining"), Some(left.as_str()), "{value}");
    }
    assert_eq!(ask("Bearer X").header("x-ratelimit-remaining"), Some("8"), "a token has its case");
    // Some applications take the second word, and do not look at a third.
    let answer = ask("Bearer x y");
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.body.contains("authorization"), "{answer:?}");
}

#[test]
fn an_empty_header_is_a_missing_one() {
    let backend = Backend::start();
    let policy = "limits: [{ name: keyed, key: [header.x-api-key], when_missing: deny, token_bucket: { rate: 1/hour } }]";
    let gateway = Gateway::start(&backend, "", policy);
    for (value, status) in [("", 429), ("  ", 429), ("a", 200)] {
        assert_eq!(
            gateway.connect().send("GET", "/", &[("x-api-key", value)], "").status,
            status,
            "{value:?}"
        );
    }
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
    for (left, host) in [("2", "site.example:1"), ("1", "site.example:00080"), ("0", "site.example.:")] {
        assert_eq!(ask("/", host).header("x-ratelimit-remaining"), Some(left), "{host}");
    }
    for host in ["[::1]", "[::1]:8000", "10.0.0.1:8000", "xn--caf-dma.example"] {
        assert_eq!(ask("/", host).status, 200, "{host}");
    }
    for host in ["a;b", "a=b", "a,b", "a:b", "a:123456", "[::1", "[::1]x", "[a]", "::1", "a'b", ":80"] {
        assert_eq!(ask("/", host).status, 400, "{host}");
    }
}

#[test]
fn a_host_with_escapes_is_refused() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    for host in ["%61pi.example.com", "api%2eexample.com"] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(gateway.connect().send_raw(request.as_bytes()).unwrap().status, 400, "{host}");
    }
}

#[test]
fn a_limit_on_a_host_is_not_missed_by_another_port() {
    let backend = Backend::start();
    let policy = "limits:
  - { name: name, key: [], match: { host: API.example.com }, token_bucket: { rate: 1/hour, burst: 100 } }
  - { name: port, key: [], match: { attributes: { host: 'api.example.com:8443' } }, token_bucket: { rate: 1/hour, burst: 50 } }
  - { name: usual, key: [], match: { attributes: { host: 'plain.example:443' } }, token_bucket: { rate: 1/hour, burst: 25 } }";
    let gateway = Gateway::start(&backend, "", policy);
    for (host, limits) in [
        ("api.example.com", &["name"][..]),
        ("api.example.com:", &["name"]),
        ("api.example.com:1", &["name"]),
        ("api.example.com:00080", &["name"]),
        ("Api.Example.Com.:443", &["name"]),
        ("api.example.com:8443", &["name", "port"]),
        ("api.example.com:08443", &["name", "port"]),
        ("api.example.com:84430", &["name"]),
        ("plain.example", &["usual"]),
        ("plain.example:80", &["usual"]),
        ("plain.example:8080", &[]),
        ("xapi.example.com", &[]),
    ] {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = gateway.connect().send_raw(request.as_bytes()).unwrap();
        let told = answer.header("ratelimit-policy").unwrap_or_default();
        let names = ["name", "port", "usual"];
        let met: Vec<_> = names.into_iter().filter(|name| told.contains(&format!("\"{name}\""))).collect();
        assert_eq!((answer.status, &met[..]), (200, limits), "{host}: {told}");
    }
}

#[test]
fn a_path_matches_in_any_case_and_with_a_slash_at_its_end_where_the_policy_says_so() {
    let backend = Backend::start();
    let policy = "limits:
  - { name: exact, key: [], match: { path: /login }, token_bucket: { rate: 1/hour, burst: 100 } }
  - { name: wide, key: [], match: { path: [/Login, /export/*], ignore_case: true, trailing_slash: any }, token_bucket: { rate: 1/hour, burst: 50 } }";
    let gateway = Gateway::start(&backend, "", policy);
    let limits = json_of(&gateway.service.connect().get("/v1/limits"));
    assert_eq!(
        [0, 1].map(|limit| (
            &limits["limits"][limit]["ignore_case"],
            &limits["limits"][limit]["trailing_slash"]
        )),
        [(&json!(false), &json!("exact")), (&json!(true), &json!("any"))]
    );
    for (path, limits) in [
        ("/login", &["exact", "wide"][..]),
        ("/login/", &["wide"]),
        ("/LOGIN", &["wide"]),
        ("/LogIn/", &["wide"]),
        ("/login/x", &[]),
        ("/EXPORT", &["wide"]),
        ("/Export/all", &["wide"]),
        ("/exports", &[]),
    ] {
        let answer = gateway.connect().send("GET", path, &[], "");
        let told = answer.header("ratelimit-policy").unwrap_or_default();
        let met: Vec<_> =
            ["exact", "wide"].into_iter().filter(|name| told.contains(&format!("\"{name}\""))).collect();
        assert_eq!((answer.status, &met[..]), (200, limits), "{path}: {told}");
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
