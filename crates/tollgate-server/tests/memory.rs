//! What keys cost in the running service.

use crate::service::{Service, eventually};
use serde_json::json;

/// Ten million with `./test --long`, else one.
#[test]
fn ten_million_keys_take_four_hundred_megabytes() {
    let keys: usize = if tollgate_testkit::is_long() { 10_000_000 } else { 1_000_000 };
    let service = Service::start(
        "store: { memory: { max_keys: 20000000 } }
limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/day, burst: 10 } }]",
    );
    let memory = || -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", service.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
    };
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
