//! An application whose capacity is halved for a while: slots follow it, down and up again.
//!
//! The application counts how many requests are inside it, and how busy its workers are. A stall of the machine makes the work take
//! longer. It does not add requests to the application.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::LocalSet;
use tokio::time::Instant;
use tollgate_testkit::is_long;

use super::backend::Backend;
use super::load::{Asker, runtime};
use super::running::Gateway;

/// The application works on 16 requests at a time, then 8, then 16, for 20 ms each.
const WORKERS: usize = 16;

/// Each client asks again as soon as it has its answer. They are more than the application can serve at any time.
const CLIENTS: usize = 64;

/// How long each phase of a run takes, and the part of it until the slots have settled.
struct Phases {
    calm: Duration,
    halved: Duration,
    recovered: Duration,
    settling: Duration,
}

impl Phases {
    fn seconds([calm, halved, recovered, settling]: [u64; 4]) -> Self {
        let [calm, halved, recovered, settling] =
            [calm, halved, recovered, settling].map(Duration::from_secs);
        Self { calm, halved, recovered, settling }
    }
}

/// What the application saw in a phase of a run.
#[derive(Debug)]
struct PhaseLoad {
    busy: f64,     // the part of their time that workers worked
    inside: usize, // requests inside the application when another arrived: the median
    inside_p90: usize,
}

/// A run, from its beginning on.
struct Run {
    begin: Instant,
    backend: Backend,
    without_slot: usize,
}

impl Run {
    fn load(&self, from: Duration, to: Duration, workers: usize) -> PhaseLoad {
        let (from, until) = (self.begin + from, self.begin + to);
        let served = self.backend.served();
        let in_phase = served.iter().filter(|served| (from..until).contains(&served.at));
        let mut ahead: Vec<usize> = in_phase.map(|served| served.ahead).collect();
        ahead.sort_unstable();
        PhaseLoad {
            busy: self.backend.busy(from, until, workers),
            inside: ahead[ahead.len() / 2],
            inside_p90: ahead[ahead.len() * 9 / 10],
        }
    }
}

/// Lets clients ask while the capacity changes.
fn run(gateway: &str, phases: &Phases) -> Run {
    let backend = Backend::with_workers(WORKERS);
    let gateway = Gateway::start(&backend, gateway, "");
    let without_slot = Rc::new(RefCell::new(0));
    let (runtime, local) = (runtime(), LocalSet::new());
    let begin = local.block_on(&runtime, async {
        let begin = Instant::now();
        let until = begin + phases.calm + phases.halved + phases.recovered;
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let (without_slot, address) = (Rc::clone(&without_slot), gateway.address);
            clients.push(tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_micros(1300) * number as u32).await;
                let mut asker = Asker::connect(address).await;
                while Instant::now() < until {
                    match asker.ask("GET", "/sleep/20", &[]).await.status {
                        200 => {}
                        503 => {
                            *without_slot.borrow_mut() += 1;
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        status => panic!("{status}"),
                    }
                }
            }));
        }
        tokio::time::sleep_until(begin + phases.calm).await;
        backend.take_workers(WORKERS / 2);
        tokio::time::sleep_until(begin + phases.calm + phases.halved).await;
        backend.add_workers(WORKERS / 2);
        for client in clients {
            client.await.unwrap();
        }
        begin
    });
    let without_slot = *without_slot.borrow();
    Run { begin, backend, without_slot }
}

/// A run, by phase.
fn phase_loads(name: &str, gateway: &str, phases: &Phases) -> [PhaseLoad; 3] {
    let run = run(gateway, phases);
    let halved = phases.calm + phases.halved;
    let loads = [
        run.load(phases.settling, phases.calm, WORKERS),
        run.load(phases.calm + phases.settling, halved, WORKERS / 2),
        run.load(halved + phases.settling, halved + phases.recovered, WORKERS),
    ];
    println!("{name}: {} without a slot; calm, halved, recovered: {loads:.2?}", run.without_slot);
    loads
}

#[test]
fn slots_follow_an_application_whose_capacity_is_halved() {
    let slots = "concurrency: { adaptive: gradient, min: 4, max: 256 }, fair_queue: { by: ip, max_wait: 100ms, per_key: 100 }";
    let phases = Phases::seconds(if is_long() { [10, 30, 15, 5] } else { [5, 6, 7, 3] });
    let [calm, halved, recovered] = phase_loads("gradient", slots, &phases);
    // The capacity that is left is used, and what comes back.
    assert!(halved.busy >= 0.85 * calm.busy, "{halved:?}, calm {calm:?}");
    assert!(recovered.busy >= 0.95 * calm.busy, "{recovered:?}, calm {calm:?}");
    // Nor do requests pile up inside the application. Without slots, all clients are inside.
    assert!(halved.inside <= 3 * (WORKERS / 2) && halved.inside_p90 <= CLIENTS / 2, "{halved:?}");
    assert!(calm.inside >= WORKERS - 4 && recovered.inside >= WORKERS - 4, "{calm:?}, {recovered:?}");
}

#[test]
fn without_slots_every_client_waits_inside_the_application() {
    let [_, halved, _] = phase_loads("without", "concurrency: { max: 256 }", &Phases::seconds([2, 3, 2, 1]));
    assert!(halved.inside >= CLIENTS - 8, "{halved:?}");
}
