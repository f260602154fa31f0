//! Chooses the numbers before production does: the algorithms of the service, to the decision, on synthetic or recorded traffic.
//!
//! Nothing here decides: [`algorithms`] keeps states of the core's rules, and policies are decided by the engine of the service. Time is
//! that of the traffic.
#![forbid(unsafe_code)]
#![allow(clippy::cast_sign_loss, reason = "generated moments and shares are floats, and never negative")]

mod advise;
pub mod algorithms;
mod cases;
mod clients;
pub mod cloudflare;
pub mod cluster;
mod error;
mod log;
mod most;
mod ordered;
pub mod playground;
pub mod plot;
mod policy_replay;
mod random;
mod replay;
pub mod scenario;
mod series;
mod simulate;
mod tally;

pub use advise::{Advice, GroupAdvice, Grouping, Peaks, Suggestion, advise};
pub use algorithms::{Event, Limit, Name};
pub use cases::{Outcomes, run_cases};
pub use clients::Clients;
pub use error::LabError;
pub use log::{ClientField, Counts, Entry, LogOptions, Logs, Progress, Wanted};
pub use most::MostInWindow;
pub use ordered::Seen;
pub use policy_replay::{
    Differences, EachPolicyDecision, LimitReplayed, PolicyDecision, PolicyReplayed, replay_policy,
};
pub use replay::{EachDecision, Replay, Replayed, replay};
pub use scenario::Scenario;
pub use series::Series;
pub use simulate::{BINS, Simulated, Simulation, WATCHED, simulate};
pub use tally::Tally;
