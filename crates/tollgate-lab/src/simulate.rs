//! Synthetic traffic through every algorithm, with the same limit and the same arrivals.

use tollgate_core::{Outcome, RuleError};

use crate::algorithms::{Event, Lane, Name, held, lane};
use crate::log::Progress;
use crate::most::MostInWindow;
use crate::ordered::BATCH;
use crate::scenario::Scenario;
use crate::tally::Tally;

/// The time of a scenario is cut into so many pieces, for what is drawn.
pub const BINS: usize = 360;

/// So many clients, at the most, are watched for the most that passes in a window: to remember all that passed of a million takes ten
/// times as long as to decide it.
pub const WATCHED: u32 = 10_000;

/// What every algorithm did with the same requests.
#[derive(Debug)]
pub struct Simulated {
    /// How many requests there were.
    pub requests: u64,
    /// What they cost.
    pub cost: u64,
    /// Requests of each group of clients, in the order of [`Scenario::ranges`].
    pub requests_of: Vec<u64>,
    /// Cost that was asked for, over time, in [`BINS`] pieces.
    pub arrivals: Vec<u64>,
    /// Each algorithm.
    pub lanes: Vec<Simulation>,
}

/// What one algorithm did.
#[derive(Debug)]
pub struct Simulation {
    /// Which.
    pub name: Name,
    /// What it decided.
    pub tally: Tally,
    /// The most cost that one key had pass in any true window: of the first [`WATCHED`] keys.
    pub most_in_window: u64,
    /// Bytes that a key takes, on average.
    pub bytes_per_key: f64,
    /// Cost that passed, over time: what is held, when it goes.
    pub passed: Vec<u64>,
    /// How much of the limit the first client had used up, over time: 0 to 1.
    pub level: Vec<f64>,
}

/// Runs a scenario. `progress` is told how much of its time has passed.
///
/// # Errors
///
/// When the numbers make no rule.
pub fn simulate(
    scenario: &Scenario,
    algorithms: &[Name],
    progress: &mut dyn FnMut(Progress),
) -> Result<Simulated, RuleError> {
    let running = |name: &Name| Running::new(scenario, *name);
    let mut lanes = algorithms.iter().map(running).collect::<Result<Vec<_>, RuleError>>()?;
    let ranges = scenario.ranges();
    let mut all = Simulated {
        requests: 0,
        cost: 0,
        requests_of: vec![0; ranges.len()],
        arrivals: vec![0; BINS],
        lanes: Vec::new(),
    };
    let bin = Bin::of(scenario.duration);
    let mut batch: Vec<Event> = Vec::with_capacity(BATCH);
    let mut place = 0; // the bin that all of a batch lie in
    let mut events = scenario.events();
    loop {
        let event = events.next();
        let is_later = event.is_none_or(|event| event.at >= bin.begin(place + 1));
        if is_later || batch.len() == BATCH {
            all.requests += batch.len() as u64;
            let cost = batch.iter().fold(0, |sum: u64, event| sum.saturating_add(event.cost));
            all.cost = all.cost.saturating_add(cost);
            all.arrivals[place] += cost;
            for ((_, range), requests) in ranges.iter().zip(&mut all.requests_of) {
                *requests += batch.iter().filter(|event| range.contains(&event.client)).count() as u64;
            }
            lanes.iter_mut().for_each(|lane| lane.take(&batch, bin, place));
            batch.clear();
        }
        if is_later {
            let next = event.map_or(BINS, |event| bin.place(event.at));
            for place in place + 1..=next {
                lanes.iter_mut().for_each(|lane| lane.look(bin.begin(place)));
            }
            place = next;
            progress(Progress { read: next as u64, of: BINS as u64 });
        }
        match event {
            Some(event) => batch.push(event),
            None => break,
        }
    }
    all.lanes = lanes.into_iter().map(Running::end).collect();
    Ok(all)
}

/// Which piece of its time a moment of a scenario lies in.
#[derive(Clone, Copy, Debug)]
struct Bin {
    width: u64,
}

impl Bin {
    fn of(duration: u64) -> Self {
        Self { width: duration.div_ceil(BINS as u64).max(1) }
    }

    fn place(self, at: u64) -> usize {
        usize::try_from(at / self.width).unwrap_or(BINS).min(BINS - 1)
    }

    const fn begin(self, place: usize) -> u64 {
        place as u64 * self.width
    }
}

/// An algorithm on its way through a scenario.
struct Running {
    lane: Box<dyn Lane>,
    is_global: bool,
    as_one: Vec<Event>, // what the lane sees where all are counted as one
    outcomes: Vec<Outcome>,
    most: MostInWindow,
    result: Simulation,
}

impl Running {
    fn new(scenario: &Scenario, name: Name) -> Result<Self, RuleError> {
        let window = u64::try_from(scenario.limit.window.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            lane: lane(name, scenario.limit, 0)?,
            is_global: scenario.is_global,
            as_one: Vec::new(),
            outcomes: Vec::new(),
            most: MostInWindow::new(window),
            result: Simulation {
                name,
                tally: Tally::default(),
                most_in_window: 0,
                bytes_per_key: 0.0,
                passed: vec![0; BINS],
                level: Vec::with_capacity(BINS),
            },
        })
    }

    /// Decides a batch, all of which lies in one bin.
    fn take(&mut self, batch: &[Event], bin: Bin, place: usize) {
        let seen = if self.is_global {
            self.as_one.clear();
            self.as_one.extend(batch.iter().map(|event| Event { client: 0, ..*event }));
            &self.as_one
        } else {
            batch
        };
        self.outcomes.clear();
        self.lane.decide(seen, 0, &mut self.outcomes);
        for ((event, outcome), asked) in seen.iter().zip(&self.outcomes).zip(batch) {
            self.result.tally.add_one(asked, *outcome);
            let Some(delay) = held(*outcome) else { continue };
            let goes = event.at.saturating_add(delay.get());
            let place = if delay.is_zero() { place } else { bin.place(goes) };
            // What goes after the end is not seen.
            if goes < bin.begin(BINS) {
                self.result.passed[place] += event.cost;
            }
            if event.client < WATCHED {
                self.most.passed(event.client, goes, event.cost);
            }
        }
    }

    fn look(&mut self, now: u64) {
        let (remaining, capacity) = (self.lane.remaining(0, now), self.lane.capacity());
        self.result.level.push(1.0 - remaining as f64 / capacity as f64);
    }

    fn end(self) -> Simulation {
        let (bytes, keys) = self.lane.bytes();
        Simulation {
            most_in_window: self.most.most(),
            bytes_per_key: bytes as f64 / keys.max(1) as f64,
            ..self.result
        }
    }
}
