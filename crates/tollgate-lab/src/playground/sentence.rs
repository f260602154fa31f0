//! One sentence that explains a decision.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use tollgate_core::{Decision, Mode, Outcome, Retry, Status};

use super::level::{Counter, Level, MILLION, Meter};
use super::words::{amount, amount_up, plural, time, time_beside};

/// Explains the decision of one arrival.
#[derive(Debug)]
pub(super) struct Explanation<'m> {
    meter: &'m Meter,
    before: Level,
    status: Status, // before the decision
    cost: u64,
}

impl<'m> Explanation<'m> {
    pub(super) const fn new(meter: &'m Meter, before: Level, status: Status, cost: u64) -> Self {
        Self { meter, before, status, cost }
    }

    /// The sentence, with the level after the decision.
    pub(super) fn sentence(&self, decision: &Decision, after: Level) -> String {
        let held = self.level_before();
        let cost = self.cost;
        match decision.outcome {
            Outcome::Allow { .. } if cost == 0 => format!("peek: {held}, nothing is charged"),
            Outcome::Allow { delay } => {
                format!("{}: allowed, {}", self.level_and_cost(&held), self.level_after(after, delay.get()))
            }
            Outcome::Deny { retry: Retry::After(wait) } => {
                format!("{}: denied, {}", self.level_and_cost(&held), self.wait(wait.get()))
            }
            Outcome::Deny { retry: Retry::Never | Retry::Unknown } => {
                format!("costs {cost}, but {}: denied, no wait helps", self.capacity())
            }
        }
    }

    /// What the mechanism held before the decision, and the cost.
    fn level_and_cost(&self, held: &str) -> String {
        let cost = self.cost;
        match self.meter {
            Meter::ArrivalTime(schedule) => {
                let most = schedule.reach().get();
                let span = schedule.span(cost).get();
                format!("{held}, costs {}, at most {}", time_beside(span, most), time(most))
            }
            Meter::Tokens(_)
            | Meter::Queue(_)
            | Meter::Window { .. }
            | Meter::Log { .. }
            | Meter::Counter(_)
            | Meter::Credits { .. } => format!("{held}, costs {cost}"),
        }
    }

    /// What the mechanism held before the decision.
    fn level_before(&self) -> String {
        let Level { value, second, .. } = self.before;
        match self.meter {
            Meter::Tokens(_) => format!("{} {}", amount(value), plural(value, "token", "tokens")),
            Meter::ArrivalTime(schedule) => {
                format!("TAT is {} ahead", time_beside(value, schedule.reach().get()))
            }
            Meter::Queue(schedule) => {
                let capacity = schedule.capacity();
                let taken = capacity.saturating_sub(self.status.remaining);
                format!("{taken} of {capacity} places taken")
            }
            Meter::Window { limit } => {
                let here = if self.status.remaining > 0 { " in this window" } else { "" };
                format!("{} of {limit} used{here}", amount(value))
            }
            Meter::Log { limit, window } => {
                format!("{} of {limit} in the last {}", amount(value), time(*window))
            }
            Meter::Counter(counter) => estimate(counter, self.before),
            Meter::Credits { .. } => format!(
                "{} {} and {} peak {}",
                amount(value),
                plural(value, "credit", "credits"),
                amount(second),
                plural(second, "token", "tokens")
            ),
        }
    }

    /// What is left after an arrival that was allowed.
    fn level_after(&self, Level { value, second, .. }: Level, delay: u64) -> String {
        match self.meter {
            Meter::Tokens(_) => format!("{} left", amount(value)),
            Meter::ArrivalTime(schedule) => {
                format!("TAT is now {} ahead", time_beside(value, schedule.reach().get()))
            }
            Meter::Queue(_) if delay == 0 => "leaves the queue at once".to_owned(),
            Meter::Queue(_) => format!("leaves the queue in {}", time(delay)),
            Meter::Window { .. } => format!("{} used", amount(value)),
            Meter::Log { .. } => format!("{} now", amount(value)),
            Meter::Counter(_) => format!("{} now", amount_up(value)),
            Meter::Credits { .. } => format!("{} and {} left", amount(value), amount(second)),
        }
    }

    /// When an arrival that was denied would pass.
    fn wait(&self, wait: u64) -> String {
        let Level { value, second, .. } = self.before;
        let needed = self.cost * MILLION; // at most the capacity, which is far below the reach of the word
        let (wait, missing) = (time(wait), needed.saturating_sub(value));
        match self.meter {
            Meter::Tokens(_) => {
                format!("the missing {} {} in {wait}", amount_up(missing), plural(missing, "comes", "come"))
            }
            Meter::ArrivalTime(_) => format!("passes in {wait}"),
            Meter::Counter(counter) => {
                let sum = value.saturating_add(needed);
                format!("{} would be above {}, passes in {wait}", amount_up(sum), counter.limit)
            }
            Meter::Queue(_) if self.cost == 1 => format!("a place is free in {wait}"),
            Meter::Queue(_) => format!("{} places are free in {wait}", self.cost),
            Meter::Window { .. } => format!("the next window begins in {wait}"),
            Meter::Log { .. } => match self.cost.saturating_sub(self.status.remaining) {
                1 => format!("the oldest leaves in {wait}"),
                units => format!("the oldest {units} leave within {wait}"),
            },
            Meter::Credits { .. } => {
                let missing_peak = needed.saturating_sub(second);
                match (missing > 0, missing_peak > 0) {
                    (true, true) => format!(
                        "the missing {} credits and {} peak tokens come within {wait}",
                        amount_up(missing),
                        amount_up(missing_peak)
                    ),
                    (true, false) => {
                        let come = plural(missing, "credit comes", "credits come");
                        format!("the missing {} {come} in {wait}", amount_up(missing))
                    }
                    (false, _) => {
                        let come = plural(missing_peak, "peak token comes", "peak tokens come");
                        format!("the missing {} {come} in {wait}", amount_up(missing_peak))
                    }
                }
            }
        }
    }

    /// The most that can pass at once, for a cost above it.
    fn capacity(&self) -> String {
        match self.meter {
            Meter::Tokens(schedule) => format!("the bucket holds {}", schedule.capacity()),
            Meter::ArrivalTime(schedule) => {
                format!(
                    "at most {}, which is {}, pass at once",
                    schedule.capacity(),
                    time(schedule.reach().get())
                )
            }
            Meter::Queue(schedule) => format!("the queue holds {}", schedule.capacity()),
            Meter::Window { limit } | Meter::Log { limit, .. } => format!("the limit is {limit}"),
            Meter::Counter(counter) => format!("the limit is {}", counter.limit),
            Meter::Credits { base, peak } => {
                format!("there are at most {} credits and {} peak tokens", base.capacity(), peak.capacity())
            }
        }
    }
}

/// The sum that a sliding counter compares with its limit.
fn estimate(counter: &Counter, level: Level) -> String {
    let (counts, limit) = (level.counts, counter.limit);
    let sum = amount_up(level.value);
    match counter.mode {
        Mode::Interpolate => {
            let weight = counter.weight(counts, MILLION);
            format!("{} × {} + {} = {sum} of {limit}", counts.old, amount_up(weight), counts.full)
        }
        Mode::Strict => format!("{} + {} = {sum} of {limit}", counts.old, counts.full),
        Mode::Lenient => format!("{sum} of {limit}"),
    }
}
