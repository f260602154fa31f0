//! Leases beside exact mode: real processes that share a limit on a real Redis.
//!
//!     crates/tollgate-bench/lease/run [--seconds N] [--case NAME]... [--write FILE]
//!     crates/tollgate-bench/lease/run speed
//!
//! Each row runs with `mode: lease`, and then a third as long with `mode: exact`. Nodes count admitted requests by buckets of 10 ms of
//! the machine's clock, which is also that of Redis.
#![allow(clippy::cast_sign_loss, reason = "counts are not negative")]
#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

mod cases;
mod measure;
mod node;
mod run;
mod speed;

use std::process::ExitCode;

use cases::{Case, cases};
use node::Order;
use run::{Mode, Outcome, run};
use tollgate_lab::cluster::{ClusterSettings, Scheme, simulate};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = &arguments[..]
        && first == "node"
    {
        node::run(&Order::read(rest).expect("the order of a node"));
        return ExitCode::SUCCESS;
    }
    if arguments == ["speed"] {
        speed::print();
        return ExitCode::SUCCESS;
    }
    let (mut seconds, mut names, mut file) = (30, Vec::new(), None);
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let value = arguments.next();
        match (argument.as_str(), value) {
            ("--seconds", Some(value)) => seconds = value.parse().unwrap_or(seconds),
            ("--case", Some(value)) => names.push(value),
            ("--write", Some(value)) => file = Some(value),
            _ => {
                eprintln!("usage: lease [speed] [--seconds N] [--case NAME]... [--write FILE]");
                return ExitCode::from(2);
            }
        }
    }
    let mut rows =
        vec!["| case | wanted | model | lease | exact |".to_owned(), "|---|---|---|---|---|".to_owned()];
    let mut is_missed = false;
    for case in
        cases().into_iter().filter(|case| names.is_empty() || names.iter().any(|name| name == case.name))
    {
        eprintln!("{}…", case.what);
        let lease = run(&case, Mode::Lease, seconds);
        let exact = run(&case, Mode::Exact, (seconds / 3).max(1));
        let simulated = case.simulated(seconds).map(|settings| simulated(&settings));
        let mut missed = missed(&case, &lease, &exact);
        // The simulator has no other load on its cores, so only the first row has to agree.
        if let Some(simulated) = simulated.as_ref().filter(|_| case.name == "four") {
            let calls = lease.calls_per_second() / simulated.calls;
            if (lease.used(case.rule) - simulated.used).abs() > 0.01 || !(0.9..=1.1).contains(&calls) {
                missed.push("the simulator differs".to_owned());
            }
        }
        let row = format!(
            "| {} | {} | {} | {} | {} | {} |",
            case.what,
            case.wanted.text(),
            case.model,
            shown(&case, &lease, &missed),
            simulated.map_or_else(String::new, |simulated| simulated.text()),
            shown(&case, &exact, &[]),
        );
        eprintln!("{row}");
        is_missed |= !missed.is_empty();
        rows.push(row);
    }
    let table = rows.join("\n") + "\n";
    print!("{table}");
    if let Some(file) = file {
        std::fs::write(file, table).expect("the file can be written");
    }
    if is_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// What the simulator says of a case.
struct Simulated {
    per_call: f64,
    calls: f64, // per second
    used: f64,
}

impl Simulated {
    fn text(&self) -> String {
        format!("{:.0} per call, {:.0} calls/s, {:.1} % used", self.per_call, self.calls, 100.0 * self.used)
    }
}

fn simulated(settings: &ClusterSettings) -> Simulated {
    let outcome = simulate(settings, &[Scheme::Lease], &mut |_| {}).expect("valid settings");
    let lease = &outcome.schemes[0];
    let seconds = settings.duration as f64 / 1e9;
    Simulated {
        per_call: lease.decisions_per_call().unwrap_or(0.0),
        calls: lease.calls.total() as f64 / seconds,
        used: lease.limit_use,
    }
}

/// What a run shows. What is wanted and missed stands at the end.
fn shown(case: &Case, outcome: &Outcome, missed: &[String]) -> String {
    let waited: u64 = outcome.nodes.iter().map(|node| node.waited).sum();
    let fell_back: u64 = outcome.nodes.iter().map(|node| node.fell_back).sum();
    let mut text = format!("{:.0} per call, {:.0} calls/s", outcome.per_call(), outcome.calls_per_second());
    if case.keys == 1 {
        text += &format!(
            ", {:.1} % used, {:.0} above in total, {:.0} in a span",
            100.0 * outcome.used(case.rule),
            outcome.most_above(case.rule).max(0.0),
            outcome.most_above_in_spans(case.rule).max(0.0),
        );
    }
    text += &format!(", {:.1} % waited", 100.0 * waited as f64 / outcome.asked().max(1) as f64);
    if fell_back > 0 {
        text += &format!(", {fell_back} fell back");
    }
    if case.wanted.quiet_percent.is_some() {
        text += &format!(", {:.1} % of the quiet", quiet(outcome));
    }
    if case.wanted.is_rare {
        text += &format!(", {} KiB grown", outcome.grown_kib);
    }
    if !missed.is_empty() {
        text += &format!(" (**missed**: {})", missed.join(", "));
    }
    text
}

/// The part of the requests of quiet nodes that passed.
fn quiet(outcome: &Outcome) -> f64 {
    let quiet = || outcome.nodes.iter().filter(|node| node.rate <= 10.0);
    let admitted: u64 = quiet().map(|node| node.admitted).sum();
    100.0 * admitted as f64 / quiet().map(|node| node.asked).sum::<u64>().max(1) as f64
}

/// What a run misses of what is wanted.
fn missed(case: &Case, lease: &Outcome, exact: &Outcome) -> Vec<String> {
    let wanted = &case.wanted;
    let mut missed = Vec::new();
    let mut require = |holds: bool, what: String| {
        if !holds {
            missed.push(what);
        }
    };
    if case.keys == 1 {
        require(lease.most_above(case.rule) <= 0.0, "the limit was exceeded".to_owned());
    }
    let used = 100.0 * lease.used(case.rule);
    let below = |wanted: Option<f64>, found: f64| wanted.is_none_or(|wanted| found <= wanted);
    let above = |wanted: Option<f64>, found: f64| wanted.is_none_or(|wanted| found >= wanted);
    require(above(wanted.use_percent, used), format!("{used:.2} % used"));
    require(above(wanted.per_call, lease.per_call()), "decisions per call".to_owned());
    require(below(wanted.most_calls, lease.calls_per_second()), "calls per second".to_owned());
    require(above(wanted.quiet_percent, quiet(lease)), "the quiet".to_owned());
    let waited: u64 = lease.nodes.iter().map(|node| node.waited).sum();
    let waited = 100.0 * waited as f64 / lease.asked().max(1) as f64;
    require(below(wanted.waiting_percent, waited), format!("{waited:.2} % waited"));
    if wanted.denies_nobody {
        require(lease.admitted() == lease.asked(), format!("{} denied", lease.asked() - lease.admitted()));
    }
    if let Some(least) = wanted.least_of_exact {
        let rate = |node: &run::NodeOutcome, outcome: &Outcome| node.admitted as f64 / outcome.seconds;
        for (place, (lease_node, exact_node)) in lease.nodes.iter().zip(&exact.nodes).enumerate() {
            let part = rate(lease_node, lease) / rate(exact_node, exact);
            require(part >= least, format!("node {place} has {part:.2} of exact"));
        }
    }
    if wanted.is_rare {
        let calls = lease.calls_per_second() / exact.calls_per_second();
        require(calls <= 1.01, format!("{calls:.2} of the calls of exact mode"));
        let grown = lease.grown_kib.saturating_sub(exact.grown_kib);
        require(grown <= 8 << 10, format!("{grown} KiB more than exact mode"));
        let held: u64 = lease.nodes.iter().map(|node| node.held + node.keys).sum();
        require(held == 0, format!("{held} held a second later"));
    }
    missed
}
