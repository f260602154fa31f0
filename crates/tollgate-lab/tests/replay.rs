//! Replays of real logs beside the testkit's oracles, which share no code with what they judge. The logs stay where they are, beside the
//! project; where they are not, each test says so.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use tollgate_core::Outcome;
use tollgate_lab::{Event, Limit, LogOptions, Logs, Name, Wanted, replay};
use tollgate_testkit::Retry;
use tollgate_testkit::oracle::{
    CounterMode, FixedWindow, LeakyQueue, Oracle, SlidingCounter, SlidingLog, TokenBucket,
};

const SECOND: u64 = 1_000_000_000;

/// A log, and how a reader that nobody optimised takes its requests from it: time, client and cost of each.
struct Shipped {
    file: &'static str,
    options: fn() -> LogOptions,
    read: fn(&str) -> Option<(u64, String, u64)>,
    header: bool,
    requests: u64,
}

fn by_client() -> LogOptions {
    LogOptions::default()
}

const SHIPPED: [Shipped; 5] = [
    Shipped {
        file: "nasa-http-1995-07-01.tsv.gz",
        options: by_client,
        header: true,
        requests: 9999,
        read: |line| {
            let fields: Vec<&str> = line.split('\t').collect();
            Some((fields[2].parse::<u64>().ok()? * SECOND, fields[0].to_owned(), 1))
        },
    },
    Shipped {
        file: "nginx-site-2022-09.log.gz",
        options: by_client,
        header: false,
        requests: 16_912,
        read: read_combined,
    },
    Shipped {
        file: "elastic-apache-2015-05.log.gz",
        options: by_client,
        header: false,
        requests: 10_000,
        read: read_combined,
    },
    Shipped {
        file: "edgar-2017-06-30.csv.gz",
        options: by_client,
        header: true,
        requests: 9999,
        read: |line| {
            let fields: Vec<&str> = line.split(',').collect();
            Some((days(fields[1], '-') * 86_400 * SECOND + of_day(fields[2]), fields[0].to_owned(), 1))
        },
    },
    Shipped {
        file: "azure-llm-2023-conv.csv.gz",
        options: || LogOptions {
            client: Wanted::Nothing,
            cost_columns: vec!["ContextTokens".to_owned(), "GeneratedTokens".to_owned()],
            ..LogOptions::default()
        },
        header: true,
        requests: 19_366,
        read: |line| {
            let fields: Vec<&str> = line.split(',').collect();
            let (date, time) = fields[0].split_once(' ')?;
            let cost = fields[1].parse::<u64>().ok()? + fields[2].parse::<u64>().ok()?;
            Some((days(date, '-') * 86_400 * SECOND + of_day(time), String::new(), cost))
        },
    },
];

fn read_combined(line: &str) -> Option<(u64, String, u64)> {
    let (client, rest) = line.split_once(' ')?;
    let time = rest.split_once('[')?.1.split_once(" +0000]")?.0;
    let (date, time) = time.split_once(':')?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let parts: Vec<&str> = date.split('/').collect();
    let month = months.iter().position(|month| *month == parts[1])? + 1;
    let date = format!("{}-{month}-{}", parts[2], parts[0]);
    Some((days(&date, '-') * 86_400 * SECOND + of_day(time), client.to_owned(), 1))
}

/// Days since 1970, counted one by one.
fn days(date: &str, separator: char) -> u64 {
    let parts: Vec<u64> = date.split(separator).map(|part| part.parse().unwrap()).collect();
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let of_years: u64 = (1970..parts[0]).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let february = if is_leap(parts[0]) { 29 } else { 28 };
    let of_months: u64 =
        [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][..parts[1] as usize - 1].iter().sum();
    of_years + of_months + parts[2] - 1
}

/// Nanoseconds into the day.
fn of_day(time: &str) -> u64 {
    let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
    let parts: Vec<u64> = whole.split(':').map(|part| part.parse().unwrap()).collect();
    let fraction: u64 = format!("{fraction:0<9}").parse().unwrap();
    (parts[0] * 3600 + parts[1] * 60 + parts[2]) * SECOND + fraction
}

fn data() -> Option<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if data.is_dir() {
        return Some(data);
    }
    tollgate_testkit::skip(format_args!("the access logs are not in {}", data.display()));
    None
}

impl Shipped {
    fn events(&self, data: &Path) -> Vec<(u64, String, u64)> {
        let mut text = String::new();
        let file = std::fs::File::open(data.join(self.file)).unwrap();
        GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let lines = text.lines().skip(usize::from(self.header));
        let mut events: Vec<_> = lines.map(|line| (self.read)(line).unwrap()).collect();
        events.sort_by_key(|(at, ..)| *at);
        events
    }
}

/// An oracle of a new key. Oracles know no time of day: they are given times since the epoch, to which windows are aligned.
fn oracle(name: Name, limit: u64, window: u64) -> Box<dyn Oracle> {
    match name {
        Name::TokenBucket => Box::new(TokenBucket::new(limit, window, limit)),
        Name::LeakyBucket => Box::new(LeakyQueue::new(limit, window, limit)),
        Name::FixedWindow => Box::new(FixedWindow::aligned(limit, window)),
        Name::SlidingLog => Box::new(SlidingLog::new(limit, window)),
        Name::SlidingCounter => Box::new(SlidingCounter::new(limit, window, 1, CounterMode::Interpolate)),
        Name::StrictCounter => Box::new(SlidingCounter::new(limit, window, 32, CounterMode::Strict)),
    }
}

#[test]
fn every_decision_on_every_shipped_log_is_the_oracles() {
    let Some(data) = data() else { return };
    for shipped in &SHIPPED {
        let events = shipped.events(&data);
        assert_eq!(events.len() as u64, shipped.requests, "{}", shipped.file);
        let numbers: &[(u64, u64)] = if shipped.file.starts_with("azure") {
            &[(100_000, 60), (20_000, 7), (3_000_000, 3600)]
        } else {
            &[(10, 60), (1, 1), (3, 10), (60, 60), (100, 3600), (5, 7)]
        };
        for (limit, seconds) in numbers {
            for name in Name::ALL {
                let mut oracles: HashMap<&str, Box<dyn Oracle>> = HashMap::new();
                let expected: Vec<_> = events
                    .iter()
                    .map(|(at, client, cost)| {
                        let key =
                            oracles.entry(client).or_insert_with(|| oracle(name, *limit, *seconds * SECOND));
                        key.ask(*at, *cost)
                    })
                    .collect();
                let logs = Logs { files: vec![data.join(shipped.file)], options: (shipped.options)() };
                let limit = Limit { limit: *limit, window: Duration::from_secs(*seconds) };
                let mut decided = 0;
                let what = format!("{}: {name} of {limit:?}", shipped.file);
                let mut each = |event: &Event, outcome: Outcome| {
                    let same = match outcome {
                        Outcome::Allow { delay } => (delay.get(), None),
                        Outcome::Deny { retry: tollgate_core::Retry::After(wait) } => {
                            (0, Some(Retry::After(wait.get())))
                        }
                        Outcome::Deny { .. } => (0, Some(Retry::Never)),
                    };
                    assert_eq!(event.at, events[decided].0, "{what}, request {decided}");
                    let expected = expected[decided];
                    assert_eq!(same, (expected.delay, expected.retry), "{what}, request {decided}");
                    decided += 1;
                    Ok(())
                };
                let replayed = replay(&logs, limit, &[name], &mut |_| {}, Some((name, &mut each))).unwrap();
                assert_eq!((decided, replayed.seen.counts.malformed), (events.len(), 0), "{what}");

                // And streamed, without anybody who looks at each decision: the sums are the same.
                let streamed = replay(&logs, limit, &Name::ALL, &mut |_| {}, None).unwrap();
                let tally = &streamed.lanes.iter().find(|lane| lane.name == name).unwrap().tally;
                let allowed = expected.iter().filter(|answer| answer.allowed).count() as u64;
                let cost = events.iter().zip(&expected).filter(|(_, answer)| answer.allowed);
                assert_eq!(tally.allowed, allowed, "{what}");
                assert_eq!(tally.denied, events.len() as u64 - allowed, "{what}");
                assert_eq!(tally.allowed_cost, cost.map(|((_, _, cost), _)| cost).sum::<u64>(), "{what}");
                let denied = events.iter().zip(&expected).filter(|(_, answer)| !answer.allowed);
                let clients: std::collections::HashSet<_> =
                    denied.map(|((_, client, _), _)| client).collect();
                assert_eq!(tally.clients_denied(), clients.len() as u64, "{what}");
                let is_unordered = shipped.file.starts_with("elastic");
                assert_eq!(streamed.seen.is_sorted, is_unordered, "{what}");
            }
        }
    }
}
