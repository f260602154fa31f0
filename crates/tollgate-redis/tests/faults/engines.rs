//! Three processes that share limits of every kind, with nothing wrong but that all ask at once.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_testkit::{RedisServer, Witness, has_held};

use super::load::{Line, Load, Log, refill};
use super::mode::Mode;
use super::{Node, unspent, wait};

const RATE: u64 = 100;
const BURST: u64 = 50; // and as many in each window
const DEADLINE: Duration = Duration::from_millis(100);
const WINDOW: Duration = Duration::from_millis(500);

/// A request has a limit of every kind. On each path another one is the tightest, by three times.
const LINES: [Line; 6] = [
    Line { name: "token", attributes: &[("path", "/token"), ("tenant", "acme")] },
    Line { name: "leaky", attributes: &[("path", "/leaky"), ("tenant", "acme")] },
    Line { name: "credits", attributes: &[("path", "/credits"), ("tenant", "acme")] },
    Line { name: "window", attributes: &[("path", "/window"), ("tenant", "acme")] },
    Line { name: "log", attributes: &[("path", "/log"), ("tenant", "acme")] },
    Line { name: "counter", attributes: &[("path", "/counter"), ("tenant", "acme")] },
];

fn limit(kind: &str, times: u64) -> String {
    let (rate, burst, window) = (RATE * times, BURST * times, WINDOW.as_millis());
    match kind {
        "token" => format!("token_bucket: {{ rate: {rate}/s, burst: {burst} }}"),
        "leaky" => format!("leaky_bucket: {{ rate: {rate}/s, queue: {burst} }}"),
        "credits" => format!("burst_credits: {{ rate: {rate}/s, peak: 10x, credits: {burst} }}"),
        "window" => format!("fixed_window: {{ limit: {burst}, window: {window}ms }}"),
        "log" => format!("sliding_log: {{ limit: {burst}, window: {window}ms }}"),
        _ => format!("sliding_counter: {{ limit: {burst}, window: {window}ms }}"),
    }
}

/// Whoever takes a place that is free again is late by less.
const LATE: Duration = Duration::from_millis(50);

/// The most that a limit lets pass in a time, and the least where it is asked all the time.
fn allowed(kind: &str, time: Duration) -> (u64, u64) {
    let windows =
        |window: Duration| u64::try_from(time.as_nanos() / window.as_nanos()).expect("a small number");
    let most = BURST * (windows(WINDOW) + 1);
    match kind {
        "token" | "leaky" | "credits" => (BURST + refill(RATE, time), BURST + refill(RATE, time) - 1),
        // The time may begin and end within one.
        "window" => (most + BURST, BURST * windows(WINDOW)),
        // Places return a window after they were taken, so that who is late once is late ever after.
        "log" => (most, BURST * windows(WINDOW + LATE)),
        _ => (most + BURST, BURST * windows(WINDOW + LATE)),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_together_admit_what_one_limiter_would() {
    measure(Mode::Exact).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_with_leases_admit_what_one_limiter_would() {
    measure(Mode::LEASE).await;
}

async fn measure(mode: Mode) {
    const TRIES: usize = 10;
    for _ in 0..TRIES {
        let (stood_still, missing) = run(mode).await;
        if has_held(&missing, stood_still, DEADLINE) {
            return;
        }
    }
    panic!("the machine stood still in each of {TRIES} runs");
}

/// Nobody may let too many pass, however still the machine stood. Too few is said, with how long a mere ping took.
async fn run(mode: Mode) -> (Duration, Vec<String>) {
    let seconds = if tollgate_testkit::is_long() { 30 } else { 5 };
    let server = wait(RedisServer::start);
    let mut policy = format!(
        "store: {{ redis: {{ url: '{}', deadline: {}ms, on_error: deny, {} }} }}\nlimits:\n",
        server.url(),
        DEADLINE.as_millis(),
        mode.settings(),
    );
    for path in LINES {
        for kind in LINES {
            let limit = limit(kind.name, if kind.name == path.name { 1 } else { 3 });
            policy += &format!(
                "  - {{ name: {}-{}, match: {{ path: /{} }}, key: [tenant], {limit} }}\n",
                path.name, kind.name, path.name
            );
        }
    }
    let nodes = [Node::start(&policy).await, Node::start(&policy).await, Node::start(&policy).await];
    let witness = Witness::start(server.address());
    let load = Load::start(&nodes, &LINES, 2, Duration::from_millis(3));
    sleep(Duration::from_secs(seconds)).await;
    let log = load.stop().await;
    let stood_still = wait(|| witness.stop());
    let mut missing = Vec::new();
    for line in LINES {
        let log = log.of(line.name);
        let (first, last) = (log.asked[0].sent, log.asked.iter().map(|one| one.received()).max());
        let (most, _) = allowed(line.name, last.expect("some") - first);
        // A limit that nobody has used yet refills nothing.
        let used = log.asked.iter().filter(|one| one.is_allowed).map(|one| one.received()).min();
        let (_, least) =
            allowed(line.name, log.asked.last().expect("some").sent - used.expect("some passed"));
        // What timed out may have been charged, and let nobody pass.
        let unanswered = log.count(|one| one.fell_back() && one.took >= DEADLINE);
        // What was drawn of the tightest limit and not spent.
        let unspent = unspent(&nodes, &format!("{0}-{0}", line.name));
        let admitted = log.admitted();
        log.report(
            &mode.name(&format!("three processes, {}", line.name)),
            admitted.saturating_sub(most).max(over_in_spans(line.name, &log)),
            if is_bucket(line.name) { mode.excess(RATE, BURST, nodes.len() as u64) } else { 0 },
            format_args!(
                "{admitted} of {most} at most, {least} at least, {unanswered} unanswered, {unspent} unspent"
            ),
        );
        assert!(admitted <= most, "leases exceed no limit in total");
        if (admitted + unanswered + unspent) * 100 < least * mode.least_use() {
            let name = line.name;
            missing.push(format!(
                "{name}: {admitted} passed, {unanswered} timed out and {unspent} were not spent, {least} should pass"
            ));
        }
    }
    (stood_still, missing)
}

fn is_bucket(kind: &str) -> bool {
    matches!(kind, "token" | "credits")
}

/// How many passed too many in any span, where the rule promises something of it.
fn over_in_spans(kind: &str, log: &Log) -> u64 {
    match kind {
        "token" | "leaky" | "credits" => log.over(RATE, BURST),
        "log" => log.most_within(WINDOW).saturating_sub(BURST),
        _ => log.most_within(WINDOW).saturating_sub(2 * BURST),
    }
}
