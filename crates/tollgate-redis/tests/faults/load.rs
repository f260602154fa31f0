//! Load from several processes, and what became of each request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tollgate_policy::Source;

use super::{Node, until};

/// What is asked again and again, by every process.
#[derive(Clone, Copy)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    pub(crate) attributes: &'static [(&'static str, &'static str)],
}

/// One request.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) line: usize,
    pub(crate) node: usize,
    /// Its attribute `request`, which no other has.
    pub(crate) id: u64,
    pub(crate) sent: Instant,
    pub(crate) took: Duration,
    pub(crate) is_allowed: bool,
    pub(crate) source: Source,
}

impl Asked {
    pub(crate) fn received(&self) -> Instant {
        self.sent + self.took
    }

    pub(crate) fn fell_back(&self) -> bool {
        self.source == Source::Fallback
    }

    /// Whether the store decided it, or a grant that the store has charged.
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.source, Source::Store | Source::Lease)
    }
}

/// Requests that are made until this is stopped.
pub(crate) struct Load {
    lines: Vec<Line>,
    nodes: Vec<Arc<Mutex<Node>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Load {
    /// Begins to ask: each process has `tasks` for each line, and each of them asks every so often.
    pub(crate) fn start(nodes: &[Node], lines: &[Line], tasks: usize, every: Duration) -> Self {
        let (asked, is_over, next) = (Arc::default(), Arc::default(), Arc::new(AtomicU64::new(0)));
        let nodes = nodes.iter().map(|node| Arc::new(Mutex::new(node.clone()))).collect();
        let mut load = Self { lines: lines.to_vec(), nodes, asked, is_over, tasks: JoinSet::new() };
        for (node, process) in load.nodes.iter().enumerate() {
            for (number, line) in lines.iter().enumerate() {
                for _ in 0..tasks {
                    let (process, line, next) = (Arc::clone(process), *line, Arc::clone(&next));
                    let (asked, is_over) = (Arc::clone(&load.asked), Arc::clone(&load.is_over));
                    load.tasks.spawn(async move {
                        let mut pace = interval(every);
                        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
                        while !is_over.load(Relaxed) {
                            pace.tick().await;
                            let (id, sent) = (next.fetch_add(1, Relaxed), Instant::now());
                            let text = id.to_string();
                            let attributes = [line.attributes, &[("request", text.as_str())]].concat();
                            let process = process.lock().clone();
                            let (is_allowed, source) = process.ask(&attributes).await;
                            let took = sent.elapsed();
                            asked.lock().push(Asked {
                                line: number,
                                node,
                                id,
                                sent,
                                took,
                                is_allowed,
                                source,
                            });
                        }
                    });
                }
            }
        }
        load
    }

    /// Waits until the store has denied something of each line: the limits are used up.
    pub(crate) async fn until_denied(&self) {
        until("all limits are used up", || {
            let asked = self.asked.lock();
            let is_denied =
                |line| asked.iter().any(|one| one.line == line && !one.is_allowed && !one.fell_back());
            (0..self.lines.len()).all(is_denied)
        })
        .await;
    }

    /// Waits until every process has been answered by the store or its grants, of each line, for what was asked after `since`; tells
    /// how long after. After an outage that was longer than a grant can be held (its start and its life), grants are new ones.
    pub(crate) async fn until_back(&self, since: Instant) -> Duration {
        until("the store decides again", || {
            let asked = self.asked.lock();
            let is_back = |node, line| {
                let mut newest = asked.iter().rev().take_while(|one| one.received() > since);
                newest
                    .any(|one| (one.node, one.line) == (node, line) && one.is_answered() && one.sent >= since)
            };
            (0..self.nodes.len()).all(|node| (0..self.lines.len()).all(|line| is_back(node, line)))
        })
        .await;
        since.elapsed()
    }

    /// Sends the next requests of a process to another one. Returns the one before.
    pub(crate) fn replace(&self, node: usize, with: Node) -> Node {
        std::mem::replace(&mut *self.nodes[node].lock(), with)
    }

    /// Stops asking.
    pub(crate) async fn stop(mut self) -> Log {
        self.is_over.store(true, Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        let mut asked = std::mem::take(&mut *self.asked.lock());
        asked.sort_by_key(|one| one.sent);
        Log { lines: self.lines, asked }
    }
}

/// What became of all requests, in the order they were made.
pub(crate) struct Log {
    lines: Vec<Line>,
    pub(crate) asked: Vec<Asked>,
}

impl Log {
    /// The requests of one line.
    pub(crate) fn of(&self, name: &str) -> Log {
        let line = self.lines.iter().position(|line| line.name == name).expect("a line of the load");
        let asked = self.asked.iter().filter(|one| one.line == line).copied().collect();
        Log { lines: self.lines.clone(), asked }
    }

    /// What was asked in a time.
    pub(crate) fn between(&self, from: Instant, to: Instant) -> Log {
        let asked =
            self.asked.iter().filter(|one| one.sent >= from && one.received() < to).copied().collect();
        Log { lines: self.lines.clone(), asked }
    }

    pub(crate) fn count(&self, which: impl Fn(&Asked) -> bool) -> u64 {
        self.asked.iter().filter(|one| which(one)).count() as u64
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.count(|one| one.is_allowed)
    }

    pub(crate) fn fell_back(&self) -> u64 {
        self.count(Asked::fell_back)
    }

    /// What passed without the store.
    pub(crate) fn admitted_meanwhile(&self) -> u64 {
        self.count(|one| one.is_allowed && one.fell_back())
    }

    /// The longest time without an answer of the store or by its grants, at least.
    pub(crate) fn silence(&self) -> Duration {
        let answered: Vec<&Asked> = self.asked.iter().filter(|one| one.is_answered()).collect();
        let mut last = answered.first().map(|one| one.received());
        let mut longest = Duration::ZERO;
        for one in answered {
            let before = last.expect("there is a first");
            longest = longest.max(one.sent.saturating_duration_since(before));
            last = Some(before.max(one.received()));
        }
        longest
    }

    /// How much more than an exact bucket allows has passed for certain: in no span between a request and an answer may it
    /// be more than the burst and what refills in the span, and here is the worst.
    pub(crate) fn over(&self, rate: u64, burst: u64) -> u64 {
        let mut admitted: Vec<&Asked> = self.asked.iter().filter(|one| one.is_allowed).collect();
        admitted.sort_by_key(|one| one.received());
        let mut over = 0;
        for first in &admitted {
            let mut passed = 0;
            for last in admitted.iter().filter(|last| last.sent >= first.sent) {
                passed += 1;
                let span = last.received() - first.sent;
                let refilled = span.as_nanos() * u128::from(rate) / 1_000_000_000;
                over =
                    over.max(passed - i128::from(burst) - i128::try_from(refilled).expect("a small number"));
            }
        }
        u64::try_from(over).unwrap_or(0)
    }

    /// The most that passed for certain in any span of that length.
    pub(crate) fn most_within(&self, span: Duration) -> u64 {
        let admitted: Vec<&Asked> = self.asked.iter().filter(|one| one.is_allowed).collect();
        let within = |first: &Asked| {
            let end = first.sent + span;
            admitted.iter().filter(|one| one.sent >= first.sent && one.received() < end).count() as u64
        };
        admitted.iter().map(|first| within(first)).max().unwrap_or(0)
    }

    /// How long all but one in a thousand took at most, and the slowest.
    pub(crate) fn times(&self) -> (Duration, Duration) {
        let mut times: Vec<Duration> = self.asked.iter().map(|one| one.took).collect();
        times.sort();
        let slowest = *times.last().expect("something was asked");
        (times[times.len() * 999 / 1000], slowest)
    }

    /// Prints a line of the report, and holds what all faults have to hold.
    pub(crate) fn report(&self, what: &str, over: u64, bound: u64, more: impl fmt::Display) {
        let (most, slowest) = self.times();
        println!(
            "{what}: {} asked, {} admitted, {} fell back; over-admission {over} of at most {bound}; \
             p99.9 {most:.1?}, max {slowest:.1?}; {more}",
            self.asked.len(),
            self.admitted(),
            self.fell_back(),
        );
        assert!(over <= bound, "{what}: {over} too many passed, {bound} is the bound");
        assert!(slowest < Duration::from_secs(1), "{what}: a decision took {slowest:?}");
    }
}

/// What a rate gives in a time, rounded up.
pub(crate) fn refill(rate: u64, time: Duration) -> u64 {
    u64::try_from((time.as_nanos() * u128::from(rate)).div_ceil(1_000_000_000)).expect("a small number")
}

mod tests {
    use super::*;

    /// Requests at these milliseconds, answered after so many more.
    fn log(asked: &[(u64, u64)]) -> Log {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let asked = asked.iter().map(|&(sent, took)| Asked {
            line: 0,
            node: 0,
            id: 0,
            sent: began + ms(sent),
            took: ms(took),
            is_allowed: true,
            source: Source::Store,
        });
        Log { lines: Vec::new(), asked: asked.collect() }
    }

    #[test]
    fn only_what_is_certain_is_too_much() {
        for (asked, over) in [
            (vec![(0, 1), (0, 1)], 0),
            (vec![(0, 1), (0, 1), (0, 1)], 1),
            (vec![(0, 1), (0, 1), (50, 1)], 1),
            (vec![(0, 1), (0, 1), (99, 1)], 0), // a token may have come by the answer
            (vec![(0, 1), (0, 1), (50, 60)], 0), // also if that is late
            (vec![(0, 1), (0, 1), (100, 1), (500, 1), (501, 1), (502, 1), (503, 1)], 2),
        ] {
            assert_eq!(log(&asked).over(10, 2), over, "{asked:?}");
        }
        assert_eq!(log(&[(0, 1), (5, 1), (9, 1), (9, 0)]).most_within(Duration::from_millis(10)), 3);
    }
}
