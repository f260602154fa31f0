//! Synthetic traffic: who asks, when, and how much at once.

mod built_in;
mod file;

use std::collections::HashMap;

use crate::algorithms::{Event, Limit};
use crate::random::Random;

pub use self::built_in::{BUILT_IN, built_in};
pub use self::file::read_scenario;
pub(crate) use self::file::scenario_of_text;

/// The most groups of clients in a scenario.
pub(crate) const MOST_GROUPS: usize = 64;

/// The most clients of a scenario.
pub(crate) const MOST_CLIENTS: u64 = 10_000_000;

/// Traffic, and the limit that it meets.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is called.
    pub name: String,
    /// What happens in it.
    pub about: String,
    /// The limit that every algorithm gets.
    pub limit: Limit,
    /// Whether all clients are counted as one.
    pub is_global: bool,
    /// How long it takes, in nanoseconds.
    pub duration: u64,
    /// Who asks.
    pub groups: Vec<Group>,
    /// Another seed gives other moments.
    pub seed: u64,
}

/// Clients of one kind. Groups of the same name are the same clients.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they are called.
    pub name: String,
    /// How many there are.
    pub count: u64,
    /// What each of their requests costs.
    pub cost: u64,
    /// From when on they ask, in nanoseconds.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// When they do.
    pub pattern: Pattern,
}

/// When a client asks.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// At moments that have nothing to do with each other, `interval` nanoseconds apart on average.
    Random {
        /// Between two requests of one client.
        interval: f64,
    },
    /// Every `interval` nanoseconds, clients evenly after each other.
    Even {
        /// Between two requests of one client.
        interval: f64,
    },
    /// Several at once, again and again, each client at moments of its own.
    Bursts {
        /// How many at once.
        burst: u64,
        /// How long from one to the next, in nanoseconds.
        every: u64,
    },
    /// Several at once, all clients at the same moments.
    Together {
        /// How many each.
        burst: u64,
        /// When, in nanoseconds.
        at: Vec<u64>,
    },
}

/// The longest scenario, in nanoseconds: a year.
const LONGEST: u64 = 365 * 86_400 * 1_000_000_000;

/// The most requests of a scenario.
const MOST_REQUESTS: f64 = 5e9;

impl Scenario {
    /// Refuses what would never end, or makes no sense. What, and what would be right.
    ///
    /// # Errors
    ///
    /// A sentence.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=LONGEST).contains(&self.duration) {
            return Err("`for` is longer than no time, and a year at the most".to_owned());
        }
        if self.groups.is_empty() {
            return Err("`clients` has nobody in it".to_owned());
        }
        if self.groups.len() > MOST_GROUPS {
            return Err(format!("`clients` has {} groups, and {MOST_GROUPS} is the most", self.groups.len()));
        }
        if self.clients() > MOST_CLIENTS {
            return Err(format!("there are {} clients, and {MOST_CLIENTS} is the most", self.clients()));
        }
        for group in &self.groups {
            let of = |why: &str| Err(format!("clients `{}`: {why}", group.name));
            if group.from >= group.until {
                return of("they never ask: `from` is before `until`, and before the end");
            }
            if matches!(group.pattern, Pattern::Bursts { every: 0, .. }) {
                return of("`every` is longer than no time");
            }
            if self.groups.iter().any(|other| other.name == group.name && other.count != group.count) {
                return of("they are the same everywhere: `count` is, too");
            }
        }
        let requests: f64 = self.groups.iter().map(Group::expected).sum();
        if requests > MOST_REQUESTS {
            return Err(format!("it has about {requests:.0} requests, and {MOST_REQUESTS:.0} is the most"));
        }
        Ok(())
    }

    /// All requests in the order of their times, and the same each time.
    pub fn events(&self) -> impl Iterator<Item = Event> + use<> {
        let mut firsts: HashMap<&str, u32> = HashMap::new();
        let mut clients = 0;
        let mut arrivals: Vec<Arrivals> = Vec::new();
        for (group, number) in self.groups.iter().zip(0_u64..) {
            let first = *firsts.entry(&group.name).or_insert_with(|| {
                let first = clients;
                clients += group.count as u32;
                first
            });
            let seed = self.seed.wrapping_add(number) ^ 0x746f_6c6c;
            arrivals.push(Arrivals::new(group, first, Random::new(seed)));
        }
        Merged::new(arrivals)
    }

    /// How many clients there are.
    pub fn clients(&self) -> u64 {
        let counts: HashMap<&str, u64> =
            self.groups.iter().map(|group| (group.name.as_str(), group.count)).collect();
        counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count))
    }

    /// The numbers of clients, by the names of their groups, in their order.
    pub fn ranges(&self) -> Vec<(&str, std::ops::Range<u32>)> {
        let mut ranges: Vec<(&str, std::ops::Range<u32>)> = Vec::new();
        let mut clients = 0;
        for group in &self.groups {
            if ranges.iter().all(|(name, _)| *name != group.name) {
                ranges.push((&group.name, clients..clients + group.count as u32));
                clients += group.count as u32;
            }
        }
        ranges
    }
}

impl Group {
    /// About how many requests it makes.
    fn expected(&self) -> f64 {
        let (span, count) = ((self.until - self.from) as f64, self.count as f64);
        match &self.pattern {
            Pattern::Random { interval } | Pattern::Even { interval } => count * span / interval,
            Pattern::Bursts { burst, every } => count * *burst as f64 * (span / *every as f64).ceil(),
            Pattern::Together { burst, at } => count * *burst as f64 * at.len() as f64,
        }
    }
}

/// The requests of a group in the order of their times, without keeping them.
#[derive(Debug)]
struct Arrivals {
    first: u32,
    count: u64,
    cost: u64,
    from: u64,
    until: u64,
    random: Random,
    state: Pace,
}

#[derive(Debug)]
enum Pace {
    /// What many send independently of each other is as if one did, so many times as often, and each time another were meant.
    Random {
        at: f64,
        mean: f64,
    },
    Even {
        number: u64,
        interval: f64,
    },
    Bursts {
        phases: Vec<(u64, u32)>,
        place: usize,
        round: u64,
        left: u64,
        burst: u64,
        every: u64,
    },
    Together {
        at: Vec<u64>,
        place: usize,
        client: u64,
        left: u64,
        burst: u64,
    },
}

impl Arrivals {
    fn new(group: &Group, first: u32, mut random: Random) -> Self {
        let count = group.count;
        let state = match &group.pattern {
            Pattern::Random { interval } => {
                let mean = interval / count as f64;
                Pace::Random { at: group.from as f64 + random.gap(mean), mean }
            }
            Pattern::Even { interval } => Pace::Even { number: 0, interval: interval / count as f64 },
            Pattern::Bursts { burst, every } => {
                let mut phases: Vec<(u64, u32)> =
                    (0..count as u32).map(|client| (random.below(*every), client)).collect();
                phases.sort_unstable();
                Pace::Bursts { phases, place: 0, round: 0, left: *burst, burst: *burst, every: *every }
            }
            Pattern::Together { burst, at } => {
                let mut at: Vec<u64> = at.iter().copied().filter(|at| *at >= group.from).collect();
                at.sort_unstable();
                Pace::Together { at, place: 0, client: 0, left: *burst, burst: *burst }
            }
        };
        Self { first, count, cost: group.cost, from: group.from, until: group.until, random, state }
    }

    /// The next moment, and who asks then.
    fn step(&mut self) -> Option<(u64, u32)> {
        match &mut self.state {
            Pace::Random { at, mean } => {
                let now = *at as u64;
                *at += self.random.gap(*mean);
                Some((now, self.random.below(self.count) as u32))
            }
            Pace::Even { number, interval } => {
                let now = self.from + (*number as f64 * *interval) as u64;
                let client = *number % self.count;
                *number += 1;
                Some((now, client as u32))
            }
            Pace::Bursts { phases, place, round, left, burst, every } => {
                if *left == 0 {
                    *left = *burst;
                    *place += 1;
                    if *place == phases.len() {
                        (*place, *round) = (0, *round + 1);
                    }
                }
                *left -= 1;
                let (phase, client) = phases[*place];
                let begin = self.from.saturating_add(round.saturating_mul(*every));
                Some((begin.saturating_add(phase), client))
            }
            Pace::Together { at, place, client, left, burst } => {
                if *left == 0 {
                    *left = *burst;
                    *client += 1;
                    if *client == self.count {
                        (*client, *place) = (0, *place + 1);
                    }
                }
                *left -= 1;
                Some((*at.get(*place)?, *client as u32))
            }
        }
    }
}

impl Iterator for Arrivals {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let (at, client) = self.step()?;
        (at < self.until).then_some(Event { at, cost: self.cost, client: self.first + client })
    }
}

/// Groups together, in the order of their times; of the same time, in the order of groups. There are few, so that to look at each
/// is the fastest way.
struct Merged {
    groups: Vec<Arrivals>,
    heads: Vec<Event>, // the next of each
}

impl Merged {
    fn new(groups: Vec<Arrivals>) -> Self {
        let mut merged = Self { groups: Vec::new(), heads: Vec::new() };
        for mut group in groups {
            if let Some(head) = group.next() {
                merged.heads.push(head);
                merged.groups.push(group);
            }
        }
        merged
    }
}

impl Iterator for Merged {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        let mut first = 0;
        for group in 1..self.heads.len() {
            if self.heads[group].at < self.heads[first].at {
                first = group;
            }
        }
        let event = *self.heads.get(first)?;
        match self.groups[first].next() {
            Some(head) => self.heads[first] = head,
            None => {
                self.heads.remove(first);
                self.groups.remove(first);
            }
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests;
