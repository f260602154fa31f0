//! How long a leased decision takes through the engine, while draws are in flight.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tollgate_policy::{Engine, Policy, Request, Source, StoreSettings};
use tollgate_redis::{RedisStore, clock_with_suspended_time};
use tollgate_testkit::RedisServer;

/// How long each thread decides.
const SPAN: Duration = Duration::from_secs(3);

/// Prints the median and the 99th percentile of decisions: by the number of limits and of threads.
pub(crate) fn print() {
    println!("| leased decision through the engine | median, ns | p99, ns | draws per second |");
    println!("|---|---|---|---|");
    for (limits, threads, is_shared) in
        [(1, 1, true), (1, 2, false), (1, 2, true), (4, 1, true), (4, 2, false)]
    {
        let (mut times, draws) = measure(limits, threads, is_shared);
        times.sort_unstable();
        let keys = if threads == 1 || is_shared { "the same keys" } else { "keys of their own" };
        println!(
            "| {limits} limit{}, {threads} thread{}, {keys} | {} | {} | {:.0} |",
            if limits == 1 { "" } else { "s" },
            if threads == 1 { "" } else { "s" },
            times[times.len() / 2],
            times[times.len() / 100 * 99],
            draws,
        );
    }
}

fn measure(limits: usize, threads: usize, is_shared: bool) -> (Vec<u32>, f64) {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let limit = |place: usize| {
        format!("  - {{ name: l{place}, key: [a{place}], token_bucket: {{ rate: 100M/s, burst: 100M }} }}\n")
    };
    // Short grants, so that many draws are in flight.
    let text = format!(
        "store: {{ redis: {{ url: '{}', mode: lease, lease: {{ sync: 10ms }}, deadline: 50ms, nodes: 1 }} }}\nlimits:\n{}",
        server.url(),
        (0..limits).map(limit).collect::<String>()
    )
    .replace("100M", "100000000");
    let policy = Policy::read(Path::new("tollgate.yaml"), &text).unwrap_or_else(|faults| panic!("{faults}"));
    let engine = {
        let _entered = runtime.enter();
        let StoreSettings::Redis(redis) = &policy.store else { panic!("the policy has no store") };
        let store = RedisStore::open(redis).expect("valid settings");
        runtime.block_on(store.ready(Duration::from_secs(5)));
        Arc::new(
            Engine::with_store(policy.clone(), clock_with_suspended_time(), Arc::new(store))
                .expect("a valid policy"),
        )
    };
    let is_over = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let decide = |thread: usize| {
            let (engine, runtime, is_over) = (&engine, &runtime, &is_over);
            move || {
                let _entered = runtime.enter();
                let own = if is_shared { "k".to_owned() } else { format!("k{thread}") };
                let names: Vec<String> = (0..limits).map(|place| format!("a{place}")).collect();
                let attributes: Vec<(&str, &str)> =
                    names.iter().map(|name| (name.as_str(), own.as_str())).collect();
                let mut times: Vec<u32> = Vec::with_capacity(1 << 23);
                while !is_over.load(Relaxed) && times.len() < times.capacity() {
                    let start = Instant::now();
                    let policy = engine.policy();
                    let request = Request { attributes: &attributes, cost: None };
                    let answer = policy.check(&request, engine.clock().now());
                    match answer.now() {
                        Some(verdict)
                            if verdict.as_ref().is_ok_and(|verdict| verdict.source() == Source::Lease) =>
                        {
                            drop(verdict);
                            times.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
                        }
                        // Before the first grant.
                        _ => _ = runtime.block_on(policy.check(&request, engine.clock().now()).wait()),
                    }
                }
                times
            }
        };
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(decide(thread))).collect();
        std::thread::sleep(SPAN);
        is_over.store(true, Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect::<Vec<u32>>()
    });
    let draws: u64 = engine.lease_stats().iter().map(|stats| stats.draws).sum();
    drop(engine);
    (times, draws as f64 / SPAN.as_secs_f64())
}
