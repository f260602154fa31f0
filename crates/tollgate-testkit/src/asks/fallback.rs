//! The rules of deciding while the store gives no answer.

use super::language::{Action, Ask, AskAnswer, Decided, FixedDenial, OnError};
use super::model::{Decide, Model, summary};
use super::random_calls::{START, TICK};
use crate::answer::{Answer, Retry};

/// Decides as one of [`NODES`](Self::NODES) processes whose store has given no answer since
/// [`OUTAGE_START`](Self::OUTAGE_START).
///
/// Each limit says what decides. A share is a part of the limit: a token bucket that was empty when the outage began, or
/// a part of a queue or of the slots. An ask that the store is needed for and that `on_error` denies is a denial like any other. A
/// refund is lost: no share was charged for it.
#[derive(Debug)]
pub struct Fallback {
    shares: Model,
}

impl Default for Fallback {
    fn default() -> Self {
        Self::new()
    }
}

impl Fallback {
    /// The processes that share the store.
    pub const NODES: u64 = 2;
    /// When the outage began (ns).
    pub const OUTAGE_START: u64 = START - 500 * TICK;
    /// The time until the store is tried again (ns).
    pub const RETRY_AFTER: u64 = 300_000 * TICK;

    /// An outage in which nothing has been decided yet.
    pub fn new() -> Self {
        Self { shares: Model::empty_since(Self::OUTAGE_START) }
    }

    /// The mistake that a share starts full.
    #[cfg(test)]
    pub(super) fn with_full_shares() -> Self {
        Self { shares: Model::new(1) }
    }
}

/// Whether the share of this process decides an ask. A limit of 0 needs no store.
fn is_local(ask: &Ask) -> bool {
    let has_share = ask.rule.share(Fallback::NODES).is_some();
    ask.denial == Some(FixedDenial::Blocked) || ask.on_error == OnError::Local && has_share
}

/// Whether an ask is denied because the store gives no answer. A refund asks for nothing.
pub(super) fn is_unavailable(ask: &Ask) -> bool {
    let denies = match ask.on_error {
        OnError::Allow => false,
        OnError::Deny => ask.action != Action::Refund,
        OnError::Local => true,
    };
    denies && !is_local(ask)
}

/// The answer of a limit that nobody asked. An attribute that is missing needs no store.
fn unknown(ask: &Ask) -> AskAnswer {
    let retry = Retry::After(Fallback::RETRY_AFTER);
    let outcome = if is_unavailable(ask) { Err(retry) } else { Ok(0) };
    let remaining = if outcome.is_ok() { ask.rule.capacity() } else { 0 };
    let outcome = if ask.is_denied_for_ever() { Err(Retry::Never) } else { outcome };
    AskAnswer { answer: Answer::new(outcome, remaining, 0), is_charged: false, is_known: false }
}

impl Decide for Fallback {
    fn decide(&mut self, now: u64, asks: &[Ask]) -> Decided {
        let share = |ask: &Ask| {
            let mut share = Ask { rule: ask.rule.share(Self::NODES).unwrap_or(ask.rule), ..ask.clone() };
            if !is_local(ask) {
                // Nobody is asked: what stands for it is denied for ever, or allowed.
                share.key.limit.insert_str(0, "nobody ");
                let is_denied = is_unavailable(ask) || ask.is_denied_for_ever();
                (share.action, share.cost) = (Action::Peek, u64::from(is_denied));
                share.denial = Some(FixedDenial::Blocked);
            } else if ask.action == Action::Refund {
                (share.action, share.cost) = (Action::Peek, 0);
            }
            share
        };
        let shares: Vec<Ask> = asks.iter().map(share).collect();
        let decided = self.shares.decide(now, &shares).answers.into_iter();
        let answer = |(ask, decided)| if is_local(ask) { decided } else { unknown(ask) };
        summary(asks, asks.iter().zip(decided).map(answer).collect())
    }

    fn release(&mut self, now: u64, permit: u64) {
        self.shares.release(now, permit);
    }
}
