//! Verdicts as JSON: one shape for every surface that speaks it.
//!
//! Written by hand. An array of checks is mostly this, and a general serialiser spends its time on escaping names
//! that need none and on printing floats; seconds are printed here from whole nanoseconds, and are exact.

use serde::{Serialize, Serializer};
use tollgate::{Decision, Nanos, Outcome};

use crate::Throttled;
use crate::engine::{LimitVerdict, Reason, Verdict};
use crate::store::Source;

/// Appends what `POST /v1/check` answers.
///
/// ```
/// use tollgate_policy::{Engine, Policy, Request, write_reply};
///
/// let engine = Engine::new(Policy::default())?;
/// let policy = engine.policy();
/// let verdict = policy.check(&Request { attributes: &[], cost: None }, engine.clock().now());
/// let verdict = verdict.now().expect("the states are in memory")?;
/// let mut json = Vec::new();
/// write_reply(&verdict, &mut json);
/// assert_eq!(json, br#"{"allowed":true,"retry_after":null,"delay":0.0,"source":"memory","limits":[]}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_reply(verdict: &Verdict<'_>, json: &mut Vec<u8>) {
    write_head(verdict.outcome(), verdict.reason(), verdict.is_reduced(), verdict.source(), json);
    write_limits(verdict.limits(), json);
    if verdict.shadow().next().is_some() {
        json.extend_from_slice(b",\"shadow\":");
        write_limits(verdict.shadow(), json);
    }
    json.push(b'}');
}

/// Appends what `POST /v1/throttle` answers: as a check under one limit, which has no name but its algorithm's.
pub fn write_throttle_reply(algorithm: &str, throttled: &Throttled, json: &mut Vec<u8>) {
    let Throttled { decision, rule, source, .. } = throttled;
    let reason = throttled.reason();
    write_head(decision.outcome, reason, false, *source, json);
    json.push(b'[');
    write_limit(algorithm, rule.capacity(), *decision, reason, json);
    json.extend_from_slice(b"]}");
}

/// Everything up to the limits.
fn write_head(
    outcome: Outcome,
    reason: Option<Reason>,
    is_reduced: bool,
    source: Source,
    json: &mut Vec<u8>,
) {
    json.extend_from_slice(if outcome.is_allowed() { b"{\"allowed\":true" } else { b"{\"allowed\":false" });
    write_reason(reason, json);
    if is_reduced && !outcome.is_allowed() {
        json.extend_from_slice(br#","reduced":true"#);
    }
    json.extend_from_slice(b",\"retry_after\":");
    write_optional_seconds(outcome.retry_after(), json);
    json.extend_from_slice(b",\"delay\":");
    write_seconds(outcome.delay(), json);
    json.extend_from_slice(b",\"source\":\"");
    json.extend_from_slice(source.as_str().as_bytes());
    json.extend_from_slice(b"\",\"limits\":");
}

/// Appends a list of what limits say.
pub(crate) fn write_limits<'v, 'a: 'v>(
    limits: impl Iterator<Item = LimitVerdict<'v, 'a>>,
    json: &mut Vec<u8>,
) {
    json.push(b'[');
    for (i, limit) in limits.enumerate() {
        if i > 0 {
            json.push(b',');
        }
        write_limit(limit.name(), limit.capacity(), limit.decision(), limit.reason(), json);
    }
    json.push(b']');
}

/// Names need no escapes: the policy file allows none that would.
fn write_limit(name: &str, capacity: u64, decision: Decision, reason: Option<Reason>, json: &mut Vec<u8>) {
    json.extend_from_slice(b"{\"name\":\"");
    json.extend_from_slice(name.as_bytes());
    json.extend_from_slice(if decision.is_allowed() {
        b"\",\"allowed\":true"
    } else {
        b"\",\"allowed\":false"
    });
    json.extend_from_slice(b",\"limit\":");
    write_number(capacity, json);
    json.extend_from_slice(b",\"remaining\":");
    write_number(decision.status.remaining, json);
    json.extend_from_slice(b",\"retry_after\":");
    write_optional_seconds(decision.retry_after(), json);
    json.extend_from_slice(b",\"reset_after\":");
    write_seconds(decision.status.reset_after, json);
    write_reason(reason, json);
    json.push(b'}');
}

pub(crate) fn write_reason(reason: Option<Reason>, json: &mut Vec<u8>) {
    if let Some(reason) = reason {
        json.extend_from_slice(b",\"reason\":\"");
        json.extend_from_slice(reason.as_str().as_bytes());
        json.push(b'"');
    }
}

pub(crate) fn write_optional_seconds(span: Option<Nanos>, json: &mut Vec<u8>) {
    match span {
        Some(span) => write_seconds(span, json),
        None => json.extend_from_slice(b"null"),
    }
}

/// Appends seconds with as many digits as they need, and one after the point at least.
fn write_seconds(span: Nanos, json: &mut Vec<u8>) {
    const SECOND: u64 = 1_000_000_000;
    write_number(span.get() / SECOND, json);
    let mut rest = span.get() % SECOND;
    let mut digits = [b'0'; 9];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let needed = digits.iter().rposition(|&digit| digit != b'0').map_or(1, |last| last + 1);
    json.push(b'.');
    json.extend_from_slice(&digits[..needed]);
}

pub(crate) fn write_number(number: u64, json: &mut Vec<u8>) {
    json.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// A span of time as a JSON number of seconds, where a general serialiser writes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        for (nanos, expected) in [
            (0, "0.0"),
            (1, "0.000000001"),
            (60_000_000, "0.06"),
            (1_200_000_000, "1.2"),
            (104_400_000_000, "104.4"),
            (1_000_000_000, "1.0"),
            (10_000_000_001, "10.000000001"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            let mut json = Vec::new();
            write_seconds(Nanos::new(nanos), &mut json);
            assert_eq!(String::from_utf8(json).unwrap(), expected);
        }
    }

    #[test]
    fn numbers_are_written_whole() {
        for number in [0, 9, 10, 1234, u64::MAX] {
            let mut json = Vec::new();
            write_number(number, &mut json);
            assert_eq!(String::from_utf8(json).unwrap(), number.to_string());
        }
    }
}
