//! A network that is slow, gone or one-sided, with the server none the worse.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_testkit::{FaultProxy, RedisServer};

use super::load::{Asked, Line, Load, refill};
use super::mode::{Mode, in_both_modes};
use super::modes::Outage;
use super::{BACK_WITHIN, Node, wait};

const LATENCY: Duration = Duration::from_millis(200);
const OUTAGE: Outage =
    Outage { name: "", lasts: Duration::from_secs(1), deadline: Duration::from_millis(50), forgets: false };

fn through_proxy() -> (RedisServer, FaultProxy, String) {
    wait(|| {
        let server = RedisServer::start();
        let proxy = FaultProxy::start(server.address());
        let url = format!("redis://{}", proxy.address());
        (server, proxy, url)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latency_beyond_the_deadline_is_an_outage() {
    in_both_modes(|mode| async move {
        let (_server, proxy, url) = through_proxy();
        Outage { name: "200 ms latency, deadline 5 ms", deadline: Duration::from_millis(5), ..OUTAGE }
            .measure(mode, &url, || proxy.delay(LATENCY), || proxy.heal())
            .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_cut_is_an_outage() {
    in_both_modes(|mode| async move {
        let (_server, proxy, url) = through_proxy();
        Outage { name: "cut", ..OUTAGE }.measure(mode, &url, || proxy.cut(), || proxy.heal()).await;
    })
    .await;
}

/// What was sent meanwhile arrives in the end: that is charged, and nobody is let pass for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_half_open_are_an_outage() {
    in_both_modes(|mode| async move {
        let (_server, proxy, url) = through_proxy();
        Outage { name: "half open", ..OUTAGE }
            .measure(mode, &url, || proxy.half_open(), || proxy.heal())
            .await;
    })
    .await;
}

/// A draw has half the life of a grant for its answer, so grants must last longer than the network takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latency_within_the_deadline_only_takes_time() {
    in_both_modes(|mode| async move {
        const LINE: Line = Line { name: "slow", attributes: &[("tenant", "acme")] };
        const SYNC: Duration = Duration::from_millis(400);
        let (_server, proxy, url) = through_proxy();
        let mode = mode.with_sync(SYNC);
        // A request may wait for several draws, until the deadline, and no decision may take a second.
        let deadline = if mode == Mode::Exact { 1000 } else { 900 };
        let policy = format!(
            "store: {{ redis: {{ url: '{url}', deadline: {deadline}ms, on_error: deny, {} }} }}\n\
             limits: [{{ name: slow, key: [tenant], token_bucket: {{ rate: 50/s, burst: 100 }} }}]",
            mode.settings()
        );
        let nodes = [Node::start(&policy).await, Node::start(&policy).await];
        proxy.delay(LATENCY);
        // As many as would be 400 a second if each had its answer at once.
        let load = Load::start(&nodes, &[LINE], 40, Duration::from_millis(20));
        load.until_denied().await;
        sleep(Duration::from_secs(1)).await;
        let log = load.stop().await;
        let answered = log.count(Asked::is_answered);
        log.report(
            &mode.name("200 ms latency, deadline 1 s"),
            log.over(50, 100),
            mode.excess(50, 100, 2),
            format_args!("{answered} answered by the store or its grants"),
        );
        assert_eq!(log.fell_back(), 0);
    })
    .await;
}

/// The other has the store meanwhile, and all of the rate: what the one lets pass by its share is too much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_of_two_that_is_cut_off_lets_its_share_pass() {
    in_both_modes(|mode| async move {
        const LINE: Line = Line { name: "local", attributes: &[("tenant", "acme")] };
        const RATE: u64 = 50;
        const BURST: u64 = 100;
        let (server, proxy, url) = through_proxy();
        let policy = |url: &str| {
            format!(
                "store: {{ redis: {{ url: '{url}', deadline: 200ms, on_error: local, nodes: 2, {} }} }}\n\
                 limits: [{{ name: local, key: [tenant], token_bucket: {{ rate: {RATE}/s, burst: {BURST} }} }}]",
                mode.settings()
            )
        };
        let nodes = [Node::start(&policy(&url)).await, Node::start(&policy(&server.url())).await];
        let load = Load::start(&nodes, &[LINE], 2, Duration::from_millis(10));
        load.until_denied().await;
        let began = Instant::now();
        wait(|| proxy.cut());
        sleep(Duration::from_secs(1)).await;
        wait(|| proxy.heal());
        let back = load.until_back(Instant::now()).await;
        let out = began.elapsed() + Duration::from_millis(200);
        let log = load.stop().await;
        let meanwhile = log.admitted_meanwhile();
        log.report(
            &mode.name("one of two processes cut off, local"),
            log.over(RATE, BURST),
            refill(RATE, out).div_ceil(2) + 1 + mode.excess(RATE, BURST, 2),
            format_args!("{meanwhile} passed meanwhile; back after {back:.0?}"),
        );
        assert_eq!(log.count(|one| one.node == 1 && one.fell_back()), 0, "the other has the store");
        assert!(meanwhile > 0 && back < BACK_WITHIN, "{meanwhile}, {back:?}");
    })
    .await;
}

/// It lets us connect, which may take longer than a call, and answers no call in time: it is tried again and again.
///
/// Leases have a test of their own for that: a draw has its own deadline, so its answer comes in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_fails_every_trial_leaves_slow_limits_their_share() {
    const LINE: Line = Line { name: "local", attributes: &[("tenant", "acme")] };
    const RATE: u64 = 2;
    const BURST: u64 = 10;
    let (_server, proxy, url) = through_proxy();
    let deadline = Duration::from_millis(5);
    let policy = format!(
        "store: {{ redis: {{ url: '{url}', deadline: 5ms, on_error: local, nodes: 2 }} }}\n\
         limits: [{{ name: local, key: [tenant], token_bucket: {{ rate: {RATE}/s, burst: {BURST} }} }}]"
    );
    let nodes = [Node::start(&policy).await, Node::start(&policy).await];
    let load = Load::start(&nodes, &[LINE], 2, Duration::from_millis(10));
    load.until_denied().await;
    let began = Instant::now();
    proxy.delay(Duration::from_millis(15));
    sleep(Duration::from_secs(4)).await;
    let lasted = began.elapsed();
    proxy.heal();
    let back = load.until_back(Instant::now()).await;
    let log = load.stop().await;
    let trials: u64 = nodes.iter().flat_map(|node| node.store.health()).map(|shard| shard.reconnects).sum();
    let meanwhile = log.admitted_meanwhile();
    log.report(
        "30 ms there and back, deadline 5 ms, local",
        log.over(RATE, BURST),
        refill(RATE, lasted + back + deadline) + 2,
        format_args!("{meanwhile} passed meanwhile, {trials} trials; back after {back:.0?}"),
    );
    assert!(meanwhile >= refill(RATE, lasted) / 2, "{meanwhile} passed in {lasted:?}");
    assert!(trials > 4, "{trials} trials");
}

/// Calls that were charged and never answered: they count, once, and nobody has passed by them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_charged_without_an_answer_is_charged_once() {
    in_both_modes(|mode| async move {
        const LINE: Line = Line { name: "each", attributes: &[("tenant", "acme")] };
        const LIMIT: u64 = 600;
        let (server, proxy, url) = through_proxy();
        let policy = format!(
            "store: {{ redis: {{ url: '{url}', deadline: 50ms, on_error: deny, {} }} }}\n\
             limits:\n  \
             - {{ name: all, key: [tenant], fixed_window: {{ limit: {LIMIT}, window: 1h, align: first }} }}\n  \
             - {{ name: each, key: [tenant, request], fixed_window: {{ limit: 9, window: 1h, align: first }} }}\n",
            mode.settings()
        );
        let nodes = [Node::start(&policy).await, Node::start(&policy).await];
        let load = Load::start(&nodes, &[LINE], 4, Duration::from_millis(10));
        sleep(Duration::from_millis(200)).await;
        wait(|| proxy.drop_answers());
        sleep(Duration::from_secs(1)).await;
        wait(|| proxy.heal());
        let back = load.until_back(Instant::now()).await;
        load.until_denied().await;
        let log = load.stop().await;

        let mut client = server.client();
        let mut used = |key: &[u8]| -> u64 {
            let state = client.command(&[b"GET".as_slice(), key]);
            state.text().split(' ').nth(1).expect("`end used tag`").parse().unwrap()
        };
        let keys = server.command(&["KEYS", "tollgate:{acme}:each:*"]);
        let charged: Vec<u64> = keys
            .array()
            .iter()
            .map(|key| {
                assert_eq!(used(key.bytes()), 1, "{key:?} was charged twice");
                String::from_utf8_lossy(key.bytes()).rsplit(':').next().unwrap().parse().unwrap()
            })
            .collect();
        let admitted: Vec<u64> = log.asked.iter().filter(|one| one.is_allowed).map(|one| one.id).collect();
        assert!(admitted.iter().all(|id| charged.contains(id)), "all that passed was charged");
        let used = used(b"tollgate:{acme}:all:f:acme");
        assert_eq!(used, LIMIT);
        if mode == Mode::Exact {
            assert_eq!(charged.len() as u64, LIMIT, "all limits are charged, or none");
        }
        let unanswered = used - log.admitted();
        log.report(
            &mode.name("answers dropped, deny"),
            log.admitted().saturating_sub(LIMIT),
            0,
            format_args!("{unanswered} charged without an answer, each once; back after {back:.0?}"),
        );
        assert!(unanswered > 0 && back < BACK_WITHIN, "{unanswered}, {back:?}");
    })
    .await;
}
