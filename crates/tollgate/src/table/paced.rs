//! A rule at the pace of its shed class.

use tollgate_core::adaptive::VirtualClock;
use tollgate_core::{Decision, Nanos, Outcome, PermitId, Retry, Rule, State, StateView, Status, Timestamp};

/// A rule as it is decided by at the pace of its class. Times and waits are those of the real clock here; a schedule
/// is kept by the clock of its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paced<'a> {
    pub(super) full: &'a Rule,                  // at full pace
    pub(super) reduced: Option<Rule>, // at the pace of its class, with what is left of its limit; none at full pace
    pub(super) clock: Option<&'a VirtualClock>, // none where it goes by the real one
}

impl Paced<'_> {
    /// The rule to decide by.
    #[inline]
    fn rule(&self) -> &Rule {
        self.reduced.as_ref().unwrap_or(self.full)
    }

    #[inline]
    pub(crate) fn test<'s>(&self, state: impl Into<StateView<'s>>, cost: u64, now: Timestamp) -> Outcome {
        self.really(state.into().test(self.rule(), cost, self.time(now)), cost, now)
    }

    #[inline]
    pub(crate) fn spend(&self, state: &mut State, permit: PermitId, cost: u64, now: Timestamp) {
        self.rule().spend(state, permit, cost, self.time(now));
    }

    /// [`test`](Self::test) of a request whose whole cost is charged in any case.
    pub(crate) fn test_in_full<'s>(
        &self,
        state: impl Into<StateView<'s>>,
        cost: u64,
        now: Timestamp,
    ) -> Outcome {
        self.really(state.into().test_in_full(self.rule(), cost, self.time(now)), cost, now)
    }

    /// [`spend`](Self::spend), also beyond the limit.
    ///
    /// The bound of the debt is that of the full pace: a limit that is smaller for now drops no usage.
    pub(crate) fn spend_in_full(&self, state: &mut State, cost: u64, now: Timestamp) {
        self.full.spend_in_full(state, cost, self.time(now));
    }

    #[inline]
    pub(crate) fn decide(&self, state: &mut State, permit: PermitId, cost: u64, now: Timestamp) -> Decision {
        let Decision { outcome, status } = self.rule().decide(state, permit, cost, self.time(now));
        Decision { outcome: self.really(outcome, cost, now), status: self.really_status(status, now) }
    }

    #[inline]
    pub(crate) fn status<'s>(&self, state: impl Into<StateView<'s>>, now: Timestamp) -> Status {
        self.really_status(state.into().status(self.rule(), self.time(now)), now)
    }

    #[inline]
    pub(crate) fn is_unused(&self, state: &State, now: Timestamp) -> bool {
        self.rule().is_unused(state, self.time(now))
    }

    /// A charge is taken to be as old as it can be where the pace has changed since: too old, rather than too young.
    pub(crate) fn refund(&self, state: &mut State, cost: u64, charged: Timestamp, now: Timestamp) -> u64 {
        self.rule().refund(state, cost, self.earliest(charged), self.time(now))
    }

    /// The number of units that [`refund`](Self::refund) would give back.
    pub(crate) fn refundable(
        &self,
        state: StateView<'_>,
        cost: u64,
        charged: Timestamp,
        now: Timestamp,
    ) -> u64 {
        state.refundable(self.rule(), cost, self.earliest(charged), self.time(now))
    }

    /// The earliest time that the clock of the class can have shown at `charged`.
    fn earliest(&self, charged: Timestamp) -> Timestamp {
        self.clock.map_or(charged, |clock| clock.at_earliest(charged))
    }

    /// Gives up a place whose turn has not come, and returns by how much those behind it go sooner.
    pub(crate) fn withdraw(&self, state: &mut State, cost: u64, now: Timestamp) -> Nanos {
        self.wait(self.rule().withdraw(state, cost, self.time(now)), now)
    }

    /// All who wait go later by this, the last of them then.
    pub(crate) fn postpone(&self, state: &mut State, by: Nanos, last_turn: Timestamp, now: Timestamp) {
        let by = self.time(now.after(by)).since(self.time(now));
        self.rule().postpone(state, by, self.time(last_turn), self.time(now));
    }

    /// Brings a key under this rule that was last charged by `old`: what it has left stays.
    ///
    /// It goes from rule to rule as at full pace. A `max_wait` that is shorter at a pace says nothing about how much
    /// was owed before the pace fell.
    pub(crate) fn convert(&self, old: &Self, state: &mut State, now: Timestamp) {
        let (from, to) = (old.time(now), self.time(now));
        if from != to {
            old.full.carry(state, from, to);
        }
        self.full.convert(old.full, state, to);
    }

    /// The state as [`convert`](Self::convert) would leave it. Logs and permits are not copied.
    pub(crate) fn view<'s>(&self, old: &Self, state: &'s State, now: Timestamp) -> StateView<'s> {
        let (from, to) = (old.time(now), self.time(now));
        if from == to || !old.full.has_schedule() {
            return self.full.view(old.full, state, to);
        }
        let mut copy = state.clone();
        self.convert(old, &mut copy, now);
        copy.into()
    }

    /// The time it is decided at.
    #[inline]
    fn time(&self, now: Timestamp) -> Timestamp {
        self.clock.map_or(now, |clock| clock.at(now))
    }

    #[inline]
    fn wait(&self, wait: Nanos, now: Timestamp) -> Nanos {
        match self.clock {
            Some(clock) if !wait.is_zero() => clock.real_wait(now, wait),
            _ => wait,
        }
    }

    #[inline]
    fn really(&self, outcome: Outcome, cost: u64, now: Timestamp) -> Outcome {
        match outcome {
            Outcome::Allow { delay } => Outcome::Allow { delay: self.wait(delay, now) },
            Outcome::Deny { retry: Retry::After(wait) } => {
                Outcome::Deny { retry: Retry::After(self.wait(wait, now)) }
            }
            // More than is left of a window's limit may pass when the load has gone, which nobody knows.
            Outcome::Deny { retry: Retry::Never } if cost <= self.full.capacity() => {
                Outcome::Deny { retry: Retry::Unknown }
            }
            outcome @ Outcome::Deny { .. } => outcome,
        }
    }

    #[inline]
    fn really_status(&self, status: Status, now: Timestamp) -> Status {
        Status { reset_after: self.wait(status.reset_after, now), ..status }
    }
}
