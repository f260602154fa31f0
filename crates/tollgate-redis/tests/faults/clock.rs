//! A server whose clock steps.

use std::time::Duration;

use tokio::time::sleep;
use tollgate_testkit::RedisServer;

use super::mode::in_both_modes;
use super::{Node, wait};

const BURST: u64 = 20;
const HOUR: i64 = 3_600_000_000;

/// Each holds 20 and gets them back within an hour.
const LIMITS: [(&str, &str); 6] = [
    ("token", "token_bucket: { rate: 20/h, burst: 20 }"),
    ("leaky", "leaky_bucket: { rate: 20/h, queue: 20 }"),
    ("window", "fixed_window: { limit: 20, window: 1h, align: first }"),
    ("log", "sliding_log: { limit: 20, window: 1h }"),
    ("counter", "sliding_counter: { limit: 20, window: 1h, buckets: 4 }"),
    ("credits", "burst_credits: { rate: 20/h, peak: 40/h, credits: 20 }"),
];

/// By then, units have come that a grant promised for later: `sync` at most.
const PROMISED: Duration = Duration::from_millis(150);

/// How many of 30 requests pass, of each limit. A process that has just started knows of no denial.
async fn passing(policy: &str) -> Vec<u64> {
    let node = Node::start(policy).await;
    let mut passing = vec![0; LIMITS.len()];
    for (requests, pause) in [(25, PROMISED), (5, Duration::ZERO)] {
        for ((name, _), passing) in LIMITS.iter().zip(&mut passing) {
            for _ in 0..requests {
                *passing += u64::from(node.ask(&[("path", &format!("/{name}")), ("tenant", "acme")]).await.0);
            }
        }
        sleep(pause).await;
    }
    passing
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_back_gains_nothing_and_a_step_forward_one_burst_at_most() {
    in_both_modes(|mode| async move {
        let server = wait(|| RedisServer::with_clock(&[]));
        let mut policy = format!(
            "store: {{ redis: {{ url: '{}', deadline: 900ms, on_error: deny, {} }} }}\nlimits:\n",
            server.url(),
            mode.settings()
        );
        for (name, limit) in LIMITS {
            policy +=
                &format!("  - {{ name: {name}, match: {{ path: /{name} }}, key: [tenant], {limit} }}\n");
        }
        assert_eq!(passing(&policy).await, [BURST; 6], "new keys");
        let mut report = Vec::new();
        for (when, shift, most) in [
            ("an hour back", -HOUR, 0),
            ("right again", 0, 0),
            ("back and right once more", 0, 0),
            ("an hour ahead", HOUR, BURST),
            ("right again", 0, 0),
            ("an hour back", -HOUR, 0),
            ("an hour ahead again", HOUR, 0),
        ] {
            if when.starts_with("back and") {
                server.shift_clock(-HOUR);
                passing(&policy).await;
            }
            server.shift_clock(shift);
            let passed = passing(&policy).await;
            assert!(passed.iter().all(|&passed| passed <= most), "{when}: {passed:?} pass, {most} at most");
            report.push(format!("{when} {passed:?}"));
        }
        let names = LIMITS.map(|(name, _)| name);
        let what = mode.name("the server's clock steps");
        println!("{what}: of {names:?}, each used up, pass: {}", report.join(", "));
    })
    .await;
}
