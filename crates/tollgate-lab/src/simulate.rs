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

/// The most requests of which every one that passed is remembered for a window.
const REMEMBERED: u64 = 50_000_000;

/// What every algorithm did with the same requests.
#[derive(Debug)]
pub struct Simulated {
    /// How many requests there were.
    pub requests: u64,
    /// What they cost.
    pub cost: u64,
    /// Requests of each client.
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
    /// The most cost that one key had pass in any true window. None where there were too many requests to remember.
    pub most_in_window: Option<u64>,
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
    let mut all = Simulated {
        requests: 0,
        cost: 0,
        requests_of: vec![0; usize::try_from(scenario.clients()).unwrap_or(0)],
        arrivals: vec![0; BINS],
        lanes: Vec::new(),
    };
    let bin = Bin::of(scenario.duration);
    let mut batch: Vec<Event> = Vec::with_capacity(BATCH);
    let mut next_bin = 1; // the first whose beginning is still to come
    let mut events = scenario.events();
    loop {
        let event = events.next();
        let is_new_bin = event.is_none_or(|event| bin.place(event.at) >= next_bin);
        if is_new_bin || batch.len() == BATCH {
            all.requests += batch.len() as u64;
            for event in &batch {
                all.cost = all.cost.saturating_add(event.cost);
                all.arrivals[bin.place(event.at)] += event.cost;
                all.requests_of[event.client as usize] += 1;
            }
            let is_remembered = all.requests <= REMEMBERED;
            lanes.iter_mut().for_each(|lane| lane.take(&batch, bin, is_remembered));
            batch.clear();
        }
        if is_new_bin {
            let until = event.map_or(BINS, |event| bin.place(event.at));
            for place in next_bin..=until {
                lanes.iter_mut().for_each(|lane| lane.look(bin.begin(place)));
            }
            next_bin = until + 1;
            progress(Progress { read: until as u64, of: BINS as u64 });
        }
        match event {
            Some(event) => batch.push(event),
            None => break,
        }
    }
    all.lanes = lanes.into_iter().map(|lane| lane.end(all.requests <= REMEMBERED)).collect();
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
                most_in_window: None,
                bytes_per_key: 0.0,
                passed: vec![0; BINS],
                level: Vec::with_capacity(BINS),
            },
        })
    }

    fn take(&mut self, batch: &[Event], bin: Bin, is_remembered: bool) {
        let seen = if self.is_global {
            self.as_one.clear();
            self.as_one.extend(batch.iter().map(|event| Event { client: 0, ..*event }));
            &self.as_one
        } else {
            batch
        };
        self.outcomes.clear();
        self.lane.decide(seen, 0, &mut self.outcomes);
        self.result.tally.add(batch, &self.outcomes);
        if is_remembered {
            self.most.add(seen, &self.outcomes);
        }
        for (event, outcome) in batch.iter().zip(&self.outcomes) {
            if let Some(delay) = held(*outcome) {
                let goes = event.at.saturating_add(delay.get());
                // What goes after the end is not seen.
                if goes < bin.begin(BINS) {
                    self.result.passed[bin.place(goes)] += event.cost;
                }
            }
        }
    }

    fn look(&mut self, now: u64) {
        let (remaining, capacity) = (self.lane.remaining(0, now), self.lane.capacity());
        self.result.level.push(1.0 - remaining as f64 / capacity as f64);
    }

    fn end(self, is_remembered: bool) -> Simulation {
        let (bytes, keys) = self.lane.bytes();
        Simulation {
            most_in_window: is_remembered.then_some(self.most.most()),
            bytes_per_key: bytes as f64 / keys.max(1) as f64,
            ..self.result
        }
    }
}
