//! One process of a run: engines with a store of their own, and the requests that they decide.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate_policy::{Answer, Engine, Policy, Request, Source, StoreSettings};
use tollgate_redis::{RedisStore, clock_with_suspended_time};
use tollgate_testkit::Random;

use crate::measure::{rss_kib, unix_micros};

/// How long the admitted requests of a bucket of time are.
pub(crate) const BUCKET_MICROS: u64 = 10_000;

/// The arguments of a node process.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) policy: String, // a file
    pub(crate) rates: Vec<f64>,
    pub(crate) keys: u64,
    pub(crate) seed: u64,
    pub(crate) begin: u64, // Unix time in microseconds
    pub(crate) seconds: u64,
}

impl Order {
    pub(crate) fn arguments(&self) -> Vec<String> {
        let rates: Vec<String> = self.rates.iter().map(f64::to_string).collect();
        let Self { policy, keys, seed, begin, seconds, .. } = self;
        vec![
            "node".to_owned(),
            policy.clone(),
            rates.join(","),
            keys.to_string(),
            seed.to_string(),
            begin.to_string(),
            seconds.to_string(),
        ]
    }

    pub(crate) fn read(arguments: &[String]) -> Option<Self> {
        let [policy, rates, keys, seed, begin, seconds] = arguments else { return None };
        Some(Self {
            policy: policy.clone(),
            rates: rates.split(',').map(|rate| rate.parse().ok()).collect::<Option<_>>()?,
            keys: keys.parse().ok()?,
            seed: seed.parse().ok()?,
            begin: begin.parse().ok()?,
            seconds: seconds.parse().ok()?,
        })
    }
}

/// What one node has decided.
#[derive(Debug, Default)]
struct Counts {
    asked: AtomicU64,
    waited: AtomicU64,
    fell_back: AtomicU64,
    admitted: Buckets,
}

/// Admitted requests by bucket of time.
#[derive(Debug, Default)]
struct Buckets(Mutex<BTreeMap<u64, u64>>);

impl Buckets {
    fn add(&self, micros: u64) {
        *self.0.lock().expect("no holder panics").entry(micros / BUCKET_MICROS).or_default() += 1;
    }

    fn take(&self) -> BTreeMap<u64, u64> {
        std::mem::take(&mut self.0.lock().expect("no holder panics"))
    }
}

/// One node.
struct Node {
    engine: Arc<Engine>,
    counts: Arc<Counts>,
    next: u64, // when the next request comes
    gap: f64,  // microseconds between requests, on average
}

impl Node {
    fn start(policy: &Policy, rate: f64, begin: u64) -> Self {
        let StoreSettings::Redis(redis) = &policy.store else { panic!("the policy has no store") };
        let store = RedisStore::open(redis).expect("the settings are valid");
        let engine = Engine::with_store(policy.clone(), clock_with_suspended_time(), Arc::new(store))
            .expect("a valid policy");
        Self { engine: Arc::new(engine), counts: Arc::default(), next: begin, gap: 1e6 / rate }
    }

    /// Sends one request. It is decided here if it is decided at once.
    fn send(&self, runtime: &Runtime, key: &'static [(&'static str, &'static str)]) {
        self.counts.asked.fetch_add(1, Relaxed);
        let (engine, counts) = (Arc::clone(&self.engine), Arc::clone(&self.counts));
        let mut decide = Box::pin(async move {
            let policy = engine.policy();
            let answer = policy.check(&Request { attributes: key, cost: None }, engine.clock().now());
            if let Answer::Later(_) = answer {
                counts.waited.fetch_add(1, Relaxed);
            }
            let verdict = answer.wait().await.expect("one limit applies");
            if verdict.source() == Source::Fallback {
                counts.fell_back.fetch_add(1, Relaxed);
            }
            if verdict.is_allowed() {
                counts.admitted.add(unix_micros());
            }
        });
        let _entered = runtime.enter();
        if decide.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            runtime.spawn(decide);
        }
    }
}

/// Runs the nodes of a process, and prints what they decided.
pub(crate) fn run(order: &Order) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let text = std::fs::read_to_string(&order.policy).expect("the policy file");
    let policy = Policy::read(Path::new("tollgate.yaml"), &text).unwrap_or_else(|faults| panic!("{faults}"));
    let entered = runtime.enter();
    let mut nodes: Vec<Node> =
        order.rates.iter().map(|rate| Node::start(&policy, *rate, order.begin)).collect();
    drop(entered);
    let keys: Vec<&'static [(&str, &str)]> = (0..order.keys)
        .map(|key| {
            let name: &'static str = Box::leak(format!("k{key}").into_boxed_str());
            &*Box::leak(vec![("tenant", name)].into_boxed_slice())
        })
        .collect();
    let mut random = Random::new(order.seed);
    let end = order.begin + order.seconds * 1_000_000;
    let before = rss_kib();
    for node in &mut nodes {
        node.next += random.below((node.gap as u64).max(1));
    }
    loop {
        let now = unix_micros();
        if now >= end {
            break;
        }
        let mut earliest = end;
        for node in &mut nodes {
            // What the machine cannot make is left out, so that a process does not fall behind for ever.
            if now > node.next + 100_000 {
                node.next = now;
            }
            while node.next <= now {
                node.send(&runtime, keys[random.below(order.keys) as usize]);
                // 1 - u is never 0.
                let gap = -(1.0 - random.below(1 << 53) as f64 / (1_u64 << 53) as f64).ln() * node.gap;
                node.next += (gap as u64).max(u64::from(node.gap >= 1.0));
                if node.gap < 1.0 && random.below(1000) < (node.gap * 1000.0) as u64 {
                    node.next += 1;
                }
            }
            earliest = earliest.min(node.next);
        }
        let pause = earliest.saturating_sub(unix_micros());
        std::thread::sleep(Duration::from_micros(pause.clamp(200, 50_000)));
    }
    std::thread::sleep(Duration::from_millis(1100));
    report(&nodes, rss_kib().saturating_sub(before));
}

/// `node INDEX ASKED WAITED FELL_BACK KEYS HELD`, `rss KIB`, and `at INDEX BUCKET ADMITTED`.
fn report(nodes: &[Node], grown_kib: u64) {
    println!("rss {grown_kib}");
    for (index, node) in nodes.iter().enumerate() {
        let counts = &node.counts;
        let leases = node.engine.lease_stats();
        let keys: u64 = leases.iter().map(|stats| stats.keys).sum();
        let held: u64 = leases.iter().map(|stats| stats.held).sum();
        println!(
            "node {index} {} {} {} {keys} {held}",
            counts.asked.load(Relaxed),
            counts.waited.load(Relaxed),
            counts.fell_back.load(Relaxed),
        );
        let admitted: BTreeMap<u64, u64> = counts.admitted.take();
        for (bucket, count) in admitted {
            println!("at {index} {bucket} {count}");
        }
    }
}
