//! Slower time.
//!
//! To slow a rate by giving its bucket a longer interval hands out tokens at the very moment of overload:
//! the schedule stays where it was while each token in it counts for more of it. Slowing the clock
//! instead changes nothing about the tokens a key has, only how fast they come back. One clock serves
//! all buckets of a shed class.

use super::Pace;
use crate::{Nanos, Timestamp};

/// A clock that goes at a pace: V(t) = integral of pace dt.
///
/// Decide the buckets of a class at [`at`](Self::at) of the real time, and turn the waits they answer
/// back with [`real_wait`](Self::real_wait). Bursts are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualClock {
    pace: Pace,
    since: Timestamp,   // when the pace last changed
    virtual_then: i128, // what this clock showed then, in 10^-9 ns
}

impl Default for VirtualClock {
    /// A clock that goes as the real one does.
    fn default() -> Self {
        Self { pace: Pace::FULL, since: Timestamp::default(), virtual_then: 0 }
    }
}

impl VirtualClock {
    /// What this clock shows at the real time `now`, rounded down.
    pub fn at(&self, now: Timestamp) -> Timestamp {
        let shown = self.fine(now).max(0).cast_unsigned() / UNIT;
        Timestamp::from_nanos(u64::try_from(shown).unwrap_or(u64::MAX))
    }

    /// The real time it takes this clock, from the real time `now`, to go on by `wait`. Exact: a
    /// nanosecond earlier it does not show as much.
    pub fn real_wait(&self, now: Timestamp, wait: Nanos) -> Nanos {
        let target = (u128::from(self.at(now).as_nanos()) + u128::from(wait.get())) * UNIT;
        let missing = target.cast_signed() - self.fine(now);
        let real = missing.max(0).cast_unsigned().div_ceil(self.pace.billionths().into());
        Nanos::new(u64::try_from(real).unwrap_or(u64::MAX))
    }

    /// Changes the pace from the real time `now` on. What the clock shows does not jump: `now` is the newest
    /// time it has been asked for.
    pub fn set_pace(&mut self, now: Timestamp, pace: Pace) {
        if now > self.since {
            self.virtual_then = self.fine(now);
            self.since = now;
        }
        self.pace = pace;
    }

    /// The pace in force.
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    /// What the clock shows, in 10^-9 ns. For a moment before the last change it is taken to have gone
    /// at this pace too: never later than it has already shown.
    fn fine(&self, now: Timestamp) -> i128 {
        let gone = i128::from(now.as_nanos()) - i128::from(self.since.as_nanos());
        self.virtual_then + gone * i128::from(self.pace.billionths())
    }
}

const UNIT: u128 = Pace::UNIT as u128;
