//! Calls besides decisions: keys that are looked at and reset, permits that are given back.

use crate::service::{Service, json_of};
use serde_json::json;

const POLICY: &str = "
limits:
  - { name: guarded, key: [tenant], token_bucket: { rate: 1/day, burst: 1000 } }
  - { name: trips, key: [], match: { path: /api/trips }, token_bucket: { rate: 1/day, burst: 1000 } }
";

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
