//! A rate limiter to embed: exact, keyed, bounded in memory.
//!
//! ```
//! use tollgate::{KeyedLimiter, Rate, TokenBucket};
//!
//! let limiter = KeyedLimiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
//! for user in ["alice", "bob", "alice"] {
//!     let decision = limiter.check(user);
//!     if decision.is_allowed() {
//!         println!("{user}: {} left", decision.status.remaining);
//!     } else if let Some(wait) = decision.retry_after() {
//!         println!("{user}: come back in {wait}");
//!     }
//! }
//! # Ok::<(), tollgate::RuleError>(())
//! ```
//!
//! | for | there is |
//! |---|---|
//! | one limit for everybody | [`Limiter`] |
//! | a limit for each of many keys, in tiers, several at once | [`KeyedLimiter`] |
//! | waiting for a turn | [`until_ready`](KeyedLimiter::until_ready), on either |
//! | requests that a limit allows with a delay | [`DelayQueue`] |
//! | places that are held | [`Concurrency`] and its [`Permit`]s |
//! | slots that tenants share by weight | [`FairSemaphore`] |
//! | as many in flight as goes well | [`AdaptiveLimiter`] |
//! | rates that follow the load | [`KeyedLimiter::set_paces`] |
//!
//! The [guide] walks from one limiter to a hierarchy, says which algorithm to choose, and what happens at the edges.
//! Rules and decisions are those of [`tollgate_core`], passed on from here.
#![deny(unsafe_code)]

mod adaptive_limiter;
mod clock;
mod delay_queue;
mod fair_semaphore;
#[expect(unused_imports, reason = "for the links in its text")]
pub mod guide;
mod keyed;
mod limiter;
mod line;
#[cfg(not(any(loom_model, shuttle_model)))]
mod lock;
#[cfg(all(test, shuttle_model))]
mod models;
mod permit;
mod secret;
mod sync;
mod table;
mod until_ready;

pub use adaptive_limiter::{AdaptiveLimiter, Flight};
pub use clock::{Clock, Sleep};
pub use delay_queue::{DelayQueue, Wait};
pub use fair_semaphore::{FairSemaphore, FairSemaphoreBuilder, NoSlot, Slot, SlotRequest};
pub use keyed::{Builder, KeyedLimiter, Numbers, Request, Shed, Tier, Turn};
pub use limiter::Limiter;
pub use permit::Permit;
pub use secret::Secret;
pub use table::{RequestRule, Stats, WhenFull};
pub use tollgate_core::{
    Action, Algorithm, AlgorithmKind, Align, BucketParts, BurstCredits, Concurrency, Decision, FixedWindow,
    Group, Holds, LeakyBucket, MaxWait, Mode, Nanos, Outcome, PermitId, Rate, Retry, Rule, RuleError,
    RuleParts, SlidingCounter, SlidingLog, Status, Timestamp, TokenBucket, Verdict, WaitParts, Weight,
    adaptive, lease,
};
pub use until_ready::NotReady;
