//! What Envoy is answered.

use prost_types::Duration;
use tollgate::{Align, Decision, Rule, RuleParts};
use tollgate_policy::{DescriptorVerdict, PROBLEM_JSON, PolicyInForce, Verdict, headers, problem};

use super::generated::envoy::config::core::v3::HeaderValue;
use super::rate_limit_response::rate_limit::Unit;
use super::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use super::{RateLimitRequest, RateLimitResponse, metadata};
use crate::service::unix_time;

/// The answer to a request.
pub(super) fn response(
    policy: &PolicyInForce<'_>,
    request: &RateLimitRequest,
    verdict: &Verdict<'_>,
) -> RateLimitResponse {
    let settings = &policy.envoy;
    let mut response = RateLimitResponse {
        overall_code: code(verdict.is_allowed()).into(),
        statuses: verdict.descriptors().map(|one| status(policy, verdict, &one)).collect(),
        dynamic_metadata: settings.dynamic_metadata.then(|| metadata::of(request, verdict)),
        ..RateLimitResponse::default()
    };
    if settings.response_headers {
        if !verdict.is_allowed() {
            response.raw_body = problem(verdict, 429);
            response.response_headers_to_add.push(header("content-type", PROBLEM_JSON.to_owned()));
        }
        let told = headers(&policy.headers, verdict, unix_time());
        response.response_headers_to_add.extend(told.into_iter().map(|(name, value)| header(name, value)));
    }
    response
}

fn header(key: &str, value: String) -> HeaderValue {
    HeaderValue { key: key.to_owned(), value, ..HeaderValue::default() }
}

const fn code(is_allowed: bool) -> Code {
    if is_allowed { Code::Ok } else { Code::OverLimit }
}

/// What one descriptor is told.
fn status(
    policy: &PolicyInForce<'_>,
    verdict: &Verdict<'_>,
    descriptor: &DescriptorVerdict<'_, '_>,
) -> DescriptorStatus {
    // One moment for all statuses of a response.
    let unix_seconds = policy.unix_time_at(verdict.decided_at()).as_secs();
    let nothing = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    if let Some(sent) = descriptor.sent() {
        let is_allowed = sent.decision.is_allowed();
        return told(&sent.rule, Some(sent.limit), &sent.decision, String::new(), is_allowed, unix_seconds);
    }
    // Of limits that only watch it is told what they would have said, but not that they would have denied.
    let (limit, is_allowed) = match (descriptor.reported(), descriptor.shadow().next()) {
        (Some(limit), _) => (limit, descriptor.outcome().is_allowed()),
        (None, Some(limit)) => (limit, true),
        (None, None) if descriptor.is_unlimited() => {
            return DescriptorStatus { limit_remaining: u32::MAX, ..nothing };
        }
        (None, None) => return nothing,
    };
    let name = match &limit.limit().descriptor {
        Some(descriptor) => descriptor.name.clone().unwrap_or_default(),
        None => limit.name().to_owned(),
    };
    let blocked = limit.is_blocked().then_some(0);
    told(limit.rule(), blocked, &limit.decision(), name, is_allowed, unix_seconds)
}

/// What is told of one limit: `per_unit` where that is not what the rule says.
fn told(
    rule: &Rule,
    per_unit: Option<u64>,
    decision: &Decision,
    name: String,
    is_allowed: bool,
    unix_seconds: u64,
) -> DescriptorStatus {
    let (requests, unit) = in_units(rule).unwrap_or((rule.capacity(), Unit::Unknown));
    let requests = per_unit.unwrap_or(requests);
    let remaining = if per_unit == Some(0) { 0 } else { decision.status.remaining };
    let wait = seconds_until_reset(rule, decision, unix_seconds);
    DescriptorStatus {
        code: code(is_allowed).into(),
        current_limit: Some(RateLimit { requests_per_unit: fitting(requests), unit: unit.into(), name }),
        limit_remaining: fitting(remaining),
        duration_until_reset: Some(Duration { seconds: i64::try_from(wait).unwrap_or(i64::MAX), nanos: 0 }),
    }
}

/// The seconds until a denied request may pass, else until the key is fully refilled. Envoy drops fractions of a second, so
/// they are rounded up. An unused window of the clock reports its end, as the reference does.
fn seconds_until_reset(rule: &Rule, decision: &Decision, unix_seconds: u64) -> u64 {
    let wait = decision.retry_after().unwrap_or(decision.status.reset_after).as_secs_ceil();
    match rule.parts() {
        RuleParts::FixedWindow { align: Align::Epoch, window, .. } if wait == 0 => {
            let window = window.as_secs_ceil().max(1);
            window - unix_seconds % window
        }
        _ => wait,
    }
}

fn fitting(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Units by their length in seconds.
const UNITS: [(u64, Unit); 7] = [
    (1, Unit::Second),
    (60, Unit::Minute),
    (3600, Unit::Hour),
    (86_400, Unit::Day),
    (604_800, Unit::Week),
    (2_592_000, Unit::Month),
    (31_536_000, Unit::Year),
];

/// A rule as so many a unit, as near as that comes: in the unit that its capacity is had in, else in the shortest up
/// to an hour in which it is a whole number, else in the shortest that is longer than it takes. None for what has no rate.
fn in_units(rule: &Rule) -> Option<(u64, Unit)> {
    const SECOND: u128 = 1_000_000_000;
    let (capacity, period) = (u128::from(rule.capacity()), u128::from(rule.period()?.get()).max(1));
    let in_unit = |seconds: u64| capacity * u128::from(seconds) * SECOND;
    let length = |seconds: u64| u128::from(seconds) * SECOND;
    let same = UNITS.iter().find(|(seconds, _)| length(*seconds) == period);
    let whole = || UNITS[..3].iter().find(|(seconds, _)| in_unit(*seconds) % period == 0);
    let longer = || UNITS.iter().find(|(seconds, _)| length(*seconds) >= period);
    let (seconds, unit) = same.or_else(whole).or_else(longer).or(UNITS.last())?;
    Some((u64::try_from(in_unit(*seconds) / period).unwrap_or(u64::MAX), *unit))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollgate::{Concurrency, FixedWindow, Nanos, Outcome, Rate, Retry, Status, TokenBucket};

    use super::*;

    #[test]
    fn rules_are_told_in_units_as_near_as_they_come() {
        let window = |limit, seconds| {
            Rule::from(FixedWindow::new(limit, Duration::from_secs(seconds), Align::Epoch).expect("valid"))
        };
        let bucket = |rate: Rate, burst| Rule::from(TokenBucket::new(rate, burst).expect("valid"));
        let rate = |tokens, seconds| Rate::new(tokens, Duration::from_secs(seconds)).expect("valid");
        for (rule, expected) in [
            (window(600, 60), (600, Unit::Minute)),
            (window(10, 604_800), (10, Unit::Week)),
            (window(10, 10), (1, Unit::Second)),
            (window(7, 90), (280, Unit::Hour)), // 4.67 a minute
            (bucket(rate(5, 1), 10), (5, Unit::Second)),
            (bucket(rate(100, 60), 20), (100, Unit::Minute)),
            (bucket(rate(1, 7), 1), (8, Unit::Minute)), // 8.57
        ] {
            assert_eq!(in_units(&rule), Some(expected), "{rule:?}");
        }
        assert_eq!(in_units(&Rule::from(Concurrency::new(5, None).expect("valid"))), None);
    }

    #[test]
    fn unused_window_of_the_clock_resets_at_its_end() {
        let window = |seconds, align| {
            Rule::from(FixedWindow::new(5, Duration::from_secs(seconds), align).expect("valid"))
        };
        let bucket = Rule::from(
            TokenBucket::new(Rate::new(1, Duration::from_secs(1)).expect("valid"), 5).expect("valid"),
        );
        let nanos = |millis: u64| Nanos::new(millis * 1_000_000);
        let allow = Outcome::Allow { delay: nanos(0) };
        let deny = |retry| Outcome::Deny { retry };
        for (rule, outcome, reset_millis, unix_seconds, expected) in [
            (window(60, Align::Epoch), allow, 0, 120, 60),
            (window(60, Align::Epoch), allow, 0, 121, 59),
            (window(60, Align::Epoch), allow, 0, 179, 1),
            (window(1, Align::Epoch), allow, 0, 179, 1),
            (window(60, Align::Epoch), deny(Retry::Never), 0, 130, 50),
            (window(60, Align::Epoch), deny(Retry::After(nanos(2500))), 0, 130, 3),
            (window(60, Align::Epoch), allow, 7100, 130, 8),
            (window(60, Align::First), allow, 0, 130, 0),
            (bucket, allow, 0, 130, 0),
        ] {
            let status = Status { remaining: 5, reset_after: nanos(reset_millis) };
            let decision = Decision { outcome, status };
            let found = seconds_until_reset(&rule, &decision, unix_seconds);
            assert_eq!(found, expected, "{rule:?} {decision:?} at {unix_seconds}");
        }
    }
}
