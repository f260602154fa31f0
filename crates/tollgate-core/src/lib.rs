//! The algorithms of Tollgate, as pure state machines.
//!
//! A rule is a value that was checked when it was built. It decides a request from a key's state, a
//! cost and the time, and touches nothing else: no clock, no lock, no I/O. The same body therefore
//! serves every store, the gateway, the simulator and the tests.
//!
//! ```
//! use tollgate_core::{Algorithm, Rate, Tat, Timestamp, TokenBucket};
//!
//! let rule = TokenBucket::new(Rate::per_second(5)?, 10)?;
//! let mut state = Tat::default(); // an unused key
//! let now = Timestamp::from_nanos(0);
//!
//! let decision = rule.decide(&mut state, 1, now);
//! assert!(decision.is_allowed());
//! assert_eq!(decision.status.remaining, 9);
//! # Ok::<(), tollgate_core::RuleError>(())
//! ```
//!
//! | to limit | use | memory a key |
//! |---|---|---|
//! | a rate, with bursts | [`TokenBucket`] (GCRA and the leaky-bucket meter are the same thing) | 8 bytes |
//! | a rate, holding requests to an even pace | [`LeakyBucket`] | 8 bytes |
//! | a rate, letting short waits through | [`MaxWait`] around either bucket | 40 bytes, and 8 a waiting request |
//! | a count per calendar-aligned or first-request window | [`FixedWindow`] | 24 bytes |
//! | a count in *any* span of the window, exactly | [`SlidingLog`] | 32 bytes, and 8 an admitted unit, at most the limit of them |
//! | the same, nearly, for many keys | [`SlidingCounter`] | 40 bytes, and 8 a sub-window above one |
//! | a base rate with saved-up bursts at a higher one | [`BurstCredits`] | 16 bytes |
//! | requests in flight | [`Concurrency`] | 40 bytes, and 32 per permit, or 56 where more than 64 are held |
//!
//! [`decide_all`] charges several limits or none. [`FairQueue`] shares slots by weight.
//! [`adaptive`] moves limits with the load. [`lease`] lends parts of a limit to the nodes that share it.
#![forbid(unsafe_code)]

pub mod adaptive;
mod algorithm;
mod bucket;
mod burst_credits;
mod concurrency;
mod decision;
mod divisor;
mod error;
mod fair_queue;
mod fixed_window;
mod kind;
mod leaky_bucket;
pub mod lease;
mod max_wait;
mod parts;
mod plan;
mod rate;
mod rule;
mod share;
mod sliding_counter;
mod sliding_log;
#[cfg(test)]
mod table;
mod time;
mod token_bucket;

pub use algorithm::Algorithm;
pub use bucket::{Holds, Tat};
pub use burst_credits::{BurstCredits, Credits};
pub use concurrency::{Concurrency, PermitId, Permits};
pub use decision::{Decision, Outcome, Retry, Status};
pub use error::RuleError;
pub use fair_queue::{Dispatch, FairQueue, Full, Request, Running, Ticket, Weight};
pub use fixed_window::{Align, FixedWindow, Window};
pub use kind::AlgorithmKind;
pub use leaky_bucket::LeakyBucket;
pub use max_wait::{MaxWait, Waiting};
pub use parts::{BucketParts, RuleParts, WaitParts};
pub use plan::{Action, Charge, Group, Plan, Verdict, decide_all, decide_each};
pub use rate::Rate;
pub use rule::{Rule, State, StateView};
pub use sliding_counter::{Counts, Mode, SlidingCounter};
pub use sliding_log::{Log, SlidingLog};
pub use time::{Nanos, Timestamp};
pub use token_bucket::TokenBucket;
