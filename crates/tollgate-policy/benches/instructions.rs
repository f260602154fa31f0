//! How many instructions a request takes from its attributes to its verdict, in memory and with the time given:
//! `cargo bench -p tollgate-policy --bench instructions`.
//!
//! Each case runs once under callgrind, which counts the instructions of the one measured call. The keys are in the table, as
//! those of nearly all requests are.

use std::hint::black_box;
use std::path::Path;

use tollgate::{AlgorithmKind, Timestamp};
use tollgate_policy::{
    CellNumbers, CellRequest, Described, Engine, Hits, Policy, PolicyInForce, Request, SentRule,
};
use tollgate_testkit::instructions;

type Case = (&'static str, fn());

/// Why answers are there at once.
const IN_MEMORY: &str = "the states are in memory";

const CASES: [Case; 12] = [
    ("one limit, admit", || check(1, "1000/s", true)),
    ("two limits, admit", || check(2, "1000/s", true)),
    ("four limits, admit", || check(4, "1000/s", true)),
    ("eight limits, admit", || check(8, "1000/s", true)),
    ("four limits of three algorithms, admit", || mixed("alice")),
    ("the same, two keys of them new", || mixed("bob")),
    ("one limit, deny", || check(1, "1/h", false)),
    ("four limits, deny", || check(4, "1/h", false)),
    ("four Envoy descriptors, admit", descriptors),
    ("a rule sent as text, admit", || sent_rule(r#"{"rate":"5/s","burst":9}"#)),
    ("a new rule sent as text, admit", || sent_rule(r#"{"rate":"6/s","burst":9}"#)),
    ("16 calls of CL.THROTTLE, admit", cells),
];

fn main() {
    let wanted: Option<String> = std::env::args().skip_while(|arg| arg != "--case").nth(1);
    match wanted {
        Some(name) => {
            let (_, run) = CASES.into_iter().find(|case| case.0 == name).expect("a case of this name");
            run();
        }
        None => {
            println!("{:<40} {:>12}", "request", "instructions");
            CASES.iter().for_each(|(name, _)| println!("{name:<40} {:>12}", instructions(name)));
        }
    }
}

fn engine(file: &str) -> Engine {
    Engine::new(Policy::read(Path::new("bench.yaml"), file).expect("a policy")).expect("an engine")
}

fn check(limits: usize, rate: &str, is_allowed: bool) {
    let limit = |i| {
        format!("  - {{ name: l{i}, key: [tenant, user], token_bucket: {{ rate: {rate}, burst: 3 }} }}\n")
    };
    let engine = engine(&format!("limits:\n{}", (0..limits).map(limit).collect::<String>()));
    let attributes = [("tenant", "acme"), ("user", "alice"), ("path", "/api/trips")];
    let request = Request { attributes: &attributes, cost: None };
    let policy = engine.policy();
    let spent = if is_allowed { 1 } else { 3 };
    for _ in 0..spent {
        assert!(uncounted_check(&policy, &request, at(0)));
    }
    assert_eq!(measured_check(&policy, black_box(&request), black_box(at(1_000))), is_allowed);
}

/// The limits of the service's benchmark, with the keys of `alice` in the table.
fn mixed(user: &str) {
    let engine = engine(
        "limits:
  - { name: per-tenant, key: [tenant], token_bucket: { rate: 1000000/min, burst: 100000 } }
  - { name: per-user, key: [user], token_bucket: { rate: 1000/min, burst: 100 } }
  - { name: trips, match: { path: /api/* }, key: [user], sliding_counter: { limit: 1000, window: 60s } }
  - { name: global, key: [], fixed_window: { limit: 100000000, window: 60s } }",
    );
    let attributes = [("tenant", "acme"), ("user", "alice"), ("path", "/api/trips")];
    let request = Request { attributes: &attributes, cost: None };
    let policy = engine.policy();
    assert!(uncounted_check(&policy, &request, at(0)));
    let attributes = [("tenant", "acme"), ("user", user), ("path", "/api/trips")];
    let request = Request { attributes: &attributes, cost: None };
    assert!(measured_check(&policy, black_box(&request), black_box(at(1_000))));
}

/// The same call, not counted.
fn uncounted_check(policy: &PolicyInForce<'_>, request: &Request<'_>, now: Timestamp) -> bool {
    policy.check(request, now).now().expect(IN_MEMORY).expect("few limits").is_allowed()
}

#[inline(never)]
fn measured_check(policy: &PolicyInForce<'_>, request: &Request<'_>, now: Timestamp) -> bool {
    let answer = policy.check_with(request, now, |verdict| verdict.is_allowed());
    answer.now().expect(IN_MEMORY).expect("few limits")
}

fn descriptors() {
    let engine = engine(
        "limits:\n  - { name: a, descriptor: { domain: d, entries: [{ key: user }] }, fixed_window: { limit: 9, window: 1s } }",
    );
    let attributes = ["a", "b", "c", "d"].map(|user| [("domain", "d"), ("user", user)]);
    let described =
        attributes.each_ref().map(|attributes| Described { attributes, hits: Hits::Usual, limit: None });
    let policy = engine.policy();
    assert!(
        policy.check_descriptors(&described, at(0)).now().expect(IN_MEMORY).expect("few limits").is_allowed()
    );
    assert!(measured_descriptors(&policy, black_box(&described), black_box(at(1_000))));
}

#[inline(never)]
fn measured_descriptors(policy: &PolicyInForce<'_>, described: &[Described<'_>], now: Timestamp) -> bool {
    policy.check_descriptors(described, now).now().expect(IN_MEMORY).expect("few limits").is_allowed()
}

/// A call that sends a rule, after a first call for the same key. The rule is new if it differs from that of the
/// first call.
fn sent_rule(numbers: &str) {
    let engine = engine("limits: []");
    let first = r#"{"rate":"5/s","burst":9}"#;
    let sent = SentRule { key: "alice", algorithm: AlgorithmKind::TokenBucket, numbers: first, cost: 1 };
    assert!(engine.throttle(&sent, at(0)).now().expect(IN_MEMORY).expect("a rule").decision.is_allowed());
    let sent = SentRule { numbers, ..sent };
    assert!(measured_sent_rule(&engine, black_box(&sent), black_box(at(1_000))));
}

#[inline(never)]
fn measured_sent_rule(engine: &Engine, sent: &SentRule<'_>, now: Timestamp) -> bool {
    engine.throttle(sent, now).now().expect(IN_MEMORY).expect("a rule").decision.is_allowed()
}

fn cells() {
    let engine = engine("limits: []");
    let numbers = CellNumbers { max_burst: 30, count: 30, period: 60 };
    let keys: Vec<String> = (0..16).map(|i| format!("user-{i}")).collect();
    let requests: Vec<CellRequest<'_>> =
        keys.iter().map(|key| CellRequest { key: key.as_bytes(), numbers, quantity: 1 }).collect();
    engine
        .throttle_cells(&requests, at(0), |decision| assert!(decision.expect("a rule").is_allowed()))
        .now()
        .expect(IN_MEMORY);
    assert_eq!(measured_cells(&engine, black_box(&requests), black_box(at(1_000))), 16);
}

#[inline(never)]
fn measured_cells(engine: &Engine, requests: &[CellRequest<'_>], now: Timestamp) -> usize {
    let mut allowed = 0;
    engine
        .throttle_cells(requests, now, |decision| {
            allowed += usize::from(decision.expect("a rule").is_allowed())
        })
        .now()
        .expect(IN_MEMORY);
    allowed
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}
