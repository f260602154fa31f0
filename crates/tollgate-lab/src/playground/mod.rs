//! Rules side by side on a few thousand arrivals, decision by decision: what `POST /v1/playground` answers.
//!
//! [`play`] is a pure function of the request. It reads no clock and no file, and it stops when the caller's `budget` is used up. Every
//! decision is one of [`tollgate_core::Rule`]. The levels and curves are read from the states that the rules leave, for pictures only.
//!
//! ```
//! use tollgate_lab::playground::{PlaygroundRequest, play};
//!
//! let body = r#"{
//!     "rules": [{"token_bucket": {"rate": "5/s", "burst": 2}}],
//!     "arrivals": [{"at": 0}, {"at": 0}, {"at": 0.1}],
//!     "sentences": {"from": 2, "count": 1}
//! }"#;
//! let request: PlaygroundRequest = serde_json::from_str(body)?;
//! let reply = serde_json::to_value(play(&request, &mut || true)?)?;
//! assert_eq!(reply["rules"][0]["decisions"]["allowed"], serde_json::json!([true, true, false]));
//! assert_eq!(
//!     reply["rules"][0]["sentences"][0],
//!     "0.5 tokens, costs 1: denied, the missing 0.5 come in 100 ms"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod animation;
mod curve;
mod error;
mod level;
mod load;
mod reply;
mod request;
mod rules;
mod run;
mod sentence;
mod stories;
mod traffic;
mod words;

pub use self::animation::animation;
pub use self::error::PlaygroundError;
pub use self::reply::{
    ArrivalColumns, CounterColumns, Curve, DecisionColumns, Line, Numbers, PlaygroundReply, RuleReply, What,
};
pub use self::request::PlaygroundRequest;
pub use self::stories::{PlayableScenario, Story, playable_scenarios, stories};

use self::load::Timeline;
use self::run::Run;
use self::traffic::Traffic;

/// The most arrivals of a request.
pub const MOST_ARRIVALS: usize = 10_000;

/// The most rules of a request.
pub const MOST_RULES: usize = 16;

/// The most characters of the name of a rule and of a client.
pub const LONGEST_NAME: usize = 64;

/// The most sentences of a reply, of all rules together.
pub const MOST_SENTENCES: usize = 4000;

/// The largest cost of an arrival.
pub const LARGEST_COST: u64 = 1_000_000_000;

/// The largest limit, burst, queue and number of credits of a rule.
pub const LARGEST_CAPACITY: u64 = 1_000_000_000_000;

/// The longest timeline, in seconds: one year.
pub const LONGEST_TIMELINE: u64 = 365 * 86_400;

/// The latest Unix time at which a timeline may begin, in seconds: in the year 2242.
pub const LATEST_START: u64 = 1 << 33;

/// The most bytes that the states of one rule may take beside the fixed size of a state.
const MOST_STATE_BYTES: usize = 16 << 20;

/// The most bytes of the text of a scenario.
const LONGEST_SCENARIO: usize = 64 << 10;

/// `budget` is called once per this many decisions or arrivals.
const BUDGET_EVERY: usize = 128;

/// Decides all arrivals by every rule of the request.
///
/// `budget` is called about once per 128 decisions. When it returns false, the evaluation ends with [`PlaygroundError::Budget`].
///
/// # Errors
///
/// When the request makes no sense, is larger than the bounds of this module, or uses up the budget.
pub fn play(
    request: &PlaygroundRequest,
    budget: &mut dyn FnMut() -> bool,
) -> Result<PlaygroundReply, PlaygroundError> {
    let rules = rules::rules(request)?;
    let sentences = request.sentences(rules.len())?;
    let least = request.least_duration()?;
    let traffic = Traffic::of(request, budget)?;
    let watched = traffic.watched(request.watch.as_deref())?;
    let mut runs = Vec::with_capacity(rules.len());
    for rule in rules {
        runs.push(Run::decide(rule, &traffic, watched, sentences.clone(), budget)?);
    }
    let timeline = Timeline::of(&traffic, &runs, least);
    let mut replies = Vec::with_capacity(runs.len());
    for run in runs {
        if !budget() {
            return Err(PlaygroundError::Budget);
        }
        replies.push(run.reply(&traffic, timeline));
    }
    Ok(PlaygroundReply::new(traffic, timeline, replies))
}

#[cfg(test)]
mod tests;
