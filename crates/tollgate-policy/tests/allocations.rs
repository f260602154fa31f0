//! What a decision allocates.

use std::path::Path;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tollgate::AlgorithmKind;
use tollgate_policy::{CellNumbers, CellRequest, Engine, Policy, Request, RequestAttributes, SentRule};
use tollgate_testkit::{Counting, Directory};

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
        let verdict = policy.check(&request, engine.clock().now()).now().unwrap().unwrap();
        assert_eq!((verdict.limits().count(), verdict.shadow().count()), (8, 1));
        verdict.is_allowed()
    };
    assert!(check()); // the first request of a key makes room for it
    let before = Counting::allocations();
    for _ in 0..100 {
        assert!(check());
    }
    assert_eq!(Counting::allocations() - before, 0);
}

/// Nor do a few limits of many.
#[test]
fn a_few_limits_of_many_need_no_allocation() {
    let limit = |i: usize| {
        let applies_to = ["path: /api/p", "path: '/*.e", "path: '*/s", "tenant: 't"][i % 4];
        let end = ["", "'", "/*'", "*'"][i % 4];
        format!(
            "  - {{ name: l{i}, match: {{ {applies_to}{i}{end} }}, key: [user], token_bucket: {{ rate: 9/s }} }}\n"
        )
    };
    let file = format!("limits:\n{}", (0..1000).map(limit).collect::<String>());
    let engine = Engine::new(Policy::read(Path::new("test.yaml"), &file).unwrap()).unwrap();
    let attributes = [("tenant", "t3"), ("user", "alice"), ("path", "/x/s402/api.e401")];
    let request = Request { attributes: &attributes, cost: Some(0) };
    let check = || {
        let policy = engine.policy();
        let verdict = policy.check(&request, engine.clock().now()).now().unwrap().unwrap();
        let names: [&str; 3] = std::array::from_fn(|i| verdict.limits().nth(i).unwrap().name());
        assert_eq!((names, verdict.limits().count()), (["l3", "l401", "l402"], 3));
    };
    check();
    let before = Counting::allocations();
    (0..100).for_each(|_| check());
    assert_eq!(Counting::allocations() - before, 0);
}

/// Reading the attributes of a request needs no allocation, except to write an address.
#[test]
fn attributes_of_a_request_need_no_allocation() {
    let file = "identity: { tenant: header.x-api-key, user: header.x-user-id }
limits:
  - { name: a, key: [tenant, header.authorization], match: { path: /api/* }, token_bucket: { rate: 1/s } }
  - { name: b, key: [user, host], match: { host: 'site.example:8443' }, token_bucket: { rate: 1/s } }";
    let engine = Engine::new(Policy::read(Path::new("test.yaml"), file).unwrap()).unwrap();
    let mut headers = HeaderMap::new();
    let lines =
        [("host", "site.example"), ("authorization", "Bearer x"), ("x-api-key", "acme"), ("accept", "*/*")];
    headers
        .extend(lines.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))));
    let uri = Uri::from_static("http://site.example/api/trips");
    let policy = engine.policy();
    let before = Counting::allocations();
    for _ in 0..100 {
        let request = RequestAttributes::new(&policy, &Method::GET, &uri, &headers, [203, 0, 113, 7].into());
        assert_eq!(request.attributes(&policy).unwrap().len(), 5);
    }
    assert_eq!(Counting::allocations() - before, 0);
}

/// Rules that come as whole numbers need none either, once they are known, nor do keys that are in the table.
#[test]
fn cells_need_no_allocation() {
    let engine = Engine::new(Policy::default()).unwrap();
    let requests: Vec<_> = (0..40)
        .map(|i| {
            let numbers = CellNumbers { max_burst: 1000 + i % 3, count: 1000, period: 1 };
            CellRequest { key: [b"alice", b"bobby"][i as usize % 2], numbers, quantity: 1 }
        })
        .collect();
    let check = || {
        let mut allowed = 0;
        engine
            .throttle_cells(&requests, engine.clock().now(), |decision| {
                allowed += usize::from(decision.unwrap().is_allowed());
            })
            .now()
            .unwrap();
        assert_eq!(allowed, requests.len());
    };
    check();
    let before = Counting::allocations();
    (0..10).for_each(|_| check());
    assert_eq!(Counting::allocations() - before, 0);
}

/// The parser allocates the map, its two names and the string of the rate. The cache allocates its entry and the text
/// of the rule. The table allocates the rule.
#[test]
fn a_new_rule_that_is_sent_as_json_needs_seven_allocations() {
    let engine = Engine::new(Policy::default()).unwrap();
    let throttle = |rate: u32| {
        let numbers = format!("{{\"rate\": \"{rate}/s\", \"burst\": 10}}");
        let sent =
            SentRule { key: "alice", algorithm: AlgorithmKind::TokenBucket, numbers: &numbers, cost: 0 };
        let before = Counting::allocations();
        assert!(engine.throttle(&sent, engine.clock().now()).now().unwrap().unwrap().decision.is_allowed());
        Counting::allocations() - before
    };
    throttle(1); // the first call allocates the cache
    let mut counts: Vec<_> = (2..100).map(throttle).collect();
    counts.sort_unstable();
    assert!(counts[counts.len() / 2] <= 7, "{counts:?}"); // in a few calls, lists of the table grow
    assert_eq!(throttle(1), 0);
}

/// A line of the tenants file costs the name of the tenant and the list of its numbers, whatever the number of limits and lines.
#[test]
fn a_line_of_the_tenants_file_costs_the_same_with_a_thousand_limits() {
    let directory = Directory::new();
    let allocations = |limits: usize, lines: usize, numbers: &str| {
        let limit =
            |i| format!("  - {{ name: l{i}, key: [tenant], token_bucket: {{ rate: 5/s, burst: 10 }} }}\n");
        let limits: String = (0..limits).map(limit).collect();
        let file = format!("tiers: {{ pro: {{}} }}\ntenants_file: tenants.csv\nlimits:\n{limits}");
        let lines: String = (0..lines).map(|i| format!("tenant-{i},pro{numbers}\n")).collect();
        directory.write("tenants.csv", &lines);
        let file = Policy::read_without_tenants_file(&directory.path().join("policy.yaml"), &file);
        let mut policy = file.unwrap_or_else(|faults| panic!("{faults}"));
        let before = Counting::allocations();
        policy.read_tenants_file().unwrap();
        let allocations = Counting::allocations() - before;
        let copy = policy.clone();
        assert_eq!(copy.tenants.len(), policy.tenants.len());
        allocations
    };
    for (numbers, per_line) in
        [("", 1), (",l0:burst=7", 3), (",l0:burst=7,l0:rate=9/s", 3), (",l0:burst=7,l1:rate=9/s", 3)]
    {
        for limits in [10, 1000] {
            let more = allocations(limits, 3000, numbers) - allocations(limits, 1000, numbers);
            // A few are for tables that grow.
            assert!(
                (2000..2000 * per_line + 50).contains(&more),
                "{more} for {numbers:?} with {limits} limits"
            );
        }
    }
}

/// The start of an engine looks at the limits that a tenant has numbers of, and not at the others.
#[test]
fn a_tenant_costs_the_start_the_same_with_a_thousand_limits() {
    let allocations = |limits: usize, tenants: usize| {
        let limit =
            |i| format!("  - {{ name: l{i}, key: [tenant], token_bucket: {{ rate: 5/s, burst: 10 }} }}\n");
        let limits: String = (0..limits).map(limit).collect();
        let tenants: String = (0..tenants).map(|i| format!("  t{i}: {{ tier: pro }}\n")).collect();
        let file = format!("tiers: {{ pro: {{}} }}\ntenants:\n{tenants}limits:\n{limits}");
        let policy = Policy::read(Path::new("test.yaml"), &file).unwrap();
        let before = Counting::allocations();
        let engine = Engine::new(policy).unwrap();
        let allocations = Counting::allocations() - before;
        drop(engine);
        allocations
    };
    for limits in [10, 1000] {
        let more = allocations(limits, 300) - allocations(limits, 100);
        assert!(more < 200 * 4, "{more} for 200 tenants with {limits} limits");
    }
}
