//! What a request asks of one key.

use tollgate_core::{Action, Group, Outcome, PermitId, Rule, State, StateView, Timestamp};

use super::HeldSlot;
use super::paced::Paced;
use super::rules::AskRule;
use super::shard::Part;

/// A key of one limiter, by hash, and what a request does to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) hash: u64,
    pub(crate) rule: AskRule<'a>,
    pub(crate) cost: u64,
    pub(crate) permit: Option<PermitId>, // that holds the slot, if the rule is a concurrency limit
    pub(crate) part: Part,
    pub(crate) number: u16, // that the rule has in the shard; 0 before a shard has looked
    pub(crate) action: Action,
    pub(crate) group: Group,
    pub(crate) is_denied: bool,    // whatever the rule says
    pub(crate) has_one_tier: bool, // the key has one tier at a time: asked under another, it has moved there
}

impl Ask<'_> {
    pub(crate) const NOTHING: Self = Self {
        hash: 0,
        rule: AskRule::None,
        cost: 0,
        permit: None,
        part: Part::First,
        number: 0,
        action: Action::Charge,
        group: Group::All,
        is_denied: false,
        has_one_tier: false,
    };

    /// Whether it is tested and charged as most are.
    #[inline]
    pub(crate) const fn is_usual(&self) -> bool {
        matches!(self.action, Action::Charge | Action::Hold) && !self.is_denied
    }

    /// The slot that it holds if it passes a concurrency limit.
    pub(crate) fn held_slot(&self) -> Option<HeldSlot> {
        Some(HeldSlot { part: self.part, hash: self.hash, permit: self.permit? })
    }

    /// Whether the action takes something from a key, if the rule lets it.
    #[inline]
    pub(super) const fn takes(&self) -> bool {
        matches!(self.action, Action::Charge | Action::ChargeInFull | Action::Hold) && self.cost > 0
    }

    #[inline]
    pub(super) fn test<'s>(
        &self,
        rule: &Paced<'_>,
        state: impl Into<StateView<'s>>,
        now: Timestamp,
    ) -> Outcome {
        if self.is_denied {
            return self.action.test_denied(self.cost, rule.status(state, now));
        }
        match self.action {
            Action::Charge | Action::Hold | Action::Peek => rule.test(state, self.cost, now),
            Action::ChargeInFull => rule.test_in_full(state, self.cost, now),
            Action::Refund => Outcome::ALLOW,
        }
    }

    #[inline]
    pub(super) fn spend(&self, rule: &Paced<'_>, state: &mut State, permit: PermitId, now: Timestamp) {
        if self.action == Action::ChargeInFull {
            rule.spend_in_full(state, self.cost, now);
        } else {
            rule.spend(state, permit, self.cost, now);
        }
    }

    /// The most bytes that a charge adds to a state.
    #[inline]
    pub(super) fn heap_growth<'s>(&self, rule: &Rule, state: impl Into<StateView<'s>>) -> usize {
        let state = state.into();
        if self.action == Action::ChargeInFull {
            state.heap_growth_in_full(rule, self.cost)
        } else {
            state.heap_growth(rule, self.cost)
        }
    }
}
