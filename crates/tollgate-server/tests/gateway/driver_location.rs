//! The driver-location story: phones post where they are in bursts, and the spatial index takes 3000 writes a second, never more.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::backend::Backend;
use super::load::{Asker, percentile, runtime};
use super::running::Gateway;
use tokio::task::LocalSet;
use tokio::time::Instant;
use tollgate_testkit::{StallWatch, is_long, waited_for_a_core};

const POLICY: &str = "
limits:
  - name: driver-location
    match: { method: POST, path: /api/drivers/location }
    key: []
    leaky_bucket: { rate: 3000/s, queue: 5000 }
";

/// A slot: one write each third of a millisecond.
const SLOT: Duration = Duration::from_nanos(333_333);

/// By how much writes may be late on a machine that does not stall: clients, gateway and application share its cores.
const LATE: Duration = Duration::from_millis(10);

/// As many phones, each with one connection: more than can be held.
const PHONES: usize = 6000;

/// Bursts of this many posts, this often: 5000 per second, until all are sent. From the third second on, the queue is full.
const BURST: usize = 500;
const BETWEEN: Duration = Duration::from_millis(100);

/// The posts of ten seconds in a long run, else of three and a half.
fn posts() -> usize {
    if is_long() { 50_000 } else { 17_500 }
}

/// One post, as the phone saw it.
struct Posted {
    number: usize,
    status: u16,
    retry_after: Option<u64>,
    began: Instant,
    took: Duration,
}

/// In every burst, phones post that have no answer to wait for. Returns what became of the posts.
fn bursts(gateway: &Gateway) -> Vec<Posted> {
    let posted = Rc::new(RefCell::new(Vec::with_capacity(posts())));
    let (runtime, local) = (runtime(), LocalSet::new());
    local.block_on(&runtime, async {
        let phones = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..PHONES / 100 {
            let connecting = (0..100).map(|_| Asker::connect(gateway.address));
            let connected = futures_util::future::join_all(connecting).await;
            phones.borrow_mut().extend(connected);
        }
        let (begin, mut under_way) = (Instant::now(), Vec::new());
        for number in 0..posts() {
            if number % BURST == 0 {
                tokio::time::sleep_until(begin + (number / BURST) as u32 * BETWEEN).await;
            }
            // There are more phones than can be held; on a slow machine some may still wait to hear that they are refused.
            while phones.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let mut phone = phones.borrow_mut().pop().expect("one is free");
            let (phones, posted) = (Rc::clone(&phones), Rc::clone(&posted));
            under_way.push(tokio::task::spawn_local(async move {
                let number_text = number.to_string();
                let told = phone.ask("POST", "/api/drivers/location", &[("x-number", &number_text)]).await;
                let retry_after = told.header("retry-after").map(|seconds| seconds.parse().unwrap());
                let (status, began, took) = (told.status, told.began, told.took);
                posted.borrow_mut().push(Posted { number, status, retry_after, began, took });
                phones.borrow_mut().push(phone);
            }));
        }
        for post in under_way {
            post.await.unwrap();
        }
    });
    Rc::try_unwrap(posted).ok().unwrap().into_inner()
}

#[test]
fn the_index_gets_3000_writes_a_second_and_no_phone_is_left_in_doubt() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", POLICY);
    let waited = || waited_for_a_core(gateway.service.process.id()) + waited_for_a_core(std::process::id());
    let (watch, before) = (StallWatch::start(), waited());
    let posted = bursts(&gateway);
    let waited = waited().saturating_sub(before);
    let (stalls, arrived) = (watch.stop(), backend.arrived());
    assert_eq!(posted.len(), posts(), "every post has an answer");
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

    // Of the posts in the order of their sending, each is written when it has been sent, and a slot after the one before it. No write
    // is before that. How long a post takes to the gateway and on to the application is not known: the quickest shows it.
    let times: Vec<Instant> = arrived.iter().map(|arrived| arrived.at).collect();
    let mut sent: Vec<Instant> =
        posted.iter().filter(|posted| posted.status == 200).map(|posted| posted.began).collect();
    sent.sort_unstable();
    let mut slot = sent[0];
    let mut lateness: Vec<Duration> = Vec::new();
    for (sent, time) in sent.iter().zip(&times) {
        slot = slot.max(*sent);
        assert!(*time >= slot, "one has arrived {:?} before its slot", slot - *time);
        lateness.push(*time - slot);
        slot += SLOT;
    }
    let quickest = lateness.iter().min().copied().unwrap();
    lateness.iter_mut().for_each(|late| *late -= quickest);
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
    // The gateway itself is late by little. Every stall of the machine may delay the queue, and so may every wait of a phone, the
    // gateway or the application for a core. The delays add up.
    let allowed = LATE + stalls.total + waited;
    assert!(percentile(&lateness, 990) <= allowed, "late by more than {allowed:?}; {stalls:?}, {waited:?}");
    // Writes that are late make the second in which they arrive fuller than its slots.
    let fullest = 3000 + slots_in(3 * LATE + 3 * stalls.worst);
    assert!(most_in_a_second <= fullest, "{most_in_a_second} in a second, of at most {fullest}; {stalls:?}");
    // Who is refused is told when there is room: after the seconds that a place takes, rounded up.
    assert!(
        refused.iter().all(|posted| posted.retry_after == Some(1)),
        "a place comes free each third of a millisecond"
    );
}

fn slots_in(time: Duration) -> usize {
    (time.as_nanos() / SLOT.as_nanos()) as usize
}
