//! Recorded traffic through every algorithm, with the same limit.

use tollgate_core::Outcome;

use crate::LabError;
use crate::algorithms::{Event, LARGEST_LOG, Lane, Limit, Name, held, lane};
use crate::log::{Entry, Logs, Progress};
use crate::ordered::{Consumer, Keep, Seen, in_order};
use crate::series::Series;
use crate::tally::Tally;

/// What every algorithm did with the same requests.
#[derive(Debug)]
pub struct Replayed {
    /// What was seen on the way.
    pub seen: Seen,
    /// Each algorithm.
    pub lanes: Vec<Replay>,
    /// Cost that was asked for, over time.
    pub arrivals: Series,
    /// Requests of each client.
    pub requests_of: Vec<u64>,
}

/// What one algorithm did.
#[derive(Debug)]
pub struct Replay {
    /// Which.
    pub name: Name,
    /// What it decided.
    pub tally: Tally,
    /// Cost that passed, over time: what is held, when it goes.
    pub passed: Series,
}

/// Told of every decision of an algorithm.
pub type EachDecision<'d> = dyn FnMut(&Event, Outcome) -> Result<(), LabError> + 'd;

/// Replays logs through algorithms. Times are those of the log; windows begin as they did on its wall clock. `each` is told of every
/// decision of an algorithm, if it is asked for.
///
/// # Errors
///
/// When the logs cannot be read, or the numbers make no rule.
pub fn replay(
    logs: &Logs,
    limit: Limit,
    algorithms: &[Name],
    progress: &mut dyn FnMut(Progress),
    mut each: Option<(Name, &mut EachDecision<'_>)>,
) -> Result<Replayed, LabError> {
    for name in algorithms {
        if *name == Name::SlidingLog && limit.limit > LARGEST_LOG {
            return Err(LabError::Asked(format!(
                "an exact log of {} would take {} MB for a client; {LARGEST_LOG} is the most. Name the algorithms that you want, by \
                 --algorithm",
                limit.limit,
                limit.limit / 125_000
            )));
        }
        lane(*name, limit, 0)?; // before the log is read
    }
    let can_restart = each.is_none();
    let (lanes, seen) = in_order(logs, can_restart, &mut ByClient, progress, &mut |start| {
        let made = |name: &Name| Ok((lane(*name, limit, start)?, Replay::new(*name, limit)));
        let lanes = algorithms.iter().map(made).collect::<Result<Vec<_>, LabError>>()?;
        let arrivals = Series::new(bin(limit));
        Ok(Lanes { start, lanes, arrivals, requests_of: Vec::new(), outcomes: Vec::new(), each: each.take() })
    })?;
    let Lanes { lanes, mut arrivals, requests_of, .. } = lanes;
    let mut lanes: Vec<Replay> = lanes.into_iter().map(|(_, replay)| replay).collect();
    // Finer than times are written, nothing is to be seen.
    let width = lanes.iter().map(|replay| replay.passed.width).max().unwrap_or(0);
    let width = width.max(arrivals.width).max(seen.resolution);
    arrivals.widen_to(width);
    lanes.iter_mut().for_each(|replay| replay.passed.widen_to(width));
    Ok(Replayed { seen, lanes, arrivals, requests_of })
}

/// Bins to begin with: fine enough to see what happens within a window.
pub(crate) fn bin(limit: Limit) -> u64 {
    u64::try_from(limit.window.as_nanos() / 32).unwrap_or(u64::MAX).max(1)
}

impl Replay {
    fn new(name: Name, limit: Limit) -> Self {
        Self { name, tally: Tally::default(), passed: Series::new(bin(limit)) }
    }
}

/// Clients as they are.
struct ByClient;

impl Keep<()> for ByClient {
    fn keep(&mut self, entry: &Entry<'_>, client: &mut Vec<u8>) {
        client.extend_from_slice(entry.client());
    }
}

struct Lanes<'d, 'e> {
    start: u64,
    lanes: Vec<(Box<dyn Lane>, Replay)>,
    arrivals: Series,
    requests_of: Vec<u64>,
    outcomes: Vec<Outcome>,
    each: Option<(Name, &'d mut EachDecision<'e>)>,
}

impl Consumer<()> for Lanes<'_, '_> {
    fn take(&mut self, events: &[Event], _: &[()]) -> Result<(), LabError> {
        for event in events {
            self.arrivals.add(event.at - self.start, event.cost);
            let client = event.client as usize;
            if client >= self.requests_of.len() {
                self.requests_of.resize(client + 1, 0);
            }
            self.requests_of[client] += 1;
        }
        for (lane, replay) in &mut self.lanes {
            self.outcomes.clear();
            lane.decide(events, self.start, &mut self.outcomes);
            replay.tally.add(events, &self.outcomes);
            for (event, outcome) in events.iter().zip(&self.outcomes) {
                if let Some(delay) = held(*outcome) {
                    replay.passed.add((event.at - self.start).saturating_add(delay.get()), event.cost);
                }
            }
            if let Some((name, each)) = &mut self.each
                && *name == replay.name
            {
                events.iter().zip(&self.outcomes).try_for_each(|(event, outcome)| each(event, *outcome))?;
            }
        }
        Ok(())
    }
}
