//! What is decided while the store gives no answer.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{Clock, Rule, Timestamp};
use tollgate_policy::{
    Answer, Ask, Decisions, Described, Engine, EngineError, Hits, Later, Policy, Reason, Request, Source,
    Store, StoredPermit, Unavailable,
};

/// When the store is tried again.
const PROBE: Duration = Duration::from_millis(300);

/// A store that went at a moment of the engine's clock and does not come back.
#[derive(Debug)]
struct Gone {
    nodes: u32,
    out_for: AtomicU64, // seconds
}

impl Gone {
    fn no_answer<T: Send + 'static>(&self) -> Later<'_, Result<T, Unavailable>> {
        let out_for = Duration::from_secs(self.out_for.load(Ordering::Relaxed));
        Box::pin(async move { Err(Unavailable { why: "it is gone".into(), out_for, retry_after: PROBE }) })
    }
}

impl Store for Gone {
    fn decide<'a>(&'a self, _: &'a [Ask<'_>]) -> Later<'a, Result<Decisions, Unavailable>> {
        self.no_answer()
    }

    fn release<'a>(&'a self, _: &'a [StoredPermit]) -> Later<'a, Result<bool, Unavailable>> {
        self.no_answer()
    }

    fn release_later(&self, _: Vec<StoredPermit>) {}

    fn forget<'a>(&'a self, _: &'a Ask<'_>) -> Later<'a, Result<bool, Unavailable>> {
        self.no_answer()
    }

    fn require(&self, rule: &Rule) -> Result<(), String> {
        if matches!(rule, Rule::SlidingLog(_)) { Err("it keeps no logs".into()) } else { Ok(()) }
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }
}

fn now<'a, T: Send + 'a>(answer: Answer<'a, T>) -> T {
    match pin!(answer.wait()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("nobody is waited for here"),
    }
}

fn policy(text: &str) -> Policy {
    Policy::read(Path::new("tollgate.yaml"), text).unwrap_or_else(|faults| panic!("{faults}"))
}

fn engine(text: &str, nodes: u32) -> (Engine, Arc<Gone>) {
    let gone = Arc::new(Gone { nodes, out_for: AtomicU64::new(0) });
    let engine = Engine::with_store(policy(text), Clock::manual(), Arc::<Gone>::clone(&gone))
        .expect("a policy that it can keep");
    (engine, gone)
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

/// How many of as many requests as there could be pass in each second from the start of an outage on.
fn passing(engine: &Engine, gone: &Gone, seconds: std::ops::Range<u64>) -> Vec<usize> {
    seconds
        .map(|second| {
            gone.out_for.store(second, Ordering::Relaxed);
            let request = Request { attributes: &[("user", "u")], cost: None };
            let policy = engine.policy();
            let passes =
                |_: &u32| now(policy.check(&request, at(1000 + second))).expect("one limit").is_allowed();
            (0..2000).filter(passes).count()
        })
        .collect()
}

#[test]
fn each_limit_says_what_is_decided() {
    let text = "
store: { redis: { url: redis://127.0.0.1, on_error: deny } }
limits:
  - { name: open, match: { path: /open }, key: [user], token_bucket: { rate: 1/s, burst: 5 }, on_error: allow }
  - { name: closed, match: { path: [/closed, /both] }, key: [user], token_bucket: { rate: 1/s, burst: 5 } }
  - { name: share, match: { path: [/share, /both] }, key: [user], fixed_window: { limit: 5, window: 1s }, on_error: local }
";
    let (engine, gone) = engine(text, 1);
    gone.out_for.store(100, Ordering::Relaxed);
    let policy = engine.policy();
    for (path, cost, allowed, known) in [
        ("/open", 1, true, false),
        ("/open", 100, true, false),
        ("/closed", 1, false, false),
        ("/closed", 0, false, false), // nobody knows what a look would be told
        ("/open", 0, true, false),
        ("/share", 0, true, true),
        ("/share", 4, true, true),
        ("/both", 1, false, false),
        ("/share", 1, true, true), // the one before was charged to nobody
        ("/share", 1, false, true),
    ] {
        let request = Request { attributes: &[("user", "u"), ("path", path)], cost: Some(cost) };
        let verdict = now(policy.check(&request, at(1000))).expect("one limit");
        assert_eq!((verdict.is_allowed(), verdict.source()), (allowed, Source::Fallback), "{path} {cost}");
        assert_eq!(verdict.reported().unwrap().is_known(), known, "{path} {cost}");
        let unavailable = (!allowed && !known).then_some(Reason::Unavailable);
        assert_eq!(
            verdict.reason().filter(|reason| *reason == Reason::Unavailable),
            unavailable,
            "{path} {cost}"
        );
        let told = tollgate_policy::headers(&policy.headers, &verdict, Duration::ZERO);
        let is_any_known = verdict.limits().any(|limit| limit.is_known());
        assert_eq!(told.iter().any(|(name, _)| *name == "ratelimit"), is_any_known, "{path} {cost}");
    }
}

#[test]
fn a_share_starts_empty_and_adds_up() {
    let limit = |rule: &str| {
        format!(
            "{{ store: {{ redis: {{ url: redis://127.0.0.1, on_error: local }} }}, limits: [{{ name: a, key: [user], {rule} }}] }}"
        )
    };
    // LE-5: n = 4, R = 1000/s: of one node that is cut off, 250 a second.
    for (rule, nodes, expected) in [
        ("token_bucket: { rate: 1000/s, burst: 1000 }", 4, [0, 250, 250, 250]),
        ("token_bucket: { rate: 1000/s, burst: 4000 }", 4, [0, 250, 250, 250]),
        ("fixed_window: { limit: 1000, window: 1s }", 4, [0, 250, 250, 250]),
        ("sliding_counter: { limit: 6, window: 1s }", 4, [0, 1, 1, 1]),
        ("burst_credits: { rate: 100/s, peak: 10x, credits: 500 }", 2, [0, 50, 50, 50]),
        ("token_bucket: { rate: 1000/s, burst: 1000 }", 1, [0, 1000, 1000, 1000]),
    ] {
        let (engine, gone) = engine(&limit(rule), nodes);
        assert_eq!(passing(&engine, &gone, 0..4), expected, "{rule} among {nodes}");
        // The next outage begins empty again, whatever the last has left.
        assert_eq!(passing(&engine, &gone, 0..1), [0], "{rule} among {nodes}");
    }
}

#[test]
fn a_share_follows_the_number_of_nodes() {
    let text = "{ store: { redis: { url: redis://127.0.0.1, on_error: local } }, limits: [{ name: a, key: [user], token_bucket: { rate: 1000/s, burst: 1000 } }] }";
    for (nodes, expected) in [(1, 1000), (2, 500), (8, 125)] {
        let (engine, gone) = engine(text, nodes);
        engine.share();
        assert_eq!(passing(&engine, &gone, 0..3), [0, expected, expected]);
    }
}

#[test]
fn descriptors_fall_back_too() {
    let text = "
store: { redis: { url: redis://127.0.0.1, on_error: deny } }
limits:
  - { name: a, descriptor: { domain: d, entries: [{ key: k }] }, fixed_window: { limit: 5, window: 1s } }
  - { name: b, descriptor: { domain: d, entries: [{ key: l }] }, fixed_window: { limit: 5, window: 1s }, on_error: allow }
";
    let (engine, _) = engine(text, 1);
    let policy = engine.policy();
    let described = |key, hits| Described { attributes: key, hits, limit: None };
    let [a, b] = [[("domain", "d"), ("k", "1")], [("domain", "d"), ("l", "1")]];
    for (asked, hits, allowed) in [
        (vec![&a], Hits::Usual, false),
        (vec![&a], Hits::Charge(0), false),
        (vec![&a], Hits::Refund(1), true),
        (vec![&b], Hits::Usual, true),
        (vec![&a, &b], Hits::Usual, false),
    ] {
        let asked: Vec<Described<'_>> = asked.into_iter().map(|key| described(&key[..], hits)).collect();
        let together = now(policy.check_descriptors(&asked, at(1000))).unwrap();
        assert_eq!(together.is_allowed(), allowed);
        assert_eq!(together.source(), Source::Fallback);
    }
}

#[test]
fn a_store_refuses_what_it_cannot_keep() {
    let text = "{ store: { redis: { url: redis://127.0.0.1 } }, limits: [{ name: a, key: [user], sliding_log: { limit: 5, window: 1s } }] }";
    let gone = Arc::new(Gone { nodes: 1, out_for: AtomicU64::new(0) });
    let refused = Engine::with_store(policy(text), Clock::manual(), gone).unwrap_err();
    assert_eq!(refused, EngineError::Store(vec!["`a`: it keeps no logs".into()]));
    assert_eq!(Engine::new(policy(text)).unwrap_err(), EngineError::NoStore);
}

#[test]
fn a_cluster_refuses_limits_that_it_keeps_apart() {
    let cluster = |limits: &str| {
        let limits =
            format!("store: {{ redis: {{ urls: [redis://127.0.0.1], cluster: true }} }}\nlimits:\n{limits}");
        policy(&limits).cluster_faults(|_| Ok(()))
    };
    let limit = |name: &str, key: &str, rest: &str| {
        format!("  - {{ name: {name}, key: {key}, fixed_window: {{ limit: 5, window: 1s }}{rest} }}\n")
    };
    for (limits, refused) in [
        (vec![("a", "[tenant]", ""), ("b", "[tenant, user]", ""), ("c", "[user, tenant]", "")], None),
        (vec![("a", "[user]", ""), ("b", "[user, path]", "")], None),
        (vec![("a", "[tenant]", ""), ("b", "[user]", "")], Some("`a` by `tenant` and of `b` by `user`")),
        (vec![("a", "[tenant]", ""), ("b", "[]", "")], Some("`b` by nothing")),
        (vec![("a", "[tenant]", ""), ("b", "[]", ", shadow: true")], Some("`b` (shadow) by nothing")),
        (vec![("a", "[tenant]", ""), ("b", "[tenant, user]", ", shadow: true")], None),
        (
            vec![("a", "[tenant]", ", match: { path: /a }"), ("b", "[ip]", ", match: { path: [/b, /c/*] }")],
            None,
        ),
        (
            vec![
                ("a", "[tenant]", ", match: { path: /c/d }"),
                ("b", "[ip]", ", match: { path: [/b, /c/*] }"),
            ],
            Some("`ip`"),
        ),
        (
            vec![("a", "[tenant]", ", match: { path: /a }"), ("b", "[ip]", ", match: { method: GET }")],
            Some("`ip`"),
        ),
        (vec![("a", "[]", ""), ("b", "[]", "")], None),
        (vec![("a", "['user|ip']", ""), ("b", "[user]", "")], Some("`user|ip`")),
    ] {
        let text: String = limits.iter().map(|(name, key, rest)| limit(name, key, rest)).collect();
        let faults = cluster(&text);
        match refused {
            None => assert_eq!(faults, [""; 0], "{text}"),
            Some(words) => assert!(faults.len() == 1 && faults[0].contains(words), "{text}: {faults:?}"),
        }
    }
}

#[test]
fn a_cluster_refuses_a_limit_beside_a_descriptor_that_it_keeps_apart() {
    for (limit, refused) in [
        ("key: [user], token_bucket: { rate: 1/s }", true),
        ("key: [user], token_bucket: { rate: 1/s }, shadow: true", true),
        ("key: [], token_bucket: { rate: 1/s }", true),
        ("key: [domain, user], token_bucket: { rate: 1/s }", false),
        ("key: [tenant, domain], token_bucket: { rate: 1/s }", true), // by the tenant
        ("key: [user], token_bucket: { rate: 1/s }, match: { attributes: { domain: edge } }", true),
        ("key: [user], token_bucket: { rate: 1/s }, match: { attributes: { domain: other } }", false),
        ("key: [user], token_bucket: { rate: 1/s }, match: { path: /a }", true),
        ("key: [user], token_bucket: { rate: 1/s }, match: { path: /b/* }", false),
        ("key: [user], token_bucket: { rate: 1/s }, match: { method: GET }", false), // which it does not have
        ("key: [user], token_bucket: { rate: 1/s }, when_missing: skip", false),
        ("key: [path], token_bucket: { rate: 1/s }, when_missing: skip", true),
        ("key: [user], concurrency: { limit: 5, lease: 1s }", false), // does not act for Envoy
    ] {
        let text = format!(
            "
store: {{ redis: {{ urls: [redis://127.0.0.1], cluster: true }} }}
limits:
  - {{ name: a, {limit} }}
  - {{ name: b, descriptor: {{ domain: edge, entries: [{{ key: path, value: /a }}, {{ key: to }}] }}, token_bucket: {{ rate: 1/s }} }}
  - {{ name: c, descriptor: {{ domain: site, entries: [{{ key: path, value: /c }}] }}, token_bucket: {{ rate: 1/s }}, shadow: true }}
"
        );
        let faults = policy(&text).cluster_faults(|_| Ok(()));
        let told = faults.iter().filter(|fault| {
            fault.contains("and of `b` by its domain") && fault.contains("begins with `domain`")
        });
        assert_eq!(told.count(), usize::from(refused), "{limit}: {faults:?}");
    }
}

#[test]
fn descriptors_that_a_cluster_keeps_apart_are_refused_and_charge_nothing() {
    let text = |cluster: bool| {
        format!(
            "
store: {{ redis: {{ urls: [redis://127.0.0.1], cluster: {cluster}, on_error: local }} }}
limits: [{{ name: a, key: [user], concurrency: {{ limit: 9 }} }}, {{ name: b, key: [user], leaky_bucket: {{ rate: 1/s, queue: 9 }} }}]
"
        )
    };
    let [one, other] = [[("domain", "d"), ("user", "u1")], [("domain", "d"), ("user", "u2")]];
    let described = |key| Described { attributes: key, hits: Hits::Usual, limit: None };
    for (cluster, asked, refused) in [
        (true, vec![&one[..], &one], false),
        (true, vec![&one, &other], true),
        (false, vec![&one, &other], false),
    ] {
        let (engine, _) = engine(&text(cluster), 1);
        let policy = engine.policy();
        let asked: Vec<Described<'_>> = asked.into_iter().map(described).collect();
        match now(policy.check_descriptors(&asked, at(1000))) {
            Ok(together) => assert!(!refused && together.is_allowed(), "{together:?}"),
            Err(error) => {
                let told = error.to_string();
                assert!(refused && told.contains("limit `b` by `u1` and of limit `b` by `u2`"), "{told}");
                assert_eq!(engine.stats().keys, 0, "charged nothing");
            }
        }
    }
}

/// The breaker's next probe is when asking again may help.
#[test]
fn denial_without_the_store_reports_when_the_store_is_tried_again() {
    let file = "limits: [{ name: a, key: [user], on_error: deny, token_bucket: { rate: 1/s, burst: 5 } }]";
    let policy = Policy::read(Path::new("test.yaml"), file).unwrap();
    let gone = Arc::new(Gone { nodes: 1, out_for: AtomicU64::new(1) });
    let engine = Engine::with_store(policy, Clock::manual(), gone).unwrap();
    let policy = engine.policy();
    let request = Request { attributes: &[("user", "alice")], cost: None };
    let verdict = now(policy.check(&request, Timestamp::from_nanos(0))).unwrap();
    assert_eq!(verdict.reason(), Some(Reason::Unavailable));
    assert_eq!(verdict.retry_after().map(Duration::from), Some(PROBE));
}

/// Three places among five processes would be five, if each had at least one.
#[test]
fn the_shares_of_a_concurrency_limit_add_up_to_no_more_than_the_limit() {
    let file = "limits: [{ name: a, key: [user], on_error: local, concurrency: { limit: 3, lease: 30s } }]";
    for nodes in 1..=5 {
        let policy = Policy::read(Path::new("test.yaml"), file).unwrap();
        let gone = Arc::new(Gone { nodes, out_for: AtomicU64::new(1) });
        let engine = Engine::with_store(policy, Clock::manual(), gone).unwrap();
        let policy = engine.policy();
        let request = Request { attributes: &[("user", "alice")], cost: None };
        let hold = || {
            let mut verdict = now(policy.acquire(&request, Timestamp::from_nanos(0))).unwrap();
            (verdict.is_allowed(), verdict.reason(), verdict.take_permits())
        };
        let taken: Vec<_> = (0..4).map(|_| hold()).collect();
        let passed = taken.iter().filter(|(is_allowed, ..)| *is_allowed).count();
        assert_eq!(passed, 3 / nodes as usize, "{nodes} processes");
        let expected = if nodes > 3 { Reason::Unavailable } else { Reason::InFlight };
        assert_eq!(taken[3].1, Some(expected), "{nodes} processes");
    }
}

/// `limit: 0` needs no state: it is denied whatever `on_error` says. The store, while it answers, is asked for a cost that no
/// rule can hold.
#[test]
fn a_blocked_limit_denies_without_the_store() {
    let window = "fixed_window: { limit: 5, window: 1s }";
    let slots = "concurrency: { limit: 5, lease: 1s }";
    for (on_error, algorithm, nodes) in
        [("allow", window, 1), ("deny", window, 1), ("local", window, 1), ("allow", slots, 3)]
    {
        let text = format!(
            "store: {{ redis: {{ url: redis://127.0.0.1, on_error: {on_error} }} }}
tenants: {{ acme: {{ limits: {{ a: {{ limit: 0 }} }} }} }}
limits: [{{ name: a, key: [tenant], {algorithm} }}]"
        );
        let (engine, _) = engine(&text, nodes);
        let policy = engine.policy();
        let decide = |tenant: &str| {
            let attributes = [("tenant", tenant)];
            let request = Request { attributes: &attributes, cost: None };
            let verdict = now(policy.acquire(&request, at(1))).unwrap();
            let limit = verdict.reported().expect("one limit");
            (verdict.is_allowed(), verdict.reason(), limit.capacity(), verdict.retry_after())
        };
        assert_eq!(decide("acme"), (false, Some(Reason::CostExceedsLimit), 0, None), "{on_error}");
        assert_eq!(decide("other").0, on_error == "allow", "{on_error}"); // a share begins empty
    }
}

/// Blocked callers could fill the table during an outage otherwise.
#[test]
fn a_blocked_limit_takes_no_key_without_the_store() {
    let text = "
store: { redis: { url: redis://127.0.0.1, on_error: allow } }
limits: [{ name: a, key: [user], fixed_window: { limit: 0, window: 1h } }]
";
    let (engine, gone) = engine(text, 1);
    gone.out_for.store(100, Ordering::Relaxed);
    let policy = engine.policy();
    for user in ["a", "b", "c"] {
        let attributes = [("user", user)];
        let request = Request { attributes: &attributes, cost: None };
        let verdict = now(policy.check(&request, at(1000))).unwrap();
        let status = verdict.reported().unwrap().decision().status;
        assert_eq!((verdict.is_allowed(), status.remaining, status.reset_after.get()), (false, 0, 0));
    }
    assert_eq!(engine.stats().keys, 0);
}
