//! Models with one mistake each. A mistake changes the asks before the model decides them, asks more of the model
//! afterwards, or changes the answer.

use std::collections::HashSet;

use crate::asks::{Action, Ask, AskAnswer, Decide, Decided, FixedDenial, Group, Key, Model, Rule};
use crate::conformance;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    ShadowsDecide,
    ShadowsNeedAPass,
    AnyOfMustAllAllow,
    AnyOfNeverDenies,
    AllIsAnyOf,
    ReportsTheLongestOfAnyOf,
    ChargesUntilDenied,
    RefundsOnDenial,
    ForgetsRefunds,
    PeeksCharge,
    IgnoresMissing,
    MissingChargesOthers,
    IgnoresBlocked,
    ForgetsDenied,
    CountsOnlyOwnDenials,
    InFullNeedsAPass,
    HoldsOnDenial,
    ShadowHoldsOnDenial,
    ForgetsReleases,
    ClipsCosts,
    ForgetsTheSecondOfAKey,
}

pub(super) struct Faulty {
    fault: Option<Fault>,
    model: Model,
}

impl Faulty {
    pub(super) fn new(fault: Option<Fault>) -> Self {
        Self { fault, model: Model::new(1) }
    }

    /// The ask as the mistake reads it.
    fn misread(&self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        match (self.fault, ask.group, ask.action) {
            (Some(Fault::ShadowsDecide), Group::Independent, _) if ask.action != Action::Peek => {
                ask.group = Group::All
            }
            (Some(Fault::AnyOfMustAllAllow), Group::AnyOf, _) => ask.group = Group::All,
            (Some(Fault::AnyOfNeverDenies), Group::AnyOf, _) => ask.group = Group::Independent,
            (Some(Fault::AllIsAnyOf), Group::All, _) => ask.group = Group::AnyOf,
            (Some(Fault::ForgetsRefunds), _, Action::Refund) => ask.cost = 0,
            (Some(Fault::PeeksCharge), _, Action::Peek) if ask.is_listed => ask.action = Action::Charge,
            (Some(Fault::ClipsCosts), ..) => ask.cost = ask.cost.min(ask.rule.capacity()),
            _ => {}
        }
        match (self.fault, ask.denial) {
            (Some(Fault::IgnoresMissing), Some(FixedDenial::MissingAttribute))
            | (Some(Fault::IgnoresBlocked), Some(FixedDenial::Blocked)) => ask.denial = None,
            _ => {}
        }
        if let (Some(Fault::ForgetsDenied), Rule::Rate(conformance::Rule::CountingWindow { limit, window })) =
            (self.fault, ask.rule)
        {
            ask.rule = Rule::Rate(conformance::Rule::FixedWindow { limit, window });
        }
        ask
    }

    /// Asks one of these again, by itself.
    fn ask_alone(&mut self, now: u64, ask: &Ask) -> AskAnswer {
        self.model.decide(now, &[Ask { group: Group::All, ..ask.clone() }]).answers[0]
    }

    /// Decides what passes and what does not, and writes nothing.
    fn look(&mut self, now: u64, asks: &[Ask]) -> Decided {
        let peek = |ask: &Ask| match ask.action {
            Action::Refund => Ask { cost: 0, ..ask.clone() },
            _ => Ask { action: Action::Peek, ..ask.clone() },
        };
        self.model.decide(now, &asks.iter().map(peek).collect::<Vec<_>>())
    }

    /// Decides without some asks, whose answers then tell the state only.
    fn decide_without(
        &mut self,
        now: u64,
        asks: &[Ask],
        is_left_out: impl Fn(usize, &Ask) -> bool,
    ) -> Decided {
        let replaced: Vec<Ask> = asks
            .iter()
            .enumerate()
            .map(|(place, ask)| match is_left_out(place, ask) {
                true => Ask { action: Action::Peek, ..ask.clone() },
                false => ask.clone(),
            })
            .collect();
        self.model.decide(now, &replaced)
    }
}

impl Decide for Faulty {
    fn decide(&mut self, now: u64, asks: &[Ask]) -> Decided {
        let asks: Vec<Ask> = asks.iter().map(|ask| self.misread(ask)).collect();
        let Some(fault) = self.fault else { return self.model.decide(now, &asks) };
        let is_denied = self.look(now, &asks).outcome.is_err();
        let is_together = |ask: &Ask| ask.group != Group::Independent;
        let mut decided = match fault {
            Fault::ShadowsNeedAPass if is_denied => {
                self.decide_without(now, &asks, |_, ask| !is_together(ask))
            }
            Fault::InFullNeedsAPass if is_denied => {
                self.decide_without(now, &asks, |_, ask| ask.action == Action::ChargeInFull)
            }
            Fault::CountsOnlyOwnDenials if is_denied => {
                let own = self.look(now, &asks);
                self.decide_without(now, &asks, |place, ask| {
                    is_together(ask) && own.answers[place].answer.allowed
                })
            }
            Fault::ForgetsTheSecondOfAKey => {
                let mut keys: HashSet<&Key> = HashSet::new();
                let again: Vec<bool> = asks.iter().map(|ask| !keys.insert(&ask.key)).collect();
                let asks: Vec<Ask> = asks
                    .iter()
                    .zip(&again)
                    .map(|(ask, again)| Ask { cost: if *again { 0 } else { ask.cost }, ..ask.clone() })
                    .collect();
                self.model.decide(now, &asks)
            }
            _ => self.model.decide(now, &asks),
        };
        for (place, ask) in asks.iter().enumerate() {
            let is_due = match fault {
                Fault::ChargesUntilDenied => {
                    is_denied
                        && is_together(ask)
                        && decided.answers[..=place].iter().all(|given| given.answer.allowed)
                }
                Fault::RefundsOnDenial => is_denied && ask.action == Action::Refund,
                Fault::MissingChargesOthers => {
                    let denies = |ask: &Ask| ask.denial == Some(FixedDenial::MissingAttribute);
                    is_denied
                        && ask.denial.is_none()
                        && asks.iter().any(|ask| denies(ask) && ask.is_denied_for_ever())
                }
                Fault::HoldsOnDenial => is_denied && is_together(ask) && ask.rule.is_concurrency(),
                Fault::ShadowHoldsOnDenial => is_denied && !is_together(ask) && ask.rule.is_concurrency(),
                Fault::PeeksCharge => ask.action == Action::Charge && ask.cost == 0,
                _ => false,
            };
            if is_due {
                let cost = ask.cost.max(u64::from(fault == Fault::PeeksCharge));
                decided.answers[place] = self.ask_alone(now, &Ask { cost, ..ask.clone() });
            }
        }
        if fault == Fault::ReportsTheLongestOfAnyOf && is_denied {
            let together = asks.iter().zip(&decided.answers).filter(|(ask, _)| is_together(ask));
            let all: Vec<Ask> =
                together.clone().map(|(ask, _)| Ask { group: Group::All, ..ask.clone() }).collect();
            let answers = together.map(|(_, answer)| *answer).collect();
            decided.outcome = crate::asks::model::summary(&all, answers).outcome;
        }
        decided
    }

    fn release(&mut self, now: u64, permit: u64) {
        if self.fault != Some(Fault::ForgetsReleases) {
            self.model.release(now, permit);
        }
    }
}
