//! What every back end of the policy engine promises about asks that are decided together.
//!
//! A [`Call`] is a request as a caller makes it. The [`Policy`] turns the call into [`Ask`]s, and the [`Model`] decides
//! them slowly and obviously. A back end is driven through [`Subject`] with the same calls and compared with the model,
//! answer by answer. Everything is in plain numbers, as in the rest of this crate.

mod call;
mod differences;
mod fallback;
mod language;
mod model;
mod policy;
pub mod promises;
mod random_calls;
mod rule;
mod smallest;
#[cfg(test)]
mod tests;

pub use call::{Attributes, Call, Descriptor, SentLimit};
pub use differences::{BackEnd, Concerns, Difference, KNOWN_DIFFERENCES};
pub use fallback::Fallback;
pub use language::{Action, Ask, AskAnswer, Decided, FixedDenial, Group, Key, OnError};
pub use model::{Decide, Model};
pub use policy::{Blocked, Limit, Policy, Scope};
pub use random_calls::{Case, known_differences_are_still_there, random_calls_equal_the_model};
pub use rule::{Rule, State};

use crate::answer::{Answer, Retry};

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The delay of a request that passes, or the retry of one that is denied.
    pub outcome: Result<u64, Retry>,
    /// The limits that answered. Limits that decide together come first, each group in the order of the call and the
    /// policy.
    pub answers: Vec<LimitAnswer>,
    /// The place in `answers` of the limit that explains the outcome. Only a check and a hold report it.
    pub reported: Option<usize>,
}

/// The answer of one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitAnswer {
    /// The name of the limit.
    pub name: String,
    /// What it decided, and the state of the key after that.
    pub answer: Answer,
    /// Whether the request was charged to it. `None` where nobody reports it.
    pub is_charged: Option<bool>,
    /// Whether the state of the key is known. It is not if the store gave no answer and `on_error` decided.
    pub is_known: bool,
}

/// A back end under test: an engine with one policy and no keys in use.
pub trait Subject {
    /// Decides a call at `now` (ns), which is a multiple of the tick of the back end.
    fn call(&mut self, now: u64, call: &Call) -> Reply;
}

/// Makes an unused subject with a policy.
pub type Fresh<'f, S> = &'f mut dyn FnMut(&Policy) -> S;

/// The subject that is right by definition.
#[derive(Debug)]
pub struct Expected<D = Model> {
    policy: Policy,
    decide: D,
}

impl<D: Decide> Expected<D> {
    /// A policy whose asks are decided by `decide`.
    pub fn new(policy: &Policy, decide: D) -> Self {
        Self { policy: policy.clone(), decide }
    }
}

impl<D: Decide> Subject for Expected<D> {
    fn call(&mut self, now: u64, call: &Call) -> Reply {
        if let Call::Release { permit } = call {
            self.decide.release(now, *permit);
            return Reply { outcome: Ok(0), answers: Vec::new(), reported: None };
        }
        let asks = self.policy.asks(call);
        let Decided { outcome, answers, reported } = self.decide.decide(now, &asks);
        let listed = asks.iter().zip(answers).filter(|(ask, _)| ask.is_listed);
        let answers = listed
            .map(|(ask, AskAnswer { answer, is_charged, is_known })| LimitAnswer {
                name: ask.key.limit.clone(),
                answer,
                is_charged: Some(is_charged),
                is_known,
            })
            .collect();
        let reported = reported.filter(|_| matches!(call, Call::Check { .. } | Call::Hold { .. }));
        Reply { outcome, answers, reported }
    }
}
