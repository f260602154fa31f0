//! How cost grows: with threads, limits, tenants, rules, keys, permits, waiters and log lines.
//!
//!     crates/tollgate-bench/scale/run [--row NAME]... [--before FILE] [--write FILE] [--tollgate PATH]
//!
//! Prints one table: what grows, its size, the value before (from a file that an earlier run wrote), the value now, and what is wanted.
//! Figures are processor time where the row allows it. Rows about threads have peers that show what the machine can do, and rows about
//! stalls measure the stalls of the machine in the same run.
#![allow(clippy::cast_sign_loss, reason = "counts are not negative")]

mod library;
mod measure;
mod policy;
mod service;
mod table;
mod threads;

use std::path::PathBuf;
use std::process::ExitCode;

use table::{Earlier, Figure, HEAD, Value, to_tsv};

/// A row: its name on the command line, and the measurement.
type Row = (&'static str, fn(&mut Report));

const ROWS: &[Row] = &[
    ("shared-key", threads::shared_key),
    ("workers", service::workers),
    ("distinct-keys", threads::distinct_keys),
    ("limits", policy::limits),
    ("lists", policy::lists),
    ("start", service::start),
    ("tenants", service::tenants),
    ("reload", service::reload),
    ("sent-rules", policy::sent_rules),
    ("permits", library::permits),
    ("redis-permits", service::redis_permits),
    ("expired-keys", library::expired_keys),
    ("changed-log", library::changed_log),
    ("fair-queue", library::fair_queue),
    ("advise", service::advise),
    ("leaky-queue", service::leaky_queue),
    ("slowest-insert", library::slowest_insert),
];

/// The figures so far, printed as they come.
struct Report {
    earlier: Earlier,
    figures: Vec<Figure>,
    tollgate: PathBuf, // the program
}

impl Report {
    fn add(
        &mut self,
        what: impl Into<String>,
        size: impl Into<String>,
        value: impl Into<Value>,
        unit: &'static str,
        wanted: &'static str,
    ) {
        let figure = Figure { what: what.into(), size: size.into(), value: value.into(), unit, wanted };
        println!("{}", figure.line(&self.earlier));
        self.figures.push(figure);
    }
}

/// A count with a space between thousands.
fn grouped(count: impl TryInto<u64>) -> String {
    let digits = count.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Arguments {
    rows: Vec<String>, // none: all
    before: Option<PathBuf>,
    write: Option<PathBuf>,
    tollgate: Option<PathBuf>,
    notes: Vec<String>,
}

impl Arguments {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut read = Self::default();
        while let Some(option) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("`{option}` needs a value"));
            match option.as_str() {
                "--row" => read.rows.push(value()?),
                "--before" => read.before = Some(value()?.into()),
                "--write" => read.write = Some(value()?.into()),
                "--tollgate" => read.tollgate = Some(value()?.into()),
                "--note" => read.notes.push(value()?),
                _ => {
                    return Err(format!(
                        "unknown option `{option}`: the options are --row NAME, --before FILE, --write FILE, --note TEXT, --tollgate PATH"
                    ));
                }
            }
        }
        let is_known = |name: &&String| ROWS.iter().any(|(known, _)| known == name);
        if let Some(name) = read.rows.iter().find(|name| !is_known(name)) {
            let names: Vec<&str> = ROWS.iter().map(|(name, _)| *name).collect();
            return Err(format!("unknown row `{name}`: the rows are {}", names.join(", ")));
        }
        Ok(read)
    }
}

fn main() -> ExitCode {
    match Arguments::read(std::env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let mut report = Report { earlier: Earlier::default(), figures: Vec::new(), tollgate: "tollgate".into() };
    if let Some(file) = &arguments.before {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        report.earlier = Earlier::read(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let beside = std::env::current_exe().map(|program| program.with_file_name("tollgate"));
    let tollgate = arguments.tollgate.clone().or(beside.ok()).unwrap_or_default();
    if !tollgate.is_file() {
        let path = tollgate.display();
        return Err(format!("{path}: no such program. Build it, or name another with --tollgate PATH"));
    }
    report.tollgate = tollgate;
    println!("{HEAD}");
    for (name, measure) in ROWS {
        if arguments.rows.is_empty() || arguments.rows.iter().any(|row| row == name) {
            let (took, ()) = tollgate_testkit::real_time::timed(|| measure(&mut report));
            eprintln!("{name}: {} ms", took.as_millis());
        }
    }
    if arguments.rows.is_empty() {
        for line in report.earlier.missing_from(&report.figures) {
            eprintln!("in the file of figures before, but not measured now: {line}");
        }
    }
    if let Some(file) = &arguments.write {
        let text = to_tsv(&arguments.notes, &report.figures);
        std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        assert_eq!(
            [0_u64, 999, 1000, 65_503, 1_000_000].map(grouped),
            ["0", "999", "1 000", "65 503", "1 000 000"]
        );
    }

    #[test]
    fn a_bad_command_line_is_refused_with_what_would_be_right() {
        let read = |words: &[&str]| Arguments::read(words.iter().map(|&word| word.to_owned()));
        let error = read(&["--rows", "a"]).unwrap_err();
        assert!(error.starts_with("unknown option `--rows`: the options are --row NAME"), "{error}");
        assert_eq!(read(&["--row"]).unwrap_err(), "`--row` needs a value");
        let error = read(&["--row", "limit"]).unwrap_err();
        assert!(error.starts_with("unknown row `limit`: the rows are shared-key, workers"), "{error}");
        assert_eq!(read(&["--row", "limits", "--row", "start"]).unwrap().rows, ["limits", "start"]);
    }

    #[test]
    fn the_committed_figures_can_be_read() {
        Earlier::read(include_str!("../../../scale/before.tsv")).unwrap();
    }
}
