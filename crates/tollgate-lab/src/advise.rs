//! A rate and a burst that would have left most clients of a log alone.
//!
//! For a rate, each client has a burst that it needs: the most that a bucket of that rate was behind it. Of these needs, the one
//! that the asked share of clients stays below is the burst. How slow the rate may be is a choice; several are tried, and the one is
//! taken that lets a client who goes to the limit have least in a minute, of those over times that the log has seen often enough.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
use tollgate_policy::{Policy, normal_path};

use crate::LabError;
use crate::algorithms::{Event, token_bucket};
use crate::clients::Clients;
use crate::log::{Counts, Entry, Logs, Progress};
use crate::policy_replay::client_address;
use crate::tally::Tally;

/// Rates are tried that are sustained over so long.
const WINDOWS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3600),
];

/// A time over which a rate is sustained comes so often in a log, at least: of an hour, an hour's log says little.
const OFTEN: u128 = 100;

/// As many groups are advised on: those with most requests.
const MOST_GROUPS: usize = 20;

/// How requests are put together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// All are one.
    All,
    /// By the first part of the path.
    Route,
    /// By the value of an attribute, or of a column.
    Attribute(String),
}

/// What is suggested for all groups.
#[derive(Debug)]
pub struct Advice {
    /// Requests, and lines that are none.
    pub counts: Counts,
    /// The groups, those with most requests first.
    pub groups: Vec<GroupAdvice>,
    /// Groups that are left out, because there are others with more requests.
    pub left_out: usize,
    /// The attribute of a policy by which clients are told apart as they were here.
    pub key: String,
}

/// What is suggested for a group.
#[derive(Clone, Debug)]
pub struct GroupAdvice {
    /// The part of the path, or the value of the attribute; empty where all are one.
    pub group: String,
    /// Requests, and the cost of them.
    pub requests: u64,
    /// Clients.
    pub clients: u64,
    /// What clients did at most within each of several times, by cost.
    pub seen: Vec<Peaks>,
    /// Rates that were tried, with the burst that each needs.
    pub tried: Vec<Suggestion>,
    /// The one that is suggested.
    pub best: Suggestion,
    /// Whether the log is long enough for it.
    pub is_long_enough: bool,
}

/// What clients had at most within a time: half of them no more than `p50`, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peaks {
    /// The time.
    pub within: Duration,
    /// Of half of all clients.
    pub p50: u64,
    /// Of 95 %.
    pub p95: u64,
    /// Of 99 %.
    pub p99: u64,
    /// Of 99.9 %.
    pub p999: u64,
    /// Of all.
    pub most: u64,
}

/// Numbers of a token bucket, and what they would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The rate.
    pub rate: Rate,
    /// The burst.
    pub burst: u64,
    /// Clients that would have been denied something.
    pub touched: u64,
    /// Requests that would have been denied.
    pub denied: u64,
}

impl Suggestion {
    /// What a client can have in a minute that goes to the limit.
    pub fn in_a_minute(&self) -> u64 {
        let minute = Duration::from_secs(60).as_nanos() * u128::from(self.rate.tokens());
        let refilled = minute / self.rate.period().as_nanos().max(1);
        self.burst.saturating_add(u64::try_from(refilled).unwrap_or(u64::MAX))
    }
}

/// Looks at logs, and suggests numbers that leave a share of clients untouched: 0.999 is all but one in a thousand.
///
/// # Errors
///
/// When the logs cannot be read, or no requests are of a group.
pub fn advise(
    logs: &Logs,
    grouping: &Grouping,
    untouched: f64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Advice, LabError> {
    let (mut clients, mut names) = (Clients::default(), Clients::default());
    let mut events: HashMap<u32, Vec<Event>> = HashMap::new(); // by group
    let (mut name, mut key) = (Vec::new(), None);
    let client_ip = Policy::default().identity.client_ip;
    let counts = logs.read(progress, &mut |entry| {
        name.clear();
        let key = key.get_or_insert_with(|| entry.client_name().to_owned());
        if grouping.name(&entry, &mut name) {
            // As a policy tells them apart, for it is a policy that is suggested.
            let text = String::from_utf8_lossy(entry.client());
            let client = match key.as_str() {
                "ip" => clients.number(client_address(&client_ip, &text).as_bytes()),
                _ => clients.number(text.as_bytes()),
            };
            let event = Event { at: entry.at, cost: entry.cost.unwrap_or(1), client };
            events.entry(names.number(&name)).or_default().push(event);
        }
        ControlFlow::Continue(())
    })?;
    let names = names.names();
    let mut groups: Vec<(String, Vec<Event>)> =
        events.into_iter().map(|(number, events)| (names[number as usize].clone(), events)).collect();
    groups.sort_by(|(a, one), (b, other)| other.len().cmp(&one.len()).then_with(|| a.cmp(b)));
    let left_out = groups.len().saturating_sub(MOST_GROUPS);
    groups.truncate(MOST_GROUPS);
    if groups.is_empty() {
        return Err(LabError::Asked(match grouping {
            Grouping::Attribute(name) => {
                format!("no request has an attribute or a column `{name}` to be grouped by")
            }
            _ => "no request has a path to be grouped by".to_owned(),
        }));
    }
    let groups = groups.into_iter().map(|(group, events)| of_group(group, events, untouched));
    let key = key.unwrap_or_default();
    Ok(Advice { counts, groups: groups.collect::<Result<_, LabError>>()?, left_out, key })
}

impl Grouping {
    /// Writes the name of an entry's group. False if it is of none.
    fn name(&self, entry: &Entry<'_>, name: &mut Vec<u8>) -> bool {
        let wanted = match self {
            Self::All => return true,
            Self::Route => "path",
            Self::Attribute(attribute) => attribute,
        };
        let mut is_there = false;
        entry.attributes(|known, value| {
            if known == wanted && !is_there {
                is_there = true;
                name.extend_from_slice(value);
            }
        });
        if *self == Self::Route && is_there {
            let path = normal_path(&String::from_utf8_lossy(name)).into_owned();
            let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
            is_there = path.starts_with('/');
            *name = format!("/{first}").into_bytes();
        }
        is_there && std::str::from_utf8(name).is_ok_and(can_be_matched)
    }
}

/// Whether a policy file can match a value: a star would stand for any letters, `${` for a variable of the environment, and some
/// letters cannot stand in YAML.
fn can_be_matched(value: &str) -> bool {
    let is_odd = |c: char| {
        c.is_control()
            || matches!(c, '*' | '\u{feff}' | '\u{fffd}'..='\u{ffff}')
            || c as u32 & 0xfffe == 0xfffe
    };
    !value.contains("${") && !value.contains(is_odd)
}

fn of_group(group: String, mut events: Vec<Event>, untouched: f64) -> Result<GroupAdvice, LabError> {
    events.sort_by_key(|event| (event.client, event.at));
    let clients: Vec<&[Event]> = events.chunk_by(|one, next| one.client == next.client).collect();
    let start = events.iter().map(|event| event.at).min().unwrap_or(0);
    let span = events.iter().map(|event| event.at).max().unwrap_or(0) - start;
    // Those who may be denied something; a share of a thousandth is written as a float that is a little less.
    let spared = ((1.0 - untouched) * clients.len() as f64 + 1e-6).floor() as usize;
    let spared = spared.min(clients.len() - 1);
    let (mut seen, mut tried) = (Vec::new(), Vec::new());
    for (place, within) in WINDOWS.into_iter().enumerate() {
        let is_longer_than_log = within.as_nanos() > u128::from(span.max(1));
        if is_longer_than_log && place > 0 {
            break;
        }
        let mut peaks: Vec<u64> = clients.iter().map(|events| most_within(events, within)).collect();
        peaks.sort_unstable();
        let peak = |share: f64| peaks[spot(share, peaks.len())];
        seen.push(Peaks {
            within,
            p50: peak(0.5),
            p95: peak(0.95),
            p99: peak(0.99),
            p999: peak(0.999),
            most: peaks[peaks.len() - 1],
        });
        let sustained = round_up(peaks[peaks.len() - 1 - spared].max(1));
        let Ok(rate) = Rate::new(sustained, within) else { continue };
        if let Some(burst) = burst_for(rate, &clients, start, spared) {
            let burst = round_up(burst);
            let (touched, denied) = would_deny(rate, burst, &events, start)?;
            tried.push(Suggestion { rate, burst, touched, denied });
        }
    }
    let is_often = |tried: &Suggestion| tried.rate.period().as_nanos() * OFTEN <= u128::from(span);
    let often = tried.iter().copied().filter(is_often);
    let best = often.min_by_key(|tried| (tried.in_a_minute(), tried.burst));
    let is_long_enough = best.is_some();
    let best = best.or(tried.first().copied());
    let best =
        best.ok_or_else(|| LabError::Asked(format!("no bucket can hold what group `{group}` asked for")))?;
    let (requests, clients) = (events.len() as u64, clients.len() as u64);
    Ok(GroupAdvice { group, requests, clients, seen, tried, best, is_long_enough })
}

/// Where a share of sorted values ends.
fn spot(share: f64, of: usize) -> usize {
    ((share * of as f64).ceil() as usize).clamp(1, of) - 1
}

/// The most cost of a client within a time.
fn most_within(events: &[Event], within: Duration) -> u64 {
    let within = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
    let (mut from, mut sum, mut most) = (0, 0_u64, 0);
    for event in events {
        sum = sum.saturating_add(event.cost);
        while event.at - events[from].at >= within {
            sum = sum.saturating_sub(events[from].cost);
            from += 1;
        }
        most = most.max(sum);
    }
    most
}

/// The burst with which a bucket of this rate denies nothing to all but `spared` clients. What a client needs is what a bucket that
/// holds enough lacks at most. None where no bucket holds so much.
fn burst_for(rate: Rate, clients: &[&[Event]], start: u64, spared: usize) -> Option<u64> {
    let total = |events: &&[Event]| events.iter().fold(0_u64, |sum, event| sum.saturating_add(event.cost));
    let enough = clients.iter().map(total).max()?.max(1);
    let rule = TokenBucket::new(rate, enough).ok()?;
    let needs = |events: &&[Event]| {
        let mut state = Tat::default();
        let lacks = |event: &Event| {
            let now = Timestamp::from_nanos(event.at - start);
            enough - rule.decide(&mut state, event.cost, now).status.remaining
        };
        events.iter().map(lacks).max().unwrap_or(0)
    };
    let mut bursts: Vec<u64> = clients.iter().map(needs).collect();
    bursts.sort_unstable();
    Some(bursts[bursts.len() - 1 - spared].max(1))
}

/// How many clients such a bucket would have denied something, and how many requests.
fn would_deny(rate: Rate, burst: u64, events: &[Event], start: u64) -> Result<(u64, u64), LabError> {
    let mut lane = token_bucket(rate, burst)?;
    let (mut outcomes, mut tally) = (Vec::with_capacity(events.len()), Tally::default());
    lane.decide(events, start, &mut outcomes);
    tally.add(events, &outcomes);
    Ok((tally.clients_denied(), tally.denied))
}

/// The next number of two digits and zeros: nobody writes 1237.
fn round_up(number: u64) -> u64 {
    let mut scale = 1_u64;
    while number / scale >= 100 {
        scale *= 10;
    }
    number.div_ceil(scale).saturating_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_up_to_two_digits() {
        assert_eq!([1, 99, 100, 101, 1237, 99_001].map(round_up), [1, 99, 100, 110, 1300, 100_000]);
        assert!(round_up(u64::MAX) >= u64::MAX / 2);
    }

    #[test]
    fn most_counts_any_window_and_not_only_aligned_ones() {
        let event = |at: u64, cost: u64| Event { at: at * 1_000_000_000, cost, client: 0 };
        let events = [event(0, 1), event(9, 2), event(10, 4), event(30, 8)];
        let most = |seconds| most_within(&events, Duration::from_secs(seconds));
        assert_eq!([most(1), most(2), most(10), most(11), most(31)], [8, 8, 8, 8, 15]);
    }

    #[test]
    fn the_burst_is_the_least_that_denies_nothing() {
        let second = 1_000_000_000;
        let burst = |at: u64| (0..6).map(move |_| Event { at: at * second, cost: 1, client: 0 });
        let events: Vec<Event> = burst(0).chain(burst(2)).chain(burst(60)).collect();
        let rate = Rate::per_second(1).unwrap();
        let needed = burst_for(rate, &[&events], 0, 0).unwrap();
        assert_eq!(needed, 10); // four are missing when the next six come
        assert_eq!(would_deny(rate, needed, &events, 0).unwrap(), (0, 0));
        assert_eq!(would_deny(rate, needed - 1, &events, 0).unwrap(), (1, 1));
    }
}
