//! Why a playground request is refused.

use super::{LARGEST_CAPACITY, LARGEST_COST, LATEST_START, LONGEST_NAME, LONGEST_SCENARIO, LONGEST_TIMELINE};
use super::{MOST_ARRIVALS, MOST_RULES, MOST_SENTENCES, MOST_STATE_BYTES};

/// Why a playground request is refused. Each message names the fault and what would be right.
///
/// Rules and arrivals are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaygroundError {
    /// There are no rules, or too many.
    #[error("`rules` has {found} rules: send 1 to {MOST_RULES}")]
    Rules {
        /// How many there are.
        found: usize,
    },
    /// A rule is not valid.
    #[error("rule {number}: {why}")]
    Rule {
        /// The number of the rule.
        number: usize,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A limit is larger than the playground draws.
    #[error("rule {number}: it lets {found} pass at once: write at most {LARGEST_CAPACITY}")]
    Capacity {
        /// The number of the rule.
        number: usize,
        /// Its capacity.
        found: u64,
    },
    /// The states of all clients would take too much memory.
    #[error(
        "rule {number}: the states of all clients would take {found} bytes, but at most {MOST_STATE_BYTES} are allowed: write `by: global`, \
         a smaller limit or fewer buckets, or send fewer clients"
    )]
    Memory {
        /// The number of the rule.
        number: usize,
        /// How many bytes, at most.
        found: usize,
    },
    /// There is not exactly one source of arrivals.
    #[error("{found}: send exactly one of `arrivals`, `scenario` and `log`")]
    Sources {
        /// What the request has.
        found: &'static str,
    },
    /// There are too many arrivals.
    #[error("{source_name} has {found} arrivals, but at most {MOST_ARRIVALS} are allowed: {advice}")]
    Arrivals {
        /// Where they come from.
        source_name: &'static str,
        /// How many there are; "more than 10000" if the count stopped there.
        found: String,
        /// How to get fewer.
        advice: &'static str,
    },
    /// The Unix time of second 0 is out of range.
    #[error("`start` is {found}: write a Unix time in seconds from 0 to {LATEST_START}")]
    Start {
        /// The time that it has.
        found: String,
    },
    /// The least length of the timeline is out of range.
    #[error("`until` is {found}: write seconds from 0 to {LONGEST_TIMELINE}, which is one year")]
    Until {
        /// The length that it has.
        found: String,
    },
    /// A scenario and a log have a beginning of their own.
    #[error("`start` belongs to `arrivals`: leave it out of a request with `scenario` or `log`")]
    StartWithoutArrivals,
    /// The time of an arrival is out of range.
    #[error(
        "arrival {number}: `at` is {found}: write seconds from 0 to {LONGEST_TIMELINE}, which is one year"
    )]
    At {
        /// Which arrival.
        number: usize,
        /// The time that it has.
        found: String,
    },
    /// An arrival costs too much.
    #[error("arrival {number}: it costs {found}: write a cost from 0 to {LARGEST_COST}")]
    Cost {
        /// Which arrival.
        number: usize,
        /// Its cost.
        found: u64,
    },
    /// The name of a client is too long.
    #[error("arrival {number}: the name of its client has {found} characters: write at most {LONGEST_NAME}")]
    ClientName {
        /// Which arrival.
        number: usize,
        /// How many characters it has.
        found: usize,
    },
    /// There is no scenario of this name.
    #[error("there is no scenario `{name}`: write {known}, or the text of a scenario file of several lines")]
    UnknownScenario {
        /// The name, cut off where it is long.
        name: String,
        /// The scenarios that there are.
        known: String,
    },
    /// The text of a scenario is too long.
    #[error("the text of the scenario has {found} bytes: write at most {LONGEST_SCENARIO}")]
    ScenarioLength {
        /// How many bytes it has.
        found: usize,
    },
    /// A scenario has too many clients.
    #[error("the scenario has {found} clients: write `count` so that there are at most {MOST_ARRIVALS}")]
    ScenarioClients {
        /// How many it has.
        found: u64,
    },
    /// A scenario is not valid.
    #[error("{0}")]
    Scenario(String),
    /// A log cannot be read.
    #[error("{0}")]
    Log(String),
    /// A log spans too long a time.
    #[error(
        "the log spans {found} seconds: send lines of at most {LONGEST_TIMELINE} seconds, which is one year"
    )]
    LogSpan {
        /// How many seconds it spans.
        found: u64,
    },
    /// No arrival is of the client whose state is to be drawn.
    #[error("`watch`: no arrival is of client `{name}`: write the name of a client that has arrivals")]
    Watch {
        /// The name, cut off where it is long.
        name: String,
    },
    /// The request asks for too many sentences.
    #[error(
        "`sentences` asks for {found} sentences of all rules together, but at most {MOST_SENTENCES} are allowed: write a smaller `count`"
    )]
    Sentences {
        /// How many they would be.
        found: u64,
    },
    /// The evaluation took more CPU time than the caller allows.
    #[error("the evaluation takes too much CPU time: send fewer arrivals or fewer rules")]
    Budget,
}

/// A number of a caller, of which very large and very small ones would have hundreds of digits.
pub(super) fn shown_number(number: f64) -> String {
    match number.abs() {
        0.0 | 1e-9..1e15 => number.to_string(),
        _ => format!("{number:e}"),
    }
}

/// The beginning of a text that a caller has sent, for a message.
pub(super) fn cut(text: &str) -> String {
    if text.chars().nth(LONGEST_NAME).is_none() {
        return text.to_owned();
    }
    text.chars().take(LONGEST_NAME).chain(['…']).collect()
}
