//! Three processes that share limits of every kind, with nothing wrong but that all ask at once.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_testkit::RedisServer;

use crate::load::{Line, Load, Log, refill};
use crate::{Node, wait};

const RATE: u64 = 100;
const BURST: u64 = 50; // and as many in each window
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

/// The most that a limit lets pass in a time, and the least where it is asked all the time.
fn allowed(kind: &str, time: Duration) -> (u64, u64) {
    let windows = u64::try_from(time.as_nanos() / WINDOW.as_nanos()).expect("a few");
    match kind {
        "token" | "leaky" | "credits" => (BURST + refill(RATE, time), BURST + refill(RATE, time) - 1),
        "log" => (BURST * (windows + 1), BURST * windows),
        // The time may begin and end within one.
        _ => (BURST * (windows + 2), BURST * windows),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_together_admit_what_one_limiter_would() {
    let seconds = if std::env::var_os("TOLLGATE_LONG").is_some() { 30 } else { 5 };
    let server = wait(RedisServer::start);
    let mut policy = format!(
        "store: {{ redis: {{ url: '{}', deadline: 100ms, on_error: deny }} }}\nlimits:\n",
        server.url()
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
    let began = Instant::now();
    let load = Load::start(&nodes, &LINES, 2, Duration::from_millis(3));
    sleep(Duration::from_secs(seconds)).await;
    let time = began.elapsed();
    let log = load.stop().await;
    for line in LINES {
        let log = log.of(line.name);
        let (first, last) = (log.asked[0].sent, log.asked.iter().map(|one| one.received()).max());
        let (most, _) = allowed(line.name, last.expect("some") - first);
        let (_, least) = allowed(line.name, time);
        let admitted = log.admitted();
        log.report(
            &format!("three processes, {}", line.name),
            admitted.saturating_sub(most).max(over_in_spans(line.name, &log)),
            0,
            format_args!("{admitted} of {most} at most, {least} at least, in {time:.1?}"),
        );
        assert!(admitted * 100 >= least * 99, "{}: {admitted} passed, {least} should", line.name);
    }
}

/// How many passed too many in any span, where the rule promises something of it.
fn over_in_spans(kind: &str, log: &Log) -> u64 {
    match kind {
        "token" | "leaky" | "credits" => log.over(RATE, BURST),
        "log" => log.most_within(WINDOW).saturating_sub(BURST),
        _ => log.most_within(WINDOW).saturating_sub(2 * BURST),
    }
}
