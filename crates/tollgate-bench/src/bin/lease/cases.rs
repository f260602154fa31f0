//! The rows of the table: what runs, what is wanted, and what the research model says.

use tollgate_lab::cluster::ClusterSettings;

/// A row.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) rule: Rule,
    /// For each process, the requests per second of each of its nodes.
    pub(crate) processes: Vec<Vec<f64>>,
    pub(crate) keys: u64,
    pub(crate) round_trip_ms: u64, // that the fault proxy adds
    pub(crate) wanted: Wanted,
    pub(crate) model: &'static str,
}

/// The rule that all nodes share.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    Bucket { rate: u64, burst: u64 },
    Window { limit: u64, seconds: u64 },
}

impl Case {
    /// The same nodes on a simulated network. None if the simulator cannot have them.
    pub(crate) fn simulated(&self, seconds: u64) -> Option<ClusterSettings> {
        let Rule::Bucket { rate, burst } = self.rule else { return None };
        let rates: Vec<f64> = self.processes.iter().flatten().copied().collect();
        let (first, rest) = rates.split_first()?;
        let total: f64 = rates.iter().sum();
        let is_even = |rates: &[f64]| rates.windows(2).all(|two| two[0] == two[1]);
        if self.keys > 1 || total > 100_000.0 || !is_even(rest) || rates.len() > 8 {
            return None;
        }
        let rtt = self.round_trip_ms * 1_000_000 + 500_000;
        Some(ClusterSettings {
            nodes: u32::try_from(rates.len()).ok()?,
            rate,
            burst,
            overload: total / rate as f64,
            skew: (!is_even(&rates)).then_some(first / total),
            rtt,
            deadline: 5_000_000 + 5 * rtt,
            duration: seconds * 1_000_000_000,
            ..ClusterSettings::default()
        })
    }
}

impl Rule {
    pub(crate) fn text(self) -> String {
        match self {
            Self::Bucket { rate, burst } => format!("token_bucket: {{ rate: {rate}/s, burst: {burst} }}"),
            Self::Window { limit, seconds } => {
                format!("fixed_window: {{ limit: {limit}, window: {seconds}s }}")
            }
        }
    }
}

/// What a row has to show. None where nothing is asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) use_percent: Option<f64>,
    pub(crate) per_call: Option<f64>,
    pub(crate) most_calls: Option<f64>,
    pub(crate) least_of_exact: Option<f64>, // each node's share of what exact mode gives it
    pub(crate) quiet_percent: Option<f64>,  // of the requests of nodes with at most 10 per second
    pub(crate) waiting_percent: Option<f64>,
    pub(crate) denies_nobody: bool,
    pub(crate) is_rare: bool, // no more calls than exact mode, at most 8 MB, nothing held a second later
}

impl Wanted {
    pub(crate) fn text(&self) -> String {
        let mut parts = Vec::new();
        let mut add = |value: Option<f64>, text: &dyn Fn(f64) -> String| parts.extend(value.map(text));
        add(self.use_percent, &|value| format!("{value} % used"));
        add(self.per_call, &|value| format!("{value} per call"));
        add(self.most_calls, &|value| format!("{value} calls/s at most"));
        add(self.least_of_exact, &|value| format!("each node {value} of exact"));
        add(self.quiet_percent, &|value| format!("{value} % of the quiet"));
        add(self.waiting_percent, &|value| format!("under {value} % wait"));
        if self.denies_nobody {
            parts.push("nobody denied".to_owned());
        }
        if self.is_rare {
            parts.push("calls as exact, 8 MB, nothing held".to_owned());
        }
        parts.join(", ")
    }
}

/// The same rate at each of some processes.
fn even(processes: usize, per_second: f64) -> Vec<Vec<f64>> {
    vec![vec![per_second / processes as f64]; processes]
}

/// Eight processes, of which one has 80 %.
fn skewed(per_second: f64) -> Vec<Vec<f64>> {
    let rest = vec![per_second * 0.2 / 7.0];
    std::iter::once(vec![per_second * 0.8]).chain(std::iter::repeat_n(rest, 7)).collect()
}

pub(crate) fn cases() -> Vec<Case> {
    let bucket = |rate, burst| Rule::Bucket { rate, burst };
    let full = Some(99.0);
    let case = |name, what, rule, processes, wanted, model| Case {
        name,
        what,
        rule,
        processes,
        keys: 1,
        round_trip_ms: 0,
        wanted,
        model,
    };
    let first =
        Wanted { use_percent: full, per_call: Some(250.0), most_calls: Some(80.0), ..Wanted::default() };
    let per_call = |least| Wanted { use_percent: full, per_call: Some(least), ..Wanted::default() };
    vec![
        case(
            "four",
            "4 processes, one key, 20 x, R = B = 1000/s",
            bucket(1000, 1000),
            even(4, 20_000.0),
            first,
            "470 per call, 42 calls/s",
        ),
        case(
            "hundred",
            "the same, R = B = 100/s",
            bucket(100, 100),
            even(4, 2000.0),
            per_call(75.0),
            "157 per call",
        ),
        case(
            "fast",
            "the same, R = B = 100 000/s, as much load as the machine makes",
            bucket(100_000, 100_000),
            even(4, 2_000_000.0),
            Wanted { most_calls: Some(100.0), ..Wanted::default() },
            "42 calls/s",
        ),
        case(
            "burst-100",
            "the same, R = 1000/s, burst 100",
            bucket(1000, 100),
            even(4, 20_000.0),
            per_call(75.0),
            "160 per call",
        ),
        case(
            "burst-16",
            "the same, R = 1000/s, burst 16",
            bucket(1000, 16),
            even(4, 20_000.0),
            per_call(40.0),
            "80 per call",
        ),
        Case {
            round_trip_ms: 20,
            ..case(
                "far",
                "as the first, round trips of 20 ms",
                bucket(1000, 1000),
                even(4, 20_000.0),
                first,
                "",
            )
        },
        case(
            "skewed",
            "8 processes, 80 % of 20 x at one",
            bucket(1000, 1000),
            skewed(20_000.0),
            per_call(100.0),
            "240 per call",
        ),
        case(
            "skewed-1.2",
            "8 processes, 80 % of 1.2 x at one",
            bucket(1000, 1000),
            skewed(1200.0),
            Wanted { use_percent: Some(98.0), least_of_exact: Some(0.9), ..Wanted::default() },
            "",
        ),
        case(
            "calm",
            "4 processes, 60 % load at 1000/s",
            bucket(1000, 1000),
            even(4, 600.0),
            Wanted {
                most_calls: Some(60.0),
                waiting_percent: Some(1.0),
                denies_nobody: true,
                ..Wanted::default()
            },
            "41 calls/s",
        ),
        case(
            "quiet",
            "40 quiet nodes at 2/s beside 4 at 20 x",
            bucket(1000, 1000),
            vec![vec![5000.0; 2], vec![5000.0; 2], vec![2.0; 40]],
            Wanted { quiet_percent: Some(97.0), ..Wanted::default() },
            "99.9 %",
        ),
        Case {
            keys: 100_000,
            ..case(
                "rare",
                "100 000 rare keys, 5000 requests/s",
                bucket(1000, 1000),
                even(1, 5000.0),
                Wanted { is_rare: true, ..Wanted::default() },
                "",
            )
        },
        case(
            "minute",
            "fixed window of 1000 per minute, 20 x",
            Rule::Window { limit: 1000, seconds: 60 },
            even(4, 333.0),
            per_call(75.0),
            "154 per call",
        ),
        case(
            "second",
            "fixed window of 1000 per second, 20 x",
            Rule::Window { limit: 1000, seconds: 1 },
            even(4, 20_000.0),
            per_call(500.0),
            "1660 per call",
        ),
    ]
}
