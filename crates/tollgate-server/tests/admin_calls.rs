//! Calls besides decisions: keys that are looked at and reset, hot keys, permits that are given back.

use crate::service::{Directory, Service, json_of};
use serde_json::{Value, json};

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

#[test]
fn names_of_hot_keys_are_for_admins_only() {
    let directory = Directory::new();
    directory.write("admin.token", "s3cret\n");
    let service = Service::start_in(directory, &format!("admin: {{ token_file: ./admin.token }}\n{POLICY}"));
    let mut client = service.connect();
    for (tenant, times) in [("acme", 3), ("globex", 2)] {
        (0..times).for_each(|_| _ = client.passes(&[("tenant", tenant)]));
    }
    let mut hot = |headers: &[(&str, &str)]| json_of(&client.0.send("GET", "/v1/hot", headers, ""));
    let keys = |hot: &Value| -> Vec<(String, u64)> {
        let keys = hot["limits"]["guarded"]["hits"]["keys"].as_array().unwrap().iter();
        keys.map(|hot| (hot["key"][0].as_str().unwrap().to_owned(), hot["count"].as_u64().unwrap())).collect()
    };
    let clear = hot(&[("authorization", "Bearer s3cret")]);
    assert_eq!(keys(&clear), [("acme".to_owned(), 3), ("globex".to_owned(), 2)]);
    assert_eq!(clear["keys"], "clear");
    for headers in [&[][..], &[("authorization", "Bearer wrong")]] {
        let hashed = hot(headers);
        assert!(!hashed.to_string().contains("acme"), "{hashed}");
        assert_eq!(hashed["keys"], json!("hashed"));
        let keys = keys(&hashed);
        assert_eq!(keys.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [3, 2]);
        let is_hash = |key: &String| key.len() == 16 && key.chars().all(|c| c.is_ascii_hexdigit());
        assert!(keys.iter().all(|(key, _)| is_hash(key)), "{keys:?}");
        assert_eq!(hot(&[]), hashed, "the same while the process runs");
    }
}

#[test]
fn hot_keys_are_listed_by_hits_tokens_and_denials() {
    let service = Service::start(
        "limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/day, burst: 100 } }]",
    );
    let mut client = service.connect();
    let mut charge = |user: &str, costs: &[u64]| {
        costs.iter().for_each(|cost| _ = client.check(&[("user", user)], Some(*cost)));
    };
    charge("often", &[1; 9]);
    charge("large", &[60, 30]);
    charge("denied", &[100, 50, 50, 50]); // what is denied charges nothing
    charge("peeks", &[0; 20]);
    let mut hot =
        |query: &str| json_of(&client.get(&format!("/v1/hot{query}")))["limits"]["per-user"].clone();
    let keys = |list: &Value| -> Vec<(String, u64)> {
        let keys = list["keys"].as_array().unwrap().iter();
        keys.map(|hot| (hot["key"][0].as_str().unwrap().to_owned(), hot["count"].as_u64().unwrap())).collect()
    };
    let named = |keys: &[(&str, u64)]| {
        keys.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect::<Vec<_>>()
    };
    let all = hot("");
    for (by, expected) in [
        ("hits", &[("often", 9), ("denied", 4), ("large", 2)][..]),
        ("tokens", &[("denied", 100), ("large", 90), ("often", 9)]),
        ("denials", &[("denied", 3)]),
    ] {
        assert_eq!(keys(&all[by]), named(expected), "{by}");
        assert_eq!(all[by]["total"], expected.iter().map(|(_, count)| count).sum::<u64>(), "{by}");
        let only = hot(&format!("?limit=per-user&by={by}"));
        assert_eq!(only, serde_json::json!({ by: all[by] }));
    }
    for query in ["?by=cost", "?by=hits&by=tokens", "?limit=per-user&limit=per-user", "?order=hits"] {
        let answer = client.get(&format!("/v1/hot{query}"));
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
    }
    assert!(client.get("/v1/hot?by=cost").body.contains("`hits`, `tokens`, `denials` or `newly_denied`"));
}

#[test]
fn explain_names_the_numbers_in_force_and_whose_they_are() {
    let service = Service::start(
        "tiers: { pro: {} }
tenants: { acme: { tier: pro }, globex: { tier: pro, limits: { per-tenant: { rate: 50/s } } } }
limits:
  - name: per-tenant
    key: [tenant]
    token_bucket: { rate: 1/s, burst: 2 }
    tiers: { pro: { rate: 5/s, burst: 20 } }",
    );
    let mut client = service.connect();
    for (tenant, of, rate, burst) in
        [("initech", "limit", "1/s", "2"), ("acme", "tier", "5/s", "20"), ("globex", "tenant", "50/s", "20")]
    {
        let answer = client.post("/v1/explain", &json!({ "attributes": { "tenant": tenant } }));
        let limit = &json_of(&answer)["limits"][0];
        assert_eq!(limit["numbers_of"], of, "{tenant}: {limit}");
        assert_eq!(limit["numbers"], json!({ "rate": rate, "burst": burst }), "{tenant}");
    }
    let limits = json_of(&client.get("/v1/limits"));
    assert_eq!(limits["limits"][0]["tenants_with_own_numbers"], 1);
}
