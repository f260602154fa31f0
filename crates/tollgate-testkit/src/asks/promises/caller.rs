//! Short ways to write calls and policies.

use crate::answer::{Answer, Retry};
use crate::asks::{
    Action, Attributes, Call, Descriptor, Fresh, Limit, LimitAnswer, Policy, Reply, Rule, SentLimit, Subject,
};
use crate::conformance::Rule as Rate;

pub(super) const MINUTE: u64 = 60_000_000_000;

/// The middle of a window.
const NOW: u64 = 600 * MINUTE + 30 * MINUTE;

/// What a window that is full answers until it ends.
pub(super) const HALF_AN_HOUR: Result<u64, Retry> = Err(Retry::After(30 * MINUTE));

pub(super) const NEVER: Result<u64, Retry> = Err(Retry::Never);

/// A window of an hour.
pub(super) fn hourly(limit: u64) -> Rule {
    Rule::Rate(Rate::FixedWindow { limit, window: 60 * MINUTE })
}

/// A bucket with this burst that gets one token per day.
pub(super) fn bucket(burst: u64) -> Rule {
    Rule::Rate(Rate::TokenBucket { tokens: 1, period: 24 * 60 * MINUTE, burst })
}

/// A window of an hour that counts denied requests.
pub(super) fn counting(limit: u64) -> Rule {
    Rule::Rate(Rate::CountingWindow { limit, window: 60 * MINUTE })
}

/// A limit with the name of its attribute.
pub(super) fn limit(name: &str, rule: Rule) -> Limit {
    Limit::new(name, name, rule)
}

/// A subject at a moment.
pub(super) struct Caller<S> {
    subject: S,
    now: u64,
    holds: u64,
}

impl<S: Subject> Caller<S> {
    pub(super) fn new(fresh: Fresh<'_, S>, limits: Vec<Limit>) -> Self {
        Self::with(fresh, &Policy::new(limits))
    }

    pub(super) fn with(fresh: Fresh<'_, S>, policy: &Policy) -> Self {
        Self { subject: fresh(policy), now: NOW, holds: 0 }
    }

    pub(super) fn wait(&mut self, nanos: u64) {
        self.now += nanos;
    }

    pub(super) fn call(&mut self, call: &Call) -> Reply {
        self.subject.call(self.now, call)
    }

    /// Checks a request with these attributes, each `name` or `name=value`.
    pub(super) fn check(&mut self, names: &[&str], cost: u64) -> Reply {
        self.call(&Call::Check { attributes: attributes(names), cost })
    }

    /// Holds slots under the next permit.
    pub(super) fn hold(&mut self, names: &[&str], cost: u64) -> Reply {
        let permit = self.holds;
        self.holds += 1;
        self.call(&Call::Hold { attributes: attributes(names), cost, permit })
    }

    /// Releases the permit of the last hold.
    pub(super) fn release(&mut self) {
        let permit = self.holds - 1;
        self.call(&Call::Release { permit });
    }

    /// Asks about descriptors of one entry each.
    pub(super) fn describe(&mut self, descriptors: &[(&str, Action, u64)]) -> Reply {
        let descriptors = descriptors.iter().map(|(name, action, cost)| descriptor(name, *action, *cost));
        self.call(&Call::Describe(descriptors.collect()))
    }

    /// What remains of each limit, by its name and its only attribute.
    pub(super) fn left<const N: usize>(&mut self, limits: [&str; N]) -> [u64; N] {
        limits.map(|name| {
            let reply = self.describe(&[(name, Action::Charge, 0)]);
            answer(&reply, name.split('=').next().unwrap_or(name)).remaining
        })
    }

    /// What remains of a concurrency limit.
    pub(super) fn slots(&mut self, name: &str) -> u64 {
        let reply = self.call(&Call::Explain { attributes: attributes(&[name]), cost: 0 });
        answer(&reply, name).remaining
    }
}

pub(super) fn attributes(names: &[&str]) -> Attributes {
    let pair = |text: &&str| {
        let (name, value) = text.split_once('=').unwrap_or((text, "x"));
        (name.to_owned(), value.to_owned())
    };
    names.iter().map(pair).collect()
}

pub(super) fn descriptor(name: &str, action: Action, cost: u64) -> Descriptor {
    Descriptor { attributes: attributes(&[name]), action, cost, sent: None }
}

/// A descriptor with a limit of its own per hour.
pub(super) fn sent(name: &str, limit: u32, action: Action, cost: u64) -> Descriptor {
    Descriptor { sent: Some(SentLimit { limit, seconds: 3600 }), ..descriptor(name, action, cost) }
}

/// The answer of the limit of this name.
pub(super) fn limit_answer<'r>(reply: &'r Reply, name: &str) -> &'r LimitAnswer {
    let found = reply.answers.iter().find(|answer| answer.name == name);
    found.unwrap_or_else(|| panic!("`{name}` is not in {reply:?}"))
}

pub(super) fn answer(reply: &Reply, name: &str) -> Answer {
    limit_answer(reply, name).answer
}
