//! `tollgate replay`: every algorithm, or a whole policy, on recorded traffic.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate::{Nanos, Outcome};
use tollgate_lab::{
    Event, LabError, Limit, Name, PolicyDecision, PolicyReplayed, Replayed, Seen, Wanted, plot, replay,
    replay_policy,
};

use super::lab::{
    Bar, By, LogArgs, algorithm, client_remarks, count, counted, duration, grouped, moment, one_line,
    percent, say, span, write,
};
use super::table;
use crate::cli::PolicyBytes;
use crate::source::read_policy;

/// How to replay.
#[derive(Debug, clap::Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    logs: LogArgs,
    /// How many requests, or how much cost, in each window
    #[arg(long, value_parser = count, required_unless_present = "policy", conflicts_with = "policy")]
    limit: Option<u64>,
    /// The window, such as 60s or 1h
    #[arg(long, value_parser = duration, required_unless_present = "policy", conflicts_with = "policy")]
    window: Option<Duration>,
    /// Whether each client has the limit, or all together
    #[arg(long, value_enum, default_value = "client", conflicts_with = "policy")]
    by: By,
    /// Only this algorithm; several may be named
    #[arg(long, value_name = "ALGORITHM", value_parser = algorithm, conflicts_with = "policy")]
    algorithm: Vec<Name>,
    /// Decide by this policy file instead of by every algorithm
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    #[command(flatten)]
    policy_bytes: PolicyBytes,
    /// With --policy: an attribute that the policy looks at, taken from a column or another attribute
    #[arg(long, value_name = "NAME=COLUMN", requires = "policy", value_parser = renamed)]
    attribute: Vec<(String, String)>,
    /// Name so many clients that were denied most, also in JSON [default: 5, and none in JSON]
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
    /// List every decision of an algorithm, such as token_bucket, or of the `policy`
    #[arg(long, value_name = "ALGORITHM", value_parser = decided_by)]
    decisions: Option<DecidedBy>,
    /// Draw arrivals and what passed, over time
    #[arg(long, value_name = "FILE.svg", conflicts_with_all = ["policy", "decisions"])]
    plot: Option<PathBuf>,
    /// Print JSON, and nothing else
    #[arg(long)]
    json: bool,
}

/// Whose decisions are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecidedBy {
    Algorithm(Name),
    Policy,
}

fn decided_by(name: &str) -> Result<DecidedBy, String> {
    match name {
        "policy" => Ok(DecidedBy::Policy),
        name => algorithm(name).map(DecidedBy::Algorithm),
    }
}

/// Clients are named unless told otherwise.
const TOP: usize = 5;

fn renamed(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((to, from)) if !to.is_empty() && !from.is_empty() => Ok((to.to_owned(), from.to_owned())),
        _ => Err("write it as name=column, such as tenant=api_key".to_owned()),
    }
}

pub(crate) fn run(options: &Replay) -> Result<(), String> {
    match &options.policy {
        Some(file) => run_policy(options, &read_policy(file, options.policy_bytes.max_policy_bytes)?),
        None => run_algorithms(options),
    }
}

/// Writes decisions, one a line.
struct Decisions {
    out: std::io::BufWriter<std::io::StdoutLock<'static>>,
    is_json: bool,
}

impl Decisions {
    fn new(is_json: bool, who: &str) -> Result<Self, String> {
        let mut decisions = Self { out: std::io::BufWriter::new(std::io::stdout().lock()), is_json };
        if !is_json {
            decisions.line(&format!("time\t{who}\tcost\tverdict\tretry_after\tdelay"))?;
        }
        Ok(decisions)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        require_written(writeln!(self.out, "{line}"))
    }

    fn decision(
        &mut self,
        at: u64,
        (who, value): (&str, Value),
        cost: u64,
        (is_allowed, retry_after, delay): (bool, Option<u64>, u64),
    ) -> Result<(), LabError> {
        let line = if self.is_json {
            let seconds = |nanos: u64| nanos as f64 / 1e9;
            let told = json!({
                "time": moment(at), who: value, "cost": cost, "allowed": is_allowed,
                "retry_after": retry_after.map(seconds), "delay": seconds(delay),
            });
            told.to_string()
        } else {
            let verdict = if is_allowed { "allowed" } else { "denied" };
            let retry = retry_after.map_or_else(String::new, moment);
            let delay = if delay == 0 { String::new() } else { moment(delay) };
            let value = value.as_str().map_or_else(|| value.to_string(), one_line);
            format!("{}\t{value}\t{cost}\t{verdict}\t{retry}\t{delay}", moment(at))
        };
        self.line(&line).map_err(LabError::Asked)
    }

    fn end(mut self) -> Result<(), String> {
        require_written(self.out.flush())
    }
}

/// Whoever has closed the other end has read enough.
fn require_written(written: std::io::Result<()>) -> Result<(), String> {
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        written => written.map_err(|error| format!("standard output: {error}")),
    }
}

fn run_algorithms(options: &Replay) -> Result<(), String> {
    let (Some(limit), Some(window)) = (options.limit, options.window) else {
        return Err("a replay needs --limit and --window, or --policy".to_owned());
    };
    let limit = Limit { limit, window };
    let wanted = if options.by == By::Global { Wanted::Nothing } else { Wanted::Needed };
    let logs = options.logs.logs(wanted);
    match options.decisions {
        Some(DecidedBy::Algorithm(name)) => return list(options, &logs, limit, name),
        Some(DecidedBy::Policy) => return Err("--decisions policy goes with --policy".to_owned()),
        None => {}
    }
    let algorithms = if options.algorithm.is_empty() { &Name::ALL[..] } else { &options.algorithm };
    let bar = Bar::bytes();
    let replayed = replay(&logs, limit, algorithms, &mut |progress| bar.tell(progress), None);
    drop(bar);
    let replayed = replayed.map_err(|error| error.to_string())?;
    for line in remarks(&replayed.seen, Some(window)) {
        eprintln!("{line}");
    }
    if let Some(file) = &options.plot {
        write(file, &plot::replayed(&replayed, &title(options, limit)))?;
    }
    if options.json {
        say(&format!("{}\n", results(&replayed, options.top)))
    } else {
        say(&told(&replayed, limit, options.by, options.top.unwrap_or(TOP)))
    }
}

fn title(options: &Replay, limit: Limit) -> String {
    let names = options.logs.logs.iter().map(|log| log.file_name().unwrap_or_default().to_string_lossy());
    let names: Vec<_> = names.collect();
    let by = if options.by == By::Global { "all clients together" } else { "each client" };
    let window = tollgate_policy::quantity::duration_text(limit.window);
    format!("{}: {} in {window} for {by}", names.join(", "), limit.limit)
}

/// Lists every decision of one algorithm. Clients are told by the numbers in which they came, until their names are known.
fn list(options: &Replay, logs: &tollgate_lab::Logs, limit: Limit, name: Name) -> Result<(), String> {
    let mut all: Vec<(Event, Outcome)> = Vec::new();
    let bar = Bar::bytes();
    let mut each = |event: &Event, outcome: Outcome| {
        all.push((*event, outcome));
        Ok(())
    };
    let replayed = replay(logs, limit, &[name], &mut |progress| bar.tell(progress), Some((name, &mut each)));
    drop(bar);
    let seen = replayed.map_err(|error| error.to_string())?.seen;
    for line in remarks(&seen, Some(limit.window)) {
        eprintln!("{line}");
    }
    let names = seen.clients.names();
    let mut decisions = Decisions::new(options.json, "client")?;
    for (event, outcome) in all {
        let client = Value::from(names[event.client as usize].as_str());
        let told = (outcome.is_allowed(), outcome.retry_after().map(Nanos::get), outcome.delay().get());
        decisions
            .decision(event.at, ("client", client), event.cost, told)
            .map_err(|error| error.to_string())?;
    }
    decisions.end()
}

/// What is to be known of the log before its numbers are believed.
fn remarks(seen: &Seen, window: Option<Duration>) -> Vec<String> {
    let mut remarks = client_remarks(&seen.counts);
    if seen.is_sorted {
        remarks.push("the requests were not in the order of their times, and have been sorted".to_owned());
    }
    let resolution = Duration::from_nanos(seen.resolution);
    if let Some(window) = window.filter(|window| *window < resolution.saturating_mul(10)) {
        let text = tollgate_policy::quantity::duration_text;
        remarks.push(format!(
            "warning: the log tells times to {}, and the window is {}: requests look as if they came at once that did not",
            text(resolution),
            text(window)
        ));
    }
    remarks
}

fn results(replayed: &Replayed, top: Option<usize>) -> Value {
    let names = if top.is_some() { replayed.seen.clients.names() } else { Vec::new() };
    let mut all = Map::new();
    for lane in &replayed.lanes {
        let tally = &lane.tally;
        let mut result = json!({
            "allowed": tally.allowed, "denied": tally.denied, "allowed_cost": tally.allowed_cost,
            "clients_denied": tally.clients_denied(),
        });
        if let Some(top) = top {
            let named =
                |(client, denied): (u32, u64)| json!({"client": names[client as usize], "denied": denied});
            result["most_denied"] = tally.most_denied(top).into_iter().map(named).collect();
        }
        all.insert(lane.name.to_string(), result);
    }
    let counts = replayed.seen.counts;
    json!({"requests": counts.requests, "malformed": counts.malformed, "results": all})
}

fn told(replayed: &Replayed, limit: Limit, by: By, top: usize) -> String {
    let seen = &replayed.seen;
    let (clients, whose) = match by {
        By::Client => (format!(" of {}", counted(seen.clients.len() as u64, "client")), "each"),
        By::Global => (String::new(), "all together"),
    };
    let mut text = format!(
        "{}{clients} in {}{}; {} in {} for {whose}\n\n",
        counted(seen.counts.requests, "request"),
        span(seen.span.1 - seen.span.0),
        malformed(seen),
        grouped(limit.limit),
        tollgate_policy::quantity::duration_text(limit.window),
    );
    let header = ["ALGORITHM", "ALLOWED", "DENIED", "", "ALLOWED COST", "CLIENTS DENIED", "LONGEST HELD"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for lane in &replayed.lanes {
        let tally = &lane.tally;
        rows.push(vec![
            lane.name.to_string(),
            grouped(tally.allowed),
            grouped(tally.denied),
            percent(tally.denied, seen.counts.requests),
            grouped(tally.allowed_cost),
            grouped(tally.clients_denied()),
            span(tally.longest_wait),
        ]);
    }
    text.push_str(&table(&rows));
    let denied = most_denied(replayed, top);
    if !denied.is_empty() && seen.clients.len() > 1 {
        text.push_str("\ndenied most\n");
        text.push_str(&table(&denied));
    }
    text
}

/// The clients that all algorithms together denied most: how often each did.
fn most_denied(replayed: &Replayed, top: usize) -> Vec<Vec<String>> {
    let of = |lane: &tollgate_lab::Replay, client: u32| {
        lane.tally.denied_of.get(client as usize).copied().unwrap_or(0)
    };
    let mut clients: Vec<u32> = replayed
        .lanes
        .iter()
        .flat_map(|lane| lane.tally.most_denied(top))
        .map(|(client, _)| client)
        .collect();
    clients.sort_unstable();
    clients.dedup();
    let sum = |client: u32| replayed.lanes.iter().map(|lane| of(lane, client)).sum::<u64>();
    clients.sort_by_key(|client| (std::cmp::Reverse(sum(*client)), *client));
    clients.truncate(top);
    if clients.is_empty() {
        return Vec::new();
    }
    let names = replayed.seen.clients.names();
    let header =
        ["CLIENT", "REQUESTS"].into_iter().chain(replayed.lanes.iter().map(|lane| lane.name.as_str()));
    let mut rows = vec![header.map(str::to_uppercase).collect::<Vec<_>>()];
    for client in clients {
        let mut row = vec![shown(&names[client as usize]), grouped(replayed.requests_of[client as usize])];
        row.extend(replayed.lanes.iter().map(|lane| grouped(of(lane, client))));
        rows.push(row);
    }
    rows
}

fn malformed(seen: &Seen) -> String {
    match seen.counts.malformed {
        0 => String::new(),
        1 => ", beside a line that is none".to_owned(),
        count => format!(", beside {} lines that are none", grouped(count)),
    }
}

/// What a log says, on a terminal.
fn shown(text: &str) -> String {
    let cut: String = one_line(text).chars().take(64).collect();
    if cut.is_empty() { "(none)".to_owned() } else { cut }
}

fn run_policy(options: &Replay, policy: &tollgate_policy::Policy) -> Result<(), String> {
    let logs = options.logs.logs(Wanted::IfThere);
    let mut decisions = match options.decisions {
        None => None,
        Some(DecidedBy::Policy) => Some(Decisions::new(options.json, "attributes")?),
        Some(DecidedBy::Algorithm(_)) => {
            return Err("with --policy, --decisions lists those of `policy`".to_owned());
        }
    };
    let bar = Bar::bytes();
    let lists = decisions.is_some();
    let mut each = |decision: PolicyDecision<'_>| {
        let Some(decisions) = &mut decisions else { return Ok(()) };
        let pairs = decision.attributes.iter().map(|(name, value)| (name.clone(), value.as_str().into()));
        let told = (decision.is_allowed, decision.retry_after, decision.delay);
        decisions.decision(
            decision.at,
            ("attributes", pairs.collect::<Map<_, _>>().into()),
            decision.cost,
            told,
        )
    };
    let each: Option<&mut tollgate_lab::EachPolicyDecision<'_>> = if lists { Some(&mut each) } else { None };
    let replayed = replay_policy(&logs, policy, &options.attribute, &mut |progress| bar.tell(progress), each);
    drop(bar);
    let replayed = replayed.map_err(|error| error.to_string())?;
    for line in remarks(&replayed.seen, None) {
        eprintln!("{line}");
    }
    match decisions {
        Some(decisions) => decisions.end(),
        None if options.json => say(&format!("{}\n", policy_results(&replayed, options.top))),
        None => say(&policy_told(&replayed, options.top.unwrap_or(TOP))),
    }
}

/// Printed where the first difference is a decision that was recorded as stricter.
const LACKS_BEGINNING: &str = "possible reason: decisions before the first record are missing, because `max_files` of `record:` removed \
                               older files or not all files were given. Give all files, the oldest first";

fn keys_denied(replayed: &PolicyReplayed, top: usize) -> Vec<(&str, &str, u64)> {
    let all = replayed.keys_denied.iter();
    let mut all: Vec<_> = all.map(|((limit, key), denied)| (limit.as_str(), key.as_str(), *denied)).collect();
    all.sort_by_key(|(limit, key, denied)| (std::cmp::Reverse(*denied), *limit, *key));
    all.truncate(top);
    all
}

fn policy_results(replayed: &PolicyReplayed, top: Option<usize>) -> Value {
    let limits = replayed.limits.iter().map(|limit| {
        json!({"name": limit.name, "shadow": limit.shadow, "allowed": limit.allowed, "denied": limit.denied})
    });
    let counts = replayed.seen.counts;
    let mut all = json!({
        "requests": counts.requests, "malformed": counts.malformed, "allowed": replayed.allowed,
        "denied": replayed.denied, "allowed_cost": replayed.allowed_cost, "limits": limits.collect::<Vec<_>>(),
    });
    if let Some(top) = top {
        let named = |(limit, key, denied)| json!({"limit": limit, "key": key, "denied": denied});
        all["most_denied"] = keys_denied(replayed, top).into_iter().map(named).collect();
    }
    if replayed.differences.compared > 0 {
        let differences = &replayed.differences;
        all["recorded"] = json!({"compared": differences.compared, "differ": differences.count, "first": differences.first});
        if differences.may_lack_beginning {
            all["recorded"]["possible_reason"] = LACKS_BEGINNING.into();
        }
    }
    all
}

fn policy_told(replayed: &PolicyReplayed, top: usize) -> String {
    let seen = &replayed.seen;
    let mut text = format!(
        "{} in {}{}: {} allowed, {} denied ({})\n\n",
        counted(seen.counts.requests, "request"),
        span(seen.span.1 - seen.span.0),
        malformed(seen),
        grouped(replayed.allowed),
        grouped(replayed.denied),
        percent(replayed.denied, seen.counts.requests),
    );
    let mut rows = vec![["LIMIT", "APPLIED", "DENIED", ""].map(str::to_owned).to_vec()];
    for limit in &replayed.limits {
        let applied = limit.allowed + limit.denied;
        let name = format!("{}{}", limit.name, if limit.shadow { " (shadow)" } else { "" });
        rows.push(vec![name, grouped(applied), grouped(limit.denied), percent(limit.denied, applied)]);
    }
    text.push_str(&table(&rows));
    let mut rows = vec![["MOST DENIED", "KEY", "DENIED"].map(str::to_owned).to_vec()];
    for (limit, key, denied) in keys_denied(replayed, top) {
        rows.push(vec![limit.to_owned(), shown(key), grouped(denied)]);
    }
    if rows.len() > 1 {
        text.push('\n');
        text.push_str(&table(&rows));
    }
    let differences = &replayed.differences;
    if differences.compared > 0 {
        text.push_str(&format!(
            "\nof {} decisions that were recorded, {} come out otherwise\n",
            grouped(differences.compared),
            grouped(differences.count)
        ));
        differences.first.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        if differences.may_lack_beginning {
            text.push_str(&format!("{LACKS_BEGINNING}\n"));
        }
    }
    text
}
