//! `tollgate advise`: a rate and a burst from recorded traffic, as a policy.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tollgate::AlgorithmKind;
use tollgate_lab::{Advice, GroupAdvice, Grouping, Peaks, Suggestion, Wanted, advise};
use tollgate_policy::quantity::{duration_text, rate_text};

use super::lab::{Bar, By, LogArgs, client_remarks, counted, grouped, one_line, percent, say};
use super::table;

/// How to advise.
#[derive(Debug, clap::Args)]
pub(crate) struct Advise {
    #[command(flatten)]
    logs: LogArgs,
    /// The share of clients that the suggestion must not deny anything
    #[arg(long, value_name = "SHARE", default_value = "99.9%", value_parser = share)]
    untouched: f64,
    /// One limit for all, one for each `route` (the first part of the path), or for each value of an attribute or
    /// column
    #[arg(long, value_name = "all|route|NAME", default_value = "all")]
    group: String,
    /// The attribute that the policy counts by [default: the one that clients are told apart by]
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    key: Option<String>,
    /// Whether each client has the limit, or all together
    #[arg(long, value_enum, default_value = "client")]
    by: By,
    /// Print JSON, and nothing else
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a share as 99.9% or 0.999".to_owned())
}

pub(crate) fn run(options: &Advise) -> Result<(), String> {
    let is_global = options.by == By::Global;
    let logs = options.logs.logs(if is_global { Wanted::Nothing } else { Wanted::Needed });
    let grouping = match options.group.as_str() {
        "all" => Grouping::All,
        "route" => Grouping::Route,
        attribute => Grouping::Attribute(attribute.to_owned()),
    };
    let bar = Bar::bytes();
    let advice = advise(&logs, &grouping, options.untouched, &mut |progress| bar.tell(progress));
    drop(bar);
    let advice = advice.map_err(|error| error.to_string())?;
    for line in client_remarks(&advice.counts) {
        eprintln!("{line}");
    }
    if options.json {
        return say(&format!("{}\n", results(&advice, options.untouched)));
    }
    let key = options.key.as_ref().unwrap_or(&advice.key);
    say(&policy(&advice, &grouping, (!is_global).then_some(key), options.untouched))
}

/// Whether clients ask one after another, and not many times at once. What is held must not be held for long.
fn is_even(advice: &GroupAdvice) -> bool {
    let Suggestion { rate, burst, .. } = advice.best;
    let is_soon = rate.period()
        <= Duration::from_secs(1).saturating_mul(u32::try_from(rate.tokens()).unwrap_or(u32::MAX));
    burst <= 2 && is_soon
}

fn algorithm(advice: &GroupAdvice) -> AlgorithmKind {
    if is_even(advice) { AlgorithmKind::LeakyBucket } else { AlgorithmKind::TokenBucket }
}

/// Why this algorithm.
fn reason(advice: &GroupAdvice) -> String {
    let at_once = advice.seen.first().map_or(0, |peaks| peaks.p99);
    let rate = rate_text(advice.best.rate);
    if is_even(advice) {
        format!(
            "requests come one after another, {} within a second at p99. A leaky bucket holds one that comes early until it is due, \
             and no burst reaches the application",
            grouped(at_once)
        )
    } else {
        format!(
            "clients come in bursts, {} within a second at p99, and rest in between. A token bucket lets a burst of {} pass at once, and \
             {rate} after it; a window with the same room would let twice that pass at its edge",
            grouped(at_once),
            grouped(advice.best.burst)
        )
    }
}

fn policy(advice: &Advice, grouping: &Grouping, key: Option<&str>, untouched: f64) -> String {
    let mut text = format!(
        "# Suggested from {}{}: at least {} of {} are denied nothing.\n",
        counted(advice.counts.requests, "request"),
        match advice.counts.malformed {
            0 => String::new(),
            malformed => format!(" (and {} that are none)", counted(malformed, "line")),
        },
        shown_share(untouched),
        if *grouping == Grouping::All { "clients" } else { "the clients of each group" },
    );
    if advice.left_out > 0 {
        let _ = writeln!(
            text,
            "# {} with fewer requests are left out.",
            counted(advice.left_out as u64, "group")
        );
    }
    text.push_str("limits:\n");
    for (number, group) in advice.groups.iter().enumerate() {
        write_group(&mut text, group, grouping, key, number);
    }
    text
}

fn shown_share(share: f64) -> String {
    let percent = format!("{:.4}", share * 100.0);
    format!("{} %", percent.trim_end_matches('0').trim_end_matches('.'))
}

fn write_group(
    text: &mut String,
    group: &GroupAdvice,
    grouping: &Grouping,
    key: Option<&str>,
    number: usize,
) {
    let comment = |text: &mut String, lines: &str| {
        for line in lines.lines() {
            let _ = writeln!(text, "  # {line}");
        }
    };
    let heading = match grouping {
        Grouping::All => String::new(),
        _ => format!("{}: ", one_line(&group.group).chars().take(80).collect::<String>()),
    };
    comment(
        text,
        &format!("{heading}{} of {}.", counted(group.requests, "request"), counted(group.clients, "client")),
    );
    let mut rows = vec![["at most within", "p50", "p95", "p99", "p99.9", "all"].map(str::to_owned).to_vec()];
    for Peaks { within, p50, p95, p99, p999, most } in &group.seen {
        rows.push(
            [
                duration_text(*within),
                grouped(*p50),
                grouped(*p95),
                grouped(*p99),
                grouped(*p999),
                grouped(*most),
            ]
            .to_vec(),
        );
    }
    comment(text, &table(&rows));
    let mut rows = vec![
        ["tried", "burst needed", "most in a minute", "clients denied", "requests denied"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for tried in &group.tried {
        rows.push(vec![
            format!("{}{}", rate_text(tried.rate), if *tried == group.best { " *" } else { "" }),
            grouped(tried.burst),
            grouped(tried.in_a_minute()),
            grouped(tried.touched),
            format!("{} ({})", grouped(tried.denied), percent(tried.denied, group.requests)),
        ]);
    }
    comment(text, &table(&rows));
    let which = if group.is_long_enough {
        "the tightest of those that the log is a hundred times as long as"
    } else {
        "the log is too short for any of them: take a longer one"
    };
    comment(text, &wrapped(&format!("* {which}. Why {}: {}.", algorithm(group), reason(group))));
    let Suggestion { rate, burst, .. } = group.best;
    let _ = writeln!(text, "  - name: {}", name(&group.group, number));
    match grouping {
        Grouping::All => {}
        Grouping::Route if group.group == "/" => text.push_str("    match: { path: / }\n"),
        Grouping::Route => {
            let path = |path: String| Value::from(path).to_string();
            let all = format!("[{}, {}]", path(group.group.clone()), path(format!("{}/*", group.group)));
            let _ = writeln!(text, "    match: {{ path: {all} }}");
        }
        Grouping::Attribute(attribute) => {
            let (name, value) = (Value::from(attribute.as_str()), Value::from(group.group.as_str()));
            let _ = writeln!(text, "    match: {{ attributes: {{ {name}: {value} }} }}");
        }
    }
    let key = key.map_or_else(String::new, |key| Value::from(key).to_string());
    let _ = writeln!(text, "    key: [{key}]");
    let burst_key = if is_even(group) { "queue" } else { "burst" };
    let _ = writeln!(text, "    {}: {{ rate: {}, {burst_key}: {burst} }}", algorithm(group), rate_text(rate));
}

/// A name that a limit may have, and no two the same.
fn name(group: &str, number: usize) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let plain: String = group.chars().filter(|c| is_plain(*c)).take(40).collect();
    match (plain.as_str(), number) {
        ("", 0) => "suggested".to_owned(),
        ("", number) => format!("suggested-{number}"),
        (plain, number) => format!("suggested-{number}-{plain}"),
    }
}

/// Lines of a hundred letters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        if !last.is_empty() && last.len() + word.len() >= 100 {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n")
}

fn results(advice: &Advice, untouched: f64) -> Value {
    let suggestion = |tried: &Suggestion| {
        json!({
            "rate": rate_text(tried.rate), "burst": tried.burst, "most_in_a_minute": tried.in_a_minute(),
            "clients_denied": tried.touched, "denied": tried.denied,
        })
    };
    let group = |group: &GroupAdvice| {
        let seen = |peaks: &Peaks| {
            json!({
                "within": duration_text(peaks.within), "p50": peaks.p50, "p95": peaks.p95, "p99": peaks.p99,
                "p99_9": peaks.p999, "most": peaks.most,
            })
        };
        json!({
            "group": group.group, "requests": group.requests, "clients": group.clients,
            "seen": group.seen.iter().map(seen).collect::<Vec<_>>(),
            "tried": group.tried.iter().map(suggestion).collect::<Vec<_>>(),
            "algorithm": algorithm(group).name(), "reason": reason(group), "suggestion": suggestion(&group.best),
        })
    };
    json!({
        "requests": advice.counts.requests, "malformed": advice.counts.malformed, "untouched": untouched,
        "groups": advice.groups.iter().map(group).collect::<Vec<_>>(), "left_out": advice.left_out,
    })
}
