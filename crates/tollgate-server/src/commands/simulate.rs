//! `tollgate simulate`: every algorithm on the same synthetic traffic.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate_lab::cloudflare::{self, Comparison, Errors, Trial};
use tollgate_lab::scenario::{BUILT_IN, Scenario, built_in, read_scenario};
use tollgate_lab::{Name, Progress, Simulated, Simulation, WATCHED, plot, simulate};
use tollgate_policy::quantity::duration_text;

use super::lab::{Bar, algorithm, count, counted, duration, grouped, percent, say, span, write};
use super::simulate_cluster::{self, Cluster};
use super::table;

/// How to simulate.
#[derive(Debug, clap::Args)]
#[command(after_help = scenarios(), args_conflicts_with_subcommands = true)]
pub(crate) struct Simulate {
    #[command(subcommand)]
    command: Option<SimulateCommand>,
    /// A scenario of those below, or a file with one
    #[arg(value_name = "SCENARIO", default_value = "boundary-attack")]
    scenario: String,
    /// Another limit than the scenario's: how many in each window
    #[arg(long, value_parser = count)]
    limit: Option<u64>,
    /// Another window, such as 60s or 1h
    #[arg(long, value_parser = duration)]
    window: Option<Duration>,
    /// Another seed, for other random moments
    #[arg(long)]
    seed: Option<u64>,
    /// Another number of clients, in each group of the scenario that has several
    #[arg(long, value_parser = count)]
    clients: Option<u64>,
    /// Only this algorithm; several may be named
    #[arg(long, value_name = "ALGORITHM", value_parser = algorithm)]
    algorithm: Vec<Name>,
    /// For cloudflare: only this share of the 400 million requests, such as 0.01
    #[arg(long, value_parser = share)]
    share: Option<f64>,
    /// Draw arrivals, what passed and how full the limit was, over time
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Print JSON, and nothing else
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum SimulateCommand {
    /// Nodes that share one limit through a store, on a simulated network: leases beside four other schemes
    Cluster(Box<Cluster>),
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "it is above 0 and at most 1".to_owned())
}

fn scenarios() -> String {
    let rows = BUILT_IN.iter().chain([&CLOUDFLARE]);
    let rows: Vec<_> = rows.map(|(name, about)| vec![format!("  {name}"), (*about).to_owned()]).collect();
    format!("Scenarios:\n{}\ndocs/lab.md says how to write one's own.", table(&rows))
}

const CLOUDFLARE: (&str, &str) =
    ("cloudflare", "400 million requests from 270 000 sources: how often the sliding counter is wrong");

/// Columns of a chart on a terminal.
const COLUMNS: usize = 60;

pub(crate) fn run(options: &Simulate) -> Result<(), String> {
    if let Some(SimulateCommand::Cluster(options)) = &options.command {
        return simulate_cluster::run(options);
    }
    if options.scenario == CLOUDFLARE.0 {
        return run_cloudflare(options);
    }
    if options.share.is_some() {
        return Err("--share is for the scenario cloudflare".to_owned());
    }
    let scenario = scenario(options)?;
    let all: Vec<Name> = Name::ALL.into_iter().chain([Name::StrictCounter]).collect();
    let algorithms = if options.algorithm.is_empty() { &all } else { &options.algorithm };
    let bar = Bar::share();
    let simulated = simulate(&scenario, algorithms, &mut |progress| bar.tell(progress));
    drop(bar);
    let simulated = simulated.map_err(|error| format!("{}: {error}", options.scenario))?;
    if let Some(file) = &options.plot {
        write(file, &plot::simulated(&scenario, &simulated))?;
    }
    if options.json {
        say(&format!("{}\n", results(&scenario, &simulated)))
    } else {
        say(&told(&scenario, &simulated))
    }
}

fn scenario(options: &Simulate) -> Result<Scenario, String> {
    let name = &options.scenario;
    let mut scenario = match built_in(name) {
        Some(scenario) => scenario,
        None if Path::new(name).exists() => {
            read_scenario(Path::new(name)).map_err(|error| error.to_string())?
        }
        None if name == "cluster" => {
            return Err(
                "`simulate cluster` has options of its own, which follow the word `cluster`".to_owned()
            );
        }
        None => {
            let known: Vec<_> = BUILT_IN.iter().chain([&CLOUDFLARE]).map(|(name, _)| *name).collect();
            return Err(format!(
                "there is no scenario `{name}`, and no such file: they are {}",
                known.join(", ")
            ));
        }
    };
    scenario.limit.limit = options.limit.unwrap_or(scenario.limit.limit);
    scenario.limit.window = options.window.unwrap_or(scenario.limit.window);
    scenario.seed = options.seed.unwrap_or(scenario.seed);
    if let Some(clients) = options.clients {
        for group in scenario.groups.iter_mut().filter(|group| group.count > 1) {
            group.count = clients;
        }
    }
    scenario.check().map_err(|why| format!("{name}: {why}"))?;
    Ok(scenario)
}

const fn overshoot(lane: &Simulation, limit: u64) -> u64 {
    lane.most_in_window.saturating_sub(limit)
}

fn results(scenario: &Scenario, simulated: &Simulated) -> Value {
    let mut all = Map::new();
    for lane in &simulated.lanes {
        let tally = &lane.tally;
        all.insert(
            lane.name.to_string(),
            json!({
                "admitted": tally.allowed, "denied": tally.denied, "admitted_cost": tally.allowed_cost,
                "clients_denied": tally.clients_denied(), "most_in_window": lane.most_in_window,
                "worst_overshoot": overshoot(lane, scenario.limit.limit),
                "longest_wait": tally.longest_wait as f64 / 1e9, "bytes_per_key": lane.bytes_per_key,
                "groups": groups(scenario, simulated, lane),
            }),
        );
    }
    json!({
        "scenario": scenario.name, "limit": scenario.limit.limit,
        "window": scenario.limit.window.as_nanos() as f64 / 1e9, "requests": simulated.requests,
        "clients": scenario.clients(), "results": all,
    })
}

/// What became of the requests of each group of clients.
fn groups(scenario: &Scenario, simulated: &Simulated, lane: &Simulation) -> Map<String, Value> {
    let ranges = scenario.ranges().into_iter().zip(&simulated.requests_of);
    let group = |((name, range), requests): ((&str, std::ops::Range<u32>), &u64)| {
        let denied: u64 = lane.tally.denied_of.iter().skip(range.start as usize).take(range.len()).sum();
        (name.to_owned(), json!({"requests": requests, "denied": denied}))
    };
    ranges.map(group).collect()
}

fn told(scenario: &Scenario, simulated: &Simulated) -> String {
    let window = duration_text(scenario.limit.window);
    let mut text = format!(
        "{}{}{}\n{} of {} in {}; {} in {window} for {}\n\n",
        scenario.name,
        if scenario.about.is_empty() { "" } else { ": " },
        scenario.about,
        counted(simulated.requests, "request"),
        counted(scenario.clients(), "client"),
        span(scenario.duration),
        grouped(scenario.limit.limit),
        if scenario.is_global { "all together" } else { "each" },
    );
    let most = format!("MOST IN {}", window.to_uppercase());
    let header = ["ALGORITHM", "ADMITTED", "DENIED", "", &most, "OVERSHOOT", "LONGEST HELD", "BYTES A KEY"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for lane in &simulated.lanes {
        rows.push(vec![
            lane.name.to_string(),
            grouped(lane.tally.allowed),
            grouped(lane.tally.denied),
            percent(lane.tally.denied, simulated.requests),
            grouped(lane.most_in_window),
            grouped(overshoot(lane, scenario.limit.limit)),
            span(lane.tally.longest_wait),
            format!("{:.0}", lane.bytes_per_key),
        ]);
    }
    text.push_str(&table(&rows));
    if scenario.clients() > u64::from(WATCHED) && !scenario.is_global {
        text.push_str(&format!("(most and overshoot: of the first {} clients)\n", grouped(WATCHED.into())));
    }
    if scenario.ranges().len() > 1 {
        text.push_str(&format!("\ndenied, by group\n{}", table(&by_group(scenario, simulated))));
    }
    let came = &simulated.arrivals;
    text.push_str(&format!("\n{:<24}│{}│\n", "came", plot::blocks(came, came, COLUMNS)));
    for lane in &simulated.lanes {
        text.push_str(&format!("{:<24}│{}│\n", lane.name, plot::blocks(&lane.passed, came, COLUMNS)));
    }
    text
}

fn by_group(scenario: &Scenario, simulated: &Simulated) -> Vec<Vec<String>> {
    let mut rows = vec![
        std::iter::once("ALGORITHM".to_owned())
            .chain(scenario.ranges().into_iter().map(|(name, _)| name.to_uppercase()))
            .collect::<Vec<_>>(),
    ];
    for lane in &simulated.lanes {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        let groups = groups(scenario, simulated, lane);
        let cells =
            groups.values().map(|group| percent(number(&group["denied"]), number(&group["requests"])));
        rows.push(std::iter::once(lane.name.to_string()).chain(cells).collect());
    }
    rows
}

fn run_cloudflare(options: &Simulate) -> Result<(), String> {
    let unfit = [options.window.is_some(), options.seed.is_some(), options.clients.is_some()];
    if unfit.contains(&true) || !options.algorithm.is_empty() || options.plot.is_some() {
        return Err("cloudflare takes --share, --limit and --json".to_owned());
    }
    let share = options.share.unwrap_or(1.0);
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut trial = Trial::of(share, threads);
    trial.limit = options.limit.unwrap_or(trial.limit);
    let bar = Bar::share();
    let compared = cloudflare::compare(trial, &|done| bar.tell(Progress { read: done, of: trial.sources }));
    drop(bar);
    let compared = compared.map_err(|error| error.to_string())?;
    let worst = cloudflare::worst_case(trial.limit).map_err(|error| error.to_string())?;
    if options.json {
        say(&format!("{}\n", cloudflare_results(trial, &compared, worst)))
    } else {
        say(&cloudflare_told(trial, &compared, worst))
    }
}

fn cloudflare_results(trial: Trial, compared: &Comparison, worst: u64) -> Value {
    let errors = |errors: &Errors| {
        json!({
            "wrongly_passed": errors.wrongly_passed, "wrongly_denied": errors.wrongly_denied,
            "wrong_share": compared.share(errors.wrong()), "sources_over": errors.sources_over,
            "sources_wrongly_passed": errors.sources_wrongly_passed,
            "sources_wrongly_denied": errors.sources_wrongly_denied,
        })
    };
    json!({
        "scenario": "cloudflare", "limit": trial.limit, "window": 60, "requests": compared.requests,
        "sources": compared.sources, "detecting": errors(&compared.detecting),
        "limiting": errors(&compared.limiting), "mean_gap": compared.mean_gap(), "worst_case": worst,
    })
}

fn cloudflare_told(trial: Trial, compared: &Comparison, worst: u64) -> String {
    let (all, passed) = (&compared.detecting, &compared.limiting);
    let row = |name: &str, value: &dyn Fn(&Errors) -> String, published: &str| {
        vec![name.to_owned(), value(all), value(passed), published.to_owned()]
    };
    let wrong = |errors: &Errors| format!("{:.4} %", 100.0 * compared.share(errors.wrong()));
    let rows = [
        ["", "ALL THAT IS SENT", "WHAT PASSES", "PUBLISHED"].map(str::to_owned).to_vec(),
        row("decisions that are wrong", &wrong, "0.003 %"),
        row("  within the limit, and were not", &|errors| grouped(errors.wrongly_passed), ""),
        row("  beyond it, and were not", &|errors| grouped(errors.wrongly_denied), ""),
        row("sources beyond the limit", &|errors| grouped(errors.sources_over), ""),
        row("  that nobody noticed", &|errors| grouped(errors.sources_wrongly_passed), "3"),
        row("sources wrongly held to be", &|errors| grouped(errors.sources_wrongly_denied), "0"),
    ];
    format!(
        "cloudflare: {} of {}; {} in a minute for each\nThe sliding counter beside the truth, where it counts:\n\n{}\n\
         The estimated rate is {:.1} % from the true one, on average (published: 6 %).\n\
         Whoever knows when windows begin gets {} in a minute: 2 x limit - 1, whatever the shares above.\n",
        counted(compared.requests, "request"),
        counted(compared.sources, "source"),
        grouped(trial.limit),
        table(&rows),
        100.0 * compared.mean_gap(),
        grouped(worst),
    )
}
