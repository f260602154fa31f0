//! A live gateway under a step, a spike and two minutes of mixed traffic (ten with `./test --long`): what it lets in is within the
//! policy all the time, the application does not notice, and nothing is left behind.
#![allow(clippy::unwrap_used)]

#[path = "gateway/backend.rs"]
mod backend;
#[path = "gateway/load.rs"]
mod load;
#[path = "gateway/running.rs"]
mod running;
mod service;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use backend::Backend;
use load::{Asker, Stalls, percentile, runtime};
use running::Gateway;
use service::eventually;
use tokio::task::LocalSet;
use tokio::time::Instant;

/// Tenants that may have more each than there is for all.
const POLICY: &str = "
identity: { tenant: header.x-api-key }
limits:
  - { name: everybody, key: [], token_bucket: { rate: 500/s, burst: 100 } }
  - { name: tenant, key: [tenant], token_bucket: { rate: 200/s, burst: 50 } }
";
const EVERYBODY: Bound = Bound { rate: 500.0, burst: 100.0 };
const TENANT: Bound = Bound { rate: 200.0, burst: 50.0 };
const TENANTS: usize = 4;

/// What the application needs for a request, and how many it works on at once: more than the policy lets in.
const WORK: &str = "/sleep/10";
const WORKERS: usize = 16;

/// Requests a second of all tenants together: less than there is, and four times as many.
const CALM: u32 = 300;
const STEP: u32 = 2000;
const SPIKE: usize = 2000;

/// How long the machine may stand still before requests that come too late come too many at once.
const STALL: Duration = Duration::from_millis(100);

const SECOND: Duration = Duration::from_secs(1);

/// What a bucket lets in at most.
struct Bound {
    rate: f64, // a second
    burst: f64,
}

/// One request, as its client saw it.
#[derive(Clone, Copy)]
struct Asked {
    tenant: usize,
    status: u16,
    began: Instant,
    ended: Instant,
}

/// Clients that ask at a pace, whether they have been answered or not.
struct Clients {
    gateway: std::net::SocketAddr,
    free: RefCell<Vec<Asker>>,
    asked: RefCell<Vec<Asked>>,
    left: Cell<usize>, // without waiting for their answer
}

impl Clients {
    fn new(gateway: &Gateway) -> Rc<Self> {
        Rc::new(Self {
            gateway: gateway.address,
            free: RefCell::default(),
            asked: RefCell::default(),
            left: Cell::new(0),
        })
    }

    /// Connects as many that wait to ask.
    async fn connect(&self, count: usize) {
        for _ in 0..count {
            let client = Asker::connect(self.gateway).await;
            self.free.borrow_mut().push(client);
        }
    }

    /// One request, over a connection that is free or a new one.
    async fn ask(self: Rc<Self>, tenant: usize, target: &str) {
        let free = self.free.borrow_mut().pop();
        let mut client = match free {
            Some(client) => client,
            None => Asker::connect(self.gateway).await,
        };
        let told = client.ask("GET", target, &[("x-api-key", &format!("tenant-{tenant}"))]).await;
        let (began, ended) = (told.began, told.began + told.took);
        self.asked.borrow_mut().push(Asked { tenant, status: told.status, began, ended });
        self.free.borrow_mut().push(client);
    }

    /// Requests at a pace for a while, of all tenants in turn. Returns when the last has been answered.
    async fn offer(self: &Rc<Self>, a_second: u32, seconds: u32) {
        let (begin, mut under_way) = (Instant::now(), Vec::new());
        for number in 0..a_second * seconds {
            tokio::time::sleep_until(begin + SECOND * number / a_second).await;
            let tenant = number as usize % TENANTS;
            under_way.push(tokio::task::spawn_local(Rc::clone(self).ask(tenant, WORK)));
        }
        futures_util::future::join_all(under_way).await.into_iter().for_each(Result::unwrap);
    }

    /// As many requests in one moment.
    async fn offer_at_once(self: &Rc<Self>, count: usize) {
        let asking = (0..count).map(|number| Rc::clone(self).ask(number % TENANTS, WORK));
        futures_util::future::join_all(asking).await;
    }

    /// As [`offer`](Self::offer), but clients come and go, some without waiting for their answer, and some answers are large.
    async fn offer_mixed(self: &Rc<Self>, a_second: u32, seconds: u32) {
        let (begin, mut under_way) = (Instant::now(), Vec::new());
        for number in 0..a_second * seconds {
            tokio::time::sleep_until(begin + SECOND * number / a_second).await;
            let (clients, tenant) = (Rc::clone(self), number as usize % TENANTS);
            under_way.push(tokio::task::spawn_local(async move {
                match number % 50 {
                    0 => drop(clients.free.borrow_mut().pop()), // and the next connects anew
                    1 => {
                        clients.left.set(clients.left.get() + 1);
                        let asking = async {
                            let mut client = Asker::connect(clients.gateway).await;
                            client
                                .ask("GET", "/sleep/200", &[("x-api-key", &format!("tenant-{tenant}"))])
                                .await
                        };
                        let _ = tokio::time::timeout(Duration::from_millis(30), asking).await;
                    }
                    2..10 => clients.ask(tenant, "/bytes/50000").await,
                    10..12 => clients.ask(tenant, "/chunks/5").await,
                    _ => clients.ask(tenant, WORK).await,
                }
            }));
            if under_way.len() == 1000 {
                futures_util::future::join_all(under_way.drain(..))
                    .await
                    .into_iter()
                    .for_each(Result::unwrap);
            }
        }
        futures_util::future::join_all(under_way).await.into_iter().for_each(Result::unwrap);
    }
}

/// What became of the requests of a part of the run.
#[derive(Debug)]
struct Part {
    name: &'static str,
    passed: usize,
    denied: usize,
    failed: usize,
    answered_p99: Duration, // as clients saw it
    upstream_p99: Duration, // as the application did
}

/// Holds what was let in against a bound: no time is too short or too long. A request was decided between its beginning and its end;
/// of those that lie wholly within a span, the span lets in so many at most.
fn is_within(bound: &Bound, asked: &[Asked]) -> Result<(), String> {
    let mut passed: Vec<Asked> = asked.iter().filter(|asked| asked.status == 200).copied().collect();
    passed.sort_by_key(|asked| asked.ended);
    let mut beginnings: Vec<Instant> = passed.iter().map(|asked| asked.began).collect();
    beginnings.sort_unstable();
    for from in beginnings.into_iter().step_by(50) {
        let mut count = 0.0;
        for asked in passed.iter().filter(|asked| asked.began >= from) {
            count += 1.0;
            let span = asked.ended - from;
            let most = bound.burst + bound.rate * span.as_micros() as f64 / 1e6;
            if count > most + 1.0 {
                return Err(format!("{count} in {span:?}, where {most} may be"));
            }
        }
    }
    Ok(())
}

/// Bytes of memory that a process has, and how many files.
fn takes(process: u32) -> (usize, usize) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kilobytes: usize = line.split_whitespace().next().unwrap().parse().unwrap();
    (kilobytes << 10, std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count())
}

#[test]
fn a_step_a_spike_and_a_long_time_stay_within_the_policy() {
    let minutes = if std::env::var_os("TOLLGATE_LONG").is_some() { 10 } else { 2 };
    let backend = Backend::with_workers(WORKERS);
    let slots = "concurrency: { max: 16 }, fair_queue: { by: tenant, per_key: 1000, max_wait: 10s }";
    let gateway = Gateway::start(&backend, slots, POLICY);
    let process = gateway.service.process.id();
    let clients = Clients::new(&gateway);
    let (runtime, local) = (runtime(), LocalSet::new());
    let stalls = Stalls::watch();
    let (mut parts, mut all) = (Vec::new(), Vec::new());
    let mut part = |name, run: &mut dyn FnMut()| {
        let begin = Instant::now();
        run();
        let asked = clients.asked.take();
        let served = backend.served();
        let upstream: Vec<Duration> =
            served.iter().filter(|served| served.at >= begin).map(|served| served.took).collect();
        let of = |status| asked.iter().filter(move |asked| asked.status == status);
        let took: Vec<Duration> = of(200).map(|asked| asked.ended - asked.began).collect();
        let part = Part {
            name,
            passed: of(200).count(),
            denied: of(429).count(),
            answered_p99: percentile(&took, 990),
            upstream_p99: percentile(&upstream, 990),
            failed: asked.iter().filter(|asked| !matches!(asked.status, 200 | 429)).count(),
        };
        println!(
            "{}: {} passed, {} denied, {} failed; answered p99 {:?}; upstream p99 {:?}",
            part.name, part.passed, part.denied, part.failed, part.answered_p99, part.upstream_p99
        );
        parts.push(part);
        all.extend(asked);
    };
    part("before", &mut || local.block_on(&runtime, clients.offer(CALM, 5)));
    part("step", &mut || local.block_on(&runtime, clients.offer(STEP, 10)));
    part("after the step", &mut || local.block_on(&runtime, clients.offer(CALM, 5)));
    local.block_on(&runtime, clients.connect(SPIKE));
    part("spike", &mut || local.block_on(&runtime, clients.offer_at_once(SPIKE)));
    service::pause(SECOND / 5); // until the buckets, which are empty now, have something again
    part("after the spike", &mut || local.block_on(&runtime, clients.offer(CALM, 5)));
    drop(clients.free.take());
    part("soak, begun", &mut || local.block_on(&runtime, clients.offer_mixed(CALM, 20)));
    let (memory, files) = takes(process);
    part("soak", &mut || local.block_on(&runtime, clients.offer_mixed(CALM, 60 * minutes - 20)));
    let (memory_after, files_after) = takes(process);
    println!(
        "{} left early; memory {} KiB, {} KiB after it; {files} files, {files_after} after it",
        clients.left.get(),
        memory >> 10,
        memory_after >> 10
    );

    // Within the policy, whatever the machine did.
    is_within(&EVERYBODY, &all).unwrap();
    for tenant in 0..TENANTS {
        let of_it: Vec<Asked> = all.iter().filter(|asked| asked.tenant == tenant).copied().collect();
        is_within(&TENANT, &of_it).unwrap();
    }
    // Everybody was told yes or no.
    assert!(parts.iter().all(|part| part.failed == 0), "{parts:?}");
    let [before, step, after_step, spike, after_spike, ..] = &parts[..] else { unreachable!() };
    assert!(step.denied > 0 && spike.denied > 0);
    // The work of those who left early is done or given up, and nothing remembers them.
    assert!(memory_after < memory + (16 << 20), "{memory} bytes of memory have become {memory_after}");
    drop(clients.free.take());
    drop((local, runtime));
    let mut decisions = tollgate_testkit::Http::connect(gateway.service.address);
    eventually("nothing is under way", || {
        let metrics = decisions.send("GET", "/metrics", &[], "");
        ["tollgate_inflight 0", "tollgate_held 0"].iter().all(|line| metrics.body.contains(line))
    });
    eventually("connections are closed", || takes(process).1 <= files + 8);

    let worst = stalls.worst();
    if worst > STALL {
        eprintln!("the machine stood still for {worst:?}, so nothing can be said of time");
        return;
    }
    assert_eq!((before.denied, after_step.denied), (0, 0), "who asks for less than there is is not refused");
    assert!(after_spike.denied == 0, "nor once the spike is over");
    assert!(step.passed >= 4750, "of 500 a second for ten seconds, {}", step.passed);
    for part in [step, after_step, spike, after_spike] {
        assert!(part.upstream_p99 < 3 * before.upstream_p99, "{part:?}, before {before:?}");
    }
}
