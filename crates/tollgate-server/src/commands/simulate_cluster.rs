//! `tollgate simulate cluster`: nodes that share one limit through a store, on a simulated network.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate_lab::cluster::{
    ClusterOutcome, ClusterSettings, Fault, Scheme, SchemeOutcome, growth_plot, run_plot, simulate,
};
use tollgate_lab::{Progress, plot};
use tollgate_policy::quantity;

use super::lab::{Bar, count, counted, duration, grouped, percent, say, span, write};
use super::table;

/// What to simulate.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Cluster {
    /// How many nodes share the limit, 1 to 10000. Several numbers, such as 1,10,100, give one run each
    #[arg(long, value_name = "COUNT[,COUNT…]", default_value = "4", value_delimiter = ',', value_parser = count)]
    nodes: Vec<u64>,
    /// The limit: units per second, such as 1000 or 10k
    #[arg(long, value_name = "COUNT", default_value = "1000", value_parser = count)]
    rate: u64,
    /// The burst of the limit [default: as many units as come in a second]
    #[arg(long, value_name = "COUNT", value_parser = count)]
    burst: Option<u64>,
    /// The demand of all nodes together, as a multiple of the rate
    #[arg(long, value_name = "FACTOR", default_value_t = 20.0)]
    overload: f64,
    /// The share of the demand at node 0, such as 0.8 [default: all nodes have the same demand]
    #[arg(long, value_name = "SHARE")]
    skew: Option<f64>,
    /// The time from a node to the store and back, 0s to 1s
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = quantity::duration)]
    rtt: Duration,
    /// The probability that a message is lost, 0 to 1
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.0)]
    loss: f64,
    /// Something that goes wrong, such as partition@5s+2s:3 (see below). It may be given several times
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// How long a grant should last at the present demand, and the time between two reports, 10ms to 5s
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = duration)]
    sync: Duration,
    /// How long a request waits for the store [default: 5ms and a round trip]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    deadline: Option<Duration>,
    /// How long the run takes, up to 1h of simulated time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    duration: Duration,
    /// The seed of the random numbers. The same seed gives the same result
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Run only this scheme. It may be given several times
    #[arg(long, value_name = "SCHEME", value_parser = scheme)]
    scheme: Vec<Scheme>,
    /// Draw what each scheme admits and how often it calls the store: over time, or by the number of nodes if there are several runs
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print JSON, and nothing else
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Schemes:
  lease               a node draws units from the store before it spends them
  exact               the store decides each request
  static_split        each node has an equal part of the limit
  report_after_spend  each node decides by its own copy of the bucket, and reports every --sync what it spent
  refuse_and_wait     a node draws units when it has none; if the store has none either, the node asks again

Faults are written KIND@START[+LENGTH][:NODE]. Without a node, a fault is of all nodes:
  partition@5s+2s:3   all messages between node 3 and the store are lost for 2 seconds
  crash@3s:0          node 0 is killed, and starts again with nothing, here at once
  pause@4s+2s:1       the process of node 1 stands still, and its clock goes on
  suspend@4s+2s:1     the process stands still, and so does its clock
  failover@10s+50ms   another server takes over that does not know the writes of the last 50 ms

Examples:
  tollgate simulate cluster
  tollgate simulate cluster --nodes 1000 --rate 10k --plot cluster.svg
  tollgate simulate cluster --nodes 1,4,100,1000,10000 --rate 10k --scheme lease --json
  tollgate simulate cluster --nodes 8 --skew 0.8 --overload 1.2 --loss 0.01 --fault partition@5s+2s:0

docs/scale.md explains the results.";

fn scheme(name: &str) -> Result<Scheme, String> {
    let names = || Scheme::ALL.map(Scheme::as_str).join(", ");
    Scheme::of(name).ok_or_else(|| format!("the schemes are {}", names()))
}

/// Columns of a chart on a terminal.
const COLUMNS: usize = 60;

/// The most runs of one command.
const MOST_RUNS: usize = 16;

type Run = (ClusterSettings, ClusterOutcome);

pub(crate) fn run(options: &Cluster) -> Result<(), String> {
    if options.nodes.len() > MOST_RUNS {
        return Err(format!("--nodes has {} numbers, and {MOST_RUNS} is the most", options.nodes.len()));
    }
    let schemes = if options.scheme.is_empty() { &Scheme::ALL[..] } else { &options.scheme };
    let all: Vec<ClusterSettings> = options.nodes.iter().map(|nodes| settings(options, *nodes)).collect();
    // All are checked before the first one takes its time.
    all.iter().try_for_each(ClusterSettings::check)?;
    let bar = Bar::share();
    let mut runs: Vec<Run> = Vec::new();
    for settings in all {
        let (place, of) = (runs.len() as u64, options.nodes.len() as u64);
        let mut progress = |progress: Progress| {
            bar.tell(Progress { read: place * progress.of + progress.read, of: of * progress.of });
        };
        let outcome = simulate(&settings, schemes, &mut progress).map_err(|error| error.to_string())?;
        runs.push((settings, outcome));
    }
    drop(bar);
    if let Some(file) = &options.plot {
        let drawn = match &runs[..] {
            [(settings, outcome)] => run_plot(settings, outcome),
            runs => growth_plot(runs),
        };
        write(file, &drawn)?;
    }
    if options.json {
        let runs: Vec<Value> = runs.iter().map(results).collect();
        return say(&format!("{}\n", json!({ "runs": runs })));
    }
    match &runs[..] {
        [run] => say(&one_run(run)),
        runs => say(&several_runs(runs)),
    }
}

fn settings(options: &Cluster, nodes: u64) -> ClusterSettings {
    let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    let default = ClusterSettings::default();
    let rtt = nanos(options.rtt);
    let beyond_rtt = default.deadline - default.rtt;
    ClusterSettings {
        nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
        rate: options.rate,
        burst: options.burst.unwrap_or(options.rate),
        overload: options.overload,
        skew: options.skew,
        rtt,
        loss: options.loss,
        sync: nanos(options.sync),
        deadline: options.deadline.map_or(rtt.saturating_add(beyond_rtt), nanos),
        duration: nanos(options.duration),
        faults: options.fault.clone(),
        seed: options.seed,
    }
}

fn results((settings, outcome): &Run) -> Value {
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let mut schemes = Map::new();
    for scheme in &outcome.schemes {
        let (calls, waits, shares) = (scheme.calls, scheme.waits, scheme.shares);
        let of_span = scheme.worst_span;
        schemes.insert(
            scheme.scheme.as_str().to_owned(),
            json!({
                "admitted": scheme.admitted, "denied": scheme.denied, "unanswered": scheme.unanswered,
                "undecided": scheme.undecided, "use": scheme.limit_use,
                "over": scheme.over,
                "worst_span": {"over": of_span.over, "from": seconds(of_span.from), "to": seconds(of_span.to)},
                "calls": {
                    "total": calls.total(), "draws": calls.draws, "exact_checks": calls.exact_checks,
                    "returns": calls.returns, "reports": calls.reports,
                },
                "calls_per_second": per_second(calls.total(), settings),
                "decisions_per_call": scheme.decisions_per_call(),
                "waited": {
                    "requests": waits.requests, "share": waits.requests as f64 / scheme.requests.max(1) as f64,
                    "p50": seconds(waits.median), "p99": seconds(waits.p99), "longest": seconds(waits.longest),
                },
                "shares": {"jain": shares.jain, "lowest": shares.lowest, "highest": shares.highest},
                "units_returned": scheme.returned, "units_lapsed": scheme.lapsed,
            }),
        );
    }
    let faults: Vec<String> = settings.faults.iter().map(Fault::to_string).collect();
    json!({
        "nodes": settings.nodes, "rate": settings.rate, "burst": settings.burst, "overload": settings.overload,
        "skew": settings.skew, "rtt": seconds(settings.rtt), "loss": settings.loss, "sync": seconds(settings.sync),
        "deadline": seconds(settings.deadline), "duration": seconds(settings.duration), "faults": faults,
        "seed": settings.seed, "requests": outcome.schemes.first().map_or(0, |scheme| scheme.requests),
        "lease_span_bound": outcome.most_excess, "schemes": schemes,
    })
}

fn per_second(count: u64, settings: &ClusterSettings) -> f64 {
    count as f64 * 1e9 / settings.duration as f64
}

fn rounded(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        number if number < 10.0 => format!("{number:.1}"),
        number => grouped(whole(number)),
    }
}

/// The nearest whole number.
#[expect(clippy::cast_sign_loss, reason = "rates are never negative")]
const fn whole(number: f64) -> u64 {
    number.round() as u64
}

fn share(part: f64) -> String {
    format!("{:.2} %", 100.0 * part)
}

/// The limit and the demand, as a heading.
fn heading(settings: &ClusterSettings) -> String {
    let mut conditions =
        vec![format!("round trip {}", span(settings.rtt)), format!("sync {}", span(settings.sync))];
    if let Some(skew) = settings.skew {
        conditions.push(format!("{} of the demand at node 0", share(skew)));
    }
    if settings.loss > 0.0 {
        conditions.push(format!("{} of the messages lost", share(settings.loss)));
    }
    conditions.extend(settings.faults.iter().map(Fault::to_string));
    conditions.push(format!("seed {}", settings.seed));
    format!(
        "one key of {} per second with a burst of {}; demand {} per second ({} x) for {}\n{}\n",
        grouped(settings.rate),
        grouped(settings.burst),
        grouped(whole(settings.demand())),
        settings.overload,
        span(settings.duration),
        conditions.join(", "),
    )
}

/// The first columns of each table.
fn summary(settings: &ClusterSettings, outcome: &ClusterOutcome, scheme: &SchemeOutcome) -> Vec<String> {
    let bound = match scheme.scheme {
        Scheme::Lease => format!(" (bound {})", grouped(outcome.most_excess)),
        _ => String::new(),
    };
    vec![
        scheme.scheme.as_str().to_owned(),
        share(scheme.limit_use),
        grouped(scheme.over),
        format!("{}{bound}", grouped(scheme.worst_span.over)),
        rounded(per_second(scheme.calls.total(), settings)),
        scheme.decisions_per_call().map_or("no calls".to_owned(), rounded),
        format!("{:.3}", scheme.shares.jain),
    ]
}

const SUMMARY: [&str; 7] = ["SCHEME", "USED", "OVER", "OVER IN A SPAN", "CALLS/S", "DECISIONS/CALL", "JAIN"];

const EXPLANATION: &str = "\
USED: admitted, of burst + rate x time. OVER: the most above that, at any time. OVER IN A SPAN: the most above
burst + rate x span, in any span of time. CALLS/S: scripts sent to the store. JAIN: 1 if each node had the same
part of its requests admitted.
";

fn one_run((settings, outcome): &Run) -> String {
    let requests = outcome.schemes.first().map_or(0, |scheme| scheme.requests);
    let mut text = format!(
        "{} and {} share {}\n",
        counted(settings.nodes.into(), "node"),
        counted(requests, "request"),
        heading(settings)
    );
    let mut rows = vec![SUMMARY.map(str::to_owned).to_vec()];
    rows.extend(outcome.schemes.iter().map(|scheme| summary(settings, outcome, scheme)));
    text.push_str(&table(&rows));
    text.push_str(&format!("{EXPLANATION}\n{}\n", table(&calls(settings, outcome))));
    text.push_str(&format!("{}\nadmitted over time\n", table(&answers(outcome))));
    let most = outcome.schemes.iter().max_by_key(|scheme| scheme.admitted_over_time.most());
    let beside = most.map_or(&[][..], |scheme| &scheme.admitted_over_time.bins);
    for scheme in &outcome.schemes {
        let blocks = plot::blocks(&scheme.admitted_over_time.bins, beside, COLUMNS);
        text.push_str(&format!("{:<20}│{blocks}│\n", scheme.scheme.as_str()));
    }
    text
}

/// Which scripts each scheme sends.
fn calls(settings: &ClusterSettings, outcome: &ClusterOutcome) -> Vec<Vec<String>> {
    let header =
        ["CALLS PER SECOND", "DRAWS", "EXACT CHECKS", "RETURNS", "REPORTS", "UNITS RETURNED", "UNITS LAPSED"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for scheme in &outcome.schemes {
        let calls = scheme.calls;
        let counts = [calls.draws, calls.exact_checks, calls.returns, calls.reports];
        let rates = counts.map(|count| rounded(per_second(count, settings)));
        let name = std::iter::once(scheme.scheme.as_str().to_owned());
        rows.push(name.chain(rates).chain([grouped(scheme.returned), grouped(scheme.lapsed)]).collect());
    }
    rows
}

/// What requests got, and after which wait.
fn answers(outcome: &ClusterOutcome) -> Vec<Vec<String>> {
    let header = [
        "REQUESTS",
        "ADMITTED",
        "DENIED",
        "UNANSWERED",
        "WAITED",
        "MEDIAN WAIT",
        "P99",
        "LONGEST",
        "LOWEST SHARE",
        "HIGHEST",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for scheme in &outcome.schemes {
        let (waits, shares) = (scheme.waits, scheme.shares);
        rows.push(vec![
            scheme.scheme.as_str().to_owned(),
            grouped(scheme.admitted),
            grouped(scheme.denied),
            grouped(scheme.unanswered),
            percent(waits.requests, scheme.requests),
            span(waits.median),
            span(waits.p99),
            span(waits.longest),
            share(shares.lowest),
            share(shares.highest),
        ]);
    }
    rows
}

fn several_runs(runs: &[Run]) -> String {
    let mut rows = vec![std::iter::once("NODES").chain(SUMMARY).map(str::to_owned).collect::<Vec<_>>()];
    for (settings, outcome) in runs {
        for scheme in &outcome.schemes {
            let nodes = std::iter::once(grouped(settings.nodes.into()));
            rows.push(nodes.chain(summary(settings, outcome, scheme)).collect());
        }
    }
    let heading = runs.first().map_or(String::new(), |(settings, _)| heading(settings));
    format!("Nodes share {heading}\n{}{EXPLANATION}", table(&rows))
}
