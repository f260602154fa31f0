//! The level of one state over time, as points to be joined by lines.
#![deny(clippy::wildcard_enum_match_arm, reason = "a new algorithm must be handled in every match")]

use tollgate_core::{Rule, State, Timestamp};

use super::level::{Counter, CountsView, Level, MILLION, Meter, schedules, tat};
use super::reply::{CounterColumns, Curve, Line, Numbers};

/// The most points that are kept as they are.
const MOST_POINTS: usize = 4000;

/// The pieces of a whole weight.
const WEIGHT: u64 = 1_000_000;

/// The most edges that are listed.
const MOST_EDGES: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    at: u64,
    level: Level,
}

/// The points of one state so far.
#[derive(Debug)]
pub(super) struct CurveBuilder {
    rule: Rule,
    meter: Meter,
    points: Vec<Point>,
    until: Timestamp, // up to which the level is known
    edges: Vec<u64>,  // of windows that began with a request
    window_end: u64,
}

impl CurveBuilder {
    /// The curve of an unused state.
    pub(super) fn new(rule: Rule, meter: Meter) -> Self {
        let (until, points) = (Timestamp::default(), Vec::new());
        let mut curve = Self { rule, meter, points, until, edges: Vec::new(), window_end: 0 };
        let level = curve.level(&State::Unused, until);
        curve.push(0, level);
        curve
    }

    fn level(&self, state: &State, now: Timestamp) -> Level {
        self.meter.level(state, now, || self.rule.status(state, now))
    }

    fn push(&mut self, at: u64, level: Level) {
        let point = Point { at, level };
        if self.points.last() != Some(&point) {
            self.points.push(point);
        }
    }

    /// Adds the points at which the level turns or jumps by itself, up to `now` inclusive.
    pub(super) fn advance(&mut self, state: &State, now: Timestamp) {
        let from = std::mem::replace(&mut self.until, now);
        if from == now {
            return;
        }
        match self.meter {
            Meter::Tokens(schedule) | Meter::ArrivalTime(schedule) | Meter::Queue(schedule) => {
                self.drains(state, [schedule.ahead_nanos(tat(state), from), 0], from, now);
            }
            Meter::Credits { base, peak } => {
                let [base_tat, peak_tat] = schedules(state);
                let ends = [base.ahead_nanos(base_tat, from), peak.ahead_nanos(peak_tat, from)];
                self.drains(state, ends, from, now);
            }
            Meter::Window { .. } => self.window_ends(state, from, now),
            Meter::Log { limit, window } => self.log_leaves(state, [limit, window], from, now),
            Meter::Counter(counter) => self.rolls(counter, state, from, now),
        }
    }

    /// Adds the jump of a decision that changed the level at `now`, up to which the curve was advanced.
    pub(super) fn jump(&mut self, before: Level, after: Level, state: &State, now: Timestamp) {
        if before != after {
            self.push(now.as_nanos(), before);
            self.push(now.as_nanos(), after);
        }
        if let State::Window(window) = state
            && self.window_end != window.end().as_nanos()
        {
            self.window_end = window.end().as_nanos();
            self.edges.extend([now.as_nanos(), self.window_end]);
        }
    }

    /// A bucket is full, or a queue is empty, when its schedule has passed.
    fn drains(&mut self, state: &State, mut ahead: [u64; 2], from: Timestamp, now: Timestamp) {
        ahead.sort_unstable();
        for ahead in ahead {
            let end = from.as_nanos() + ahead;
            if ahead > 0 && end <= now.as_nanos() {
                let level = self.level(state, Timestamp::from_nanos(end));
                self.push(end, level);
            }
        }
    }

    fn window_ends(&mut self, state: &State, from: Timestamp, now: Timestamp) {
        let State::Window(window) = state else { return };
        let end = window.end();
        if end > from && end <= now {
            self.step(state, end.as_nanos());
        }
    }

    /// A jump that the state makes by itself.
    fn step(&mut self, state: &State, at: u64) {
        let before = self.level(state, Timestamp::from_nanos(at - 1)); // `at` is after a moment of the timeline
        let after = self.level(state, Timestamp::from_nanos(at));
        self.push(at, before);
        self.push(at, after);
    }

    /// The entries of a log leave one after another. Only those that leave in this span are looked at.
    fn log_leaves(&mut self, state: &State, [limit, window]: [u64; 2], from: Timestamp, now: Timestamp) {
        let State::Log(log) = state else { return };
        let mut counted = limit.saturating_sub(self.rule.status(state, from).remaining);
        let Some(left) = log.len().checked_sub(counted as usize) else { return };
        let mut entries = log.times().skip(left).map(|entry| entry.as_nanos() + window).peekable();
        while let Some(at) = entries.next_if(|at| *at <= now.as_nanos()) {
            let before = counted;
            counted -= 1;
            while entries.next_if_eq(&at).is_some() {
                counted -= 1;
            }
            let level = |units: u64| Level { value: units * MILLION, ..Level::default() };
            self.push(at, level(before));
            self.push(at, level(counted));
        }
    }

    /// At the edge of a sub-window the oldest of the newest ones becomes the one that is leaving.
    fn rolls(&mut self, counter: Counter, state: &State, from: Timestamp, now: Timestamp) {
        let Some(newest) = Counter::newest(state) else { return };
        let mut counts = counter.view(state, from);
        let last = counter.locate(now).0.min(newest + counter.buckets + 1);
        while counts.index < last {
            let index = counts.index + 1;
            let old = index.checked_sub(counter.buckets).map_or(0, |old| counter.held(state, old));
            let next = CountsView { index, old, full: counts.full - old, left: counter.window };
            // Where nothing leaves, the level is as it was.
            if counts.old > 0 || old > 0 {
                let at = counter.begin(index);
                self.push(at, counter.level(CountsView { left: 0, ..counts }));
                self.push(at, counter.level(next));
            }
            counts = next;
        }
    }

    /// The curve up to the end of the timeline, the counts of a sliding counter, and the edges of windows.
    pub(super) fn end(
        mut self,
        state: &State,
        duration: u64,
        start: u64,
    ) -> (Curve, Option<CounterColumns>, Option<Numbers>) {
        let end = Timestamp::from_nanos(duration);
        self.advance(state, end);
        let level = self.level(state, end);
        self.push(duration, level);
        let edges = self.edges(duration, start);
        let (max, max2) = self.meter.most();
        let points = thin(self.points, duration, max2.is_some());
        let column =
            |of: fn(&Point) -> u64, per_unit: u64| Numbers::of_pieces(per_unit, points.iter().map(of));
        let t = Numbers::of_nanos(points.iter().map(|point| point.at));
        let counter = match self.meter {
            Meter::Counter(counter) => Some(CounterColumns {
                t: t.clone(),
                old: points.iter().map(|point| point.level.counts.old).collect(),
                full: points.iter().map(|point| point.level.counts.full).collect(),
                weight: Numbers::of_pieces(
                    WEIGHT,
                    points.iter().map(|point| counter.weight(point.level.counts, WEIGHT)),
                ),
            }),
            Meter::Tokens(_)
            | Meter::ArrivalTime(_)
            | Meter::Queue(_)
            | Meter::Window { .. }
            | Meter::Log { .. }
            | Meter::Credits { .. } => None,
        };
        let per_unit = self.meter.per_unit();
        let y = column(|point| point.level.value, per_unit);
        let y2 = max2.map(|_| column(|point| point.level.second, per_unit));
        (Curve { what: self.meter.what(), t, y, max, y2, max2 }, counter, edges)
    }

    /// The edges within the timeline, if there are few enough to be drawn.
    fn edges(&mut self, duration: u64, start: u64) -> Option<Numbers> {
        let tollgate_core::RuleParts::FixedWindow { window, align, .. } = self.rule.parts() else {
            let Meter::Counter(counter) = self.meter else { return None };
            let (index, into) = counter.locate(Timestamp::default());
            let first = index + u64::from(into > 0);
            return listed((first..).map(|index| counter.begin(index)), duration);
        };
        match align {
            tollgate_core::Align::First => {
                self.edges.dedup();
                listed(self.edges.iter().copied(), duration)
            }
            tollgate_core::Align::Epoch => {
                let first = (window.get() - start % window.get()) % window.get();
                listed((0..).map(|index| first.saturating_add(window.get().saturating_mul(index))), duration)
            }
        }
    }
}

/// Edges up to the end of the timeline.
fn listed(edges: impl Iterator<Item = u64>, duration: u64) -> Option<Numbers> {
    let edges = edges.take_while(|edge| *edge <= duration).take(MOST_EDGES + 1);
    let edges: Vec<u64> = edges.collect();
    (edges.len() <= MOST_EDGES).then(|| Numbers::of_nanos(edges))
}

/// A line of whole numbers, thinned as a curve is.
pub(super) fn line(points: Vec<(u64, u64)>, duration: u64) -> Line {
    let point = |(at, value)| Point { at, level: Level { value, ..Level::default() } };
    let points = thin(points.into_iter().map(point).collect(), duration, false);
    Line {
        t: Numbers::of_nanos(points.iter().map(|point| point.at)),
        y: Numbers::of_pieces(1, points.iter().map(|point| point.level.value)),
    }
}

/// Of many points, the first, the last, the lowest and the highest of each step.
fn thin(points: Vec<Point>, duration: u64, has_second: bool) -> Vec<Point> {
    if points.len() <= MOST_POINTS {
        return points;
    }
    let kept = if has_second { 6 } else { 4 };
    let width = duration.div_ceil((MOST_POINTS / kept) as u64).max(1);
    let mut thinned = Vec::with_capacity(MOST_POINTS);
    for step in points.chunk_by(|a, b| a.at / width == b.at / width) {
        let place = |key: fn(&Point) -> u64| {
            let places = || 0..step.len();
            let lowest = places().min_by_key(|place| key(&step[*place])).unwrap_or(0);
            let highest = places().max_by_key(|place| key(&step[*place])).unwrap_or(0);
            [lowest, highest]
        };
        let [lowest, highest] = place(|point| point.level.value);
        let [second_lowest, second_highest] =
            if has_second { place(|point| point.level.second) } else { [0, 0] };
        let mut places = [0, lowest, highest, second_lowest, second_highest, step.len() - 1];
        places.sort_unstable();
        for place in places {
            if thinned.last() != Some(&step[place]) {
                thinned.push(step[place]);
            }
        }
    }
    thinned
}
