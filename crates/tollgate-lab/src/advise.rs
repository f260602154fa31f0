//! A rate and a burst that would have left most clients of a log alone.
//!
//! For a rate, each client has a burst that it needs: the most that a bucket of that rate was behind it. Of these needs, the one
//! that the asked share of clients stays below is the burst. How slow the rate may be is a choice; several are tried, and the one is
//! taken that lets a client who goes to the limit have least in a minute, of those over times that the log has seen often enough.

//!
//! Three passes are made: for the most that each client had, for the bursts that clients need, and for what the suggestions would
//! have denied. Each needs the rates or bursts that come out of the pass before it.

mod peaks;
mod traffic;

use std::time::Duration;

use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
use tollgate_policy::normal_path;

use self::peaks::{ClientPeaks, SPARE_CELLS};
use self::traffic::Traffic;
use crate::LabError;
use crate::algorithms::Event;
use crate::log::{Counts, Entry, Logs, Progress};

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
/// Memory grows with clients, not with requests, if the logs can be read again and are in order, or nearly.
///
/// # Errors
///
/// When the logs cannot be read or change meanwhile, or no requests are of a group.
pub fn advise(
    logs: &Logs,
    grouping: &Grouping,
    untouched: f64,
    progress: &mut dyn FnMut(Progress),
) -> Result<Advice, LabError> {
    let mut traffic = Traffic::new(logs, grouping, 3);
    let demand: Demand = traffic.pass(progress, Demand::add)?;
    let names = traffic.group_names();
    let rank = |group: &usize| (std::cmp::Reverse(demand.groups[*group].requests), &names[*group]);
    let mut largest: Vec<usize> = (0..demand.groups.len()).collect();
    largest.sort_by(|a, b| rank(a).cmp(&rank(b)));
    let left_out = largest.len().saturating_sub(MOST_GROUPS);
    largest.truncate(MOST_GROUPS);
    if largest.is_empty() {
        return Err(LabError::Asked(match grouping {
            Grouping::Attribute(name) => {
                format!("no request has an attribute or a column `{name}` to be grouped by")
            }
            _ => "no request has a path to be grouped by".to_owned(),
        }));
    }

    let mut plans = Plans::new(&largest, names.len());
    let peaks =
        plans.by_group(&traffic, demand.clients.into_iter().map(|client| (client.most, client.total)));
    for (group, peaks) in largest.iter().zip(peaks) {
        plans.each.push(GroupPlan::new(demand.groups[*group], &peaks, untouched));
    }
    let buckets: Vec<TrialBuckets> = traffic.pass(progress, |buckets, event, group| {
        plans.visit(buckets, event, group, |trial, bucket, now| bucket.note_lack(trial, event.cost, now));
    })?;
    for (needs, plan) in plans.by_group(&traffic, buckets).into_iter().zip(&mut plans.each) {
        plan.set_bursts(&needs)?;
    }
    let buckets: Vec<TrialBuckets> = traffic.pass(progress, |buckets, event, group| {
        plans.visit(buckets, event, group, |trial, bucket, now| bucket.note_denial(trial, event.cost, now));
    })?;
    let denials = plans.by_group(&traffic, buckets);
    let groups = largest.iter().zip(plans.each).zip(denials);
    let groups = groups.map(|((group, plan), denials)| plan.advice(names[*group].clone(), &denials));
    let groups = groups.collect::<Result<_, LabError>>()?;
    Ok(Advice { counts: traffic.counts(), groups, left_out, key: traffic.key() })
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

/// The first pass: what each client had at most, and how long each group was seen.
struct Demand {
    clients: Vec<ClientPeaks>,
    groups: Vec<GroupSpan>,
    spare_cells: usize, // that clients with many requests can still have
}

impl Default for Demand {
    fn default() -> Self {
        Self { clients: Vec::new(), groups: Vec::new(), spare_cells: SPARE_CELLS }
    }
}

#[derive(Clone, Copy)]
struct GroupSpan {
    requests: u64,
    first: u64,
    last: u64,
}

impl Demand {
    fn add(&mut self, event: &Event, group: u32) {
        entry(&mut self.clients, event.client).add(event.at, event.cost, &mut self.spare_cells);
        let group = entry(&mut self.groups, group);
        group.requests += 1;
        group.first = group.first.min(event.at);
        group.last = group.last.max(event.at);
    }
}

impl Default for GroupSpan {
    fn default() -> Self {
        Self { requests: 0, first: u64::MAX, last: 0 }
    }
}

/// The element of a number, in a list that grows as numbers are given.
fn entry<T: Default>(list: &mut Vec<T>, number: u32) -> &mut T {
    let number = number as usize;
    if number >= list.len() {
        list.resize_with(number + 1, T::default);
    }
    &mut list[number]
}

/// The groups that are advised on.
struct Plans {
    each: Vec<GroupPlan>,
    place: Vec<Option<usize>>, // of each group by number
}

impl Plans {
    fn new(largest: &[usize], groups: usize) -> Self {
        let mut place = vec![None; groups];
        largest.iter().enumerate().for_each(|(at, group)| place[*group] = Some(at));
        Self { each: Vec::new(), place }
    }

    /// What is known of clients, by the groups that are advised on.
    fn by_group<T: Clone>(&self, traffic: &Traffic<'_>, clients: impl IntoIterator<Item = T>) -> Vec<Vec<T>> {
        let mut groups = vec![Vec::new(); self.place.iter().flatten().count()];
        for (client, known) in (0..).zip(clients) {
            if let Some(at) = self.place[traffic.group_of(client) as usize] {
                groups[at].push(known);
            }
        }
        groups
    }

    /// Shows a request to the buckets of its client, one for each rate that is tried.
    fn visit(
        &self,
        buckets: &mut Vec<TrialBuckets>,
        event: &Event,
        group: u32,
        see: impl Fn(&Trial, &mut TrialBucket, Timestamp),
    ) {
        if let Some(Some(at)) = self.place.get(group as usize) {
            let plan = &self.each[*at];
            // Only a log that was changed has requests before the start. It is refused after the pass.
            let now = Timestamp::from_nanos(event.at.saturating_sub(plan.start));
            for (trial, bucket) in plan.trials.iter().zip(entry(buckets, event.client)) {
                see(trial, bucket, now);
            }
        }
    }
}

/// What is found out about a group, pass by pass.
struct GroupPlan {
    requests: u64,
    clients: u64,
    start: u64,
    span: u64,
    spared: usize, // clients that may be denied something
    seen: Vec<Peaks>,
    trials: Vec<Trial>,
}

/// A rate that is tried.
struct Trial {
    rate: Rate,
    rule: TokenBucket, // with room for everything until the burst is known
    burst: u64,
}

/// A bucket of one client for each rate that is tried.
type TrialBuckets = [TrialBucket; WINDOWS.len()];

/// A bucket, and the most that it lacked or the number of requests that it denied.
#[derive(Clone, Copy, Default)]
struct TrialBucket {
    state: Tat,
    noted: u64,
}

impl TrialBucket {
    /// Notes what a bucket that holds enough lacks at most.
    fn note_lack(&mut self, trial: &Trial, cost: u64, now: Timestamp) {
        let remaining = trial.rule.decide(&mut self.state, cost, now).status.remaining;
        self.noted = self.noted.max(trial.burst - remaining);
    }

    fn note_denial(&mut self, trial: &Trial, cost: u64, now: Timestamp) {
        // `decide` without what remains, which is not needed here.
        if trial.rule.test(&self.state, cost, now).is_allowed() {
            trial.rule.spend(&mut self.state, cost, now);
        } else {
            self.noted += 1;
        }
    }
}

impl GroupPlan {
    /// A plan for clients of which the most within each window and the total are known.
    fn new(span: GroupSpan, clients: &[([u64; WINDOWS.len()], u64)], untouched: f64) -> Self {
        let GroupSpan { requests, first: start, last } = span;
        let span = last - start;
        // A share of a thousandth is written as a float that is a little less.
        let spared = ((1.0 - untouched) * clients.len() as f64 + 1e-6).floor() as usize;
        let spared = spared.min(clients.len() - 1);
        let enough = clients.iter().map(|(_, total)| *total).max().unwrap_or(0).max(1);
        let (mut seen, mut trials) = (Vec::new(), Vec::new());
        for (place, within) in WINDOWS.into_iter().enumerate() {
            let is_longer_than_log = within.as_nanos() > u128::from(span.max(1));
            if is_longer_than_log && place > 0 {
                break;
            }
            let mut peaks: Vec<u64> = clients.iter().map(|(most, _)| most[place]).collect();
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
            let rate = Rate::new(sustained, within);
            // A rate is not tried if no bucket holds so much.
            if let Some((rate, rule)) =
                rate.ok().and_then(|rate| Some((rate, TokenBucket::new(rate, enough).ok()?)))
            {
                trials.push(Trial { rate, rule, burst: enough });
            }
        }
        Self { requests, clients: clients.len() as u64, start, span, spared, seen, trials }
    }

    /// Gives each rate the burst with which its bucket denies nothing to all clients but those that may be denied.
    fn set_bursts(&mut self, clients: &[TrialBuckets]) -> Result<(), LabError> {
        for (place, trial) in self.trials.iter_mut().enumerate() {
            let mut needs: Vec<u64> = clients.iter().map(|buckets| buckets[place].noted).collect();
            needs.sort_unstable();
            trial.burst = round_up(needs[needs.len() - 1 - self.spared].max(1));
            trial.rule = TokenBucket::new(trial.rate, trial.burst)?;
        }
        Ok(())
    }

    /// The advice, once the denials of each client are known.
    fn advice(self, group: String, clients: &[TrialBuckets]) -> Result<GroupAdvice, LabError> {
        let suggestion = |(place, trial): (usize, &Trial)| {
            let denied = clients.iter().map(|buckets| buckets[place].noted);
            let touched = denied.clone().filter(|denied| *denied > 0).count() as u64;
            Suggestion { rate: trial.rate, burst: trial.burst, touched, denied: denied.sum() }
        };
        let tried: Vec<Suggestion> = self.trials.iter().enumerate().map(suggestion).collect();
        let is_often = |tried: &Suggestion| tried.rate.period().as_nanos() * OFTEN <= u128::from(self.span);
        let often = tried.iter().copied().filter(is_often);
        let best = often.min_by_key(|tried| (tried.in_a_minute(), tried.burst));
        let is_long_enough = best.is_some();
        let best = best
            .or(tried.first().copied())
            .ok_or_else(|| LabError::Asked(format!("no bucket can hold what group `{group}` asked for")))?;
        let Self { requests, clients, seen, .. } = self;
        Ok(GroupAdvice { group, requests, clients, seen, tried, best, is_long_enough })
    }
}

/// Where a share of sorted values ends.
fn spot(share: f64, of: usize) -> usize {
    ((share * of as f64).ceil() as usize).clamp(1, of) - 1
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
    fn the_burst_is_the_least_that_denies_nothing() {
        let second = 1_000_000_000;
        let burst = |at: u64| (0..6).map(move |_| Event { at: at * second, cost: 1, client: 0 });
        let events: Vec<Event> = burst(0).chain(burst(2)).chain(burst(60)).collect();
        let rate = Rate::per_second(1).unwrap();
        let bucket_after = |burst: u64, note: fn(&mut TrialBucket, &Trial, u64, Timestamp)| {
            let (trial, mut bucket) =
                (Trial { rate, rule: TokenBucket::new(rate, burst).unwrap(), burst }, TrialBucket::default());
            events
                .iter()
                .for_each(|event| note(&mut bucket, &trial, event.cost, Timestamp::from_nanos(event.at)));
            bucket.noted
        };
        let needed = bucket_after(18, TrialBucket::note_lack);
        assert_eq!(needed, 10); // four are missing when the next six come
        assert_eq!(bucket_after(needed, TrialBucket::note_denial), 0);
        assert_eq!(bucket_after(needed - 1, TrialBucket::note_denial), 1);
    }
}
