//! A live gateway under a step, a spike and mixed traffic, for seconds (ten minutes with `./test --long`): it admits no more
//! than the policy allows and denies only when a bucket may be empty. Except for clients that leave early, the application never has
//! more requests than workers. Nothing is left behind.
//!
//! Nothing here depends on how fast the machine is. The tests know of each request when it began and when it ended; the gateway
//! decided in between.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::backend::Backend;
use super::load::{Asker, percentile, runtime};
use super::running::Gateway;
use crate::service::eventually;
use tokio::task::LocalSet;
use tokio::time::Instant;
use tollgate_testkit::is_long;

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

const SECOND: Duration = Duration::from_secs(1);

/// No request takes longer.
const LONGEST: Duration = Duration::from_secs(30);

/// The numbers of a bucket.
struct Bound {
    rate: f64, // a second
    burst: f64,
}

/// One request, as its client saw it.
#[derive(Clone, Copy)]
struct Asked {
    tenant: usize,
    outcome: ClientOutcome,
    began: Instant,
    ended: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientOutcome {
    Passed,
    Denied,
    Failed,
    /// The client left before the answer came. The request may have passed.
    Left,
}

/// Clients that ask at a pace, whether they have been answered or not.
struct Clients {
    gateway: std::net::SocketAddr,
    free: RefCell<Vec<Asker>>,
    asked: RefCell<Vec<Asked>>,
}

impl Clients {
    fn new(gateway: &Gateway) -> Rc<Self> {
        Rc::new(Self { gateway: gateway.address, free: RefCell::default(), asked: RefCell::default() })
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
        let outcome = match told.status {
            200 => ClientOutcome::Passed,
            429 => ClientOutcome::Denied,
            _ => ClientOutcome::Failed,
        };
        self.asked.borrow_mut().push(Asked { tenant, outcome, began, ended });
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
                        let began = Instant::now();
                        let asking = async {
                            let mut client = Asker::connect(clients.gateway).await;
                            client
                                .ask("GET", "/sleep/200", &[("x-api-key", &format!("tenant-{tenant}"))])
                                .await
                        };
                        let _ = tokio::time::timeout(Duration::from_millis(30), asking).await;
                        // The gateway may read the request after its client has left.
                        let (outcome, ended) = (ClientOutcome::Left, Instant::now() + SECOND);
                        clients.asked.borrow_mut().push(Asked { tenant, outcome, began, ended });
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
    most_inside: usize,     // the application, at once
    answered_p99: Duration, // as clients saw it
}

/// All requests that one bucket decided about.
struct BucketRequests {
    passed: Vec<Asked>,          // for certain, in the order of their ends
    possibly_passed: Vec<Asked>, // passed, in the order of their ends
    beginnings: Vec<Instant>,    // of those that passed, in order
}

impl BucketRequests {
    fn new(asked: impl Iterator<Item = Asked>) -> Self {
        let mut possibly_passed: Vec<Asked> = asked
            .filter(|asked| matches!(asked.outcome, ClientOutcome::Passed | ClientOutcome::Left))
            .collect();
        possibly_passed.sort_by_key(|asked| asked.ended);
        let passed: Vec<Asked> =
            possibly_passed.iter().filter(|asked| asked.outcome == ClientOutcome::Passed).copied().collect();
        let mut beginnings: Vec<Instant> = passed.iter().map(|asked| asked.began).collect();
        beginnings.sort_unstable();
        Self { passed, possibly_passed, beginnings }
    }

    /// No span of time, short or long, has more than its bucket allows: of the requests that lie wholly within the span, at most
    /// the burst and what refills meanwhile have passed.
    fn is_within(&self, bound: &Bound) -> Result<(), String> {
        for &from in self.beginnings.iter().step_by(if is_long() { 50 } else { 1 }) {
            let mut count = 0.0;
            for asked in self.passed.iter().filter(|asked| asked.began >= from) {
                count += 1.0;
                let span = asked.ended - from;
                let most = bound.burst + bound.refill(span);
                if count > most + 1.0 {
                    return Err(format!("{count} in {span:?}, where {most} may be"));
                }
            }
        }
        Ok(())
    }

    /// Whether the bucket may have been empty when it denied a request. At a time `d` a bucket has the least, over all moments
    /// `s` before `d`, of burst + rate * (d - s) - passed from `s` to `d`. This counts the most that can have passed, and the
    /// least that can have refilled.
    fn can_be_empty(&self, bound: &Bound, denied: &Asked) -> bool {
        let mut passed = 0.0;
        let newest = self.possibly_passed.partition_point(|asked| asked.ended < denied.ended + LONGEST);
        self.possibly_passed[..newest].iter().rev().filter(|asked| asked.began <= denied.ended).any(|asked| {
            passed += 1.0;
            let since = denied.began.saturating_duration_since(asked.ended);
            bound.burst + bound.refill(since) - passed < 1.0
        })
    }
}

impl Bound {
    fn refill(&self, time: Duration) -> f64 {
        self.rate * time.as_micros() as f64 / 1e6
    }
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
    let (calm, step, soak) = if is_long() { (5, 10, 600) } else { (2, 3, 10) }; // seconds
    let backend = Backend::with_workers(WORKERS);
    let slots = "concurrency: { max: 16 }, fair_queue: { by: tenant, per_key: 1000, max_wait: 10s }";
    let gateway = Gateway::start(&backend, slots, POLICY);
    let process = gateway.service.process.id();
    let clients = Clients::new(&gateway);
    let (runtime, local) = (runtime(), LocalSet::new());
    let (mut parts, mut all) = (Vec::new(), Vec::new());
    let mut part = |name, run: &mut dyn FnMut()| {
        backend.forget_most_inside();
        run();
        let asked = clients.asked.take();
        let of = |outcome| asked.iter().filter(move |asked| asked.outcome == outcome);
        let took: Vec<Duration> = of(ClientOutcome::Passed).map(|asked| asked.ended - asked.began).collect();
        let part = Part {
            name,
            passed: of(ClientOutcome::Passed).count(),
            denied: of(ClientOutcome::Denied).count(),
            failed: of(ClientOutcome::Failed).count(),
            most_inside: backend.most_inside(),
            answered_p99: percentile(&took, 990),
        };
        println!(
            "{}: {} passed, {} denied, {} failed; answered p99 {:?}; at most {} inside the application",
            part.name, part.passed, part.denied, part.failed, part.answered_p99, part.most_inside
        );
        parts.push(part);
        all.extend(asked);
    };
    part("before", &mut || local.block_on(&runtime, clients.offer(CALM, calm)));
    part("step", &mut || local.block_on(&runtime, clients.offer(STEP, step)));
    part("after the step", &mut || local.block_on(&runtime, clients.offer(CALM, calm)));
    local.block_on(&runtime, clients.connect(SPIKE));
    part("spike", &mut || local.block_on(&runtime, clients.offer_at_once(SPIKE)));
    part("after the spike", &mut || local.block_on(&runtime, clients.offer(CALM, calm)));
    drop(clients.free.take());
    part("soak, begun", &mut || local.block_on(&runtime, clients.offer_mixed(CALM, soak / 5)));
    let (memory, files) = takes(process);
    part("soak", &mut || local.block_on(&runtime, clients.offer_mixed(CALM, soak - soak / 5)));
    let (memory_after, files_after) = takes(process);
    println!(
        "memory {} KiB, {} KiB after the soak; {files} files, {files_after} after it",
        memory >> 10,
        memory_after >> 10
    );

    assert!(parts.iter().all(|part| part.failed == 0), "{parts:?}");
    assert!(all.iter().all(|asked| asked.ended - asked.began < LONGEST));
    // No bucket admits too many, and no request is denied while both buckets have a token.
    let everybody = BucketRequests::new(all.iter().copied());
    everybody.is_within(&EVERYBODY).unwrap();
    for tenant in 0..TENANTS {
        let of_tenant = || all.iter().filter(|asked| asked.tenant == tenant).copied();
        let decided = BucketRequests::new(of_tenant());
        decided.is_within(&TENANT).unwrap();
        for denied in of_tenant().filter(|asked| asked.outcome == ClientOutcome::Denied) {
            assert!(
                everybody.can_be_empty(&EVERYBODY, &denied) || decided.can_be_empty(&TENANT, &denied),
                "tenant {tenant} was denied, and both buckets had tokens"
            );
        }
    }
    let [_, step, _, spike, ..] = &parts[..] else { unreachable!() };
    assert!(step.denied > 0 && spike.denied > 0, "{parts:?}");
    // No request waits inside the application, so that its answers take as long as ever. A client that leaves frees its slot
    // before the application notices: that happens in the soak.
    assert!(parts[..5].iter().all(|part| part.most_inside <= WORKERS), "{parts:?}");
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
}
