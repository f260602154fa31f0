//! The arrivals of a request: its own, those of a scenario, or those of a log.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;

use super::error::{cut, shown_number};
use super::request::ArrivalRequest;
use super::{BUDGET_EVERY, LARGEST_COST, LATEST_START, LONGEST_NAME, LONGEST_SCENARIO, LONGEST_TIMELINE};
use super::{MOST_ARRIVALS, PlaygroundError, PlaygroundRequest, playable_scenarios};
use crate::LabError;
use crate::algorithms::Event;
use crate::clients::Clients;
use crate::log::{LogOptions, Wanted, read_text};
use crate::scenario::{Scenario, built_in, scenario_of_text};

pub(super) const SECOND: u64 = 1_000_000_000;

/// Lines of a log between two calls of the budget. A line may be joined with those behind it, which takes longer than a decision.
const BUDGET_EVERY_LINES: u64 = 8;

/// Arrivals in the order of their times.
#[derive(Debug)]
pub(super) struct Traffic {
    pub(super) start: u64,         // nanoseconds since the Unix epoch
    pub(super) events: Vec<Event>, // times since `start`
    pub(super) clients: Vec<String>,
    pub(super) malformed: u64,
}

impl Traffic {
    pub(super) fn of(
        request: &PlaygroundRequest,
        budget: &mut dyn FnMut() -> bool,
    ) -> Result<Self, PlaygroundError> {
        let mut traffic = match (&request.arrivals, &request.scenario, &request.log) {
            (Some(arrivals), None, None) => Self::of_arrivals(arrivals, request.start),
            _ if request.start.is_some() => Err(PlaygroundError::StartWithoutArrivals),
            (None, Some(scenario), None) => Self::of_scenario(scenario, budget),
            (None, None, Some(log)) => Self::of_log(log, budget),
            (None, None, None) => Err(PlaygroundError::Sources { found: "there is no source of arrivals" }),
            _ => Err(PlaygroundError::Sources { found: "there are several sources of arrivals" }),
        }?;
        traffic.events.sort_by_key(|event| event.at); // a stable sort
        traffic.start_at_first(request.log.is_some())?;
        for (number, event) in (1..).zip(&traffic.events) {
            if event.cost > LARGEST_COST {
                return Err(PlaygroundError::Cost { number, found: event.cost });
            }
        }
        Ok(traffic)
    }

    fn of_arrivals(arrivals: &[ArrivalRequest], start: Option<f64>) -> Result<Self, PlaygroundError> {
        let start = start.unwrap_or(0.0);
        if !(0.0..=LATEST_START as f64).contains(&start) {
            return Err(PlaygroundError::Start { found: shown_number(start) });
        }
        if arrivals.len() > MOST_ARRIVALS {
            return Err(PlaygroundError::Arrivals {
                source_name: "`arrivals`",
                found: arrivals.len().to_string(),
                advice: "send a shorter span, or every n-th arrival under limits that are n times smaller",
            });
        }
        let (mut numbers, mut clients) = (HashMap::new(), Vec::new());
        let mut events = Vec::with_capacity(arrivals.len());
        for (number, ArrivalRequest { at, cost, client }) in (1..).zip(arrivals) {
            if !(0.0..=LONGEST_TIMELINE as f64).contains(at) {
                return Err(PlaygroundError::At { number, found: shown_number(*at) });
            }
            // Before they are sorted, so that the number is that of the request.
            if *cost > LARGEST_COST {
                return Err(PlaygroundError::Cost { number, found: *cost });
            }
            let found = client.chars().count();
            if found > LONGEST_NAME {
                return Err(PlaygroundError::ClientName { number, found });
            }
            let client = *numbers.entry(client.as_str()).or_insert_with(|| {
                clients.push(client.clone());
                (clients.len() - 1) as u32
            });
            events.push(Event { at: (at * 1e9).round() as u64, cost: *cost, client });
        }
        // A 64-bit floating-point number holds a Unix time to about a microsecond.
        let start = (start * 1e6).round() as u64 * 1000;
        Ok(Self { start, events, clients, malformed: 0 })
    }

    fn of_scenario(text: &str, budget: &mut dyn FnMut() -> bool) -> Result<Self, PlaygroundError> {
        let scenario = scenario(text)?;
        let mut events = Vec::new();
        for (number, event) in scenario.events().enumerate() {
            if number % BUDGET_EVERY == 0 && !budget() {
                return Err(PlaygroundError::Budget);
            }
            if number == MOST_ARRIVALS {
                return Err(too_many("the scenario", "write a shorter `for`, fewer clients or lower rates"));
            }
            events.push(event);
        }
        let mut clients = Vec::new();
        for (name, range) in scenario.ranges() {
            if range.len() == 1 {
                clients.push(name.to_owned());
            } else {
                clients.extend((1..=range.len()).map(|number| format!("{name} {number}")));
            }
        }
        Ok(Self { start: 0, events, clients, malformed: 0 })
    }

    fn of_log(text: &str, budget: &mut dyn FnMut() -> bool) -> Result<Self, PlaygroundError> {
        let (mut clients, mut events) = (Clients::default(), Vec::new());
        let options = LogOptions { client: Wanted::IfThere, ..LogOptions::default() };
        let (mut lines, mut is_spent, mut is_long) = (0_u64, false, false);
        let mut go_on = |_| {
            is_spent |= lines.is_multiple_of(BUDGET_EVERY_LINES) && !budget();
            lines += 1;
            if is_spent { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let read = read_text(Path::new("log"), text.to_owned(), &options, &mut go_on, &mut |entry| {
            is_long = events.len() == MOST_ARRIVALS;
            if is_long {
                return ControlFlow::Break(());
            }
            let client = clients.number(entry.client());
            events.push(Event { at: entry.at, cost: entry.cost.unwrap_or(1), client });
            ControlFlow::Continue(())
        });
        if is_spent {
            return Err(PlaygroundError::Budget);
        }
        if is_long {
            return Err(too_many(
                "the log",
                "paste fewer lines, or use `tollgate replay` for the whole file",
            ));
        }
        let counts = read.map_err(|error| {
            PlaygroundError::Log(match error {
                LabError::Refused { line, why, .. } => format!("line {line} of the log: {why}"),
                error => error.to_string(),
            })
        })?;
        Ok(Self { start: 0, events, clients: clients.names(), malformed: counts.malformed })
    }

    /// Counts the times of a log from its first one. A scenario and arrivals count from 0.
    fn start_at_first(&mut self, is_log: bool) -> Result<(), PlaygroundError> {
        let (Some(first), Some(last)) = (self.events.first(), self.events.last()) else { return Ok(()) };
        if !is_log {
            return Ok(());
        }
        let (start, span) = (first.at, last.at - first.at);
        if span > LONGEST_TIMELINE * SECOND {
            return Err(PlaygroundError::LogSpan { found: span / SECOND });
        }
        self.start = start;
        self.events.iter_mut().for_each(|event| event.at -= start);
        Ok(())
    }

    /// The client whose state is drawn: the one of this name, or else the one with the most arrivals.
    pub(super) fn watched(&self, name: Option<&str>) -> Result<u32, PlaygroundError> {
        if let Some(name) = name {
            let place = self.clients.iter().position(|known| known == name);
            let unknown = || PlaygroundError::Watch { name: cut(name) };
            return place.map(|place| place as u32).ok_or_else(unknown);
        }
        let mut arrivals = vec![0_u32; self.clients.len()];
        self.events.iter().for_each(|event| arrivals[event.client as usize] += 1);
        let most = arrivals.iter().copied().max();
        Ok(arrivals.iter().position(|count| Some(*count) == most).unwrap_or(0) as u32)
    }
}

fn too_many(source_name: &'static str, advice: &'static str) -> PlaygroundError {
    PlaygroundError::Arrivals { source_name, found: format!("more than {MOST_ARRIVALS}"), advice }
}

/// The scenario of a name or of a text, small enough to be generated.
fn scenario(text: &str) -> Result<Scenario, PlaygroundError> {
    if !text.contains('\n') {
        return built_in(text).ok_or_else(|| {
            // Only those that are small enough to run here.
            let known = playable_scenarios().iter().map(|scenario| format!("`{}`", scenario.name));
            let known: Vec<String> = known.collect();
            PlaygroundError::UnknownScenario { name: cut(text), known: known.join(", ") }
        });
    }
    if text.len() > LONGEST_SCENARIO {
        return Err(PlaygroundError::ScenarioLength { found: text.len() });
    }
    let scenario = scenario_of_text(text, Path::new("scenario"));
    let scenario = scenario.map_err(|error| PlaygroundError::Scenario(error.to_string()))?;
    // Groups of the same name are the same clients, but each takes memory of its own.
    let found = scenario.groups.iter().fold(0_u64, |sum, group| sum.saturating_add(group.count));
    if found > MOST_ARRIVALS as u64 {
        return Err(PlaygroundError::ScenarioClients { found });
    }
    if let Some(group) = scenario.groups.iter().find(|group| group.name.chars().count() > LONGEST_NAME) {
        let name = cut(&group.name);
        let why = format!(
            "scenario: the name of the clients `{name}` is too long: write at most {LONGEST_NAME} characters"
        );
        return Err(PlaygroundError::Scenario(why));
    }
    if let Some(group) = scenario.groups.iter().find(|group| group.cost > LARGEST_COST) {
        let (name, cost) = (&group.name, group.cost);
        let why =
            format!("scenario: clients `{name}` cost {cost} each: write a `cost` from 0 to {LARGEST_COST}");
        return Err(PlaygroundError::Scenario(why));
    }
    Ok(scenario)
}
