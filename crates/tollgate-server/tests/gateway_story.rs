//! The driver-location story: phones post where they are in bursts, and the spatial index takes 3000 writes a second, never more.
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
use load::{Asker, percentile, runtime, undisturbed};
use running::Gateway;
use tokio::task::LocalSet;
use tokio::time::Instant;

const POLICY: &str = "
limits:
  - name: driver-location
    match: { method: POST, path: /api/drivers/location }
    key: []
    leaky_bucket: { rate: 3000/s, queue: 5000 }
";

/// A slot: one write each third of a millisecond.
const SLOT: Duration = Duration::from_nanos(333_333);

/// How long the machine may stand still without making writes late.
const STALL: Duration = Duration::from_millis(10);

/// As many phones, each with one connection: more than can be held.
const PHONES: usize = 6000;

/// Bursts of so many posts, as often as this: 5000 a second, until all are sent. From the third second on, the queue is full.
const BURST: usize = 500;
const BETWEEN: Duration = Duration::from_millis(100);
const POSTS: usize = 50_000;

/// One post, as the phone saw it.
struct Posted {
    number: usize,
    status: u16,
    retry_after: Option<u64>,
    took: Duration,
}

/// In every burst, phones post that have no answer to wait for. When the first was sent, and what became of them.
fn bursts(gateway: &Gateway) -> (Instant, Vec<Posted>) {
    let posted = Rc::new(RefCell::new(Vec::with_capacity(POSTS)));
    let (runtime, local) = (runtime(), LocalSet::new());
    let sent = local.block_on(&runtime, async {
        let phones = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..PHONES / 100 {
            let connecting = (0..100).map(|_| Asker::connect(gateway.address));
            let connected = futures_util::future::join_all(connecting).await;
            phones.borrow_mut().extend(connected);
        }
        let (begin, mut posts) = (Instant::now(), Vec::new());
        for number in 0..POSTS {
            if number % BURST == 0 {
                tokio::time::sleep_until(begin + (number / BURST) as u32 * BETWEEN).await;
            }
            // There are more phones than can be held; on a slow machine some may still wait to hear that they are refused.
            while phones.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let mut phone = phones.borrow_mut().pop().expect("one is free");
            let (phones, posted) = (Rc::clone(&phones), Rc::clone(&posted));
            posts.push(tokio::task::spawn_local(async move {
                let number_text = number.to_string();
                let told = phone.ask("POST", "/api/drivers/location", &[("x-number", &number_text)]).await;
                let retry_after = told.header("retry-after").map(|seconds| seconds.parse().unwrap());
                let (status, took) = (told.status, told.took);
                posted.borrow_mut().push(Posted { number, status, retry_after, took });
                phones.borrow_mut().push(phone);
            }));
        }
        for post in posts {
            post.await.unwrap();
        }
        begin
    });
    (sent, Rc::try_unwrap(posted).ok().unwrap().into_inner())
}

#[test]
fn the_index_gets_3000_writes_a_second_and_no_phone_is_left_in_doubt() {
    let measured = undisturbed(STALL, 2, || {
        let backend = Backend::start();
        let gateway = Gateway::start(&backend, "", POLICY);
        (bursts(&gateway), backend.arrived())
    });
    let ((sent, posted), arrived) = measured.result;
    assert_eq!(posted.len(), POSTS, "every post has an answer");
    let written = posted.iter().filter(|posted| posted.status == 200).count();
    let refused: Vec<&Posted> = posted.iter().filter(|posted| posted.status != 200).collect();
    assert!(refused.iter().all(|posted| posted.status == 429));
    assert!(!refused.is_empty(), "the bursts are larger than the queue");

    // Nothing lost, nothing twice: what was answered with 200 has arrived, once, and nothing else has.
    let mut numbers: Vec<usize> =
        arrived.iter().map(|arrived| arrived.header("x-number").unwrap().parse().unwrap()).collect();
    numbers.sort_unstable();
    let mut expected: Vec<usize> =
        posted.iter().filter(|posted| posted.status == 200).map(|posted| posted.number).collect();
    expected.sort_unstable();
    assert_eq!(numbers, expected);

    // The queue is never empty until the end, so that writes go one slot after another, from the first on. Nobody knows here when
    // the gateway let the first go: not before it was sent, and no later than any that follows says.
    let times: Vec<Instant> = arrived.iter().map(|arrived| arrived.at).collect();
    let first = times.iter().enumerate().map(|(place, time)| *time - place as u32 * SLOT).min().unwrap();
    assert!(first >= sent, "one has arrived {:?} before its slot", sent - first);
    let lateness: Vec<Duration> =
        times.iter().enumerate().map(|(place, time)| *time - (first + place as u32 * SLOT)).collect();
    let most_in_a_second = times
        .iter()
        .enumerate()
        .map(|(from, begin)| times[from..].partition_point(|time| *time < *begin + Duration::from_secs(1)))
        .max()
        .unwrap();
    let told_off: Vec<Duration> = refused.iter().map(|posted| posted.took).collect();
    println!(
        "{written} written, {} refused; at most {most_in_a_second} in a second; late p50 {:?}, p99 {:?}, most {:?}; refused within p50 {:?}, p99 {:?}",
        refused.len(),
        percentile(&lateness, 500),
        percentile(&lateness, 990),
        percentile(&lateness, 1000),
        percentile(&told_off, 500),
        percentile(&told_off, 990),
    );
    if measured.is_undisturbed {
        assert!(most_in_a_second <= 3090, "{most_in_a_second} in a second");
        // Of what runs in production only: clients and application take their time from the same cores.
        assert!(cfg!(debug_assertions) || percentile(&lateness, 990) < Duration::from_millis(3));
    } else {
        eprintln!("the machine stood still in every run, so nothing can be said of a second");
    }
    // Who is refused is told when there is room: after the seconds that a place takes, rounded up.
    assert!(
        refused.iter().all(|posted| posted.retry_after == Some(1)),
        "a place comes free each third of a millisecond"
    );
}
