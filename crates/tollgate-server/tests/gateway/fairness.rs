//! Tenants share what the application can do by weight, before a real application with 16 workers of 20 ms each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::backend::Backend;
use super::load::{Asker, jain, runtime};
use super::running::Gateway;
use tokio::task::LocalSet;
use tokio::time::Instant;
use tollgate_testkit::{StallWatch, is_long};

use crate::service::eventually;

/// What the application can do: 16 requests at a time.
const WORKERS: usize = 16;

/// Clients of each tenant: more than can be served at any time, also while clients wait for a core.
const CROWD: usize = 100;

/// How long tenants compete: seconds, three times as long with `./test --long`.
fn seconds(short: u64) -> Duration {
    Duration::from_secs(if is_long() { 3 * short } else { short })
}

const POLICY: &str = "
identity: { tenant: header.x-api-key }
tiers: { one: { weight: 1 }, two: { weight: 2 }, three: { weight: 3 }, five: { weight: 5 }, eight: { weight: 8 } }
tenants:
  one: { tier: one }
  two: { tier: two }
  three: { tier: three }
  five: { tier: five }
  eight: { tier: eight }
  heavy: { tier: one, weight: 8 } # its own wins over its tier's
";

fn fair() -> (Backend, Gateway) {
    start("concurrency: { max: 16 }, fair_queue: { by: tenant, per_key: 200, max_wait: 20s }")
}

fn start(gateway: &str) -> (Backend, Gateway) {
    let backend = Backend::with_workers(WORKERS);
    let gateway = Gateway::start(&backend, gateway, POLICY);
    (backend, gateway)
}

/// A tenant, and the number of its clients.
type Crowd = (&'static str, usize);

/// A span of time in which crowds competed.
struct Competition {
    from: Instant,
    until: Instant,
}

/// Lets crowds ask for a while. Each client asks again as soon as it has its answer. Clients start one after another: otherwise all requests would start and end at the same moments.
/// The measurement starts when the last client has started.
fn crowds(gateway: &Gateway, crowds: &[Crowd], time: Duration) -> Competition {
    let (runtime, local) = (runtime(), LocalSet::new());
    local.block_on(&runtime, async {
        let all: usize = crowds.iter().map(|(_, count)| count).sum();
        let begin = Instant::now();
        let after = |number: usize| begin + number as u32 * Duration::from_micros(1300);
        let from = after(all) + Duration::from_millis(200);
        let until = from + time;
        let mut clients = Vec::new();
        for &(tenant, count) in crowds {
            for _ in 0..count {
                let (address, begin) = (gateway.address, after(clients.len()));
                clients.push(tokio::task::spawn_local(async move {
                    tokio::time::sleep_until(begin).await;
                    let mut asker = Asker::connect(address).await;
                    while Instant::now() < until {
                        let told = asker.ask("GET", "/sleep/20", &[("x-api-key", tenant)]).await;
                        match told.status {
                            200 => {}
                            503 => {
                                assert!(told.header("retry-after").is_some(), "{told:?}");
                                tokio::time::sleep(Duration::from_millis(50)).await;
                            }
                            _ => panic!("{told:?}"),
                        }
                    }
                }));
            }
        }
        for client in clients {
            client.await.unwrap();
        }
        Competition { from, until }
    })
}

/// The tenants of the requests that arrived at the application, in order.
///
/// All requests wait before the application serves the first, and no client asks twice. The order is then the queue's alone: it is the
/// same on a machine that stalls. The first requests are left out, because they found a free slot.
fn order_of_arrival(gateway: &str, crowds: &[Crowd], target: impl Fn(&str) -> String) -> Vec<&'static str> {
    let backend = Backend::with_workers(0);
    let gateway = Gateway::start(&backend, gateway, POLICY);
    let all: usize = crowds.iter().map(|(_, count)| count).sum();
    let (runtime, local) = (runtime(), LocalSet::new());
    local.block_on(&runtime, async {
        let mut clients = Vec::new();
        for &(tenant, count) in crowds {
            for _ in 0..count {
                let (address, target) = (gateway.address, target(tenant));
                clients.push(tokio::task::spawn_local(async move {
                    let mut asker = Asker::connect(address).await;
                    let told = asker.ask("GET", &target, &[("x-api-key", tenant)]).await;
                    assert_eq!(told.status, 200, "{told:?}");
                }));
            }
        }
        let mut metrics = gateway.service.connect();
        let deadline = Instant::now() + Duration::from_secs(30);
        while metrics.metric("tollgate_queue_length") != Some((all - WORKERS) as f64) {
            assert!(Instant::now() < deadline, "not all requests wait");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        backend.add_workers(WORKERS);
        for client in clients {
            client.await.unwrap();
        }
    });
    assert!(backend.most_inside() <= WORKERS, "{} at once", backend.most_inside());
    let arrived = backend.arrived_from(WORKERS);
    let tenant =
        |name: Option<&str>| crowds.iter().map(|&(tenant, _)| tenant).find(|&tenant| Some(tenant) == name);
    arrived.iter().map(|arrived| tenant(arrived.header("x-api-key")).unwrap()).collect()
}

/// A queue that shares requests, and not the time that they take: a machine that stalls makes requests longer.
const BY_COST: &str =
    "concurrency: { max: 16 }, fair_queue: { by: tenant, per_key: 2000, max_wait: 60s, work: cost }";

/// Lets tenants wait with `per_weight` requests for each unit of weight. While all of them still have requests waiting, each
/// has its share of every number of arrivals. Prints the shares.
fn assert_shares(tenants: &[(&'static str, usize)], per_weight: usize) {
    let weights: usize = tenants.iter().map(|(_, weight)| weight).sum();
    // More than the share, so that nobody runs out of requests first.
    let crowds: Vec<Crowd> =
        tenants.iter().map(|&(tenant, weight)| (tenant, per_weight * weight + 2 * WORKERS)).collect();
    let mut order = order_of_arrival(BY_COST, &crowds, |_| "/sleep/5".into());
    order.truncate(per_weight * weights);
    let mut counts = vec![0; tenants.len()];
    for (arrivals, arrived) in (1..).zip(&order) {
        counts[tenants.iter().position(|(tenant, _)| tenant == arrived).unwrap()] += 1;
        for (&count, &(tenant, weight)) in counts.iter().zip(tenants) {
            let fair = (arrivals * weight) as f64 / weights as f64;
            // 16 requests at once may overtake each other between the queue and the application.
            let allowed = WORKERS as f64;
            assert!(
                (f64::from(count) - fair).abs() <= allowed,
                "{tenant}: {count} of {arrivals}, {fair} is fair"
            );
        }
    }
    let by_weight: Vec<f64> =
        counts.iter().zip(tenants).map(|(&count, &(_, weight))| f64::from(count) / weight as f64).collect();
    println!("{tenants:?}: {counts:?} of {}; Jain's index by weight {:.5}", order.len(), jain(&by_weight));
    for (share, (tenant, _)) in by_weight.iter().zip(tenants) {
        assert!(
            (share / per_weight as f64 - 1.0).abs() <= 0.03,
            "{tenant}: {share} where {per_weight} is fair"
        );
    }
    assert!(jain(&by_weight) > 0.999);
}

#[test]
fn throughput_goes_by_weight_while_all_want_more() {
    assert_shares(&[("one", 1), ("two", 2), ("eight", 8)], 200);
}

#[test]
fn the_share_of_an_idle_tenant_goes_to_the_others_by_weight() {
    // A tenant of weight 5 asks for nothing.
    assert_shares(&[("three", 3), ("two", 2)], 200);
}

#[test]
fn a_tenants_own_weight_wins_over_its_tiers() {
    assert_shares(&[("one", 1), ("heavy", 8)], 150);
}

/// By default the time that requests take is shared: four times as long, a quarter as often.
#[test]
fn a_tenant_with_longer_requests_gets_fewer() {
    let by_time = "concurrency: { max: 16 }, fair_queue: { by: tenant, per_key: 2000, max_wait: 60s }";
    let tenants = [("one", 120), ("other", 480)];
    let target = |tenant: &str| if tenant == "one" { "/sleep/80".into() } else { "/sleep/20".into() };
    let order = order_of_arrival(by_time, &tenants, target);
    let half = &order[..order.len() / 2];
    let short = half.iter().filter(|&&tenant| tenant == "other").count();
    // The requests that found a free slot are the first tenant's, and the queue has charged them.
    let long = half.len() - short + WORKERS;
    println!("{long} requests of 80 ms beside {short} of 20 ms");
    // 4 on a machine that does not stall. A stall makes all requests longer. A share by requests is 1.
    assert!(short >= 2 * long, "{long} requests of 80 ms beside {short} of 20 ms");
    assert!(short <= 5 * long, "{long} requests of 80 ms beside {short} of 20 ms");
}

#[test]
fn no_slot_is_left_unused_while_a_tenant_is_idle() {
    let (backend, gateway) = fair();
    let watch = StallWatch::start();
    // In turns, so that the machine is the same for both.
    let (mut all, mut two) = (Vec::new(), Vec::new());
    let busy = |competition: &Competition| backend.busy(competition.from, competition.until, WORKERS);
    for _ in 0..3 {
        all.push(busy(&crowds(&gateway, &[("five", CROWD), ("three", CROWD), ("two", CROWD)], seconds(1))));
        two.push(busy(&crowds(&gateway, &[("three", CROWD), ("two", CROWD)], seconds(1))));
    }
    let stalls = watch.stop();
    let (all, two) = (median(&all), median(&two));
    println!(
        "with 5, 3 and 2: workers are busy for {all:.4} of their time; with the 5 idle {two:.4} ({:.4})",
        two / all
    );
    let allowed = (0.02 + stalls.share()).min(0.05);
    assert!(two / all >= 1.0 - allowed, "{two:.4} of {all:.4}; {stalls:?}");
}

/// The wait of a quiet tenant is counted in requests of the noisy one that go first, and not in milliseconds: the count is the same on a
/// machine that stalls.
#[test]
fn a_noisy_tenant_does_not_go_before_a_quiet_one() {
    // The noisy tenant keeps 800 waiting. The quiet one has two clients; its share is four requests at a time.
    let requests_that_go_first = |gateway: &str| {
        let (backend, gateway) = start(gateway);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let quiet = [1, 2].map(|client| {
                let (gateway, backend, is_over) = (&gateway, &backend, &is_over);
                scope.spawn(move || quiet_client(client, gateway, backend, is_over))
            });
            crowds(&gateway, &[("three", 800)], seconds(3));
            is_over.store(true, Ordering::Relaxed);
            let mut counts: Vec<usize> =
                quiet.into_iter().flat_map(|client| client.join().unwrap()).collect();
            counts.sort_unstable();
            counts
        })
    };
    let fair = requests_that_go_first(
        "concurrency: { max: 16 }, fair_queue: { by: tenant, per_key: 1000, max_wait: 20s }",
    );
    let fifo = requests_that_go_first("concurrency: { max: 16 }");
    let at = |counts: &[usize], hundredths: usize| counts[(counts.len() - 1) * hundredths / 100];
    println!(
        "requests of the noisy tenant that went first: p50 {}, p99 {}; first come first served p50 {}",
        at(&fair, 50),
        at(&fair, 99),
        at(&fifo, 50)
    );
    assert!(fair.len() >= 20 && fifo.len() >= 2, "{fair:?}, {fifo:?}");
    assert!(at(&fair, 99) <= 2 * WORKERS, "{fair:?}");
    assert!(at(&fifo, 50) >= 400, "first come first served is no worse? {fifo:?}");
}

/// A client of the quiet tenant that asks again and again, once the noisy one has its crowd waiting. For each of its requests:
/// how many of the noisy tenant's arrived at the application between the sending of the request and its arrival.
fn quiet_client(client: usize, gateway: &Gateway, backend: &Backend, is_over: &AtomicBool) -> Vec<usize> {
    let mut connection = gateway.connect();
    eventually("the noisy tenant has its crowd waiting", || {
        gateway.service.connect().metric("tollgate_queue_length").is_some_and(|waiting| waiting >= 700.0)
    });
    let mut counts = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let id = format!("{client}-{}", counts.len());
        let before = backend.count_arrived();
        let headers = [("x-api-key", "one"), ("x-id", id.as_str())];
        assert_eq!(connection.send("GET", "/sleep/20", &headers, "").status, 200);
        let arrived = backend.arrived_from(before);
        let mine = arrived.iter().position(|arrived| arrived.header("x-id") == Some(&id)).unwrap();
        counts.push(
            arrived[..mine].iter().filter(|arrived| arrived.header("x-api-key") == Some("three")).count(),
        );
    }
    counts
}

fn median(numbers: &[f64]) -> f64 {
    let mut numbers = numbers.to_vec();
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
