//! Where back ends are known to differ from the model.

use super::fallback::Fallback as FallbackModel;
use super::language::{Action, Ask};
use super::{Call, Decide, Model, Reply, Rule};
use crate::answer::Retry;
use crate::conformance;
use BackEnd::Redis;

/// A kind of back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackEnd {
    /// The table of the process.
    Memory,
    /// Redis.
    Redis,
    /// A store that gives no answer.
    Fallback,
}

impl BackEnd {
    /// The smallest step of its clock (ns). Its waits are rounded up to it.
    pub const fn tick(self) -> u64 {
        match self {
            Self::Memory | Self::Fallback => 1,
            Self::Redis => 1000,
        }
    }

    /// The model that it is compared with.
    pub fn model(self) -> Box<dyn Decide> {
        match self {
            Self::Memory | Self::Redis => Box::new(Model::new(self.tick())),
            Self::Fallback => Box::new(FallbackModel::new()),
        }
    }

    /// Whether it can keep the states of a rule. On Redis, a slot needs a lease.
    pub fn has(self, rule: Rule) -> bool {
        self != Self::Redis || !matches!(rule, Rule::Slots { lease: None, .. })
    }
}

/// What a difference concerns.
#[derive(Clone, Copy, Debug)]
pub enum Concerns {
    /// The whole reply and the states after it. Random runs do not make a call that this function selects.
    Call(fn(&Call, &[Ask]) -> bool),
    /// Whether the selected asks report that they were charged.
    IsCharged(fn(&Call, &Ask) -> bool),
    /// What remains of the selected asks.
    Remaining(fn(&Call, &Ask) -> bool),
    /// How long a denied request has to wait, and which limit is reported.
    Wait(fn(&Call, &[Ask]) -> bool),
    /// Which limit is reported.
    Reported(fn(&Call, &[Ask]) -> bool),
}

/// A difference that is known. When a back end no longer has it, delete its row.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// What the back end does, in words.
    pub name: &'static str,
    /// The back ends that have it.
    pub back_ends: &'static [BackEnd],
    /// What it concerns.
    pub concerns: Concerns,
}

/// Every difference that is known.
pub const KNOWN_DIFFERENCES: &[Difference] = &[Difference {
    name: "a refund gives nothing back to a sliding log",
    back_ends: &[Redis],
    concerns: Concerns::Call(|_, asks| asks.iter().any(|ask| is_refund(ask) && is_log(ask))),
}];

fn is_log(ask: &Ask) -> bool {
    matches!(ask.rule, Rule::Rate(conformance::Rule::SlidingLog { .. }))
}

fn is_refund(ask: &Ask) -> bool {
    ask.action == Action::Refund
}

/// The known differences of one back end.
#[derive(Debug)]
pub(super) struct Known(Vec<&'static Difference>);

impl Known {
    /// All of them.
    pub(super) fn of(back_end: BackEnd) -> Self {
        Self(KNOWN_DIFFERENCES.iter().filter(|row| row.back_ends.contains(&back_end)).collect())
    }

    /// All except one.
    pub(super) fn without(back_end: BackEnd, name: &str) -> Self {
        let mut known = Self::of(back_end);
        known.0.retain(|row| row.name != name);
        known
    }

    /// Their names.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|row| row.name)
    }

    /// Whether a row leaves out calls.
    pub(super) fn is_of_calls(&self, name: &str) -> bool {
        self.0.iter().any(|row| row.name == name && matches!(row.concerns, Concerns::Call(_)))
    }

    /// Whether a call is known to be decided differently.
    pub(super) fn has(&self, call: &Call, asks: &[Ask]) -> bool {
        self.any(|concerns| matches!(concerns, Concerns::Call(applies) if applies(call, asks)))
    }

    /// Whether two replies are the same, as far as they are comparable. The delay of a limit means nothing in a denied
    /// request.
    pub(super) fn is_same(&self, call: &Call, asks: &[Ask], found: &Reply, expected: &Reply) -> bool {
        self.comparable(call, asks, found, expected) == self.comparable(call, asks, expected, found)
    }

    fn any(&self, is_one: impl Fn(Concerns) -> bool) -> bool {
        self.0.iter().any(|row| is_one(row.concerns))
    }

    /// A reply without what the other reply does not have, or is known to have differently.
    fn comparable(&self, call: &Call, asks: &[Ask], reply: &Reply, other: &Reply) -> Reply {
        let mut reply = reply.clone();
        if self.any(|concerns| matches!(concerns, Concerns::Reported(applies) if applies(call, asks))) {
            reply.reported = None;
        }
        if self.any(|concerns| matches!(concerns, Concerns::Wait(applies) if applies(call, asks))) {
            reply.reported = None;
            reply.outcome = reply.outcome.map_err(|_| Retry::Unknown);
        }
        let listed = asks.iter().filter(|ask| ask.is_listed);
        for (place, (given, ask)) in reply.answers.iter_mut().zip(listed).enumerate() {
            if reply.outcome.is_err() {
                given.answer.delay = 0;
            }
            if other.answers.get(place).is_none_or(|other| other.is_charged.is_none()) {
                given.is_charged = None;
            }
            for row in &self.0 {
                match row.concerns {
                    Concerns::IsCharged(applies) if applies(call, ask) => given.is_charged = None,
                    Concerns::Remaining(applies) if applies(call, ask) => given.answer.remaining = 0,
                    _ => {}
                }
            }
        }
        reply
    }
}
