//! What one check takes with policies of different sizes, if two limits apply to the request.
//!
//! - `cargo bench -p tollgate-policy --bench limits` prints microseconds. Each figure is the fastest of several runs, because other
//!   programs share the machine.
//! - `cargo bench -p tollgate-policy --bench limits -- --instructions` prints instructions, which callgrind counts. It takes minutes,
//!   without the largest size.
//!
//! Each row is one kind of policy. Each column is a number of limits, costs, networks, or tens of list values. The last column is the
//! largest figure divided by the smallest one.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tollgate::Timestamp;
use tollgate_policy::{Described, Engine, Hits, Policy, PolicyInForce, Request};
use tollgate_testkit::instructions;

const SIZES: [usize; 4] = [10, 100, 1_000, 10_000];
/// The runs of each figure.
const RUNS: usize = 7;
/// How long each run takes.
const RUN_TIME: Duration = Duration::from_millis(20);

/// A kind of policy: its name, the policy of a size, and the request that is measured.
struct Kind {
    name: &'static str,
    policy: fn(usize) -> String,
    request: fn(usize) -> Vec<(&'static str, String)>,
    is_envoy: bool,
}

const KINDS: [Kind; 14] = [
    Kind::new("exact path", |n| limits(n, |i| format!("path: /api/p{i}")), |i| path(format!("/api/p{i}"))),
    Kind::new(
        "path prefix",
        |n| limits(n, |i| format!("path: '/api/p{i}/*'")),
        |i| path(format!("/api/p{i}/x")),
    ),
    Kind::new(
        "path suffix",
        |n| limits(n, |i| format!("path: '*.t{i}'")),
        |i| path(format!("/api/file.t{i}")),
    ),
    Kind::new(
        "path */x/*",
        |n| limits(n, |i| format!("path: '*/p{i}/*'")),
        |i| path(format!("/api/v1/p{i}/x")),
    ),
    Kind::new(
        "path, any case and slash",
        |n| limits(n, |i| format!("path: /api/p{i}, ignore_case: true, trailing_slash: any")),
        |i| path(format!("/api/p{i}/")),
    ),
    Kind::new(
        "method and path prefix",
        |n| limits(n, |i| format!("method: [GET, POST], path: '/api/p{i}/*'")),
        |i| path(format!("/api/p{i}/x")),
    ),
    Kind::new(
        "100 paths x tenants",
        |n| limits(n, |i| format!("path: /api/p{}, tenant: t{}", i % 100, i / 100)),
        |i| [path(format!("/api/p{}", i % 100)), vec![("tenant", format!("t{}", i / 100))]].concat(),
    ),
    Kind::new(
        "host and port",
        |n| limits(n, |i| format!("attributes: {{ host: 'h{i}.example:8443' }}")),
        |i| vec![("method", "GET".to_owned()), ("host", format!("h{i}.example:8443"))],
    ),
    Kind::new(
        "a header for each limit",
        |n| limits(n, |i| format!("attributes: {{ header.x-{i}: '1' }}")),
        |i| vec![("header.x-1", "1".to_owned()), ("header.x-y", i.to_string())],
    ),
    Kind::new(
        "one list of tenants",
        |n| {
            let tenants: Vec<String> = (0..10 * n).map(|i| format!("t{i}")).collect();
            limits(1, |_| format!("tenant: [{}]", tenants.join(", ")))
        },
        |i| vec![("tenant", format!("t{i}"))],
    ),
    Kind::new(
        "costs",
        |n| {
            let cost = |i| format!("  - {{ match: {{ path: '/api/p{i}/*' }}, cost: 2 }}\n");
            format!("costs:\n{}{}", (0..n).map(cost).collect::<String>(), limits(1, |_| "method: GET".into()))
        },
        |i| path(format!("/api/p{i}/x")),
    ),
    Kind { is_envoy: true, ..Kind::new("Envoy, exact", |n| descriptors(n, ""), |i| path(format!("/p{i}"))) },
    Kind {
        is_envoy: true,
        ..Kind::new("Envoy, prefix", |n| descriptors(n, "/*"), |i| path(format!("/p{i}/x")))
    },
    Kind::new("trusted proxies", trusted_proxies, |_| Vec::new()),
];

impl Kind {
    const fn new(
        name: &'static str,
        policy: fn(usize) -> String,
        request: fn(usize) -> Vec<(&'static str, String)>,
    ) -> Self {
        Self { name, policy, request, is_envoy: false }
    }
}

fn path(path: String) -> Vec<(&'static str, String)> {
    vec![("method", "GET".to_owned()), ("path", path)]
}

/// A policy of limits that each have this `match`, after one limit that always applies.
fn limits(n: usize, applies_to: impl Fn(usize) -> String) -> String {
    let mut file = String::from("limits:\n  - { name: all, key: [user], token_bucket: { rate: 1000/s } }\n");
    for i in 0..n {
        let applies_to = applies_to(i);
        writeln!(
            file,
            "  - {{ name: l{i}, match: {{ {applies_to} }}, key: [user], token_bucket: {{ rate: 1000/s }} }}"
        )
        .expect("a string takes any text");
    }
    file
}

/// A policy of Envoy descriptors, each with one value. `end` is appended to each value.
fn descriptors(n: usize, end: &str) -> String {
    let limit = |i| {
        format!(
            "  - {{ name: l{i}, descriptor: {{ domain: d, entries: [{{ key: path, value: '/p{i}{end}' }}] }}, \
             fixed_window: {{ limit: 1000, window: 1s }} }}\n"
        )
    };
    format!("limits:\n{}", (0..n).map(limit).collect::<String>())
}

/// A policy with this number of trusted networks.
fn trusted_proxies(n: usize) -> String {
    let networks: Vec<String> = (0..n).map(|i| format!("10.{}.{}.0/24", i / 256, i % 256)).collect();
    format!("identity: {{ client_ip: {{ trusted_proxies: [{}] }} }}\nlimits: []\n", networks.join(", "))
}

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    if let Some(case) = std::env::args().skip_while(|arg| arg != "--case").nth(1) {
        let (name, size) = case.rsplit_once(' ').expect("a kind and a size");
        let kind = KINDS.iter().find(|kind| kind.name == name).expect("a kind of this name");
        return kind.run(size.parse().expect("a size"), |call| {
            call(0); // adds the keys to the table
            measured(call, 1);
        });
    }
    let (unit, sizes) = match has("--instructions") {
        true => ("instructions", &SIZES[..3]),
        false => ("microseconds", &SIZES[..]),
    };
    print!("{:<28}", format!("{unit} of a check"));
    sizes.iter().for_each(|size| print!("{size:>10}"));
    println!("{:>10}", "ratio");
    for kind in &KINDS {
        print!("{:<28}", kind.name);
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for &size in sizes {
            let mut figure = 0.0;
            if has("--instructions") {
                figure = instructions(&format!("{} {size}", kind.name)) as f64;
                print!("{figure:>10.0}");
            } else {
                kind.run(size, |call| figure = fastest(call));
                print!("{figure:>10.3}");
            }
            (least, most) = (least.min(figure), most.max(figure));
        }
        println!("{:>10.2}", most / least);
    }
}

/// A check at this time, in nanoseconds.
type Call<'a> = &'a mut dyn FnMut(u64);

/// The call that callgrind counts.
#[inline(never)]
fn measured(call: Call<'_>, now: u64) {
    call(now);
}

impl Kind {
    /// Passes a check with a policy of this size.
    fn run(&self, size: usize, then: impl FnOnce(Call<'_>)) {
        let policy = Policy::read(Path::new("bench.yaml"), &(self.policy)(size)).expect("a policy");
        let engine = Engine::new(policy).expect("an engine");
        let policy = engine.policy();
        let last = size - 1;
        let request = (self.request)(last);
        let mut attributes: Vec<(&str, &str)> =
            request.iter().map(|(name, value)| (*name, value.as_str())).collect();
        if request.is_empty() {
            let peer = IpAddr::from([10, (last / 256) as u8, (last % 256) as u8, 1]);
            return then(&mut |_| assert!(policy.identity.client_ip.trusts(peer)));
        }
        if self.is_envoy {
            attributes[0] = ("domain", "d");
            let described = [Described { attributes: &attributes, hits: Hits::Usual, limit: None }];
            return then(&mut |now| assert_eq!(check_descriptor(&policy, &described, at(now)), 1));
        }
        attributes.push(("user", "alice"));
        let request = Request { attributes: &attributes, cost: None };
        then(&mut |now| assert_eq!(check(&policy, &request, at(now)), 2));
    }
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// The number of limits that applied.
fn check(policy: &PolicyInForce<'_>, request: &Request<'_>, now: Timestamp) -> usize {
    let answer = policy.check_with(request, now, |verdict| verdict.limits().count());
    answer.now().expect("the states are in memory").expect("few limits")
}

fn check_descriptor(policy: &PolicyInForce<'_>, described: &[Described<'_>], now: Timestamp) -> usize {
    let answer = policy.check_descriptors_with(described, now, |verdict| verdict.limits().count());
    answer.now().expect("the states are in memory").expect("few limits")
}

/// The microseconds of one call, in the fastest of several runs.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn fastest(call: Call<'_>) -> f64 {
    let mut now = 0;
    let mut calls = |count: u64| {
        let start = Instant::now();
        for _ in 0..count {
            now += 1_000_000;
            call(now);
        }
        start.elapsed()
    };
    let mut count = 16;
    while calls(count) < RUN_TIME {
        count *= 2;
    }
    let runs = (0..RUNS).map(|_| calls(count).as_nanos() as f64 / 1e3 / count as f64);
    runs.fold(f64::MAX, f64::min)
}
