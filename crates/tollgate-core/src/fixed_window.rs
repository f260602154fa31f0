//! Fixed window: at most `limit` in each window, counted anew when the next one opens.

use std::time::Duration;

use crate::adaptive::Pace;
use crate::rate::MAX_SPAN;
use crate::{Algorithm, Nanos, Outcome, RuleError, RuleParts, Status, Timestamp};

/// Where windows begin.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Algorithm, Align, FixedWindow, Timestamp, Window};
///
/// for (align, seconds) in [(Align::Epoch, 3), (Align::First, 10)] {
///     let rule = FixedWindow::new(1, Duration::from_secs(10), align)?;
///     let (mut key, now) = (Window::default(), Timestamp::from_nanos(7_000_000_000));
///     assert_eq!(rule.decide(&mut key, 1, now).status.reset_after.as_secs_ceil(), seconds);
/// }
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Align {
    /// At multiples of the window's length since the epoch: the same edges for all keys.
    Epoch,
    /// At a key's first request: edges nobody else can predict.
    First,
}

/// A count per window.
///
/// - Promise: at most `limit` in each window.
/// - Formula: allowed iff `used + cost <= limit`; `used` starts again at 0 once `now` reaches the end.
/// - Memory: 24 bytes a key.
/// - Overshoot: up to twice the limit in a span of one window, half on either side of its edge.
/// - Choose another: where that doubling hurts, [`SlidingCounter`](crate::SlidingCounter) or
///   [`SlidingLog`](crate::SlidingLog).
///
/// A window that is full denies until it ends, also while a clock that stepped back is before its start:
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Algorithm, Align, FixedWindow, Nanos, Timestamp, Window};
///
/// let rule = FixedWindow::new(5, Duration::from_secs(10), Align::Epoch)?;
/// let (mut key, at) = (Window::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
/// assert_eq!(rule.decide(&mut key, 5, at(12)).status.remaining, 0);
/// let waits = [8, 12, 19, 20].map(|s| rule.test(&key, 1, at(s)).retry_after().map(Nanos::as_secs_ceil));
/// assert_eq!(waits, [Some(12), Some(8), Some(1), None]);
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    limit: u64,  // never zero
    window: u64, // nanoseconds; never zero
    align: Align,
    phase: u64, // how far into a window the clock's zero lies; below `window`; 0 for `Align::First`
    counts_denied: bool,
}

/// A key's window: when it ends and what was used in it.
///
/// Remembering the end, not an index, serves both alignments and makes a clock that steps back into an
/// earlier window count in the newest one.
///
/// ```
/// use std::time::Duration;
/// use tollgate_core::{Algorithm, Align, FixedWindow, Timestamp, Window};
///
/// let rule = FixedWindow::new(5, Duration::from_secs(10), Align::First)?;
/// let mut key = Window::default(); // none has opened
/// rule.spend(&mut key, 0, Timestamp::from_nanos(0)); // nor does a cost of 0 open one
/// assert_eq!(key, Window::default());
/// # Ok::<(), tollgate_core::RuleError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    pub(crate) end: Timestamp,
    pub(crate) used: u64,
    pub(crate) carried: Timestamp, // when the count was last carried over from a window with other edges
}

impl Window {
    /// When it began, if it is `window` long.
    fn start(&self, window: u64) -> Timestamp {
        Timestamp::from_nanos(self.end.as_nanos().saturating_sub(window))
    }
}

impl FixedWindow {
    /// At most `limit` in each `window`, aligned to the clock's own zero unless
    /// [`started_at`](Self::started_at) says otherwise.
    ///
    /// Refuses zero for either, and a window above 146 years.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Align, FixedWindow, RuleError};
    ///
    /// let (second, zero) = (Duration::from_secs(1), Duration::ZERO);
    /// let refused = FixedWindow::new(0, second, Align::Epoch);
    /// assert_eq!(refused, Err(RuleError::ZeroCapacity { what: "limit" }));
    /// assert_eq!(FixedWindow::new(1, zero, Align::Epoch), Err(RuleError::ZeroSpan { what: "window" }));
    /// ```
    pub fn new(limit: u64, window: Duration, align: Align) -> Result<Self, RuleError> {
        if limit == 0 {
            return Err(RuleError::ZeroCapacity { what: "limit" });
        }
        Ok(Self { limit, window: checked_window(window)?, align, phase: 0, counts_denied: false })
    }

    /// Tells what time it is at the clock's zero, since the Unix epoch, so that windows begin on the
    /// minute, the hour, the day. With [`Align::First`] it changes nothing: the rules are equal.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Algorithm, Align, FixedWindow, Timestamp, Window};
    ///
    /// let rule = FixedWindow::new(5, Duration::from_secs(60), Align::Epoch)?;
    /// let rule = rule.started_at(Duration::from_secs(1_700_000_030)); // ten seconds before a full minute
    /// let (mut key, now) = (Window::default(), Timestamp::from_nanos(0));
    /// assert_eq!(rule.decide(&mut key, 1, now).status.reset_after.as_secs_ceil(), 10);
    /// let first = FixedWindow::new(5, Duration::from_secs(60), Align::First)?;
    /// assert_eq!(first.started_at(Duration::from_secs(1_700_000_030)), first);
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[must_use]
    pub fn started_at(self, since_epoch: Duration) -> Self {
        match self.align {
            Align::Epoch => Self { phase: phase(since_epoch, self.window), ..self },
            Align::First => self,
        }
    }

    /// Counts denied requests, too, as limiters do that count first and compare afterwards. Each window still lets at
    /// most `limit` pass; whoever was denied for a large cost finds the window full for smaller ones.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate_core::{Algorithm, Align, FixedWindow, Timestamp, Window};
    ///
    /// let rule = FixedWindow::new(10, Duration::from_secs(60), Align::Epoch)?;
    /// for (rule, passes) in [(rule, true), (rule.counting_denied(), false)] {
    ///     let (mut key, now) = (Window::default(), Timestamp::from_nanos(0));
    ///     assert!(rule.decide(&mut key, 8, now).is_allowed());
    ///     assert!(!rule.decide(&mut key, 3, now).is_allowed());
    ///     assert_eq!(rule.decide(&mut key, 2, now).is_allowed(), passes);
    /// }
    /// # Ok::<(), tollgate_core::RuleError>(())
    /// ```
    #[must_use]
    pub const fn counting_denied(self) -> Self {
        Self { counts_denied: true, ..self }
    }

    pub(crate) const fn window(&self) -> Nanos {
        Nanos::new(self.window)
    }

    /// Has at least `used` charged in the window that ends at `end`, if that is not over.
    pub(crate) fn present(&self, state: &mut Window, end: Timestamp, used: u64, now: Timestamp) {
        if now < end && used > 0 {
            let known = self.used(state, now);
            *state = Window { end: state.end.max(end), used: known.max(used), ..*state };
        }
    }

    pub(crate) const fn parts(&self) -> RuleParts {
        let Self { limit, align, counts_denied, .. } = *self;
        RuleParts::FixedWindow { limit, window: self.window(), align, counts_denied }
    }

    /// With the limit that is left at a pace.
    pub(crate) fn at_pace(self, pace: Pace) -> Self {
        Self { limit: pace.of(self.limit), ..self }
    }

    /// What has been used of the window that holds at `now`.
    #[inline]
    fn used(&self, state: &Window, now: Timestamp) -> u64 {
        if now < state.end { state.used } else { 0 }
    }

    /// The end of a window that opens with a request at `now`.
    #[inline]
    fn end(&self, now: Timestamp) -> Timestamp {
        let elapsed = match self.align {
            Align::Epoch => (now.as_nanos() % self.window + self.phase) % self.window,
            Align::First => 0,
        };
        now.after(Nanos::new(self.window - elapsed))
    }
}

/// A window's length in nanoseconds, if it has one that can be counted.
pub(crate) fn checked_window(window: Duration) -> Result<u64, RuleError> {
    if window.is_zero() {
        return Err(RuleError::ZeroSpan { what: "window" });
    }
    if window > MAX_SPAN {
        return Err(RuleError::TooLong { what: "window", span: window, most: MAX_SPAN });
    }
    Ok(Nanos::saturating_from(window).get())
}

/// How far into a window the clock's zero lies, when that zero is `since_epoch`.
pub(crate) fn phase(since_epoch: Duration, window: u64) -> u64 {
    (since_epoch.as_nanos() % u128::from(window)) as u64 // below `window`, so it fits
}

impl Algorithm for FixedWindow {
    type State = Window;

    #[inline]
    fn capacity(&self) -> u64 {
        self.limit
    }

    #[inline]
    fn test(&self, state: &Window, cost: u64, now: Timestamp) -> Outcome {
        if cost > self.limit {
            return Outcome::NEVER;
        }
        if cost > 0 && cost > self.limit.saturating_sub(self.used(state, now)) {
            return Outcome::deny_for(state.end.since(now));
        }
        Outcome::ALLOW
    }

    #[inline]
    fn spend(&self, state: &mut Window, cost: u64, now: Timestamp) {
        if cost == 0 {
            return;
        }
        if now >= state.end {
            state.end = self.end(now);
            state.used = 0;
        }
        state.used = state.used.saturating_add(cost); // with those denied, it may be more than the limit
    }

    fn test_in_full(&self, state: &Window, cost: u64, now: Timestamp) -> Outcome {
        if cost == 0 && self.used(state, now) > self.limit {
            return Outcome::deny_for(state.end.since(now));
        }
        self.test(state, cost, now)
    }

    fn spend_in_full(&self, state: &mut Window, cost: u64, now: Timestamp) {
        self.spend(state, cost, now);
    }

    #[inline]
    fn counts_denied(&self) -> bool {
        self.counts_denied
    }

    /// The count goes down if `charged` lies in the window that is open at `now`; with nothing left in it, the
    /// key is unused. Nothing for a charge of an earlier window, also where a clock that stepped back had it
    /// counted in this one, nor for one from before the numbers changed: it may not be in the count any more.
    fn refund(&self, state: &mut Window, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        let start = state.start(self.window).max(state.carried);
        if charged < start || charged >= state.end {
            return 0;
        }
        let given = self.used(state, now).min(cost);
        if given == state.used {
            *state = Window::default();
        } else {
            state.used -= given;
        }
        given
    }

    #[inline]
    fn status(&self, state: &Window, now: Timestamp) -> Status {
        let used = self.used(state, now);
        let reset_after = if used > 0 { state.end.since(now) } else { Nanos::ZERO };
        Status { remaining: self.limit.saturating_sub(used), reset_after }
    }

    /// The count stays: a raised limit gives room at once, and a shorter window does not forgive what
    /// was used in the longer one.
    fn convert(&self, old: &Self, state: &mut Window, now: Timestamp) {
        let used = old.used(state, now);
        if used == 0 {
            *state = Window::default();
        } else if (self.window, self.align, self.phase) != (old.window, old.align, old.phase) {
            // A clock that stepped back into an earlier window converts as at the start of this one.
            let now = now.max(state.start(old.window));
            *state = Window { end: self.end(now), used, carried: now.max(state.carried) };
        }
    }
}

#[cfg(test)]
mod tests;
