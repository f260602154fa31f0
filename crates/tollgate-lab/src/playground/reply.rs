//! The answer of the playground.

use serde::ser::SerializeSeq as _;
use serde::{Serialize, Serializer};

use super::load::Timeline;
use super::request::By;
use super::request::View;
use super::traffic::{SECOND, Traffic};

/// A column of numbers: seconds, or levels. Whole numbers are written without a fraction, numbers that are absent as null.
///
/// Numbers are kept as whole pieces of a unit, such as nanoseconds. They are written as the nearest 64-bit floating-point number, which
/// is exact to the nanosecond up to 104 days.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    pieces: Vec<u64>, // `ABSENT` where there is no number
    per_unit: u64,
}

const ABSENT: u64 = u64::MAX;

impl Numbers {
    /// A column with room for `capacity` numbers.
    pub(super) fn with_capacity(per_unit: u64, capacity: usize) -> Self {
        Self { pieces: Vec::with_capacity(capacity), per_unit }
    }

    /// A column of times, in nanoseconds.
    pub(super) fn of_nanos(nanos: impl IntoIterator<Item = u64>) -> Self {
        Self { pieces: nanos.into_iter().collect(), per_unit: SECOND }
    }

    /// A column of levels, in pieces of a unit.
    pub(super) fn of_pieces(per_unit: u64, pieces: impl IntoIterator<Item = u64>) -> Self {
        Self { pieces: pieces.into_iter().collect(), per_unit }
    }

    /// Adds a number, in pieces of a unit.
    #[inline]
    pub(super) fn push(&mut self, pieces: u64) {
        self.pieces.push(pieces);
    }

    /// Adds a number, in pieces of a unit, or none.
    #[inline]
    pub(super) fn push_optional(&mut self, pieces: Option<u64>) {
        self.pieces.push(pieces.unwrap_or(ABSENT));
    }

    /// The numbers in pieces of a unit.
    pub(super) fn pieces(&self) -> impl ExactSizeIterator<Item = Option<u64>> + '_ {
        self.pieces.iter().map(|pieces| (*pieces != ABSENT).then_some(*pieces))
    }

    /// The numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<f64>> + '_ {
        self.pieces().map(|pieces| Some(pieces? as f64 / self.per_unit as f64))
    }
}

impl Serialize for Numbers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.pieces.len()))?;
        for pieces in &self.pieces {
            match *pieces {
                0 => seq.serialize_element(&0_u64)?,
                ABSENT => seq.serialize_element(&())?,
                pieces if pieces % self.per_unit == 0 => seq.serialize_element(&(pieces / self.per_unit))?,
                pieces => seq.serialize_element(&(pieces as f64 / self.per_unit as f64))?,
            }
        }
        seq.end()
    }
}

/// One number, without a fraction where it is whole.
#[derive(Clone, Copy, Debug)]
struct Number(f64);

impl Serialize for Number {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let whole = self.0 as u64;
        if whole as f64 == self.0 && whole < 1 << 53 {
            serializer.serialize_u64(whole)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

fn number<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    Number(*number).serialize(serializer)
}

fn optional_number<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    number.map(Number).serialize(serializer)
}

/// What all rules decided. Times are in seconds since the start of the timeline.
#[derive(Clone, Debug, Serialize)]
pub struct PlaygroundReply {
    /// The Unix time of second 0: `start` of the request for arrivals, 0 for scenarios, the time of the first line for logs.
    #[serde(serialize_with = "number")]
    pub start: f64,
    /// The length of the timeline: up to the last arrival or release, and some room; at least `until` of the request.
    #[serde(serialize_with = "number")]
    pub duration: f64,
    /// Lines of a log that are not requests.
    pub malformed: u64,
    /// The names of clients, by number.
    pub clients: Vec<String>,
    /// The arrivals in the order of their times.
    pub arrivals: ArrivalColumns,
    /// The length of a bin of [`offered`](Self::offered) and [`load`](RuleReply::load).
    #[serde(serialize_with = "number")]
    pub bin: f64,
    /// The cost that arrived per bin.
    pub offered: Vec<u64>,
    /// What each rule decided.
    pub rules: Vec<RuleReply>,
}

/// The arrivals, one entry of each column per arrival.
#[derive(Clone, Debug, Serialize)]
pub struct ArrivalColumns {
    /// When it came.
    pub at: Numbers,
    /// Its cost.
    pub cost: Vec<u64>,
    /// The number of its client.
    pub client: Vec<u32>,
}

impl PlaygroundReply {
    pub(super) fn new(traffic: Traffic, timeline: Timeline, rules: Vec<RuleReply>) -> Self {
        let Traffic { start, events, clients, malformed } = traffic;
        let mut offered = timeline.bins();
        for event in &events {
            offered[timeline.place(event.at)] += event.cost;
        }
        Self {
            start: seconds(start),
            duration: seconds(timeline.duration),
            malformed,
            clients,
            arrivals: ArrivalColumns {
                at: Numbers::of_nanos(events.iter().map(|event| event.at)),
                cost: events.iter().map(|event| event.cost).collect(),
                client: events.iter().map(|event| event.client).collect(),
            },
            bin: seconds(timeline.bin),
            offered,
            rules,
        }
    }
}

/// What one rule decided.
#[derive(Clone, Debug, Serialize)]
pub struct RuleReply {
    /// Its name. Default: that of the algorithm.
    pub name: String,
    /// The algorithm, as policy files name it.
    pub algorithm: &'static str,
    /// `gcra` where a token bucket is drawn and explained by its theoretical arrival time.
    #[serde(serialize_with = "view")]
    pub(super) view: Option<View>,
    /// `global` or `client`.
    #[serde(serialize_with = "by")]
    pub(super) by: By,
    /// The rule as a policy file has it.
    pub policy: String,
    /// The most that can pass at once.
    pub capacity: u64,
    /// What passes per second in the long run.
    #[serde(serialize_with = "number")]
    pub rate: f64,
    /// The window, of algorithms that have one.
    #[serde(serialize_with = "optional_number")]
    pub window: Option<f64>,
    /// The span in which [`most`](Self::most) is counted: the window, or else the period of the rate as it is written.
    #[serde(serialize_with = "number")]
    pub window_for_most: f64,
    /// Arrivals that were allowed, those that are delayed included.
    pub allowed: u64,
    /// Arrivals that were denied.
    pub denied: u64,
    /// Arrivals that were allowed after a delay.
    pub delayed: u64,
    /// The cost of the arrivals that were allowed.
    pub allowed_cost: u64,
    /// The most cost of all clients together that reached the backend in a span of [`window_for_most`](Self::window_for_most).
    pub most: u64,
    /// The first release in that span. None where nothing was allowed.
    #[serde(serialize_with = "optional_number")]
    pub most_from: Option<f64>,
    /// The last release in that span. None where nothing was allowed.
    #[serde(serialize_with = "optional_number")]
    pub most_to: Option<f64>,
    /// Every decision.
    pub decisions: DecisionColumns,
    /// What the mechanism holds over time.
    pub curve: Curve,
    /// The edges of windows or sub-windows. Absent for other algorithms, and where there are more than 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges: Option<Numbers>,
    /// The counts of a sliding counter, at each point of [`curve`](Self::curve).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counter: Option<CounterColumns>,
    /// The cost that reaches the backend per bin.
    pub load: Vec<u64>,
    /// The cost that reached the backend in the last [`window_for_most`](Self::window_for_most), at any moment.
    pub received: Line,
    /// When each arrival reaches the backend; null where it was denied. Only where arrivals may be delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub releases: Option<Numbers>,
    /// A sentence for each decision of the requested range.
    pub sentences: Vec<String>,
}

fn view<S: Serializer>(view: &Option<View>, serializer: S) -> Result<S::Ok, S::Error> {
    view.map(|View::Gcra| "gcra").serialize(serializer)
}

fn by<S: Serializer>(by: &By, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match by {
        By::Global => "global",
        By::Client => "client",
    })
}

/// Decisions, one entry of each column per arrival.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionColumns {
    /// Whether the arrival was allowed.
    pub allowed: Vec<bool>,
    /// How many arrivals of cost 1 would pass after it.
    pub remaining: Vec<u64>,
    /// After what time it would pass. None where it was allowed, and where no wait helps.
    pub retry_after: Numbers,
    /// The numbers of the arrivals for which no wait helps.
    pub never: Vec<u32>,
    /// How long until the state is that of an unused key.
    pub reset_after: Numbers,
    /// How long it is delayed. 0 where it is not.
    pub delay: Numbers,
    /// The level of the arrival's state just before the decision.
    pub before: Numbers,
    /// The level of the arrival's state just after the decision.
    pub after: Numbers,
}

/// What a mechanism holds over time: lines between points. Where it jumps, two points have the same time.
///
/// The points are exact, up to about 4000 of them. Above, the timeline is cut into equal steps, and of each step only the first, the
/// last, the lowest and the highest point are kept.
#[derive(Clone, Debug, Serialize)]
pub struct Curve {
    /// What is drawn.
    pub what: What,
    /// The times of the points.
    pub t: Numbers,
    /// The levels.
    pub y: Numbers,
    /// The highest level that there can be.
    #[serde(serialize_with = "number")]
    pub max: f64,
    /// The tokens of the peak bucket of burst credits, at the same times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub y2: Option<Numbers>,
    /// The most tokens of the peak bucket.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "optional_number")]
    pub max2: Option<f64>,
}

/// A line between points, which are thinned as those of a [`Curve`].
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The times of the points.
    pub t: Numbers,
    /// Their heights.
    pub y: Numbers,
}

/// What a curve draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The tokens of a token bucket.
    Tokens,
    /// How many seconds the theoretical arrival time lies ahead.
    Tat,
    /// The places taken in a queue. The place of a request that leaves becomes free bit by bit.
    Queue,
    /// What is used of a fixed window.
    Used,
    /// The units in a sliding log that still count.
    InWindow,
    /// The estimate of a sliding counter.
    Estimate,
    /// Credits, and the tokens of the peak bucket.
    Credits,
}

/// The counts of a sliding counter, one entry of each column per point of its curve.
#[derive(Clone, Debug, Serialize)]
pub struct CounterColumns {
    /// The times of the points.
    pub t: Numbers,
    /// What the sub-window holds that is leaving.
    pub old: Vec<u64>,
    /// What the newest sub-windows hold.
    pub full: Vec<u64>,
    /// The part of the leaving sub-window that is still in the window: 1 to 0.
    pub weight: Numbers,
}

/// Nanoseconds as seconds.
pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / SECOND as f64
}
