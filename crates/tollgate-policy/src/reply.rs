//! Verdicts as JSON: one shape for every surface that speaks it.

use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};
use tollgate::{Decision, Nanos, Outcome};

use crate::engine::{LimitVerdict, Reason, Verdict};

/// What `POST /v1/check` answers.
#[derive(Debug, Serialize)]
pub struct Reply<'v, 'a> {
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    retry_after: Option<Seconds>,
    delay: Seconds,
    source: &'static str,
    limits: Limits<'v, 'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shadow: Option<Limits<'v, 'a>>,
}

impl<'v, 'a> Reply<'v, 'a> {
    /// The answer that tells of a verdict.
    pub fn new(verdict: &'v Verdict<'a>) -> Self {
        Self {
            allowed: verdict.is_allowed(),
            reason: verdict.reason(),
            retry_after: verdict.retry_after().map(Seconds),
            delay: Seconds(verdict.delay()),
            source: SOURCE,
            limits: Limits { verdict, is_shadow: false },
            shadow: (verdict.shadow().len() > 0).then_some(Limits { verdict, is_shadow: true }),
        }
    }
}

/// Who decides: the table in memory, so far.
pub(crate) const SOURCE: &str = "memory";

/// The limits of a verdict, live or shadow.
#[derive(Debug)]
pub(crate) struct Limits<'v, 'a> {
    pub(crate) verdict: &'v Verdict<'a>,
    pub(crate) is_shadow: bool,
}

impl Serialize for Limits<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        if self.is_shadow {
            self.verdict.shadow().try_for_each(|limit| list.serialize_element(&LimitReply::of(&limit)))?;
        } else {
            self.verdict.limits().try_for_each(|limit| list.serialize_element(&LimitReply::of(&limit)))?;
        }
        list.end()
    }
}

/// What one limit answers.
#[derive(Debug, Serialize)]
pub struct LimitReply<'v> {
    name: &'v str,
    allowed: bool,
    limit: u64,
    remaining: u64,
    retry_after: Option<Seconds>,
    reset_after: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

impl<'v> LimitReply<'v> {
    fn of(limit: &LimitVerdict<'v, '_>) -> Self {
        Self::new(limit.name(), limit.capacity(), limit.decision(), limit.reason())
    }

    /// The answer of a limit of this name and capacity.
    pub fn new(name: &'v str, capacity: u64, decision: Decision, reason: Option<Reason>) -> Self {
        Self {
            name,
            allowed: decision.is_allowed(),
            limit: capacity,
            remaining: decision.status.remaining,
            retry_after: decision.retry_after().map(Seconds),
            reset_after: Seconds(decision.status.reset_after),
            reason,
        }
    }
}

/// What `POST /v1/throttle` answers: as a check under one limit, which has no name but its algorithm's.
#[derive(Debug, Serialize)]
pub struct ThrottleReply<'v> {
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    retry_after: Option<Seconds>,
    delay: Seconds,
    source: &'static str,
    limits: [LimitReply<'v>; 1],
}

impl<'v> ThrottleReply<'v> {
    /// The answer of a rule that came with a request.
    pub fn new(algorithm: &'v str, throttled: &crate::Throttled) -> Self {
        let decision = throttled.decision;
        let reason = match decision.outcome {
            Outcome::Allow { .. } => None,
            Outcome::Deny { retry } => {
                Some(Reason::of(retry, matches!(throttled.rule, tollgate::Rule::Concurrency(_))))
            }
        };
        Self {
            allowed: decision.is_allowed(),
            reason,
            retry_after: decision.retry_after().map(Seconds),
            delay: Seconds(decision.delay()),
            source: SOURCE,
            limits: [LimitReply::new(algorithm, throttled.rule.capacity(), decision, reason)],
        }
    }
}

/// A span of time as a JSON number of seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Nanos);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Divided once, so that what is written is the nearest to the exact number: 1.2, not 1.2000000000000002.
        serializer.serialize_f64(self.0.get() as f64 / 1e9)
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
