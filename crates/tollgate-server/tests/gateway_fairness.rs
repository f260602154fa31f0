//! Tenants share what the application can do by weight, before a real application with 16 workers of 20 ms each.
#![allow(clippy::unwrap_used)]

#[path = "gateway/backend.rs"]
mod backend;
#[path = "gateway/load.rs"]
mod load;
#[path = "gateway/running.rs"]
mod running;
mod service;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use backend::Backend;
use load::{Asker, Told, jain, percentile, runtime, undisturbed};
use running::Gateway;
use tokio::task::LocalSet;
use tokio::time::Instant;

/// What the application can do: 16 requests at a time.
const WORKERS: usize = 16;

/// How long the machine may stand still without spoiling what a tenant's slowest requests take, or what is done in seconds.
const STALL: Duration = Duration::from_millis(15);
const LONG_STALL: Duration = Duration::from_millis(60);

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

/// A tenant with so many clients, each of which asks again as soon as it has its answer.
type Crowd = (&'static str, usize);

/// What a tenant was given in the time that was measured.
#[derive(Clone, Debug, Default)]
struct Given {
    answered: usize,
    refused: usize,
    times: Vec<Duration>,
}

impl Given {
    fn count(&mut self, told: &Told, from: Instant, until: Instant) {
        let ended = told.began + told.took;
        match told.status {
            _ if ended < from || ended >= until => {}
            200 => {
                self.answered += 1;
                self.times.push(told.took);
            }
            503 => {
                self.refused += 1;
                assert!(told.header("retry-after").is_some(), "{told:?}");
            }
            _ => panic!("{told:?}"),
        }
    }
}

/// Lets crowds ask for a while. Clients begin one after another, lest all requests begin and end their work at the same moments
/// for ever; what happens until the last has begun is not measured.
fn crowds(gateway: &Gateway, crowds: &[Crowd], time: Duration) -> Vec<Given> {
    let given: Rc<RefCell<Vec<Given>>> = Rc::new(RefCell::new(vec![Given::default(); crowds.len()]));
    let (runtime, local) = (runtime(), LocalSet::new());
    local.block_on(&runtime, async {
        let all: usize = crowds.iter().map(|(_, count)| count).sum();
        let begin = Instant::now();
        let after = |number: usize| begin + number as u32 * Duration::from_micros(1300);
        let from = after(all) + Duration::from_millis(200);
        let until = from + time;
        let mut clients = Vec::new();
        for (place, &(tenant, count)) in crowds.iter().enumerate() {
            for _ in 0..count {
                let (given, address, begin) = (Rc::clone(&given), gateway.address, after(clients.len()));
                clients.push(tokio::task::spawn_local(async move {
                    tokio::time::sleep_until(begin).await;
                    let mut asker = Asker::connect(address).await;
                    while Instant::now() < until {
                        let told = asker.ask("GET", "/sleep/20", &[("x-api-key", tenant)]).await;
                        given.borrow_mut()[place].count(&told, from, until);
                        if told.status == 503 {
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                    }
                }));
            }
        }
        for client in clients {
            client.await.unwrap();
        }
    });
    Rc::try_unwrap(given).unwrap().into_inner()
}

#[test]
fn throughput_goes_by_weight_while_all_want_more() {
    let (backend, gateway) = fair();
    let time = Duration::from_secs(6);
    let given = crowds(&gateway, &[("one", 40), ("two", 40), ("eight", 40)], time);
    let answered: Vec<f64> = given.iter().map(|given| given.answered as f64).collect();
    let total: f64 = answered.iter().sum();
    let shares: Vec<f64> = answered.iter().map(|answered| answered / total).collect();
    let by_weight: Vec<f64> =
        answered.iter().zip([1.0, 2.0, 8.0]).map(|(answered, weight)| answered / weight).collect();
    println!("1:2:8 gives {answered:?}, shares {shares:.4?}; Jain's index by weight {:.5}", jain(&by_weight));
    for (share, fair) in shares.iter().zip([1.0 / 11.0, 2.0 / 11.0, 8.0 / 11.0]) {
        assert!((share / fair - 1.0).abs() <= 0.03, "{share:.4} where {fair:.4} is fair");
    }
    assert!(backend.most_at_work() <= WORKERS, "{} at once", backend.most_at_work());
    assert!(jain(&by_weight) > 0.999);
}

#[test]
fn the_share_of_an_idle_tenant_goes_to_the_others_and_nothing_is_left_unused() {
    let (_backend, gateway) = fair();
    let time = Duration::from_secs(5);
    let measured = undisturbed(LONG_STALL, 3, || {
        let all = crowds(&gateway, &[("five", 40), ("three", 40), ("two", 40)], time);
        (all, crowds(&gateway, &[("three", 40), ("two", 40)], time))
    });
    let (all, two) = measured.result;
    let sum = |given: &[Given]| given.iter().map(|given| given.answered).sum::<usize>() as f64;
    let (capacity, total) = (sum(&all), sum(&two));
    let share = two[0].answered as f64 / total;
    println!(
        "with 5, 3 and 2: {capacity} in all; with the 5 idle {total} ({:.4}), of which the 3 has {share:.4}",
        total / capacity
    );
    let is_unused = (total / capacity - 1.0).abs() > 0.02;
    assert!(!is_unused || !measured.is_undisturbed, "{total} of {capacity}");
    assert!((share / 0.6 - 1.0).abs() <= 0.03, "{share:.4} where 0.6 is fair");
}

#[test]
fn a_noisy_tenant_does_not_slow_a_quiet_one() {
    let time = Duration::from_secs(5);
    // Its share is half: eight requests at a time. It keeps 800 waiting.
    let noisy = [("one", 2), ("three", 800)];
    let (_backend, gateway) =
        start("concurrency: { max: 16 }, fair_queue: { by: tenant, per_key: 1000, max_wait: 20s }");
    let measured = undisturbed(STALL, 5, || {
        let alone = crowds(&gateway, &noisy[..1], time);
        (alone, crowds(&gateway, &noisy, time))
    });
    let (alone, beside) = measured.result;
    let (_backend, gateway) = start("concurrency: { max: 16 }");
    let fifo = crowds(&gateway, &noisy, time);
    let p99 = |given: &Given| percentile(&given.times, 990);
    let (alone, fair, fifo) = (p99(&alone[0]), p99(&beside[0]), p99(&fifo[0]));
    println!(
        "a quiet tenant's p99: alone {alone:?}, beside a noisy one {fair:?}; first come first served {fifo:?}"
    );
    assert!(fair <= 2 * alone || !measured.is_undisturbed, "{fair:?} beside a noisy one, {alone:?} alone");
    assert!(fifo >= 5 * fair, "first come first served is no worse? {fifo:?}, fair {fair:?}");
}

#[test]
fn a_tenants_own_weight_wins_over_its_tiers() {
    let (_backend, gateway) = fair();
    let given = crowds(&gateway, &[("one", 40), ("heavy", 40)], Duration::from_secs(3));
    let share = given[1].answered as f64 / (given[0].answered + given[1].answered) as f64;
    assert!((share / (8.0 / 9.0) - 1.0).abs() <= 0.03, "{share:.4}");
}
