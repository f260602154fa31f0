//! The last 15 minutes, in steps of 5 seconds: of all requests, and of each limit that has decided something.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use crate::distribution::{Distribution, Recent, quantile};
use crate::metrics::{LimitTotals, RATIOS, RequestTotals};

/// The seconds of a step.
pub(crate) const STEP: u64 = 5;

/// The steps that are kept: 15 minutes.
const STEPS: usize = 180;

/// The limits whose steps are kept. When there are more, limits without a request for a minute lose their steps.
const MOST_LIMITS: usize = 1000;

/// The steps without a request after which a limit may lose its history to another one: a minute.
const UNUSED: u64 = 12;

/// The steps over which quantiles are computed: 10 to 15 seconds.
const RECENT: usize = 3;

/// What happened in one step. `None` is a step in which nothing was measured, such as while the process was stopped.
type Steps<T> = VecDeque<Option<T>>;

/// All requests in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RequestStep {
    allowed: u64,
    delayed: u64,
    denied: u64,
    errors: u64,
    p50: Option<f64>, // of the time that a decision took, in seconds
    p99: Option<f64>,
}

/// The requests to one limit in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LimitStep {
    allowed: u32,
    delayed: u32,
    denied: u32,
    newly_denied: u32,
    remaining_p50: Option<f32>, // as a part of the limit
    remaining_p95: Option<f32>,
}

/// The steps of all requests and of each limit.
#[derive(Debug, Default)]
pub(crate) struct History {
    step: u64, // of the last sample, counted from the start of the process
    requests: Steps<RequestStep>,
    request_totals: RequestTotals,
    durations: Recent,
    limits: HashMap<Box<str>, LimitHistory>,
}

#[derive(Debug, Default)]
struct LimitHistory {
    steps: Steps<LimitStep>,
    totals: LimitTotals,
    recent: VecDeque<[u64; RATIOS.len() + 1]>, // counts of what remained, at the end of the last steps
    used: u64,                                 // the last step with a request
    last: LimitStep,
}

/// Quantiles of the last 10 to 15 seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Remaining {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
}

/// All that was counted at one time.
pub(crate) struct Sample<'a> {
    pub(crate) requests: RequestTotals,
    /// How long decisions took.
    pub(crate) durations: &'a Distribution,
    pub(crate) limits: &'a mut dyn Iterator<Item = (&'a str, LimitTotals)>,
}

impl History {
    /// Whether a step is over since the last sample.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        step > self.step || self.requests.is_empty()
    }

    /// Adds what was counted since the last sample. `step` is the number of the step, counted from the start of the process.
    pub(crate) fn add(&mut self, step: u64, sample: Sample<'_>) {
        let missed = match self.requests.is_empty() {
            true => 0,
            false => (step - self.step - 1).min(STEPS as u64),
        };
        self.step = step;
        let now = sample.requests;
        let before = std::mem::replace(&mut self.request_totals, now);
        let quantiles = self.durations.quantiles(sample.durations, [0.5, 0.99]);
        self.durations.add(sample.durations);
        let of_requests = RequestStep {
            allowed: now.allowed.saturating_sub(before.allowed),
            delayed: now.delayed.saturating_sub(before.delayed),
            denied: now.denied.saturating_sub(before.denied),
            errors: now.errors.saturating_sub(before.errors),
            p50: quantiles.map(|[p50, _]| p50),
            p99: quantiles.map(|[_, p99]| p99),
        };
        push_step(&mut self.requests, missed, of_requests);
        let mut new: Vec<Box<str>> = Vec::new();
        for (name, totals) in sample.limits {
            if !self.limits.contains_key(name) {
                self.limits.insert(name.into(), LimitHistory::default());
            }
            let history = self.limits.get_mut(name).expect("it was just inserted");
            if let Some(step) = history.add(step, totals) {
                match history.steps.is_empty() {
                    true => new.push(name.into()),
                    false => push_step(&mut history.steps, missed, step),
                }
            }
        }
        self.begin(new, step);
    }

    /// Begins to keep the steps of limits that had their first request, or lost their steps before.
    fn begin(&mut self, mut new: Vec<Box<str>>, step: u64) {
        let kept = self.limits.values().filter(|history| !history.steps.is_empty()).count();
        let missing = (kept + new.len()).saturating_sub(MOST_LIMITS);
        if missing > 0 {
            let mut unused: Vec<&mut LimitHistory> = self.limits.values_mut().collect();
            unused.retain(|history| !history.steps.is_empty() && history.used + UNUSED < step);
            unused.sort_by_key(|history| history.used);
            let freed = unused.into_iter().take(missing).map(|history| history.steps = Steps::new()).count();
            new.truncate(new.len().saturating_sub(missing - freed));
        }
        for name in new {
            if let Some(history) = self.limits.get_mut(&name) {
                history.steps.push_back(Some(history.last));
            }
        }
    }

    /// Drops the history of limits that the policy no longer has.
    pub(crate) fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.limits.retain(|name, _| is_there(name));
    }

    /// All requests, the oldest step first.
    pub(crate) fn requests(&self) -> &Steps<RequestStep> {
        &self.requests
    }

    /// One limit, the oldest step first. None if it has decided nothing, or has lost its history to busier limits.
    pub(crate) fn limit(&self, name: &str) -> Option<&Steps<LimitStep>> {
        self.limits.get(name).map(|history| &history.steps).filter(|steps| !steps.is_empty())
    }

    /// How long decisions took in the last 10 to 15 seconds: median and 99th percentile.
    pub(crate) fn durations(&self, durations: &Distribution) -> Option<[f64; 2]> {
        self.durations.quantiles(durations, [0.5, 0.99])
    }

    /// What remained of a limit in the last 10 to 15 seconds, from what is counted now.
    pub(crate) fn remaining(&self, name: &str, totals: &LimitTotals) -> Option<Remaining> {
        let history = self.limits.get(name);
        let recent = since(
            &totals.remaining,
            history.and_then(|history| history.recent.front()).map(|counts| &counts[..]),
        );
        Some(Remaining { p50: quantile(&RATIOS, &recent, 0.5)?, p95: quantile(&RATIOS, &recent, 0.95)? })
    }
}

impl LimitHistory {
    /// The requests of this step. None if nothing is to be kept: no step is kept, and there was no request.
    fn add(&mut self, step: u64, totals: LimitTotals) -> Option<LimitStep> {
        let before = std::mem::replace(&mut self.totals, totals);
        let recent = since(&totals.remaining, self.recent.front().map(|counts| &counts[..]));
        push(&mut self.recent, totals.remaining, RECENT);
        let count = |now: u64, before: u64| u32::try_from(now.saturating_sub(before)).unwrap_or(u32::MAX);
        let happened = LimitStep {
            allowed: count(totals.allowed, before.allowed),
            delayed: count(totals.delayed, before.delayed),
            denied: count(totals.denied, before.denied),
            newly_denied: count(totals.newly_denied, before.newly_denied),
            remaining_p50: quantile(&RATIOS, &recent, 0.5).map(|ratio| ratio as f32),
            remaining_p95: quantile(&RATIOS, &recent, 0.95).map(|ratio| ratio as f32),
        };
        let is_used = totals != before;
        if is_used {
            self.used = step;
        }
        self.last = happened;
        (is_used || !self.steps.is_empty()).then_some(happened)
    }
}

/// Counts that were added since an earlier moment.
fn since(now: &[u64], before: Option<&[u64]>) -> Vec<u64> {
    match before {
        None => now.to_vec(),
        Some(before) => now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).collect(),
    }
}

/// Adds to a list, and removes the oldest when there are more than `most`.
fn push<T>(list: &mut VecDeque<T>, new: T, most: usize) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(new);
}

fn push_step<T>(steps: &mut Steps<T>, missed: u64, step: T) {
    (0..missed).for_each(|_| push(steps, None, STEPS));
    push(steps, Some(step), STEPS);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(allowed: u64, denied: u64) -> LimitTotals {
        LimitTotals { allowed, denied, ..LimitTotals::default() }
    }

    fn add(history: &mut History, step: u64, limits: &[(&str, LimitTotals)]) {
        let sample = Sample {
            requests: RequestTotals { allowed: 10 * step, ..RequestTotals::default() },
            durations: &Distribution::new(&[1.0]),
            limits: &mut limits.iter().copied(),
        };
        history.add(step, sample);
    }

    #[test]
    fn steps_have_what_was_added_and_missed_steps_are_gaps() {
        let mut history = History::default();
        add(&mut history, 3, &[("a", totals(5, 0))]);
        add(&mut history, 4, &[("a", totals(6, 2))]);
        add(&mut history, 7, &[("a", totals(6, 3)), ("b", totals(1, 0))]);
        let counts = |step: &Option<LimitStep>| step.map(|step| (step.allowed, step.denied));
        let of = |name: &str| history.limit(name).unwrap().iter().map(counts).collect::<Vec<_>>();
        assert_eq!(of("a"), [Some((5, 0)), Some((1, 2)), None, None, Some((0, 1))]);
        assert_eq!(of("b"), [Some((1, 0))]);
        let all: Vec<_> = history.requests().iter().map(|step| step.map(|step| step.allowed)).collect();
        assert_eq!(all, [Some(30), Some(10), None, None, Some(30)]);
        assert!(history.limit("c").is_none());
    }

    #[test]
    fn fifteen_minutes_are_kept() {
        let mut history = History::default();
        (1..=STEPS as u64 + 20).for_each(|step| add(&mut history, step, &[("a", totals(step, 0))]));
        assert_eq!(history.requests().len(), STEPS);
        assert_eq!(history.limit("a").unwrap().len(), STEPS);
    }

    #[test]
    fn a_limit_without_requests_for_a_minute_loses_its_steps_to_another() {
        let mut history = History::default();
        let names: Vec<String> = (0..MOST_LIMITS + 2).map(|number| format!("limit {number}")).collect();
        let with = |count: u64, names: &[String]| {
            names.iter().map(|name| (name.clone(), totals(count, 0))).collect::<Vec<_>>()
        };
        let mut add = |step: u64, limits: Vec<(String, LimitTotals)>| {
            let limits: Vec<_> = limits.iter().map(|(name, totals)| (name.as_str(), *totals)).collect();
            add(&mut history, step, &limits);
            names.iter().map(|name| history.limit(name).is_some()).collect::<Vec<_>>()
        };
        let all = add(1, with(1, &names));
        assert_eq!(all.iter().filter(|is_kept| **is_kept).count(), MOST_LIMITS);
        let (unkept, first) = (all.iter().rposition(|is_kept| !is_kept).unwrap(), 1 + UNUSED);
        // All limits but the first were used lately.
        add(first, with(2, &names[1..]));
        let after = add(first + 1, with(3, &names[unkept..=unkept]));
        assert!(after[unkept] && !after[0], "{unkept}");
        assert_eq!(after.iter().filter(|is_kept| **is_kept).count(), MOST_LIMITS);
        history.keep(|name| name == names[unkept]);
        assert_eq!(history.limits.len(), 1);
    }

    #[test]
    fn quantiles_are_of_the_last_three_steps() {
        let mut history = History::default();
        let with = |full: u64, empty: u64| {
            let mut remaining = [0; RATIOS.len() + 1];
            (remaining[8], remaining[0]) = (full, empty);
            LimitTotals { remaining, ..LimitTotals::default() }
        };
        for step in 1..=10 {
            add(&mut history, step, &[("a", with(100, 10 * step))]);
        }
        let remaining = history.remaining("a", &with(100, 100)).unwrap();
        assert_eq!((remaining.p50, remaining.p95), (0.0, 0.0));
        assert!(history.remaining("a", &with(200, 100)).unwrap().p50 > 0.9);
        assert_eq!(history.remaining("b", &LimitTotals::default()), None);
    }
}
