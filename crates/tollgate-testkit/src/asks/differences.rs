//! Where back ends are known to differ from the model.

use super::fallback::{Fallback as FallbackModel, is_unavailable};
use super::language::{Action, Ask, FixedDenial, Group, OnError};
use super::{Call, Decide, Model, Reply, Rule};
use crate::answer::Retry;
use crate::conformance;
use BackEnd::{Fallback, Memory, Redis};

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
pub const KNOWN_DIFFERENCES: &[Difference] = &[
    Difference {
        name: "a limit of 0 that comes with a descriptor reports what remains of the rule that stands for it",
        back_ends: &[Memory, Redis],
        concerns: Concerns::Remaining(|_, ask| is_sent(ask) && is_blocked(ask)),
    },
    Difference {
        name: "refunds and charges of one key are not done in order where the asks are independent",
        back_ends: &[Memory],
        concerns: Concerns::Call(|_, asks| {
            let is_alone = |ask: &Ask| ask.group == Group::Independent;
            same_keys(asks).any(|(one, other)| is_alone(one) && (is_refund(one) || is_refund(other)))
        }),
    },
    Difference {
        name: "a missing attribute is ignored in shadow mode",
        back_ends: &[Memory],
        concerns: Concerns::Call(|call, asks| {
            is_described(call) && is_watched(asks) && asks.iter().any(is_missing)
        }),
    },
    Difference {
        name: "asks of one key are tested each by itself beside a missing attribute",
        back_ends: &[Memory],
        concerns: Concerns::Call(|_, asks| {
            let denies = asks.iter().any(|ask| is_together(ask) && is_missing(ask));
            denies && same_keys(asks).any(|(one, _)| is_together(one))
        }),
    },
    Difference {
        name: "a limit that comes with a descriptor does not count what is denied for a missing attribute",
        back_ends: &[Memory],
        concerns: Concerns::Call(|_, asks| {
            let counts = |ask: &Ask| is_sent(ask) && ask.rule.counts_denied() && ask.cost > 0;
            asks.iter().any(is_missing) && asks.iter().any(counts)
        }),
    },
    Difference {
        name: "a shadow concurrency limit reports a charge for a denied request, though it takes no slot",
        back_ends: &[Memory, Redis],
        concerns: Concerns::IsCharged(|_, ask| ask.group == Group::Independent && ask.rule.is_concurrency()),
    },
    Difference {
        name: "the reported limit depends on what remains of the rule that stands for a limit of 0",
        back_ends: &[Memory, Redis, Fallback],
        concerns: Concerns::Reported(|_, asks| asks.iter().any(is_blocked)),
    },
    Difference {
        name: "two asks of one key are joined into one",
        back_ends: &[Redis],
        concerns: Concerns::Call(|_, asks| {
            let is_joined_exactly = |one: &Ask, other: &Ask| {
                one.action == other.action
                    && one.group == Group::All
                    && !is_refund(one)
                    && !is_blocked(one)
                    && !is_log(one)
            };
            same_keys(asks).any(|(one, other)| !is_joined_exactly(one, other))
        }),
    },
    Difference {
        name: "a refund gives nothing back to a sliding log",
        back_ends: &[Redis],
        concerns: Concerns::Call(|_, asks| asks.iter().any(|ask| is_refund(ask) && is_log(ask))),
    },
    Difference {
        name: "a charge in full of cost 0 is denied for ever behind another charge of a blocked key",
        back_ends: &[Memory],
        concerns: Concerns::Call(|_, asks| {
            let looks = |ask: &Ask| ask.action == Action::ChargeInFull && ask.cost == 0;
            same_keys(asks).any(|(one, other)| is_blocked(one) && one.cost > 0 && looks(other))
        }),
    },
    Difference {
        name: "an independent ask without its attribute is charged in full as if its limit were 0",
        back_ends: &[Redis],
        concerns: Concerns::Call(|_, asks| {
            asks.iter().any(|ask| {
                ask.group == Group::Independent
                    && ask.denial == Some(FixedDenial::MissingAttribute)
                    && ask.action == Action::ChargeInFull
            })
        }),
    },
    Difference {
        name: "a refund gives nothing back to a blocked bucket",
        back_ends: &[Redis],
        concerns: Concerns::Call(|_, asks| {
            asks.iter().any(|ask| is_refund(ask) && is_blocked(ask) && !ask.rule.has_limit())
        }),
    },
    Difference {
        name: "the script allows a charge in full of cost 0 to a blocked bucket, so that the answer cannot be read",
        back_ends: &[Redis],
        concerns: Concerns::Call(|_, asks| {
            let looks = |ask: &Ask| ask.action == Action::ChargeInFull && ask.cost == 0;
            asks.iter().any(|ask| looks(ask) && is_blocked(ask) && !ask.rule.has_limit())
        }),
    },
    Difference {
        name: "a limit of 0 that comes with a descriptor allows it by `on_error`",
        back_ends: &[Fallback],
        concerns: Concerns::Call(|_, asks| asks.iter().any(|ask| is_sent(ask) && is_blocked(ask))),
    },
    Difference {
        name: "a limit that counts denied requests reports a charge that its share did not make",
        back_ends: &[Fallback],
        concerns: Concerns::IsCharged(|_, ask| ask.rule.counts_denied()),
    },
    Difference {
        name: "a quota that `on_error` decides is not one of those that are enough",
        back_ends: &[Fallback],
        concerns: Concerns::Call(|_, asks| {
            let quotas = || asks.iter().filter(|ask| ask.group == Group::AnyOf);
            quotas().count() > 1 && quotas().any(|ask| ask.on_error != OnError::Local)
        }),
    },
    Difference {
        name: "a denial by `on_error` hides longer denials by shares",
        back_ends: &[Fallback],
        concerns: Concerns::Wait(|_, asks| asks.iter().any(|ask| is_together(ask) && is_unavailable(ask))),
    },
    Difference {
        name: "a shadow takes no slots of its share",
        back_ends: &[Fallback],
        concerns: Concerns::Call(|_, asks| {
            let holds = |ask: &Ask| ask.action == Action::Hold && ask.rule.is_concurrency();
            asks.iter().any(|ask| !is_together(ask) && holds(ask) && ask.on_error == OnError::Local)
        }),
    },
    Difference {
        name: "the share of a shadow is charged for a request without its attribute",
        back_ends: &[Fallback],
        concerns: Concerns::Call(|_, asks| asks.iter().any(|ask| !is_together(ask) && is_missing(ask))),
    },
    Difference {
        name: "a charge in full of a share is not made beside a missing attribute",
        back_ends: &[Fallback],
        concerns: Concerns::Call(|_, asks| {
            let is_in_full = |ask: &Ask| is_together(ask) && ask.action == Action::ChargeInFull;
            asks.iter().any(|ask| is_together(ask) && is_missing(ask)) && asks.iter().any(is_in_full)
        }),
    },
    Difference {
        name: "asks of one share are tested each by itself beside another denial",
        back_ends: &[Fallback],
        concerns: Concerns::Call(|_, asks| {
            let denies = |ask: &Ask| is_together(ask) && (is_missing(ask) || is_unavailable(ask));
            asks.iter().any(denies) && same_keys(asks).any(|(one, _)| is_together(one))
        }),
    },
    Difference {
        name: "a charge in full reports that it was made although `on_error` or a missing attribute denies",
        back_ends: &[Fallback],
        concerns: Concerns::IsCharged(|_, ask| ask.action == Action::ChargeInFull),
    },
    Difference {
        name: "the share of a limit of 0 starts empty only if it is charged in full",
        back_ends: &[Fallback],
        concerns: Concerns::Call(|_, asks| {
            asks.iter().any(|ask| is_blocked(ask) && ask.action == Action::ChargeInFull)
        }),
    },
];

fn is_together(ask: &Ask) -> bool {
    ask.group != Group::Independent
}

/// Pairs of asks of one key. Those that are not listed are sent under other keys.
fn same_keys(asks: &[Ask]) -> impl Iterator<Item = (&Ask, &Ask)> {
    let listed = |ask: &&Ask| ask.is_listed;
    asks.iter().enumerate().filter(move |(_, one)| one.is_listed).flat_map(move |(place, one)| {
        let others = asks[place + 1..].iter().filter(listed);
        others.filter(move |other| other.key == one.key).map(move |other| (one, other))
    })
}

fn is_described(call: &Call) -> bool {
    matches!(call, Call::Describe(_))
}

/// Whether no ask can deny the request.
fn is_watched(asks: &[Ask]) -> bool {
    asks.iter().all(|ask| ask.group == Group::Independent)
}

/// Whether it asks a limit that comes with a descriptor.
fn is_sent(ask: &Ask) -> bool {
    ask.key.limit.starts_with("sent ")
}

fn is_log(ask: &Ask) -> bool {
    matches!(ask.rule, Rule::Rate(conformance::Rule::SlidingLog { .. }))
}

fn is_refund(ask: &Ask) -> bool {
    ask.action == Action::Refund
}

fn is_missing(ask: &Ask) -> bool {
    ask.denial == Some(FixedDenial::MissingAttribute) && ask.is_denied_for_ever()
}

fn is_blocked(ask: &Ask) -> bool {
    ask.denial == Some(FixedDenial::Blocked)
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
