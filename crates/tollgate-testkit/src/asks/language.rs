//! The language of asks.

use super::Rule;
use crate::answer::{Answer, Retry};

/// What an ask does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Charges the cost if the request passes. A concurrency limit is only tested.
    Charge,
    /// Charges the cost in any case, also beyond the limit.
    ChargeInFull,
    /// Charges the cost, and takes slots of a concurrency limit.
    Hold,
    /// Gives the cost back if the request passes.
    Refund,
    /// Tests the cost and writes nothing.
    Peek,
}

/// With which others an ask is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// All of these must allow the request.
    All,
    /// One of these must allow the request, and those that allow it are charged.
    AnyOf,
    /// The ask is decided by itself and does not change the outcome.
    Independent,
}

/// Why an ask is denied without asking its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedDenial {
    /// An attribute of the key is missing, and the limit denies such requests.
    MissingAttribute,
    /// The limit is 0.
    Blocked,
}

/// What decides an ask when the store gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The ask is allowed.
    Allow,
    /// The ask is denied until the store is tried again.
    Deny,
    /// The share of this process decides.
    Local,
}

/// The key of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The limit, by name.
    pub limit: String,
    /// The value that the limit counts by.
    pub value: String,
}

/// What is asked of one key of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The key.
    pub key: Key,
    /// The rule of the limit. One key always comes with the same rule.
    pub rule: Rule,
    /// What is done.
    pub action: Action,
    /// The cost. With cost 0, `Charge` is a peek.
    pub cost: u64,
    /// With which others it is decided.
    pub group: Group,
    /// A denial that does not depend on the state.
    pub denial: Option<FixedDenial>,
    /// The permit that its slots are taken under. Only `Hold` uses it.
    pub permit: u64,
    /// What decides it when the store gives no answer.
    pub on_error: OnError,
    /// Whether the reply contains its answer.
    pub is_listed: bool,
}

impl Ask {
    /// Whether it could charge its key or take slots.
    pub fn can_be_charged(&self) -> bool {
        let takes = match self.action {
            Action::Charge | Action::ChargeInFull => !self.rule.is_concurrency(),
            Action::Hold => true,
            Action::Refund | Action::Peek => false,
        };
        takes && self.cost > 0
    }

    /// Whether it is charged although the request is denied.
    pub fn is_charged_on_denial(&self) -> bool {
        self.can_be_charged() && (self.action == Action::ChargeInFull || self.rule.counts_denied())
    }

    /// Whether it is denied whatever the state of its key.
    pub fn is_denied_for_ever(&self) -> bool {
        self.denial.is_some() && self.cost > 0 && self.action != Action::Refund
    }
}

/// The answer to one ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskAnswer {
    /// The test, and the state of the key after the decision.
    pub answer: Answer,
    /// Whether its key was charged or its slots were taken.
    pub is_charged: bool,
    /// Whether the state of the key is known.
    pub is_known: bool,
}

/// What was decided about asks together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The longest delay if the request passes. Otherwise the longest wait, where the asks of [`Group::AnyOf`] count as
    /// one ask with the shortest wait among them.
    pub outcome: Result<u64, Retry>,
    /// The answer to each ask, in order.
    pub answers: Vec<AskAnswer>,
    /// The ask that explains the outcome.
    pub reported: Option<usize>,
}
