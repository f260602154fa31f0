//! Rows about the engine of a policy, called in this process.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Uri};
use tollgate::{AlgorithmKind, Timestamp};
use tollgate_policy::{
    CellNumbers, CellRequest, Described, Engine, Hits, Override, Policy, Request, RequestAttributes, SentRule,
};
use tollgate_testkit::Random;

use crate::measure::{cpu_per_call, thread_cpu};
use crate::{Report, grouped};

/// The processor time that a measurement of calls takes.
const BUDGET: Duration = Duration::from_millis(60);

fn engine(policy: &str) -> Engine {
    let policy = Policy::read(Path::new("scale.yaml"), policy).unwrap_or_else(|faults| panic!("{faults}"));
    Engine::new(policy).unwrap_or_else(|error| panic!("{error}"))
}

/// A kind of condition: the name, the `match` of the limit with a number, and a request that it matches.
struct Kind {
    name: &'static str,
    condition: fn(usize) -> String,
    attribute: (&'static str, fn(usize) -> String),
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "exact path",
        condition: |i| format!("path: /p{i}"),
        attribute: ("path", |i| format!("/p{i}")),
    },
    Kind {
        name: "path prefix `/p/*`",
        condition: |i| format!("path: '/p{i}/*'"),
        attribute: ("path", |i| format!("/p{i}/list")),
    },
    Kind {
        name: "`*/x/*`",
        condition: |i| format!("path: '*/x{i}/*'"),
        attribute: ("path", |i| format!("/api/x{i}/list")),
    },
    Kind {
        name: "exact attribute",
        condition: |i| format!("attributes: {{ plan: v{i} }}"),
        attribute: ("plan", |i| format!("v{i}")),
    },
];

const BUCKET: &str = "token_bucket: { rate: 1M/s, burst: 1M }";

pub(crate) fn limits(report: &mut Report) {
    let what = |name: &str| format!("limits in the policy, 2 apply: {name}");
    for Kind { name, condition, attribute: (attribute, value) } in KINDS {
        for count in [10, 1000, 10_000] {
            let mut policy = format!("limits:\n- {{ name: all, key: [user], {BUCKET} }}\n");
            for i in 1..count {
                let _ = writeln!(
                    policy,
                    "- {{ name: l{i}, match: {{ {} }}, key: [user], {BUCKET} }}",
                    condition(i)
                );
            }
            let engine = engine(&policy);
            let nanos = |most| cpu_per_call(BUDGET, check_by_attribute(&engine, attribute, value, most));
            report.add(what(name), grouped(count), nanos(count - 1), "ns CPU", "1.3 x of 10");
            // Requests for 9 limits use the same amount of memory, however many limits the policy has.
            let few = format!("{}, requests for 9 of them", what(name));
            report.add(few, grouped(count), nanos(9), "ns CPU", "1.3 x of 10");
        }
    }
    for (name, star) in [("Envoy, exact value", ""), ("Envoy, value with `*`", "*")] {
        for count in [10, 1000, 10_000] {
            let mut policy = format!(
                "limits:\n- {{ name: user, descriptor: {{ domain: d, entries: [{{ key: user }}] }}, {BUCKET} }}\n"
            );
            for i in 1..count {
                let entry = format!("{{ key: route, value: 'r{i}_{star}' }}");
                let _ = writeln!(
                    policy,
                    "- {{ name: l{i}, descriptor: {{ domain: d, entries: [{entry}] }}, {BUCKET} }}"
                );
            }
            let engine = engine(&policy);
            let mut random = Random::new(1);
            let nanos = cpu_per_call(BUDGET, || {
                let route = format!("r{}_", random.between(1, count as u64 - 1));
                let described = |attributes| Described { attributes, hits: Hits::Charge(1), limit: None };
                let (one, other) = ([("domain", "d"), ("user", "u")], [("domain", "d"), ("route", &*route)]);
                let descriptors = [described(&one), described(&other)];
                let policy = engine.policy();
                let verdict = policy.check_descriptors(&descriptors, engine.clock().now()).now();
                let verdict = verdict.expect("the states are in memory").expect("two limits apply");
                assert_eq!(verdict.limits().count(), 2);
            });
            report.add(what(name), grouped(count), nanos, "ns CPU", "1.3 x of 10");
        }
    }
}

/// A check of two limits, by a random one of `most` values.
fn check_by_attribute(
    engine: &Engine,
    attribute: &'static str,
    value: fn(usize) -> String,
    most: usize,
) -> impl FnMut() {
    let mut random = Random::new(1);
    move || {
        let value = value(random.between(1, most as u64) as usize);
        let attributes = [("user", "u"), (attribute, &*value)];
        let policy = engine.policy();
        let verdict = policy.check(&Request { attributes: &attributes, cost: None }, engine.clock().now());
        let verdict = verdict.now().expect("the states are in memory").expect("few limits apply");
        assert_eq!(verdict.limits().count(), 2);
    }
}

pub(crate) fn lists(report: &mut Report) {
    for count in [10, 1000, 100_000] {
        let tenants: Vec<String> = (1..=count).map(|i| format!("t{i}")).collect();
        let policy = format!(
            "limits:\n- {{ name: all, key: [user], {BUCKET} }}\n- {{ name: some, match: {{ tenant: [{}] }}, key: [user], {BUCKET} }}\n",
            tenants.join(", ")
        );
        let engine = engine(&policy);
        let nanos = cpu_per_call(BUDGET, check_by_attribute(&engine, "tenant", |i| format!("t{i}"), count));
        report.add("`match: { tenant: [list] }`", grouped(count), nanos, "ns CPU", "1.3 x of 10");
    }
    for count in [10, 1000, 10_000] {
        let mut policy = "costs:\n".to_owned();
        for i in 1..=count {
            let _ = writeln!(policy, "- {{ match: {{ path: /p{i} }}, cost: 2 }}");
        }
        let _ = writeln!(
            policy,
            "limits:\n- {{ name: all, key: [user], {BUCKET} }}\n- {{ name: each, key: [path], {BUCKET} }}"
        );
        let engine = engine(&policy);
        let nanos = cpu_per_call(BUDGET, check_by_attribute(&engine, "path", |i| format!("/p{i}"), count));
        report.add("`costs`", grouped(count), nanos, "ns CPU", "1.3 x of 10");
    }
    for count in [10, 1000, 10_000] {
        let networks: Vec<String> = (1..=count).map(|i| format!("10.{}.{}.0/24", i / 250, i % 250)).collect();
        let policy = format!(
            "identity: {{ client_ip: {{ trusted_proxies: [{}], header: xff }} }}",
            networks.join(", ")
        );
        let policy =
            Policy::read(Path::new("scale.yaml"), &policy).unwrap_or_else(|faults| panic!("{faults}"));
        let (uri, mut headers, mut random) = (Uri::from_static("/"), HeaderMap::new(), Random::new(1));
        headers.insert("x-forwarded-for", HeaderValue::from_static("203.0.113.7"));
        let nanos = cpu_per_call(BUDGET, || {
            let i = random.between(1, count) as u32;
            let peer = [10, (i / 250) as u8, (i % 250) as u8, 1].into();
            let request = RequestAttributes::new(&policy, &Method::GET, &uri, &headers, peer);
            assert_eq!(request.client().to_string(), "203.0.113.7");
        });
        report.add("`trusted_proxies`", grouped(count), nanos, "ns CPU", "1.3 x of 10");
    }
}

/// The processor time after which calls with different rules end, however many are left.
const PATIENCE: u64 = 3_000_000_000;

pub(crate) fn sent_rules(report: &mut Report) {
    for count in [1000_u64, 10_000, 60_000] {
        let engine = engine("limits: []");
        let what = "different rules sent with calls: CL.THROTTLE";
        let call = |rule: u64, now| {
            let key = rule.to_string();
            let numbers = CellNumbers { max_burst: 15, count: 30 + rule, period: 3600 };
            let request = [CellRequest { key: key.as_bytes(), numbers, quantity: 1 }];
            let mut is_decided = false;
            let answer = engine.throttle_cells(&request, now, |decision| is_decided = decision.is_ok());
            answer.now().expect("the states are in memory");
            is_decided
        };
        each_rule(report, what, count, call);
        // An hour later the rules are no longer used. Other calls make the engine free them.
        let mut slowest = 0;
        for i in 0..4 * count {
            let now = Timestamp::from_nanos(3 * 3600 * 1_000_000_000 + i * 1000);
            let begin = thread_cpu();
            call(1_000_000 + i % 100, now);
            slowest = slowest.max(thread_cpu() - begin);
        }
        let what = "rules that are no longer used: slowest call while they are freed";
        report.add(what, grouped(count), slowest as f64 / 1e6, "ms CPU", "freed after unlocking");
    }
    for count in [1000_u64, 10_000, 60_000] {
        let engine = engine("limits: []");
        let what = "different rules sent with calls: /v1/throttle";
        each_rule(report, what, count, |rule, now| {
            let (key, numbers) = (rule.to_string(), format!("{{\"rate\":\"{}/h\",\"burst\":16}}", 30 + rule));
            let sent =
                SentRule { key: &key, algorithm: AlgorithmKind::TokenBucket, numbers: &numbers, cost: 1 };
            engine.throttle(&sent, now).now().expect("the states are in memory").is_ok()
        });
    }
    for count in [1000_u64, 10_000, 60_000] {
        let engine = engine("limits: []");
        let what = "different rules sent with calls: Envoy overrides";
        each_rule(report, what, count, |rule, now| {
            let user = rule.to_string();
            let attributes = [("domain", "d"), ("user", &*user)];
            let limit = Override { limit: 30 + rule as u32, window: Duration::from_secs(3600) };
            let described =
                [Described { attributes: &attributes, hits: Hits::Charge(1), limit: Some(limit) }];
            let policy = engine.policy();
            policy.check_descriptors(&described, now).now().expect("the states are in memory").is_ok()
        });
    }
}

/// Sends each of `count` rules twice, with a key of its own. Reports the mean processor time of the last quarter of the calls.
fn each_rule(report: &mut Report, what: &str, count: u64, mut call: impl FnMut(u64, Timestamp) -> bool) {
    let begin = thread_cpu();
    let (mut times, mut refused) = (vec![begin], 0_u64);
    let now = Timestamp::from_nanos(1_000_000_000);
    for i in 0..2 * count {
        refused += u64::from(!call(i % count, now));
        if i % 100 == 99 {
            times.push(thread_cpu());
            if times[times.len() - 1] - begin > PATIENCE {
                break;
            }
        }
    }
    let last = times.len() - 1;
    let first = last * 3 / 4;
    let nanos = (times[last] - times[first]) as f64 / (100 * (last - first)) as f64;
    report.add(what, grouped(count), nanos, "ns CPU per call", "flat");
    let share = refused as f64 * 100.0 / (100 * last) as f64;
    report.add(format!("{what}, refused"), grouped(count), share, "% of calls", "0");
}
