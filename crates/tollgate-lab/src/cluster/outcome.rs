//! What came of a run.

use super::Scheme;
use crate::series::Series;

/// What came of a run, for each scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterOutcome {
    /// The most units by which leases exceed the limit in any span of time (`LE-2`), as long as the store forgets nothing.
    pub most_excess: u64,
    /// Each scheme.
    pub schemes: Vec<SchemeOutcome>,
}

/// What came of one scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct SchemeOutcome {
    /// Which.
    pub scheme: Scheme,
    /// Requests that came.
    pub requests: u64,
    /// Requests that passed.
    pub admitted: u64,
    /// Requests that were denied.
    pub denied: u64,
    /// Requests that got no answer in time.
    pub unanswered: u64,
    /// Requests that still waited at the end.
    pub undecided: u64,
    /// The part of the limit that was used: admitted requests, divided by the smaller of `burst + rate * duration` and all requests.
    pub limit_use: f64,
    /// The most units above `burst + rate * time`, at any time since the first charge.
    pub over: u64,
    /// The span of time with the most units above `burst + rate * span`.
    pub worst_span: WorstSpan,
    /// Scripts that were sent to the store.
    pub calls: Calls,
    /// How long requests waited.
    pub waits: Waits,
    /// How the units were shared.
    pub shares: Shares,
    /// Units that nodes gave back to the store.
    pub returned: u64,
    /// Units that the store had charged to nodes, and that no request used in time.
    pub lapsed: u64,
    /// Admitted requests over time.
    pub admitted_over_time: Series,
    /// Calls over time.
    pub calls_over_time: Series,
}

/// The span of time with the most units above what the limit allows in a span. Times are in nanoseconds since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorstSpan {
    /// Units above the limit.
    pub over: u64,
    /// When the span begins.
    pub from: u64,
    /// When it ends.
    pub to: u64,
}

/// A kind of script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Draw,
    ExactCheck,
    Return,
    Report,
}

/// Scripts that were sent to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Draws of units.
    pub draws: u64,
    /// Checks of one request.
    pub exact_checks: u64,
    /// Returns of units.
    pub returns: u64,
    /// Reports of what a node has spent.
    pub reports: u64,
}

impl Calls {
    /// All of them.
    pub const fn total(&self) -> u64 {
        self.draws + self.exact_checks + self.returns + self.reports
    }

    pub(super) const fn add(&mut self, call: Call) {
        let count = match call {
            Call::Draw => &mut self.draws,
            Call::ExactCheck => &mut self.exact_checks,
            Call::Return => &mut self.returns,
            Call::Report => &mut self.reports,
        };
        *count += 1;
    }
}

/// How long requests waited for an answer, in nanoseconds: those that did not get it at once. Waits below the longest are rounded up
/// by at most 1/64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Requests that waited.
    pub requests: u64,
    /// Half of them waited no longer.
    pub median: u64,
    /// 99 of 100 waited no longer.
    pub p99: u64,
    /// The longest.
    pub longest: u64,
}

/// How the units were shared: the admitted part of the requests at each node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// Jain's index: 1 if each node had the same part of its requests admitted, 1/n if one node had all.
    pub jain: f64,
    /// The lowest part.
    pub lowest: f64,
    /// The highest part.
    pub highest: f64,
}

impl SchemeOutcome {
    /// Requests that were decided, or given up.
    pub const fn decided(&self) -> u64 {
        self.admitted + self.denied + self.unanswered
    }

    /// Decisions per call. None without calls.
    pub fn decisions_per_call(&self) -> Option<f64> {
        let calls = self.calls.total();
        (calls > 0).then(|| self.decided() as f64 / calls as f64)
    }
}
