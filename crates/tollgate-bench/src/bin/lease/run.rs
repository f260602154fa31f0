//! One run of a case, in one mode.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use tollgate_testkit::{FaultProxy, RedisServer};

use crate::cases::{Case, Rule};
use crate::measure::unix_micros;
use crate::node::{BUCKET_MICROS, Order};

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exact,
    Lease,
}

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) nodes: Vec<NodeOutcome>,
    pub(crate) scripts: u64,
    pub(crate) seconds: f64,
    pub(crate) grown_kib: u64,
    admitted: BTreeMap<u64, u64>, // by bucket of time
}

/// What came of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeOutcome {
    pub(crate) rate: f64,
    pub(crate) asked: u64,
    pub(crate) admitted: u64,
    pub(crate) waited: u64,
    pub(crate) fell_back: u64,
    pub(crate) keys: u64,
    pub(crate) held: u64,
}

impl Outcome {
    pub(crate) fn asked(&self) -> u64 {
        self.nodes.iter().map(|node| node.asked).sum()
    }

    pub(crate) fn admitted(&self) -> u64 {
        self.nodes.iter().map(|node| node.admitted).sum()
    }

    pub(crate) fn per_call(&self) -> f64 {
        self.asked() as f64 / self.scripts.max(1) as f64
    }

    pub(crate) fn calls_per_second(&self) -> f64 {
        self.scripts as f64 / self.seconds
    }

    /// The part of the limit or of the demand, whichever is less, that was admitted.
    pub(crate) fn used(&self, rule: Rule) -> f64 {
        self.admitted() as f64 / (self.most(rule).min(self.asked() as f64))
    }

    /// The most that the rule admits from the first admitted request to the end of the load.
    fn most(&self, rule: Rule) -> f64 {
        let Some((first, _)) = self.admitted.first_key_value() else { return f64::MAX };
        match rule {
            Rule::Bucket { rate, burst } => {
                let end = self.admitted.last_key_value().map_or(*first, |(last, _)| *last) + 1;
                burst as f64 + rate as f64 * seconds(end - first)
            }
            // The load begins with a window.
            Rule::Window { limit, seconds } => limit as f64 * (self.seconds / seconds as f64).ceil(),
        }
    }

    /// By how many requests the limit was exceeded in total, at the worst moment. At most zero if it never was.
    pub(crate) fn most_above(&self, rule: Rule) -> f64 {
        let first = self.admitted.first_key_value().map_or(0, |(first, _)| *first);
        match rule {
            Rule::Bucket { rate, burst } => {
                let mut sum = 0;
                let above = self.admitted.iter().map(|(bucket, admitted)| {
                    sum += admitted;
                    sum as f64 - burst as f64 - rate as f64 * seconds(bucket + 1 - first)
                });
                above.fold(f64::MIN, f64::max)
            }
            Rule::Window { limit, seconds } => {
                let buckets = seconds * 1_000_000 / BUCKET_MICROS;
                let mut windows: BTreeMap<u64, u64> = BTreeMap::new();
                for (bucket, admitted) in &self.admitted {
                    *windows.entry(bucket / buckets).or_default() += admitted;
                }
                windows.values().map(|admitted| *admitted as f64 - limit as f64).fold(f64::MIN, f64::max)
            }
        }
    }

    /// By how many requests the worst span of any length is above what the rule admits in such a span.
    pub(crate) fn most_above_in_spans(&self, rule: Rule) -> f64 {
        let Rule::Bucket { rate, burst } = rule else {
            let Rule::Window { limit, seconds } = rule else { return 0.0 };
            // Two windows meet in a span of one.
            let buckets = seconds * 1_000_000 / BUCKET_MICROS;
            let starts = self.admitted.keys();
            let spans = starts
                .map(|first| self.admitted.range(first..&(first + buckets)).map(|(_, n)| n).sum::<u64>());
            return spans.max().unwrap_or(0) as f64 - 2.0 * limit as f64;
        };
        let (mut sum, mut lowest, mut worst) = (0.0, f64::MAX, f64::MIN);
        for (bucket, admitted) in &self.admitted {
            lowest = lowest.min(sum - rate as f64 * seconds(*bucket));
            sum += *admitted as f64;
            worst = worst.max(sum - rate as f64 * seconds(bucket + 1) - lowest);
        }
        worst - burst as f64
    }
}

fn seconds(buckets: u64) -> f64 {
    buckets as f64 * BUCKET_MICROS as f64 / 1e6
}

/// Runs a case.
pub(crate) fn run(case: &Case, mode: Mode, seconds: u64) -> Outcome {
    let server = RedisServer::start();
    let proxy = (case.round_trip_ms > 0).then(|| FaultProxy::start(server.address()));
    if let Some(proxy) = &proxy {
        proxy.delay(Duration::from_millis(case.round_trip_ms) / 2);
    }
    let url = proxy.as_ref().map_or_else(|| server.url(), |proxy| format!("redis://{}", proxy.address()));
    let (mode_name, deadline) = match mode {
        Mode::Exact => ("exact", 5 + 5 * case.round_trip_ms),
        Mode::Lease => ("lease", 5 + 5 * case.round_trip_ms),
    };
    let nodes: usize = case.processes.iter().map(Vec::len).sum();
    let policy = format!(
        "store: {{ redis: {{ url: '{url}', mode: {mode_name}, deadline: {deadline}ms, on_error: deny, nodes: {nodes} }} }}\n\
         limits: [{{ name: shared, key: [tenant], {} }}]\n",
        case.rule.text()
    );
    let file = server.directory().join("tollgate.yaml");
    std::fs::write(&file, policy).expect("a policy file");
    let begin = begin(case.rule);
    let program = std::env::current_exe().expect("this program");
    let children: Vec<_> = (0..)
        .zip(&case.processes)
        .map(|(seed, rates)| {
            let order = Order {
                policy: file.display().to_string(),
                rates: rates.clone(),
                keys: case.keys,
                seed,
                begin,
                seconds,
            };
            let mut command = Command::new(&program);
            command.args(order.arguments()).stdout(Stdio::piped());
            (rates, command.spawn().expect("it starts"))
        })
        .collect();
    std::thread::sleep(Duration::from_micros(begin.saturating_sub(unix_micros() + 20_000)));
    let before = scripts(&server);
    std::thread::sleep(Duration::from_micros((begin + seconds * 1_000_000).saturating_sub(unix_micros())));
    let scripts = scripts(&server) - before;
    let mut outcome = Outcome { scripts, seconds: seconds as f64, ..Outcome::default() };
    for (rates, child) in children {
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "a node has failed");
        outcome.read(&String::from_utf8_lossy(&output.stdout), rates);
    }
    outcome
}

/// A moment soon: for windows, when one begins.
fn begin(rule: Rule) -> u64 {
    let soon = unix_micros() + 1_500_000;
    match rule {
        Rule::Bucket { .. } => soon,
        Rule::Window { seconds, .. } => soon.next_multiple_of(seconds * 1_000_000),
    }
}

impl Outcome {
    fn read(&mut self, text: &str, rates: &[f64]) {
        let base = self.nodes.len();
        self.nodes.extend(rates.iter().map(|rate| NodeOutcome { rate: *rate, ..NodeOutcome::default() }));
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let kind = words.next();
            let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
            match (kind, &numbers[..]) {
                (Some("rss"), [kib]) => self.grown_kib += kib,
                (Some("node"), [index, asked, waited, fell_back, keys, held]) => {
                    let node = &mut self.nodes[base + *index as usize];
                    (node.asked, node.waited, node.fell_back) = (*asked, *waited, *fell_back);
                    (node.keys, node.held) = (*keys, *held);
                }
                (Some("at"), [index, bucket, admitted]) => {
                    self.nodes[base + *index as usize].admitted += admitted;
                    *self.admitted.entry(*bucket).or_default() += admitted;
                }
                _ => panic!("a node says `{line}`"),
            }
        }
    }
}

/// The scripts that a server has run.
fn scripts(server: &RedisServer) -> u64 {
    let info = server.command(&["INFO", "commandstats"]);
    let calls = |name: &str| {
        let line = info.text().lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    calls("evalsha") + calls("eval")
}
