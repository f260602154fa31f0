//! Limits that follow the load.
//!
//! [`Aimd`], [`Vegas`] and [`Gradient2`] find how many requests may be in flight from how long requests
//! take and whether they are dropped; the rules are those of Netflix's concurrency-limits, with the
//! corrections named in each file. [`RateMultiplier`] slows all rates together while the upstream is
//! overloaded, by slowing the [`VirtualClock`]s that their buckets are decided on.
//!
//! Everything is kept in whole numbers, so that a recorded run replays to the same bit.

mod aimd;
mod gradient2;
mod limit;
mod multiplier;
mod vegas;
mod virtual_clock;
mod window;

pub use aimd::Aimd;
pub use gradient2::Gradient2;
pub use limit::{Bounds, Controller, Sample};
pub use multiplier::{Load, Pace, RateMultiplier};
pub use vegas::Vegas;
pub use virtual_clock::VirtualClock;
pub use window::Windowed;

#[cfg(test)]
mod tests;
