//! An outage of the store, seen by two processes with limits of each `on_error`.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::load::{Line, Load, refill};
use super::mode::Mode;
use super::{BACK_WITHIN, Node, wait};

const RATE: u64 = 50;
const BURST: u64 = 200;
const NODES: usize = 2;

/// Each is asked far more than it allows: 400 a second by both processes.
const LINES: [Line; 3] = [
    Line { name: "deny", attributes: &[("path", "/deny"), ("tenant", "acme")] },
    Line { name: "allow", attributes: &[("path", "/allow"), ("tenant", "acme")] },
    Line { name: "local", attributes: &[("path", "/local"), ("tenant", "acme")] },
];
const TASKS: usize = 2;
const EVERY: Duration = Duration::from_millis(10);

/// A time without the store.
#[derive(Clone, Copy)]
pub(crate) struct Outage {
    pub(crate) name: &'static str,
    pub(crate) lasts: Duration,
    pub(crate) deadline: Duration,
    /// Whether the servers come back empty.
    pub(crate) forgets: bool,
}

impl Outage {
    fn policy(&self, mode: Mode, url: &str) -> String {
        let limit = |on_error: &str| {
            format!(
                "  - {{ name: {on_error}, match: {{ path: /{on_error} }}, key: [tenant], on_error: {on_error}, \
                 token_bucket: {{ rate: {RATE}/s, burst: {BURST} }} }}\n"
            )
        };
        let deadline = self.deadline.as_millis();
        format!(
            "store: {{ redis: {{ url: '{url}', deadline: {deadline}ms, nodes: {NODES}, {} }} }}\nlimits:\n{}{}{}",
            mode.settings(),
            limit("deny"),
            limit("allow"),
            limit("local"),
        )
    }

    /// Uses the limits up, takes the store away and brings it back, and holds each of them to its bound.
    pub(crate) async fn measure(
        self,
        mode: Mode,
        url: &str,
        take: impl FnOnce() + Send,
        bring: impl FnOnce() + Send,
    ) {
        let policy = self.policy(mode, url);
        let nodes = [Node::start(&policy).await, Node::start(&policy).await];
        let load = Load::start(&nodes, &LINES, TASKS, EVERY);
        load.until_denied().await;
        wait(take);
        let taken = Instant::now();
        sleep(self.lasts).await;
        let gone = taken.elapsed();
        wait(bring);
        let back = load.until_back(Instant::now()).await;
        sleep(Duration::from_millis(500)).await;
        let log = load.stop().await;
        for line in LINES {
            let log = log.of(line.name);
            let without = match mode {
                Mode::Exact => log.silence(),
                // A draw may be charged before the first request that it lets pass is made.
                Mode::Lease(_) => gone,
            };
            assert!(log.fell_back() > 0 && without > self.lasts / 2, "{}: it was noticed", self.name);
            // A bucket that is forgotten is as new: what would have refilled anyway is no loss. Of that only whole tokens
            // are certain, which is why it is rounded down.
            let refilled = u64::try_from(without.as_nanos() * u128::from(RATE) / 1_000_000_000).unwrap();
            let forgotten = if self.forgets { BURST.saturating_sub(refilled) } else { 0 };
            // Without the store, a bucket there has refilled unaware; the share of each process counts from the deadline
            // of the first call without an answer.
            let shares = refill(RATE, self.out(&log) + self.deadline) + NODES as u64;
            let excess = mode.excess(RATE, BURST, NODES as u64);
            let bound = excess
                + match line.name {
                    "deny" => forgotten,
                    "allow" => log.admitted_meanwhile() + forgotten,
                    _ => shares.min(BURST * outages(&log)) + forgotten,
                };
            let over = log.over(RATE, BURST);
            let meanwhile = log.admitted_meanwhile();
            let what = format!("{}, {}", mode.name(self.name), line.name);
            log.report(
                &what,
                over,
                bound,
                format_args!("{meanwhile} passed meanwhile; back after {back:.0?}"),
            );
            // A request that has waited in vain may still find a unit of a grant.
            match line.name {
                "deny" => assert!(meanwhile <= excess, "{what}: {meanwhile} passed"),
                "allow" => assert_eq!(meanwhile, log.fell_back(), "{what}"),
                _ => assert!(
                    meanwhile <= shares + excess,
                    "{what}: {meanwhile} passed, the shares are {shares}"
                ),
            }
        }
        // A busy machine may fail a trial of a few milliseconds as well.
        let is_patient = self.deadline >= Duration::from_millis(50);
        assert!(!is_patient || back < BACK_WITHIN, "{}: back after {back:?}", self.name);
    }

    /// From the first decision without the store to the last, at most.
    fn out(&self, log: &super::load::Log) -> Duration {
        let mut fallen = log.asked.iter().filter(|one| one.fell_back());
        let first = fallen.next().expect("something fell back").sent;
        fallen.map(|one| one.received() - first).max().unwrap_or_default()
    }
}

/// How often a process lost the store. A busy machine misses a deadline of a few milliseconds by itself, before and after
/// the outage that was made; and each time the bucket in the store may refill unaware.
fn outages(log: &super::load::Log) -> u64 {
    let of = |node: usize| {
        let fell_back: Vec<bool> =
            log.asked.iter().filter(|one| one.node == node).map(|one| one.fell_back()).collect();
        fell_back.windows(2).filter(|two| !two[0] && two[1]).count()
    };
    (0..NODES).map(of).max().unwrap_or_default() as u64
}
