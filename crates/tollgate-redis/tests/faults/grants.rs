//! What becomes of grants when processes restart, answers are late, a server forgets or its clock steps, and when limits are reset or
//! changed.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_policy::Policy;
use tollgate_testkit::{FaultProxy, RedisServer, StallWatch, is_long};

use super::load::{Line, Load, Log, refill};
use super::mode::Mode;
use super::{Node, wait};

const LINE: Line = Line { name: "deny", attributes: &[("tenant", "acme")] };
const RATE: u64 = 200;
const BURST: u64 = 200;
const NODES: u64 = 4;

/// A grant can be spent for so long.
const LIFE: Duration = Duration::from_millis(500);

fn policy(url: &str, rate: u64) -> String {
    format!(
        "store: {{ redis: {{ url: '{url}', deadline: 50ms, on_error: deny, {} }} }}\n\
         limits: [{{ name: deny, key: [tenant], token_bucket: {{ rate: {rate}/s, burst: {BURST} }} }}]",
        Mode::LEASE.settings()
    )
}

/// Four processes that ask for 20 times the rate, all together.
async fn overload(policy: &str) -> (Vec<Node>, Load) {
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        nodes.push(Node::start(policy).await);
    }
    let load = Load::start(&nodes, &[LINE], 5, Duration::from_millis(5));
    (nodes, load)
}

/// What may pass in all since the first request.
fn most(log: &Log) -> u64 {
    let first = log.asked.first().expect("something was asked").sent;
    let last = log.asked.iter().map(|one| one.received()).max().expect("something was asked");
    BURST + refill(RATE, last - first)
}

/// What must have passed since the first request: a part of what the limit allows, except while the machine stalled.
fn least(log: &Log, percent: u64, stalled: Duration) -> u64 {
    let first = log.asked.first().expect("something was asked").sent;
    let last = log.asked.last().expect("something was asked").sent;
    (BURST + refill(RATE, (last - first).saturating_sub(stalled))) * percent / 100
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clean_restarts_use_nearly_all_of_the_limit() {
    let restarts = if is_long() { 50 } else { 15 };
    let server = wait(RedisServer::start);
    let policy = policy(&server.url(), RATE);
    let watch = StallWatch::start();
    let (_, load) = overload(&policy).await;
    for restart in 0..restarts {
        sleep(Duration::from_millis(200)).await;
        let before = load.replace(restart % NODES as usize, Node::start(&policy).await);
        before.engine.return_leases().await;
    }
    let log = load.stop().await;
    let stalled = wait(|| watch.stop()).total;
    let (admitted, least) = (log.admitted(), least(&log, 95, stalled));
    log.report(
        &format!("{restarts} clean restarts, one each 0.2 s"),
        admitted.saturating_sub(most(&log)),
        0,
        format_args!("{admitted} of {} admitted, {least} at least", most(&log)),
    );
    assert!(log.over(RATE, BURST) <= Mode::LEASE.excess(RATE, BURST, NODES + 1));
    assert!(admitted >= least, "{admitted} admitted, {least} at least; the machine stalled for {stalled:?}");
}

/// Draws have a deadline of their own: half of the life of a grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_later_than_the_deadline_leave_the_limit_used() {
    let lasts = Duration::from_secs(if is_long() { 10 } else { 3 });
    let (server, proxy) = wait(|| {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(server.address());
        (server, proxy)
    });
    let policy =
        policy(&format!("redis://{}", proxy.address()), RATE).replace("deadline: 50ms", "deadline: 5ms");
    let (_nodes, load) = overload(&policy).await;
    load.until_denied().await;
    let watch = StallWatch::start();
    proxy.delay(Duration::from_millis(10));
    let began = Instant::now();
    sleep(lasts).await;
    let ended = Instant::now();
    let log = load.stop().await;
    let stalled = wait(|| watch.stop()).total;
    drop(server);
    let late = log.between(began, ended);
    let (admitted, least) = (late.admitted(), refill(RATE, lasts.saturating_sub(stalled)) * 97 / 100);
    log.report(
        "20 ms there and back, deadline 5 ms, deny, leases",
        log.admitted().saturating_sub(most(&log)),
        0,
        format_args!("{admitted} of {} admitted meanwhile, {least} at least", refill(RATE, ended - began)),
    );
    assert!(admitted >= least, "{admitted} admitted, {least} at least; the machine stalled for {stalled:?}");
}

/// Processes show the new server what it has forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_empty_at_once_gives_a_third_of_a_burst_more_at_most() {
    let server = wait(RedisServer::start);
    let (nodes, load) = overload(&policy(&server.url(), RATE)).await;
    load.until_denied().await;
    sleep(Duration::from_millis(500)).await;
    wait(|| server.kill());
    sleep(Duration::from_millis(500)).await;
    wait(|| server.restart());
    let back = load.until_back(Instant::now()).await;
    sleep(Duration::from_secs(1)).await;
    let log = load.stop().await;
    let presented: u64 =
        nodes.iter().flat_map(|node| node.engine.lease_stats()).map(|stats| stats.presented).sum();
    log.report(
        "killed, back empty after 0.5 s at 20 times the rate, leases",
        log.admitted().saturating_sub(most(&log)).max(log.over(RATE, BURST)),
        BURST * 3 / 10,
        format_args!("{presented} marks presented; back after {back:.0?}"),
    );
    assert!(presented > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_stays_a_reset() {
    let server = wait(RedisServer::start);
    let watch = StallWatch::start();
    let (nodes, load) = overload(&policy(&server.url(), RATE)).await;
    load.until_denied().await;
    sleep(Duration::from_millis(500)).await;
    let reset = Instant::now();
    let was_known = nodes[0].engine.policy().reset("deny", LINE.attributes).wait().await.unwrap();
    assert_eq!(was_known, Some(true));
    let done = Instant::now();
    sleep(2 * LIFE).await;
    let end = Instant::now();
    let log = load.stop().await;
    let stalled = wait(|| watch.stop()).total;
    // What four processes hold, and what a draw that was charged before the reset may still bring: all is within `most_held`.
    let held = NODES * BURST / 2;
    let soon = log.between(reset, done + LIFE);
    let passed = soon.admitted();
    let bound = BURST + refill(RATE, done + LIFE - reset) + held;
    println!("reset: {passed} passed within one life of a grant, {bound} at most");
    assert!(passed <= bound, "{passed} passed, {bound} is the bound");
    // The marks that the processes know are not presented: nothing is as it was before the reset.
    let all = log.between(done, end).admitted();
    let least = (BURST + refill(RATE, (end - done).saturating_sub(stalled))) * 90 / 100;
    println!("reset: {all} passed in {:.1?}, {least} at least", end - done);
    assert!(all >= least, "{all} passed, {least} at least; the machine stalled for {stalled:?}");
    let after = log.between(done + LIFE, end);
    assert!(after.over(RATE, BURST) <= Mode::LEASE.excess(RATE, BURST, NODES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_to_a_tenth_of_the_rate_leaves_one_life_of_the_old_one_at_most() {
    const LOWER: u64 = RATE / 10;
    let server = wait(RedisServer::start);
    let (nodes, load) = overload(&policy(&server.url(), RATE)).await;
    load.until_denied().await;
    sleep(Duration::from_millis(500)).await;
    let lower = policy(&server.url(), LOWER);
    for node in &nodes {
        let lower = Policy::read(std::path::Path::new("tollgate.yaml"), &lower)
            .unwrap_or_else(|faults| panic!("{faults}"));
        node.engine.reload(lower).unwrap();
    }
    let reloaded = Instant::now();
    sleep(Duration::from_secs(2)).await;
    let end = Instant::now();
    let log = load.stop().await.between(reloaded, end);
    // The bucket was used up, except for the units that are kept for exact checks, and stays so.
    let passed = log.admitted();
    log.report(
        "reload to a tenth of the rate, leases",
        passed.saturating_sub(refill(LOWER, end - reloaded)),
        refill(RATE, LIFE),
        format_args!("{passed} passed in {:.1?}", end - reloaded),
    );
    assert!(log.over(LOWER, BURST) <= Mode::LEASE.excess(LOWER, BURST, NODES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_clock_steps_ahead_grants_one_burst_more() {
    const HOUR: i64 = 3_600_000_000;
    let server = wait(|| RedisServer::with_clock(&[]));
    let (_nodes, load) = overload(&policy(&server.url(), RATE)).await;
    load.until_denied().await;
    wait(|| server.shift_clock(HOUR));
    sleep(Duration::from_secs(1)).await;
    let ahead = Instant::now();
    let log = load.stop().await;
    let over = log.admitted().saturating_sub(most(&log));
    log.report(
        "the server's clock an hour ahead, leases",
        over,
        BURST,
        format_args!(
            "{} passed in the second after it",
            log.between(ahead - Duration::from_secs(1), ahead).admitted()
        ),
    );
    assert!(log.over(RATE, BURST) <= BURST + Mode::LEASE.excess(RATE, BURST, NODES));
    assert!(over > 0, "the step was noticed");
}
