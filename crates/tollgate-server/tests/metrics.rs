//! What operators see of decisions: the metrics.

use std::net::SocketAddr;

use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use serde_json::{Value, json};
use tollgate_testkit::{Http, RedisServer, address_in};

use crate::envoy_client::Envoy;
use crate::gateway::backend::Backend;
use crate::service::resp::Resp;
use crate::service::{Client, Service, json_of};

#[test]
fn only_what_a_shadow_limit_let_pass_is_its_cost() {
    let service = Service::start(
        "limits: [{ name: w, shadow: true, key: [], token_bucket: { rate: 1/day, burst: 1 } }]",
    );
    let mut client = service.connect();
    (0..5).for_each(|_| assert!(client.passes(&[])));
    assert_eq!(client.metric("tollgate_cost_total{limit=\"w\"}"), Some(1.0));
}

#[test]
fn requests_that_only_a_shadow_limit_denies_are_counted_apart() {
    let service = Service::start(
        "limits:
  - { name: live, key: [user], token_bucket: { rate: 1/day, burst: 3 } }
  - { name: candidate, shadow: true, key: [user], token_bucket: { rate: 1/day, burst: 1 } }",
    );
    let mut client = service.connect();
    // The first passes both, two pass the live limit only, and the last two pass neither.
    assert_eq!([(); 5].map(|()| client.passes(&[("user", "u")])), [true, true, true, false, false]);
    let candidate = |name: &str| format!("tollgate_{name}_total{{limit=\"candidate\"");
    assert_eq!(client.metric(&format!("{}}}", candidate("newly_denied"))), Some(2.0));
    let denied = format!("{},outcome=\"shadow_deny\",protocol=\"http\"}}", candidate("decisions"));
    assert_eq!(client.metric(&denied), Some(4.0));
    assert_eq!(client.metric("tollgate_newly_denied_total{limit=\"live\"}"), None);
    let hot = json_of(&client.get("/v1/hot"))["limits"].clone();
    let newly_denied = &hot["candidate"]["newly_denied"]["keys"][0];
    assert_eq!((&newly_denied["key"], &newly_denied["count"]), (&json!(["u"]), &json!(2)));
    assert!(newly_denied["since"].as_f64().is_some_and(|since| since > 1.7e9), "{newly_denied}");
    assert!(hot["live"].get("newly_denied").is_none(), "{hot}");
}

#[test]
fn requests_that_a_limit_delays_are_counted() {
    let service = Service::start("limits: [{ name: line, key: [], leaky_bucket: { rate: 1/h, queue: 3 } }]");
    let mut client = service.connect();
    assert_eq!([(); 4].map(|()| client.passes(&[])), [true, true, true, false]);
    assert_eq!(client.metric("tollgate_delayed_total{limit=\"line\"}"), Some(2.0));
}

#[test]
fn a_limit_has_the_series_of_all_outcomes_after_its_first_request() {
    let service = Service::start("limits: [{ name: one, key: [], token_bucket: { rate: 1/s } }]");
    let mut client = service.connect();
    assert!(client.passes(&[]));
    for protocol in ["http", "forward_auth", "gateway", "grpc", "resp"] {
        for outcome in ["allow", "deny"] {
            let labels = format!("limit=\"one\",outcome=\"{outcome}\",protocol=\"{protocol}\"");
            let count = f64::from(u8::from(outcome == "allow" && protocol == "http"));
            assert_eq!(client.metric(&format!("tollgate_decisions_total{{{labels}}}")), Some(count));
        }
    }
}

#[test]
fn a_scrape_of_10_000_limits_of_which_500_are_used_is_below_2_mb() {
    let limit = |number: usize| {
        format!(
            "  - {{ name: limit-{number}, match: {{ path: /{number} }}, key: [user], token_bucket: {{ rate: 1/s }} }}\n"
        )
    };
    let service = Service::start(&format!("limits:\n{}", (0..10_000).map(limit).collect::<String>()));
    let mut client = service.connect();
    let checks: Value =
        (0..500).map(|number| json!({ "attributes": { "path": format!("/{number}") } })).collect();
    assert_eq!(client.post("/v1/check", &checks).status, 200);
    let (series, bytes) = limit_series(&mut client);
    assert_eq!(series, 500 * (10 + 1 + 1 + 12 + 1));
    assert!(bytes < 2_000_000, "{bytes} bytes");
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

/// The lines of a scrape that name a limit, and the bytes of all lines.
fn limit_series(client: &mut Client) -> (usize, usize) {
    let metrics = client.get("/metrics").body;
    (metrics.lines().filter(|line| line.contains("limit=\"")).count(), metrics.len())
}

#[test]
fn limits_that_were_renamed_leave_no_series() {
    let (limits, renames) = if tollgate_testkit::is_long() { (1000, 30) } else { (100, 10) };
    let policy = |generation: usize| -> String {
        let limit = |number: usize| {
            format!(
                "  - {{ name: g{generation:03}-{number:04}, match: {{ path: /{number} }}, key: [user], token_bucket: {{ rate: 1/s }} }}\n"
            )
        };
        format!("limits:\n{}", (0..limits).map(limit).collect::<String>())
    };
    let service = Service::start(&policy(0));
    let mut client = service.connect();
    let mut generation = |generation: usize| {
        if generation > 0 {
            service.write_policy(&policy(generation));
            assert_eq!(client.post("/v1/reload", &json!({})).status, 200);
        }
        assert_eq!(limit_series(&mut client).0, 0, "limits without a request have no series");
        for number in 0..10 {
            assert!(client.passes(&[("path", &format!("/{number}")), ("user", "u")]));
        }
        limit_series(&mut client)
    };
    let (series, bytes) = generation(0);
    // Allowed and denied requests of five protocols, tokens, delays, a histogram of ten buckets with its sum and its
    // count, and the share of the hottest key.
    assert_eq!(series, 10 * (10 + 1 + 1 + 12 + 1));
    for number in 1..=renames {
        let (series_now, bytes_now) = generation(number);
        assert_eq!(series_now, series, "after {number} renames");
        assert!(bytes_now < bytes + 200, "after {number} renames: {bytes_now} bytes, {bytes} before");
    }
}

#[test]
fn a_limit_keeps_its_counts_when_another_is_renamed() {
    let policy = |other: &str| {
        let limit = |name: &str, path: &str| {
            format!(
                "{{ name: {name}, match: {{ path: {path} }}, key: [user], token_bucket: {{ rate: 1/s, burst: 100 }} }}"
            )
        };
        format!("limits: [{}, {}]", limit(other, "/other"), limit("kept", "/kept"))
    };
    let service = Service::start(&policy("one"));
    let mut client = service.connect();
    for other in ["one", "two", "three"] {
        service.write_policy(&policy(other));
        assert_eq!(client.post("/v1/reload", &json!({})).status, 200);
        for path in ["/kept", "/other"] {
            assert!(client.passes(&[("path", path), ("user", "u")]));
        }
    }
    let tokens = |client: &mut Client, limit: &str| {
        client.metric(&format!("tollgate_cost_total{{limit=\"{limit}\"}}"))
    };
    assert_eq!(
        ["kept", "one", "two", "three"].map(|limit| tokens(&mut client, limit)),
        [Some(3.0), None, None, Some(1.0)]
    );
}

#[test]
fn a_descriptor_that_is_gone_leaves_no_series() {
    let policy = |key: &str| {
        format!(
            "limits: [{{ name: edge, descriptor: {{ domain: edge, entries: [{{ key: {key} }}], detailed_metric: true }}, fixed_window: {{ limit: 9, window: 1day }} }}]"
        )
    };
    let service = Service::start(&policy("path"));
    let mut client = service.connect();
    let mut series = |key: &str| -> Vec<String> {
        let call =
            json!({ "domain": "edge", "descriptors": [{ "entries": [{ "key": key, "value": "a" }] }] });
        assert_eq!(client.post("/json", &call).status, 200);
        let metrics = client.get("/metrics").body;
        let lines = metrics.lines().filter(|line| line.starts_with("tollgate_descriptor_decisions_total"));
        lines.map(str::to_owned).collect()
    };
    let expected = |name: &str| {
        [("allow", 1), ("deny", 0)].map(|(outcome, count)| {
            format!("tollgate_descriptor_decisions_total{{descriptor=\"edge.{name}_a\",outcome=\"{outcome}\"}} {count}")
        })
    };
    assert_eq!(series("path"), expected("path"));
    service.write_policy(&policy("user"));
    assert_eq!(service.connect().post("/v1/reload", &json!({})).status, 200);
    assert_eq!(series("user"), expected("user"));
}

#[test]
fn permits_that_are_held_are_counted() {
    let service =
        Service::start("limits: [{ name: in-flight, key: [], concurrency: { limit: 10, lease: 1h } }]");
    let mut client = service.connect();
    let mut acquire = || json_of(&client.post("/v1/acquire", &json!({ "attributes": {} })));
    let permits = [acquire(), acquire()].map(|answer| answer["permit"].clone());
    assert_eq!(client.metric("tollgate_permits"), Some(2.0));
    assert_eq!(client.post("/v1/release", &json!({ "permit": permits[0] })).status, 200);
    assert_eq!(client.metric("tollgate_permits"), Some(1.0));
    assert_eq!(client.metric("tollgate_permits_refused_total"), Some(0.0));
}

const LIMITS: &str = "
limits:
  - { name: one, match: { path: /limited }, key: [], token_bucket: { rate: 1/day, burst: 1 } }
  - { name: two, match: { path: /limited }, key: [], token_bucket: { rate: 1/day, burst: 100 } }
  - { name: in-flight, match: { path: /limited }, key: [], concurrency: { limit: 100, lease: 1h } }
  - name: edge/once
    descriptor: { domain: edge, entries: [{ key: once }] }
    fixed_window: { limit: 1, window: 1day }
";

/// The service with every listener, and what it counts.
struct Everything {
    service: Service,
    grpc: SocketAddr,
    resp: SocketAddr,
    gateway: SocketAddr,
    _backend: Backend,
}

impl Everything {
    fn start(store: &str) -> Self {
        let backend = Backend::start();
        let listen = ["http", "grpc", "resp", "gateway"].map(|name| format!("{name}: '127.0.0.1:0'"));
        let mut service = Service::start_listening(&format!(
            "listen: {{ {} }}\ngateway: {{ upstream: 'http://{}' }}\n{store}identity: {{ client_ip: {{ trusted_proxies: [127.0.0.1] }} }}
{LIMITS}",
            listen.join(", "),
            backend.address
        ));
        let mut address = |words: &str| address_in(&service.process.line_with(words));
        let (grpc, resp, gateway) = (address("grpc://"), address("redis://"), address("http://"));
        Self { service, grpc, resp, gateway, _backend: backend }
    }

    /// The requests of a protocol so far: allowed, denied, not decided.
    fn requests(&self, protocol: &str) -> [f64; 3] {
        let mut client = self.service.connect();
        ["allow", "deny", "error"].map(|outcome| {
            let labels = format!("outcome=\"{outcome}\",protocol=\"{protocol}\"");
            client.metric(&format!("tollgate_requests_total{{{labels}}}")).unwrap()
        })
    }

    /// What the requests of a protocol come to, beyond those before.
    #[track_caller]
    fn expect(&self, protocol: &str, expected: [u32; 3], send: impl FnOnce()) {
        let before = self.requests(protocol);
        let others = |all: &Self| {
            let all =
                ["http", "forward_auth", "gateway", "grpc", "resp"].map(|name| (name, all.requests(name)));
            all.into_iter().filter(|(name, _)| *name != protocol).collect::<Vec<_>>()
        };
        let others_before = others(self);
        send();
        let after = self.requests(protocol);
        let counted = [0, 1, 2].map(|outcome| after[outcome] - before[outcome]);
        assert_eq!(counted, expected.map(f64::from), "{protocol}");
        assert_eq!(others(self), others_before, "each request counts for one protocol");
    }

    /// Lets the limit `one` allow one more request.
    fn refill(&self) {
        let reset = self.service.connect().0.send("DELETE", "/v1/keys?limit=one", &[], "");
        assert_eq!(reset.status, 200, "{reset:?}");
    }
}

fn count_each_request_once(store: &str) {
    let all = Everything::start(store);
    let mut http = all.service.connect();
    let checks = |paths: &[&str]| -> Value {
        paths.iter().map(|path| json!({ "attributes": { "path": path } })).collect()
    };
    let status_of = |http: &mut Client, target: &str, body: Value| http.post(target, &body).status;

    // One per element. Three limits apply to one, none to the other.
    all.expect("http", [2, 1, 0], || {
        assert_eq!(status_of(&mut http, "/v1/check", checks(&["/limited", "/limited", "/free"])), 200);
    });
    all.expect("http", [0, 0, 0], || {
        let peek = json!({ "attributes": { "path": "/limited" }, "cost": 0 });
        assert_eq!(status_of(&mut http, "/v1/check", peek), 200);
        let peek = json!({ "key": "k", "cost": 0, "fixed_window": { "limit": 2, "window": "1h" } });
        assert_eq!(status_of(&mut http, "/v1/throttle", peek), 200);
        assert_eq!(http.get("/v1/limits").status, 200);
    });
    all.expect("http", [1, 0, 3], || {
        let rule = json!({ "key": "k", "fixed_window": { "limit": 2, "window": "1h" } });
        assert_eq!(status_of(&mut http, "/v1/throttle", rule), 200);
        assert_eq!(status_of(&mut http, "/v1/throttle", json!({ "key": "k" })), 422);
        assert_eq!(status_of(&mut http, "/v1/check", json!({ "attributes": 1 })), 422);
        assert_eq!(status_of(&mut http, "/v1/acquire", json!([])), 422);
    });
    all.refill();
    all.expect("http", [1, 1, 0], || {
        let acquire = json!({ "attributes": { "path": "/limited" } });
        (0..2).for_each(|_| assert_eq!(status_of(&mut http, "/v1/acquire", acquire.clone()), 200));
    });
    all.expect("http", [1, 1, 1], || {
        let call = |value: &str| json!({ "domain": "edge", "descriptors": [{ "entries": [{ "key": "once", "value": value }] }] });
        assert_eq!(status_of(&mut http, "/json", call("a")), 200);
        assert_eq!(status_of(&mut http, "/json", call("a")), 429);
        assert_eq!(status_of(&mut http, "/json", json!({ "domain": "" })), 400);
    });

    all.refill();
    all.expect("forward_auth", [2, 1, 2], || {
        let statuses = ["/limited", "/limited", "/free"].map(|path| http.ask(path, &[]).status);
        assert_eq!(statuses, [204, 429, 204]);
        assert_eq!(http.get("/v1/forward-auth?cost=many").status, 400);
        assert_eq!(http.ask("//limited", &[]).status, 429, "refused as ambiguous");
    });
    all.expect("forward_auth", [0; 3], || assert_eq!(http.get("/v1/forward-auth?cost=0").status, 204));

    all.refill();
    let mut gateway = Http::connect(all.gateway);
    all.expect("gateway", [2, 1, 1], || {
        let paths = ["/limited", "/limited", "/free", "/a/../limited"];
        let statuses = paths.map(|path| gateway.send("GET", path, &[], "").status);
        assert_eq!(statuses, [200, 429, 200, 400]);
    });
    all.expect("gateway", [0, 0, 1], || {
        assert_eq!(Http::connect(all.gateway).send_raw(b"GET / HTTP/1.1\r\n\r\n").unwrap().status, 400);
    });

    // One per call, however many descriptors it has.
    let mut envoy = Envoy::connect(all.grpc);
    all.expect("grpc", [2, 1, 1], || {
        let two: &[&[(&str, &str)]] = &[&[("once", "b")], &[("once", "c")]];
        assert_eq!(envoy.ask("edge", two).overall_code(), Code::Ok);
        assert_eq!(envoy.ask("edge", two).overall_code(), Code::OverLimit);
        assert_eq!(envoy.ask("edge", &[&[("other", "b")]]).overall_code(), Code::Ok);
        envoy.call(RateLimitRequest::default()).unwrap_err();
    });

    all.refill();
    let mut resp = Resp::connect(all.resp);
    all.expect("resp", [4, 2, 3], || {
        // Some of them come together.
        resp.send("CL.THROTTLE k 1 1 3600\r\n".repeat(3).as_bytes());
        [0, 0, 1].iter().for_each(|limited| resp.skip_to(&format!("*5\r\n:{limited}\r\n:2\r\n")));
        for (path, allowed) in [("/limited", 1), ("/limited", 0), ("/free", 1)] {
            resp.send(format!("TOLLGATE.CHECK path {path}\r\n").as_bytes());
            resp.skip_to(&format!("*16\r\n$7\r\nallowed\r\n:{allowed}\r\n"));
        }
        for wrong in
            ["CL.THROTTLE k 1 x 3600", "CL.THROTTLE k 1 1 9223372036854775807", "TOLLGATE.CHECK path"]
        {
            resp.send(format!("{wrong}\r\n").as_bytes());
            resp.skip_to("-ERR ");
        }
        resp.send(b"ECHO end\r\n");
        resp.skip_to("$3\r\nend\r\n");
    });
    all.expect("resp", [0; 3], || {
        resp.send(b"CL.THROTTLE k 1 1 3600 0\r\nTOLLGATE.CHECK path /limited COST 0\r\nPING\r\nTTL k\r\nECHO end\r\n");
        resp.skip_to("$3\r\nend\r\n");
    });

    // Every decision is timed, peeks included: 10 over HTTP, 4 of forward-auth, 3 of the gateway, 3 of gRPC, 8 of RESP.
    assert_eq!(http.metric("tollgate_decision_duration_seconds_count"), Some(28.0));
}

#[test]
fn each_request_of_every_protocol_is_counted_once() {
    count_each_request_once("");
}

#[test]
fn each_request_to_a_shared_store_is_counted_once() {
    let server = RedisServer::start();
    count_each_request_once(&format!("store: {{ redis: {{ url: '{}', deadline: 5s }} }}\n", server.url()));
}
