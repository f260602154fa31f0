//! What the commands of the lab have in common: options, progress, and how numbers look.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tollgate_lab::{ClientField, Counts, LogOptions, Logs, Name, Progress, Wanted};
use tollgate_policy::quantity;

pub(crate) use crate::output::say;

/// Which logs, and how they are read.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Logs: access logs (common or combined format, with or without a virtual host), CSV or TSV with a header,
    /// or records that `record:` in a policy file has written; plain or compressed by gzip
    #[arg(value_name = "LOG", required = true)]
    pub(crate) logs: Vec<PathBuf>,
    /// The column of a table that is the client [default: the first of client, client_ip, ip, host, remote_addr];
    /// of a record, an attribute; of an access log, `ip` or `user` [default: ip]
    #[arg(long, value_name = "COLUMN")]
    client_column: Option<String>,
    /// The field of an access log that is the client's address: 1, or 2 behind a virtual host or a proxy
    /// [default: decided by the lines of each file]
    #[arg(long, value_name = "1|2", value_parser = client_field)]
    client_field: Option<ClientField>,
    /// For access logs that list several addresses (X-Forwarded-For): how many of your proxies add to the list. 1
    /// takes the last address, 2 the one before it [default: identity.client_ip of --policy; without it, such a log
    /// is refused]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=32))]
    trusted_hops: Option<u8>,
    /// The columns of a table that tell the time, such as date+time [default: these two, else timestamp, time, ts]
    #[arg(long, value_name = "COLUMN[+COLUMN]")]
    time_column: Option<String>,
    /// Columns whose sum is the cost of a request; of an access log, `bytes` [default: each costs 1]
    #[arg(long, value_name = "COLUMN[+COLUMN…]")]
    cost_column: Option<String>,
}

impl LogArgs {
    pub(crate) fn logs(&self, client: Wanted) -> Logs {
        let columns = |names: &Option<String>| -> Vec<String> {
            let names = names.iter().flat_map(|names| names.split('+'));
            names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
        };
        let options = LogOptions {
            client_column: self.client_column.clone(),
            time_column: columns(&self.time_column),
            cost_columns: columns(&self.cost_column),
            client,
            client_field: self.client_field,
            trusted_hops: self.trusted_hops.map(usize::from),
            ..LogOptions::default()
        };
        Logs { files: self.logs.clone(), options }
    }
}

fn client_field(text: &str) -> Result<ClientField, String> {
    match text {
        "1" => Ok(ClientField::First),
        "2" => Ok(ClientField::Second),
        _ => Err("the client is field 1 or field 2".to_owned()),
    }
}

/// Where clients were found, if not in the first field of every line.
pub(crate) fn client_remarks(counts: &Counts) -> Vec<String> {
    let mut remarks = Vec::new();
    if counts.second_field > 0 {
        let requests = counted(counts.second_field, "request");
        remarks.push(format!("{requests}: the client is the second field of the line"));
    }
    if counts.from_lists > 0 {
        let requests = counted(counts.from_lists, "request");
        remarks.push(format!(
            "{requests}: the client is taken from a list of addresses, by the trusted proxies"
        ));
    }
    remarks
}

/// A bar on a terminal, and nothing elsewhere.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// Of bytes that are read.
    pub(crate) fn bytes() -> Self {
        Self::styled("{wide_bar:.cyan/blue} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left")
    }

    /// Of a share that is done.
    pub(crate) fn share() -> Self {
        Self::styled("{wide_bar:.cyan/blue} {percent} %, {eta} left")
    }

    fn styled(template: &str) -> Self {
        let bar =
            if std::io::stderr().is_terminal() { ProgressBar::new(1000) } else { ProgressBar::hidden() };
        Self(bar.with_style(ProgressStyle::with_template(template).expect("a template that is right")))
    }

    pub(crate) fn tell(&self, progress: Progress) {
        self.0.set_length(progress.of);
        self.0.set_position(progress.read);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// A time as it is written on the command line.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    match quantity::duration(text)? {
        Duration::ZERO => Err("it is longer than no time at all".to_owned()),
        span => Ok(span),
    }
}

/// A count as it is written on the command line.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match quantity::count(text)? {
        0 => Err("it is 1 at least".to_owned()),
        count => Ok(count),
    }
}

/// A number with spaces between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// So many of something.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A part of a whole in per cent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match 100.0 * part as f64 / whole.max(1) as f64 {
        0.0 => "0 %".to_owned(),
        share if share < 0.01 => "< 0.01 %".to_owned(),
        share => format!("{share:.2} %"),
    }
}

/// A span as people say it.
pub(crate) fn span(nanos: u64) -> String {
    let seconds = nanos as f64 / 1e9;
    match seconds {
        _ if nanos == 0 => "0".to_owned(),
        s if s < 1e-6 => format!("{nanos} ns"),
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

/// A moment as logs of ours write it: Unix seconds with all nanoseconds.
pub(crate) fn moment(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

/// The algorithm of a name.
pub(crate) fn algorithm(name: &str) -> Result<Name, String> {
    let all = || Name::ALL.into_iter().chain([Name::StrictCounter]).map(Name::as_str);
    Name::of(name).ok_or_else(|| format!("the algorithms are {}", all().collect::<Vec<_>>().join(", ")))
}

/// A text of a log on one line: what would move a terminal's cursor is left out.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Whether each client has a limit, or all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum By {
    Client,
    Global,
}

/// Writes a file that was asked for.
pub(crate) fn write(file: &std::path::Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_look_as_people_write_them() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([percent(0, 9), percent(1, 3), percent(1, 1_000_000)], ["0 %", "33.33 %", "< 0.01 %"]);
        assert_eq!([0, 15, 2_000_000, 90_000_000_000].map(span), ["0", "15 ns", "2 ms", "90.0 s"]);
    }
}
