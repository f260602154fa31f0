//! An application whose capacity is halved for a while: slots and rates follow it, down and up again.
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

use backend::{Backend, Served};
use load::{Asker, Stalls, percentile, runtime};
use running::Gateway;
use tokio::task::LocalSet;
use tokio::time::Instant;

/// What the application does: 16 requests at a time, then 8, then 16, of 20 ms each.
const WORKERS: usize = 16;
const CALM: Duration = Duration::from_secs(10);
const HALVED: Duration = Duration::from_secs(30);
const RECOVERED: Duration = Duration::from_secs(15);

/// How long the machine may stand still without changing what the application can do.
const STALL: Duration = Duration::from_millis(60);

/// Clients that each ask again as soon as they have their answer: more than the application can do at any time.
const CLIENTS: usize = 64;

/// What the application did in a part of a run.
#[derive(Debug)]
struct Part {
    a_second: f64,
    p50: Duration,
    p99: Duration,
}

/// A run, from its beginning on.
struct Run {
    begin: Instant,
    served: Vec<Served>,
    refused: usize,
}

impl Run {
    /// What was done between two moments.
    fn part(&self, from: Duration, to: Duration) -> Part {
        let is_in = |served: &&Served| (self.begin + from..self.begin + to).contains(&served.at);
        let times: Vec<Duration> = self.served.iter().filter(is_in).map(|served| served.took).collect();
        let a_second = times.len() as f64 * 1e6 / (to - from).as_micros() as f64;
        Part { a_second, p50: percentile(&times, 500), p99: percentile(&times, 990) }
    }
}

/// Lets clients ask while the capacity changes.
fn run(gateway: &str) -> Run {
    let backend = Backend::with_workers(WORKERS);
    let gateway = Gateway::start(&backend, gateway, "");
    let refused = Rc::new(RefCell::new(0));
    let (runtime, local) = (runtime(), LocalSet::new());
    let begin = local.block_on(&runtime, async {
        let begin = Instant::now();
        let until = begin + CALM + HALVED + RECOVERED;
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let (refused, address) = (Rc::clone(&refused), gateway.address);
            clients.push(tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_micros(1300) * number as u32).await;
                let mut asker = Asker::connect(address).await;
                while Instant::now() < until {
                    match asker.ask("GET", "/sleep/20", &[]).await.status {
                        200 => {}
                        503 => {
                            *refused.borrow_mut() += 1;
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                        status => panic!("{status}"),
                    }
                }
            }));
        }
        tokio::time::sleep_until(begin + CALM).await;
        backend.take_workers(WORKERS / 2);
        tokio::time::sleep_until(begin + CALM + HALVED).await;
        backend.add_workers(WORKERS / 2);
        for client in clients {
            client.await.unwrap();
        }
        begin
    });
    let refused = *refused.borrow();
    Run { begin, served: backend.served(), refused }
}

#[test]
fn slots_follow_an_application_whose_capacity_is_halved() {
    let second = Duration::from_secs(1);
    let stalls = Stalls::watch();
    let mut shown = Vec::new();
    for (name, slots) in [
        (
            "gradient",
            "concurrency: { adaptive: gradient, min: 4, max: 256 }, fair_queue: { by: ip, max_wait: 100ms, per_key: 100 }",
        ),
        ("without", "concurrency: { max: 256 }"),
    ] {
        let run = run(slots);
        let calm = run.part(3 * second, CALM);
        let halved = run.part(CALM, CALM + HALVED);
        let after = CALM + HALVED;
        let recovered = run.part(after + 5 * second, after + 10 * second);
        println!("{name}: {} without a slot", run.refused);
        for (name, part) in [("calm", &calm), ("halved", &halved), ("recovered", &recovered)] {
            println!("  {name}: {:.0}/s, upstream p50 {:?}, p99 {:?}", part.a_second, part.p50, part.p99);
        }
        shown.push((calm, halved, recovered));
    }
    let worst = stalls.worst();
    if worst > STALL {
        eprintln!("the machine stood still for {worst:?}, so nothing can be said of its seconds");
        return;
    }
    let (calm, halved, recovered) = &shown[0];
    assert!(halved.a_second >= 0.85 * calm.a_second / 2.0, "{halved:?} of half of {calm:?}");
    assert!(halved.p99 < 3 * calm.p99, "{halved:?}, calm {calm:?}");
    assert!(recovered.a_second >= 0.95 * calm.a_second, "{recovered:?} of {calm:?}");
    let (_, without, _) = &shown[1];
    assert!(without.p99 > 2 * halved.p99, "without slots it is no worse? {without:?}, with them {halved:?}");
}
