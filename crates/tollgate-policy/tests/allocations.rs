//! What a decision allocates.

use std::path::Path;

use tollgate_policy::{Engine, Policy, Request};
use tollgate_testkit::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Eight limits on one request, of tiers and tenants with numbers of their own, need no allocation.
#[test]
fn eight_limits_need_no_allocation() {
    let limit = |i: usize| {
        format!(
            "  - {{ name: l{i}, match: {{ path: /api/* }}, key: [tenant, user|ip],
                token_bucket: {{ rate: 1000/s, burst: 1000 }}, tiers: {{ pro: {{ burst: 2000 }} }} }}\n"
        )
    };
    let file = format!(
        "tiers: {{ pro: {{}}, free: {{}} }}\ndefault_tier: free
tenants: {{ acme: {{ tier: pro, limits: {{ l0: {{ burst: 5000 }} }} }} }}
limits:\n{}  - {{ name: watched, shadow: true, key: [user], token_bucket: {{ rate: 1/s }} }}\n",
        (0..8).map(limit).collect::<String>()
    );
    let engine = Engine::new(Policy::read(Path::new("test.yaml"), &file).unwrap()).unwrap();
    let attributes = [("tenant", "acme"), ("user", "alice"), ("path", "/api/trips")];
    let request = Request { attributes: &attributes, cost: None };
    let check = || {
        let policy = engine.policy();
        let verdict = policy.check(&request, engine.clock().now()).unwrap();
        assert_eq!((verdict.limits().len(), verdict.shadow().len()), (8, 1));
        verdict.is_allowed()
    };
    assert!(check()); // the first request of a key makes room for it
    let before = Counting::allocations();
    for _ in 0..100 {
        assert!(check());
    }
    assert_eq!(Counting::allocations() - before, 0);
}
