//! The Redis store of Tollgate: limits that many processes share.
//!
//! One script decides a whole request at one instant of the server's clock: every limit is asked, then all are charged or
//! none is. What the scripts find is told by the rules themselves, so that an answer is the same as from memory, with
//! microseconds in place of nanoseconds.
//!
//! | module | subject |
//! |---|---|
//! | `store` | the store: asks scripts, tells what they mean, remembers who was denied, gives permits back |
//! | `key`, `numbers`, `request` | from what is asked to a script's keys and arguments |
//! | `scripts` | the scripts: one file for each algorithm, as in `tollgate-core` |
//! | `draw` | draws and returns of leases: from what a node asks to a script's arguments |
//! | `replay`, `convert` | from a script's answer to decisions; keys whose numbers have changed |
//! | `open` | from what the policy file says to a store |
//! | `denied` | denials that need no call |
//! | `clock` | a clock for engines with leases |
//! | `nodes` | how many processes share the store |
//! | [`link`] | how a script gets to the right server and back, or fails in time |

mod clock;
mod convert;
mod denied;
mod draw;
mod key;
pub mod link;
mod nodes;
mod numbers;
mod open;
mod replay;
mod request;
mod scripts;
mod store;

pub use clock::clock_with_suspended_time;
pub use link::{BreakerState, Password, Settings, SettingsError, ShardHealth, Tls, Topology};
pub use open::OpenError;
pub use store::{RedisStore, is_permit};

/// Refuses a rule whose states Redis cannot keep exactly, and says why.
///
/// # Errors
///
/// What is wrong with it, and what would be right.
pub fn require(rule: &tollgate_core::Rule) -> Result<(), String> {
    numbers::require(rule)
}

/// Refuses a rule whose grants Redis cannot compute exactly, and says why. Such a rule is decided exactly.
///
/// # Errors
///
/// What is wrong with it.
pub fn require_lease(rule: &tollgate_core::Rule) -> Result<(), String> {
    draw::require_lease(rule)
}
