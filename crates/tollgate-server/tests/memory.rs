//! What keys cost in the running service.

use crate::service::{Service, assert_refused, eventually};
use serde_json::json;

/// Ten million with `./test --long`, else one.
#[test]
fn ten_million_keys_take_four_hundred_megabytes() {
    let keys: usize = if tollgate_testkit::is_long() { 10_000_000 } else { 1_000_000 };
    let service = Service::start(
        "store: { memory: { max_keys: 20000000 } }
limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/day, burst: 10 } }]",
    );
    let memory = || resident_bytes(&service);
    let mut client = service.connect();
    for first in (0..keys).step_by(1000) {
        let checks: Vec<_> = (first..first + 1000)
            .map(|user| json!({ "attributes": { "user": format!("user-{user}") } }))
            .collect();
        let answer = client.post("/v1/check", &json!(checks));
        assert_eq!(
            (answer.status, answer.body.matches("\"allowed\":true,\"retry_after\"").count()),
            (200, 1000)
        );
    }
    let metrics = client.get("/metrics").body;
    assert!(metrics.contains(&format!("tollgate_keys {keys}")), "{metrics}");
    // What the service takes without any key counts as a tenth of what ten million may. The allocator gives back what is no longer
    // in use a little later, while it is asked for more.
    let mut bytes = 0;
    eventually("what is not in use is given back", || {
        assert_eq!(client.get("/v1/limits").status, 200);
        bytes = memory();
        bytes <= 36 * keys + 40_000_000
    });
    println!("{keys} keys: {} MB, {} bytes a key", bytes / 1_000_000, bytes / keys);
}

/// The resident memory of the process.
fn resident_bytes(service: &Service) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

/// What the process may take beyond `max_bytes`, as docs/service.md states it.
const SLACK: usize = 64 << 20;

#[test]
fn limits_and_sent_rules_stay_within_max_bytes_together() {
    const MAX_BYTES: usize = 16 << 20;
    let service = Service::start(
        "store: { memory: { max_bytes: 16MiB } }
limits: [{ name: log, key: [user], sliding_log: { limit: 500, window: 1h } }]",
    );
    let mut client = service.connect();
    let before = resident_bytes(&service);
    let mut largest = 0.0_f64;
    for round in 0..20 {
        let checks: Vec<_> = (0..500)
            .map(|user| json!({ "attributes": { "user": format!("{round}-{user}") }, "cost": 400 }))
            .collect();
        assert_eq!(client.post("/v1/check", &json!(checks)).status, 200);
        for key in 0..500 {
            let rule = json!({ "limit": 10, "window": "1h", "buckets": 256 });
            let call = json!({ "key": format!("{round}-{key}"), "sliding_counter": rule });
            assert_eq!(client.post("/v1/throttle", &call).status, 200);
        }
        largest = largest.max(client.metric("tollgate_table_bytes").unwrap());
        let grown = resident_bytes(&service).saturating_sub(before);
        assert!(grown <= MAX_BYTES + SLACK, "{grown} bytes after round {round}");
    }
    assert!(largest <= MAX_BYTES as f64, "{largest} bytes of keys");
    assert!(largest >= MAX_BYTES as f64 / 2.0, "{largest} bytes: the bound was not reached");
}

#[test]
fn a_caller_cannot_choose_a_rule_with_large_states() {
    let service = Service::start("limits: []");
    let mut client = service.connect();
    for (rule, help) in [
        (json!({ "sliding_counter": { "limit": 10, "window": "1h", "buckets": 257 } }), "at most 256"),
        (json!({ "sliding_counter": { "limit": 10, "window": "1h", "buckets": 65536 } }), "at most 256"),
        (json!({ "sliding_log": { "limit": 1001, "window": "1h" } }), "use `sliding_counter`"),
        (json!({ "sliding_log": { "limit": 9999, "window": "1h" } }), "use `sliding_counter`"),
        (json!({ "sliding_log": { "limit": 20000, "window": "1h" } }), "use `sliding_counter`"),
    ] {
        let mut call = rule;
        call["key"] = json!("alice");
        let answer = client.post("/v1/throttle", &call);
        assert_refused(&answer, &call);
        assert!(answer.body.contains(help), "{answer:?}");
    }
    for rule in [
        json!({ "key": "a", "sliding_counter": { "limit": 10, "window": "1h", "buckets": 256 } }),
        json!({ "key": "a", "sliding_log": { "limit": 1000, "window": "1h" } }),
    ] {
        assert_eq!(client.post("/v1/throttle", &rule).status, 200, "{rule}");
    }
}

#[test]
fn the_memory_of_keys_is_bounded_by_default() {
    let bound = |policy: &str| {
        let service = Service::start(policy);
        let mut line = String::new();
        eventually("the bound is logged", || {
            let errors = service.process.errors();
            line = errors
                .lines()
                .find(|line| line.contains("the memory of keys"))
                .unwrap_or_default()
                .to_owned();
            !line.is_empty()
        });
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["max_bytes"].as_u64()
    };
    assert!(bound("limits: []").is_some_and(|bytes| (256 << 10..=1 << 30).contains(&bytes)));
    assert_eq!(bound("store: { memory: { max_bytes: 32MiB } }"), Some(32 << 20));
    assert_eq!(bound("store: { memory: { max_bytes: unlimited } }"), None);
}
