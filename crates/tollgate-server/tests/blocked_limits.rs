//! Limits of 0, which deny every request.

use serde_json::json;

use crate::service::{Service, json_of, tollgate};

const POLICY: &str = "
identity: { tenant: header.x-tenant }
tiers: { banned: {}, paid: {} }
tenants:
  blocked: { limits: { per-tenant: { limit: 0 } } }
  banned: { tier: banned }
limits:
  - name: per-tenant
    key: [tenant]
    fixed_window: { limit: 5, window: 1h }
    tiers: { banned: { limit: 0 } }
  - { name: closed, key: [], match: { path: /closed }, fixed_window: { limit: 0, window: 1h } }
";

#[test]
fn limit_of_0_denies_a_tenant_and_a_tier_and_nobody_else() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    for tenant in ["blocked", "banned"] {
        let answer = client.ask("/", &[("x-tenant", tenant)]);
        assert_eq!(answer.status, 429, "{tenant}: {answer:?}");
        assert_eq!(answer.header("retry-after"), None, "{tenant}: {answer:?}");
    }
    assert_eq!(client.ask("/", &[("x-tenant", "other")]).status, 204);
    let limits = json_of(&client.get("/v1/limits"));
    assert_eq!((&limits["limits"][0]["capacity"], &limits["limits"][1]["capacity"]), (&json!(5), &json!(0)));
    let capacity = |key: serde_json::Value| key["capacity"].clone();
    for (tenant, expected) in [("blocked", 0), ("banned", 0), ("other", 5)] {
        let key = json_of(&client.get(&format!("/v1/keys?limit=per-tenant&tenant={tenant}")));
        assert_eq!(capacity(key), expected, "{tenant}");
    }
}

#[test]
fn explain_reports_that_a_limit_blocks() {
    let directory = crate::service::Directory::new();
    let file = directory.write("tollgate.yaml", POLICY);
    let explain = |attribute: &str| {
        let output = tollgate(&["explain", "--config", file.to_str().unwrap(), attribute]);
        String::from_utf8(output.stdout).unwrap()
    };
    for attribute in ["tenant=blocked", "tenant=banned", "path=/closed"] {
        let text = explain(attribute);
        assert!(text.contains("deny: the limit blocks every request"), "{text}");
    }
    assert!(!explain("tenant=other").contains("blocks"));
}
