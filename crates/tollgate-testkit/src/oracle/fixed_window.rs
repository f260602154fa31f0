//! Fixed window: a count that starts again from zero when the window ends.

use super::rounding::reported;
use crate::answer::{Answer, Retry};

#[cfg(test)]
mod tests;

/// At most `limit` per window of `window` nanoseconds.
///
/// A request stamped before the window that is open is counted in the open one.
#[derive(Clone, Debug)]
pub struct FixedWindow {
    limit: u64,
    window: u64,
    anchored: bool,
    counts_denied: bool,
    /// The window last charged.
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    end: i128,
    used: u64,
}

impl FixedWindow {
    /// Windows that begin at the multiples of `window`.
    pub fn aligned(limit: u64, window: u64) -> Self {
        assert!(window > 0, "a window without length");
        Self { limit, window, anchored: false, counts_denied: false, open: None }
    }

    /// A window that opens at the first admitted request and lasts `window`; the next one opens at
    /// the first admitted request after that.
    pub fn anchored(limit: u64, window: u64) -> Self {
        Self { anchored: true, ..Self::aligned(limit, window) }
    }

    /// Denied requests are counted like those that pass.
    #[must_use]
    pub fn counting_denied(self) -> Self {
        Self { counts_denied: true, ..self }
    }

    pub(super) fn counts_denied(&self) -> bool {
        self.counts_denied
    }

    /// Decides without charging.
    pub fn would(&self, now: u64, cost: u64) -> Answer {
        self.answer(now, self.decide(now, cost))
    }

    /// Decides, and counts the request if allowed, or if all are counted.
    pub fn ask(&mut self, now: u64, cost: u64) -> Answer {
        let decision = self.decide(now, cost);
        if (decision.is_ok() || self.counts_denied) && cost > 0 {
            let Open { end, used } = self.window_at(now);
            self.open = Some(Open { end, used: used.saturating_add(cost) });
        }
        self.answer(now, decision)
    }

    /// Decides a request that is charged in full: cost 0 has to wait for the next window while the count is
    /// above the limit.
    pub fn would_in_full(&self, now: u64, cost: u64) -> Answer {
        let Open { end, used } = self.window_at(now);
        if cost == 0 && used > self.limit {
            return self.answer(now, Err(Retry::After(reported(end - i128::from(now)))));
        }
        self.would(now, cost)
    }

    /// Counts the whole cost.
    pub fn charge_in_full(&mut self, now: u64, cost: u64) {
        if cost > 0 {
            let Open { end, used } = self.window_at(now);
            self.open = Some(Open { end, used: used.saturating_add(cost) });
        }
    }

    /// Takes the charge out of the count, if it was stamped in the window that is open at `now`. With
    /// nothing left in it the window has not been opened.
    pub fn refund(&mut self, now: u64, cost: u64, charged: u64) -> u64 {
        let Some(Open { end, used }) = self.open else { return 0 };
        let stamped = end - i128::from(self.window)..end;
        if i128::from(now) >= end || !stamped.contains(&i128::from(charged)) {
            return 0;
        }
        let given = cost.min(used);
        self.open = if given == used { None } else { Some(Open { end, used: used - given }) };
        given
    }

    fn decide(&self, now: u64, cost: u64) -> Result<u64, Retry> {
        let Open { end, used } = self.window_at(now);
        if cost == 0 || u128::from(used) + u128::from(cost) <= u128::from(self.limit) {
            Ok(0)
        } else if cost > self.limit {
            Err(Retry::Never)
        } else {
            Err(Retry::After(reported(end - i128::from(now))))
        }
    }

    fn answer(&self, now: u64, decision: Result<u64, Retry>) -> Answer {
        let Open { end, used } = self.window_at(now);
        let reset = if used == 0 { 0 } else { reported(end - i128::from(now)) };
        Answer::new(decision, self.limit.saturating_sub(used), reset)
    }

    /// The window a request at `now` is counted in: the open one until it ends, then the one that
    /// `now` falls into or begins.
    fn window_at(&self, now: u64) -> Open {
        let (now, window) = (i128::from(now), i128::from(self.window));
        match self.open {
            Some(open) if now < open.end => open,
            _ if self.anchored => Open { end: now + window, used: 0 },
            _ => Open { end: (now / window + 1) * window, used: 0 },
        }
    }
}
