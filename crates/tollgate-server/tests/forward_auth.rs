//! What a proxy asks on behalf of a client: which of its words are believed, and what is made of them.

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use crate::service::{Client, Service, eventually, pause, timed};
use tollgate_testkit::RedisServer;

/// Limits that tell apart what they were asked about, each of its own number.
const LIMITS: &str = "
limits:
  - { name: trips, key: [], match: { path: /api/trips }, token_bucket: { rate: 1/day, burst: 1000 } }
  - { name: posts, key: [], match: { method: POST }, token_bucket: { rate: 1/day, burst: 2000 } }
  - { name: inner, key: [], match: { path: /v1/forward-auth }, token_bucket: { rate: 1/day, burst: 3000 } }
  - { name: per-tenant, key: [tenant], match: { path: /tenant }, token_bucket: { rate: 1/day, burst: 4000 } }
  - { name: per-user, key: [user|ip], match: { path: /user }, token_bucket: { rate: 1/day, burst: 5000 } }
  - { name: per-address, key: [ip], match: { path: /ip }, token_bucket: { rate: 1/day, burst: 6000 } }
  - { name: per-key, key: [key], match: { path: /key }, token_bucket: { rate: 1/day, burst: 7000 } }
  - { name: per-host, key: [host], match: { path: /host }, token_bucket: { rate: 1/day, burst: 8000 } }
  - { name: per-version, key: [header.x-version], match: { path: /version }, token_bucket: { rate: 1/day, burst: 9000 } }
";

fn start(trusted: &str) -> Service {
    let identity = "tenant: header.x-api-key, user: header.x-user-id";
    Service::start(&format!("identity: {{ {identity}, client_ip: {{ {trusted} }} }}{LIMITS}"))
}

const TRUSTED: &str = "trusted_proxies: [127.0.0.1, 10.0.0.0/8]";

/// The limits that a request met, by the capacities in its headers.
fn met(client: &mut Client, method: &str, headers: &[(&str, &str)]) -> Vec<&'static str> {
    let answer = client.0.send(method, "/v1/forward-auth", headers, "");
    assert_eq!(answer.status, 204, "{headers:?}: {answer:?}");
    let told = answer.header("ratelimit-policy").unwrap_or("").to_owned();
    let names = ["trips", "posts", "inner", "per-tenant", "per-user", "per-address", "per-key", "per-host"];
    names.into_iter().filter(|name| told.contains(&format!("\"{name}\""))).collect()
}

#[test]
fn a_trusted_proxy_says_what_it_asks_about() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    for (method, headers, limits) in [
        ("GET", &[("X-Forwarded-Uri", "/api/trips")][..], &["trips"][..]),
        ("GET", &[("X-Forwarded-Uri", "/api/trips?page=2#top")], &["trips"]),
        ("GET", &[("X-Forwarded-Uri", "https://example.com/api/trips")], &["trips"]),
        ("GET", &[("X-Original-URI", "/api/trips")], &["trips"]),
        ("GET", &[("X-Original-URL", "https://example.com/api/trips?a=b")], &["trips"]),
        // The first of them that is there.
        ("GET", &[("X-Original-URI", "/other"), ("X-Forwarded-Uri", "/api/trips")], &["trips"]),
        ("GET", &[("X-Original-URI", "/api/trips"), ("X-Forwarded-Uri", "/other")], &[]),
        ("GET", &[("X-Original-URI", "/api/trips"), ("X-Forwarded-Uri", "")], &["trips"]), // nginx empties it
        ("GET", &[("X-Forwarded-Method", "POST"), ("X-Forwarded-Uri", "/api/trips")], &["trips", "posts"]),
        ("GET", &[("X-Original-Method", "POST")], &["posts", "inner"]),
        ("POST", &[("X-Forwarded-Method", "GET"), ("X-Original-Method", "POST")], &["inner"]),
        ("POST", &[], &["posts", "inner"]),
        ("GET", &[], &["inner"]),
    ] {
        assert_eq!(met(&mut client, method, headers), limits, "{method} {headers:?}");
    }
}

#[test]
fn of_others_nothing_is_believed() {
    for trusted in ["", "trusted_proxies: [10.0.0.0/8]", "trusted_hops: 0"] {
        let service = start(trusted);
        let mut client = service.connect();
        for name in ["X-Forwarded-Uri", "X-Original-URI", "X-Original-URL"] {
            assert_eq!(met(&mut client, "GET", &[(name, "/api/trips")]), ["inner"], "{trusted} {name}");
        }
        for name in ["X-Forwarded-Method", "X-Original-Method"] {
            assert_eq!(met(&mut client, "GET", &[(name, "POST")]), ["inner"], "{trusted} {name}");
        }
    }
}

#[test]
fn a_path_meets_the_same_limits_however_it_is_written() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    for path in [
        "/api/trips",
        "/api//trips",
        "/./api/trips",
        "/x/../api/trips",
        "/api/%74rips",
        "/%61pi/trips",
        "/api/x/%2e%2e/trips",
        "/api/x/%2E%2e/trips",
        "/api/%2e/trips",
        "/../../api/trips",
        "/api/trips?%2e%2e",
        "/api/trips;a=b/../trips",
        "/api%2Ftrips",
        "/api/trips;a=b",
        "/api/;/trips",
    ] {
        assert_eq!(met(&mut client, "GET", &[("X-Forwarded-Uri", path)]), ["trips"], "{path}");
    }
    for path in ["/api/trips/1", "/api/tripsx", "/api/Trips", "/api/%2574rips"] {
        assert!(met(&mut client, "GET", &[("X-Forwarded-Uri", path)]).is_empty(), "{path}");
    }
}

/// That a request is refused with the status that a proxy has asked for, in words that name the fault.
#[track_caller]
fn assert_faulty(client: &mut Client, headers: &[(&str, &str)], fault: &str) {
    for (query, status) in [("", 429), ("?deny=403", 403), ("?deny=401", 401)] {
        let answer = client.0.send("GET", &format!("/v1/forward-auth{query}"), headers, "");
        assert_eq!(answer.status, status, "{headers:?}: {answer:?}");
        crate::service::assert_refused(&answer, headers);
        let detail = crate::service::json_of(&answer)["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(fault), "{headers:?}: {detail}");
    }
}

#[test]
fn a_path_that_applications_read_in_two_ways_gets_the_deny_status() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    for (target, fault) in [
        ("//x/api/trips", "`//`"),
        ("https://example.com//x/api/trips", "`//`"),
        ("/x\\..\\api/trips", "backslash"),
        ("/x%5C../api/trips", "backslash"),
        ("https://example.com\\api/trips", "backslash"),
        ("/api/trips%0a", "control character"),
        ("/api/tr\tips", "control character"),
    ] {
        assert_faulty(&mut client, &[("X-Forwarded-Uri", target), ("X-Api-Key", "a")], fault);
        assert_faulty(&mut client, &[("X-Original-URL", target)], fault);
    }
    assert_eq!(met(&mut client, "GET", &[("X-Forwarded-Uri", "/api/trips?x=//a\\b%0a")]), ["trips"]);
    // Without a limit that looks at paths, any path passes.
    let service = Service::start("limits: [{ name: a, key: [user], token_bucket: { rate: 1/s } }]");
    assert_eq!(service.connect().ask("//x%0a", &[]).status, 204);
}

#[test]
fn a_header_that_the_policy_reads_twice_or_in_disguise_gets_the_deny_status() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    for name in ["x-api-key", "x-user-id", "x-version"] {
        let disguised = name.replace('-', "_");
        assert_faulty(&mut client, &[(name, "a"), (name, "b")], name);
        assert_faulty(&mut client, &[(&disguised, "a")], name);
        assert_faulty(&mut client, &[(name, "a"), (&disguised, "b")], name);
    }
    // Proxies add lines to these, which are one list.
    let chain = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "203.0.113.7")];
    assert_eq!(client.ask("/ip", &chain).status, 204);
}

/// Without a proxy that names the host, the target names it as for the gateway and tower.
#[test]
fn the_host_of_the_target_counts_and_another_host_header_gets_the_deny_status() {
    let service = Service::start(
        "limits: [{ name: per-host, key: [host], token_bucket: { rate: 1/day, burst: 100 } }]",
    );
    let mut client = service.connect();
    let ask = |client: &mut Client, host: &str| {
        let request = format!("GET http://shop.example/v1/forward-auth HTTP/1.1\r\nHost: {host}\r\n\r\n");
        client.0.send_raw(request.as_bytes()).unwrap()
    };
    for (used, host) in ["shop.example", "Shop.Example:80"].into_iter().enumerate() {
        assert_eq!(ask(&mut client, host).status, 204, "{host}");
        assert_eq!(left(&mut client, "per-host", "host=shop.example"), 99 - used as u64, "{host}");
    }
    let answer = ask(&mut client, "other.example");
    assert_eq!(answer.status, 429);
    crate::service::assert_refused(&answer, "two hosts");
    let detail = crate::service::json_of(&answer)["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("`host` differs from the host of the target"), "{detail}");
    assert_eq!(left(&mut client, "per-host", "host=other.example"), 100);
}

#[test]
fn header_lines_that_are_one_list_are_joined() {
    let service = Service::start(
        "limits:
  - { name: chain, key: [header.x-forwarded-for], token_bucket: { rate: 1/day, burst: 100 } }
  - { name: cookies, key: [header.cookie], token_bucket: { rate: 1/day, burst: 100 } }",
    );
    let mut client = service.connect();
    let headers = [
        ("x-forwarded-for", "1.1.1.1"),
        ("cookie", "a=1"),
        ("x-forwarded-for", "2.2.2.2"),
        ("cookie", "b=2"),
    ];
    assert_eq!(client.0.send("GET", "/v1/forward-auth", &headers, "").status, 204);
    assert_eq!(left(&mut client, "chain", "header.x-forwarded-for=1.1.1.1,%202.2.2.2"), 99);
    assert_eq!(left(&mut client, "cookies", "header.cookie=a%3d1%3b%20b%3d2"), 99);
}

#[test]
fn one_reading_of_hosts_schemes_and_empty_headers_behind_a_proxy() {
    let service = Service::start("identity: { client_ip: { trusted_proxies: [127.0.0.1] } }
limits:
  - { name: per-host, key: [host], match: { attributes: { host: shop.example } }, token_bucket: { rate: 1/day, burst: 100 } }
  - { name: per-token, key: [header.authorization], when_missing: skip, token_bucket: { rate: 1/day, burst: 100 } }");
    let mut client = service.connect();
    for (used, host) in
        ["shop.example", "shop.example:1", "Shop.Example.:00080", "shop.example:"].iter().enumerate()
    {
        assert_eq!(client.ask("/", &[("x-forwarded-host", host), ("authorization", "")]).status, 204);
        assert_eq!(left(&mut client, "per-host", "host=shop.example"), 99 - used as u64, "{host}");
    }
    assert_eq!(left(&mut client, "per-token", "header.authorization="), 100);
    for (used, value) in ["Bearer x", "bearer  x", "BEARER x"].iter().enumerate() {
        assert_eq!(client.ask("/", &[("authorization", value)]).status, 204);
        assert_eq!(
            left(&mut client, "per-token", "header.authorization=Bearer%20x"),
            99 - used as u64,
            "{value}"
        );
    }
}

/// What is left of a limit for a key, by the admin's look at it.
fn left(client: &mut Client, limit: &str, attribute: &str) -> u64 {
    let answer = client.get(&format!("/v1/keys?limit={limit}&{attribute}"));
    crate::service::json_of(&answer)["remaining"].as_u64().unwrap_or_else(|| panic!("{answer:?}"))
}

#[test]
fn headers_name_the_tenant_the_user_and_what_else_is_counted_by() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    for (path, headers, limit, key, left_of_it) in [
        ("/tenant", &[("X-Api-Key", "acme")][..], "per-tenant", "tenant=acme", 3999),
        ("/tenant", &[("x-api-key", "acme"), ("X-User-Id", "u")], "per-tenant", "tenant=acme", 3998),
        ("/tenant", &[("X-Api-Key", "")], "per-tenant", "tenant=", 3999),
        ("/tenant", &[], "per-tenant", "tenant=", 3998), // leaving it out is no way round
        ("/user", &[("X-User-Id", "42")], "per-user", "user=42", 4999),
        ("/user", &[], "per-user", "ip=127.0.0.1", 4999),
        ("/user", &[("X-User-Id", "")], "per-user", "ip=127.0.0.1", 4998),
        ("/host", &[], "per-host", &format!("host={}", service.address), 7999),
        ("/host", &[("X-Forwarded-Host", "shop.example")], "per-host", "host=shop.example", 7999),
        ("/version", &[("X-Version", "v2")], "per-version", "header.x-version=v2", 8999),
    ] {
        assert_eq!(client.ask(path, headers).status, 204);
        assert_eq!(left(&mut client, limit, key), left_of_it, "{path} {headers:?}");
    }
}

#[test]
fn the_clients_address_is_the_first_that_is_not_ours_from_the_right() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    let mut used = std::collections::HashMap::new();
    for (forwarded_for, ip) in [
        (&["203.0.113.7"][..], "203.0.113.7"),
        (&["6.6.6.6, 203.0.113.7"], "203.0.113.7"),
        (&["6.6.6.6, 203.0.113.7, 10.1.2.3"], "203.0.113.7"),
        (&["6.6.6.6", "203.0.113.7", "10.1.2.3, 10.9.9.9"], "203.0.113.7"),
        (&["203.0.113.7:4711"], "203.0.113.7"),
        (&["::ffff:203.0.113.7"], "203.0.113.7"),
        (&["nonsense, 203.0.113.7"], "203.0.113.7"),
        (&["203.0.113.7, nonsense"], "127.0.0.1"),
        (&["203.0.113.7, nonsense, 10.1.2.3"], "10.1.2.3"),
        (&["10.1.2.3"], "10.1.2.3"),
        (&[], "127.0.0.1"),
        (&["2001:db8:1:2:3:4:5:6"], "2001:db8:1:2::/64"),
        (&["2001:db8:1:2::ffff"], "2001:db8:1:2::/64"),
        (&["[2001:db8:1:2::1]:443"], "2001:db8:1:2::/64"),
        (&["fe80::1%eth0"], "fe80::/64"),
    ] {
        let headers: Vec<_> = forwarded_for.iter().map(|line| ("X-Forwarded-For", *line)).collect();
        assert_eq!(client.ask("/ip", &headers).status, 204);
        let used = used.entry(ip).and_modify(|used| *used += 1).or_insert(1_u64);
        let key = format!("ip={}", ip.replace(':', "%3a").replace('/', "%2f"));
        assert_eq!(left(&mut client, "per-address", &key), 6000 - *used, "{forwarded_for:?} is not {ip}");
    }
    // Of a peer that is not ours, its own address.
    let service = start("trusted_proxies: [10.0.0.0/8]");
    let mut client = service.connect();
    client.0.send("GET", "/v1/forward-auth", &[("x-forwarded-for", "203.0.113.7"), ("x-user-id", "")], "");
    assert_eq!(
        client
            .metric("tollgate_decisions_total{limit=\"inner\",outcome=\"allow\",protocol=\"forward_auth\"}"),
        Some(1.0)
    );
}

#[test]
fn the_key_and_the_cost_are_the_querys_to_say_and_no_headers() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    let about = [("x-forwarded-uri", "/key"), ("key", "other"), ("cost", "500"), ("x-cost", "500")];
    for (query, key, left_of_it) in [
        ("?key=alice", "alice", 6999),
        ("?key=alice&cost=10", "alice", 6989),
        ("?cost=0&key=alice", "alice", 6989),
        ("?key=a%20b%26c", "a%20b%26c", 6999),
        ("?key=a+b%26c&deny=403", "a%20b%26c", 6998),
        ("", "", 6999),
    ] {
        assert_eq!(client.0.send("GET", &format!("/v1/forward-auth{query}"), &about, "").status, 204);
        assert_eq!(left(&mut client, "per-key", &format!("key={key}")), left_of_it, "{query}");
    }
    // The query of the request that is asked about is the client's, and says nothing.
    let asked = [("x-forwarded-uri", "/key?key=mallory&cost=500")];
    assert_eq!(client.0.send("GET", "/v1/forward-auth?key=bob", &asked, "").status, 204);
    assert_eq!(
        (left(&mut client, "per-key", "key=bob"), left(&mut client, "per-key", "key=mallory")),
        (6999, 7000)
    );
}

#[test]
fn a_body_is_nobodys_concern_and_breaks_nothing_that_follows() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    for size in [1, 100, 10_000] {
        let answer =
            client.0.send("POST", "/v1/forward-auth", &[("x-forwarded-uri", "/key")], &"x".repeat(size));
        assert_eq!((answer.status, client.get("/livez").status), (204, 200), "{size} bytes");
    }
}

/// nginx passes on in `$request_uri` what the client wrote, byte by byte.
#[test]
fn bytes_that_are_no_text_do_not_hide_the_path() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    let uris = ["/api/trips", "/api/trips?\u{e9}", "/x%ff/../%61pi/trips", "/x\u{e9}/../api/trips"];
    for header in ["x-forwarded-uri", "x-original-uri"] {
        for uri in uris {
            assert_eq!(met(&mut client, "GET", &[(header, uri)]), ["trips"], "{header}: {uri}");
        }
    }
}

/// An element that cannot be read ends the walk at the one to its right: it does not make the whole line disappear.
#[test]
fn bytes_that_are_no_text_do_not_hide_the_clients_address() {
    let service = start(TRUSTED);
    let mut client = service.connect();
    let headers = [("x-forwarded-for", "\u{e9}, 203.0.113.7")];
    assert_eq!(client.ask("/ip", &headers).status, 204);
    assert_eq!(left(&mut client, "per-address", "ip=203.0.113.7"), 5999);
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
}

#[test]
fn a_proxy_that_is_not_trusted_is_told_of_once() {
    let service = Service::start("limits: [{ name: a, key: [ip], token_bucket: { rate: 1/s } }]");
    let mut client = service.connect();
    for _ in 0..3 {
        let _ = client.ask("/x", &[]);
    }
    eventually("it is logged", || service.process.errors().contains("trusted_proxies: what is said"));
    assert_eq!(service.process.errors().matches("trusted_proxies: what is said").count(), 1);
}

const HOLDING: &str = "identity: { client_ip: { trusted_proxies: [127.0.0.1] } }
limits: [{ name: even, key: [key], leaky_bucket: { rate: 2/s, queue: 4 } }]";

/// How late an answer may be on a machine that has much else to do.
const LATE: Duration = Duration::from_secs(2);

#[test]
fn a_leaky_bucket_holds_each_answer_until_its_turn() {
    let service = Service::start(HOLDING);
    // All come at once; two leave in a second, and of the four that fit the last leaves after a second and a half.
    let begin = tokio::time::Instant::now();
    let mut answers: Vec<(u16, Duration)> = thread::scope(|scope| {
        let asked: Vec<_> = (0..6)
            .map(|_| {
                let mut client = service.connect();
                scope.spawn(move || {
                    let answer = client.0.send("GET", "/v1/forward-auth?key=a", &[], "");
                    (answer.status, begin.elapsed())
                })
            })
            .collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    });
    answers.sort_unstable();
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [204, 204, 204, 204, 429, 429], "{answers:?}");
    for (place, (_, after)) in answers[..4].iter().enumerate() {
        let turn = Duration::from_millis(500 * place as u64);
        assert!((turn..turn + LATE).contains(after), "{answers:?}");
    }
    let last = answers[3].1;
    assert!(answers[4..].iter().all(|(_, after)| *after < last), "who is denied does not wait: {answers:?}");
}

#[test]
fn an_answer_is_never_earlier_than_its_delay() {
    let service = Service::start(HOLDING);
    let mut client = service.connect();
    let mut ask = || timed(|| client.0.send("GET", "/v1/forward-auth?key=b", &[], "").status);
    assert_eq!(ask().1, 204);
    for _ in 0..3 {
        // One after the other: each comes when the one before has left, and waits its full half second.
        let (took, status) = ask();
        assert_eq!(status, 204);
        assert!(took >= Duration::from_millis(480), "{took:?}");
    }
}

#[test]
fn a_client_that_hangs_up_while_held_leaves_everything_in_order() {
    let service = Service::start(HOLDING);
    let mut client = service.connect();
    assert_eq!(client.0.send("GET", "/v1/forward-auth?key=c", &[], "").status, 204);
    for _ in 0..3 {
        let held = "tollgate_wait_seconds_count";
        let before = client.metric(held).unwrap();
        let mut stream = TcpStream::connect(service.address).unwrap();
        stream.write_all(b"GET /v1/forward-auth?key=c HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        eventually("the request is held", || client.metric(held).unwrap() > before);
        drop(stream);
    }
    assert_eq!(client.get("/livez").status, 200);
    assert_eq!(client.0.send("GET", "/v1/forward-auth?key=d", &[], "").status, 204);
    // Their places were taken; when they are free again, others come as before.
    pause(Duration::from_millis(1600));
    let (took, status) = timed(|| client.0.send("GET", "/v1/forward-auth?key=c", &[], "").status);
    assert_eq!(status, 204);
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[test]
fn the_gauge_counts_requests_that_a_limit_in_redis_delays() {
    let server = RedisServer::start();
    let limit = "limits: [{ name: even, key: [key], leaky_bucket: { rate: 1/min, queue: 4 } }]";
    let service = Service::start(&format!("store: {{ redis: {{ url: '{}' }} }}\n{limit}", server.url()));
    let mut client = service.connect();
    eventually("the store is up", || client.get("/readyz").body == "ok\n");
    assert_eq!(client.0.send("GET", "/v1/forward-auth?key=a", &[], "").status, 204);
    assert_eq!(client.metric("tollgate_held"), Some(0.0));
    let mut stream = TcpStream::connect(service.address).unwrap();
    stream.write_all(b"GET /v1/forward-auth?key=a HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    eventually("one request is delayed", || client.metric("tollgate_held") == Some(1.0));
    drop(stream);
    eventually("its client has left", || client.metric("tollgate_held") == Some(0.0));
}
