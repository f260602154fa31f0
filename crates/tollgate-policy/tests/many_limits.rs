//! Policies with many limits, of which few apply to a request.

use std::path::Path;

use tollgate::Timestamp;
use tollgate_policy::{Engine, Policy, Request};

fn engine(file: &str) -> Engine {
    Engine::new(Policy::read(Path::new("test.yaml"), file).unwrap()).unwrap()
}

fn limit(name: &str, applies_to: &str) -> String {
    format!(
        "  - {{ name: {name}, match: {{ {applies_to} }}, key: [], token_bucket: {{ rate: 1/s, burst: 1000 }} }}\n"
    )
}

/// Whatever their conditions are filed under.
#[test]
fn limits_of_a_verdict_are_in_the_order_of_the_policy() {
    let mut limits: Vec<String> =
        (0..1000).map(|i| limit(&format!("l{i}"), &format!("path: /p{i}"))).collect();
    for (place, applies_to) in [
        (900, "path: /api/trips.json"),
        (700, ""),
        (500, "path: '*.json', method: GET"),
        (300, "path: '/api/*'"),
        (200, "path: '*trips*'"),
        (100, "tenant: [acme, other]"),
        (50, "path: '/*', method: PUT"),
    ] {
        limits[place] = limit(&format!("l{place}"), applies_to);
    }
    let engine = engine(&format!("limits:\n{}", limits.concat()));
    let attributes = [("path", "/api/trips.json"), ("method", "GET"), ("tenant", "acme")];
    let request = Request { attributes: &attributes, cost: None };
    let policy = engine.policy();
    let verdict = policy.check(&request, Timestamp::default()).now().unwrap().unwrap();
    let names: Vec<&str> = verdict.limits().map(|limit| limit.name()).collect();
    assert_eq!(names, ["l100", "l200", "l300", "l500", "l700", "l900"]);
}

#[test]
fn the_first_cost_that_matches_counts_among_many() {
    let cost = |i: usize| format!("  - {{ match: {{ path: '/p{i}/*' }}, cost: {} }}\n", i + 2);
    let costs: String = (0..1000).map(cost).collect();
    let costs = format!(
        "{costs}  - {{ match: {{ path: '/p7*' }}, cost: 5000 }}\n  - {{ match: {{ method: GET }}, cost: 6000 }}\n"
    );
    let engine = engine(&format!("costs:\n{costs}limits: []\n"));
    for (path, method, expected) in [
        ("/p7/x", "GET", 9),
        ("/p7x", "GET", 5000),
        ("/p999/", "PUT", 1001),
        ("/q", "GET", 6000),
        ("/q", "PUT", 1),
    ] {
        let attributes = [("path", path), ("method", method)];
        let request = Request { attributes: &attributes, cost: None };
        let policy = engine.policy();
        let explained = policy.explain(&request, Timestamp::default()).now().unwrap().unwrap();
        assert_eq!(explained.cost, expected, "{method} {path}");
    }
}

/// Also where the policy has too many limits to bound the number that apply in advance.
#[test]
fn more_limits_than_can_be_decided_are_refused_in_an_array() {
    let wide = (0..40).map(|i| limit(&format!("wide{i}"), "path: '*/wide/*'"));
    let narrow = (0..1000).map(|i| limit(&format!("narrow{i}"), &format!("path: '*/p{i}/*'")));
    let engine = engine(&format!("limits:\n{}", wide.chain(narrow).collect::<String>()));
    let policy = engine.policy();
    let (narrow, wide) = ([("path", "/x/p7/p8/y")], [("path", "/x/wide/y")]);
    let request = |attributes| Request { attributes, cost: None };
    assert!(policy.require_few(&[request(&narrow), request(&narrow)]).is_ok());
    let refused = policy.require_few(&[request(&narrow), request(&wide)]).unwrap_err();
    assert_eq!((refused.limits.len(), refused.limits[39].as_str()), (40, "wide39"));
}
