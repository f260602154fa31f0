//! Models of a store that gives no answer, with one mistake each.

use crate::asks::fallback::is_unavailable;
use crate::asks::{Ask, Decide, Decided, Fallback, Group, OnError};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FallbackFault {
    AllowsWhatIsDenied,
    DeniesWhatIsAllowed,
    ChargesBesideADenial,
    SharesStartFull,
    SharesAreWhole,
    ForgetsFixedDenials,
}

pub(super) struct FaultyFallback {
    fault: Option<FallbackFault>,
    model: Fallback,
}

impl FaultyFallback {
    pub(super) fn new(fault: Option<FallbackFault>) -> Self {
        let model = match fault {
            Some(FallbackFault::SharesStartFull) => Fallback::with_full_shares(),
            _ => Fallback::new(),
        };
        Self { fault, model }
    }

    fn misread(&self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        match (self.fault, ask.on_error) {
            (Some(FallbackFault::AllowsWhatIsDenied), OnError::Deny) => ask.on_error = OnError::Allow,
            (Some(FallbackFault::DeniesWhatIsAllowed), OnError::Allow) => ask.on_error = OnError::Deny,
            (Some(FallbackFault::SharesAreWhole), OnError::Local) => {
                ask.rule = ask.rule.times(Fallback::NODES)
            }
            (Some(FallbackFault::ForgetsFixedDenials), _) => ask.denial = None,
            _ => {}
        }
        ask
    }
}

impl Decide for FaultyFallback {
    fn decide(&mut self, now: u64, asks: &[Ask]) -> Decided {
        let asks: Vec<Ask> = asks.iter().map(|ask| self.misread(ask)).collect();
        let decided = self.model.decide(now, &asks);
        let is_together = |ask: &&Ask| ask.group != Group::Independent;
        let is_cut_off = asks.iter().filter(is_together).any(is_unavailable);
        if self.fault == Some(FallbackFault::ChargesBesideADenial) && is_cut_off {
            for ask in asks.iter().filter(is_together) {
                self.model.decide(now, std::slice::from_ref(ask));
            }
        }
        decided
    }

    fn release(&mut self, now: u64, permit: u64) {
        self.model.release(now, permit);
    }
}
