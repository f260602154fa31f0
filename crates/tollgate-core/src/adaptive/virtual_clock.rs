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
///
/// ```
/// use tollgate_core::adaptive::{Load, RateMultiplier, VirtualClock};
/// use tollgate_core::{Nanos, Timestamp};
///
/// let (mut clock, mut multiplier) = (VirtualClock::default(), RateMultiplier::new(100)?);
/// multiplier.observe(Load::High);
/// clock.set_pace(Timestamp::from_nanos(1000), multiplier.pace());
/// let now = Timestamp::from_nanos(1500);
/// assert_eq!(clock.at(now), Timestamp::from_nanos(1400)); // 1000, and 0.8 of 500
/// assert_eq!(clock.real_wait(now, Nanos::new(80)), Nanos::new(100));
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
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
    /// What this clock shows at the real time `now`, rounded down. Where `now` lies before the last change of
    /// pace, it goes back from there at the pace in force, to zero and no further.
    ///
    /// ```
    /// use tollgate_core::Timestamp;
    /// use tollgate_core::adaptive::{Load, RateMultiplier, VirtualClock};
    ///
    /// let (mut clock, mut multiplier) = (VirtualClock::default(), RateMultiplier::new(100)?);
    /// multiplier.observe(Load::High);
    /// clock.set_pace(Timestamp::from_nanos(100), multiplier.pace());
    /// let shown = [0, 100, 101, 105].map(|real| clock.at(Timestamp::from_nanos(real)).as_nanos());
    /// assert_eq!(shown, [20, 100, 100, 104]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn at(&self, now: Timestamp) -> Timestamp {
        let shown = self.fine(now).max(0).cast_unsigned() / UNIT;
        Timestamp::from_nanos(u64::try_from(shown).unwrap_or(u64::MAX))
    }

    /// What this clock showed at the real time `past`, at the earliest. Since the last change of pace that is exact;
    /// before, it is taken to have gone at full pace, which is the most it does.
    ///
    /// ```
    /// use tollgate_core::Timestamp;
    /// use tollgate_core::adaptive::{Load, RateMultiplier, VirtualClock};
    ///
    /// let (mut clock, mut multiplier) = (VirtualClock::default(), RateMultiplier::new(100)?);
    /// multiplier.observe(Load::High);
    /// clock.set_pace(Timestamp::from_nanos(100), multiplier.pace());
    /// let shown = [0, 90, 100, 105].map(|real| clock.at_earliest(Timestamp::from_nanos(real)).as_nanos());
    /// assert_eq!(shown, [0, 90, 100, 104]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn at_earliest(&self, past: Timestamp) -> Timestamp {
        let before = self.since.since(past);
        let then = self.at(past.max(self.since)).as_nanos();
        Timestamp::from_nanos(then.saturating_sub(before.get()))
    }

    /// The real time it takes this clock, from the real time `now`, to go on by `wait`. Exact: a
    /// nanosecond earlier it does not show as much. No wait takes no time; one too long to tell is 584 years.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Load, RateMultiplier, VirtualClock};
    /// use tollgate_core::{Nanos, Timestamp};
    ///
    /// let (mut clock, mut multiplier) = (VirtualClock::default(), RateMultiplier::new(100)?);
    /// multiplier.observe(Load::High);
    /// clock.set_pace(Timestamp::from_nanos(0), multiplier.pace());
    /// let real = |wait| clock.real_wait(Timestamp::from_nanos(0), Nanos::new(wait)).get();
    /// assert_eq!([0, 1, 8, u64::MAX].map(real), [0, 2, 10, u64::MAX]);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn real_wait(&self, now: Timestamp, wait: Nanos) -> Nanos {
        let target = (u128::from(self.at(now).as_nanos()) + u128::from(wait.get())) * UNIT;
        let missing = target.cast_signed() - self.fine(now);
        let real = missing.max(0).cast_unsigned().div_ceil(self.pace.billionths().into());
        Nanos::new(u64::try_from(real).unwrap_or(u64::MAX))
    }

    /// Changes the pace from the real time `now` on. What the clock shows does not jump: `now` is the newest
    /// time it has been asked for. One before the last change counts as the time of that change.
    ///
    /// ```
    /// use tollgate_core::Timestamp;
    /// use tollgate_core::adaptive::{Load, RateMultiplier, VirtualClock};
    ///
    /// let (mut clock, mut multiplier) = (VirtualClock::default(), RateMultiplier::new(100)?);
    /// let now = Timestamp::from_nanos(100);
    /// for _ in 0..2 {
    ///     multiplier.observe(Load::High);
    ///     clock.set_pace(now, multiplier.pace());
    ///     assert_eq!(clock.at(now), now);
    /// }
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    pub fn set_pace(&mut self, now: Timestamp, pace: Pace) {
        if now > self.since {
            self.virtual_then = self.fine(now);
            self.since = now;
        }
        self.pace = pace;
    }

    /// The pace in force: [`Pace::FULL`] until it is changed.
    ///
    /// ```
    /// use tollgate_core::adaptive::{Pace, VirtualClock};
    ///
    /// assert_eq!(VirtualClock::default().pace(), Pace::FULL);
    /// ```
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
