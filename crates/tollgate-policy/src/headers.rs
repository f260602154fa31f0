//! The headers that tell a client how it stands, in every generation of the draft.
//!
//! A new generation is one more variant of [`Ietf`] and one more function here.

use std::cmp::Reverse;
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::Outcome;

use crate::engine::{LimitVerdict, Verdict};
use crate::policy::{Headers, Ietf, XRateLimit};

/// The most limits in a header.
const MOST_LIMITS: usize = 8;

type Limits<'v, 'a> = SmallVec<[LimitVerdict<'v, 'a>; MOST_LIMITS]>;

/// The largest number that a structured field can carry.
const LARGEST: u64 = 999_999_999_999_999;

/// The headers of an answer, allowed or denied. `unix_time` is the time of the verdict, for those who tell the reset as
/// a time of day.
pub fn headers(
    settings: &Headers,
    verdict: &Verdict<'_>,
    unix_time: Duration,
) -> Vec<(&'static str, String)> {
    let mut headers = Vec::with_capacity(7);
    // A limit whose state is not known is left out.
    let limits: Limits<'_, '_> = verdict.limits().filter(LimitVerdict::is_known).collect();
    let reported = verdict.reported().filter(LimitVerdict::is_known);
    let in_policy_order = keep_tightest(&limits);
    match (settings.ietf, reported) {
        (Ietf::Draft08, _) => draft_08(&in_policy_order, &mut headers),
        (Ietf::Draft07, Some(limit)) => draft_07(&limit, &in_policy_order, &mut headers),
        (Ietf::Draft06, Some(limit)) => draft_06(&limit, &in_policy_order, &mut headers),
        (Ietf::Draft07 | Ietf::Draft06, None) | (Ietf::Off, _) => {}
    }
    if let Some(limit) = reported {
        x_ratelimit(settings.x_ratelimit, &limit, unix_time, &mut headers);
    }
    if !verdict.is_allowed() {
        // Never 0, so that a client does not try again at once. Left out if no wait is known to help.
        if let Some(wait) = verdict.retry_after() {
            headers.push(("retry-after", wait.as_secs_ceil().max(1).to_string()));
        }
        headers.push(("cache-control", "no-store".to_owned()));
    }
    headers
}

/// Drafts 08 to 11: a list of items, each with the name of its policy. `RateLimit-Policy` has the order of the policy file, so
/// that its value stays the same while states change. `RateLimit` has the tightest limit first. Every answer of a proxy carries
/// them, so they are put together without `write!`, which takes three times as long.
fn draft_08(limits: &Limits<'_, '_>, headers: &mut Vec<(&'static str, String)>) {
    let length: usize = limits.iter().map(|limit| limit.name().len() + 40).sum();
    let (mut policy, mut state) = (String::with_capacity(length), String::with_capacity(length));
    // Names need no escapes: the policy file allows none that would.
    let push_name = |limit: &LimitVerdict<'_, '_>, list: &mut String| {
        list.push_str(if list.is_empty() { "\"" } else { ", \"" });
        list.push_str(limit.name());
    };
    for limit in limits {
        push_name(limit, &mut policy);
        push_number("\";q=", limit.capacity().min(LARGEST), &mut policy);
        match window_seconds(limit) {
            Some(window) => push_number(";w=", window, &mut policy),
            None => policy.push_str(";qu=\"concurrent-requests\""),
        }
    }
    let mut tightest_first = limits.clone();
    tightest_first.sort_by_key(tightness);
    for limit in &tightest_first {
        push_name(limit, &mut state);
        push_number("\";r=", limit.decision().status.remaining.min(LARGEST), &mut state);
        if let Some(more) = limit.more_after() {
            push_number(";t=", more.as_secs_ceil().min(LARGEST), &mut state);
        }
    }
    if !policy.is_empty() {
        headers.push(("ratelimit-policy", policy));
        headers.push(("ratelimit", state));
    }
}

fn push_number(before: &str, number: u64, text: &mut String) {
    text.push_str(before);
    text.push_str(itoa::Buffer::new().format(number));
}

fn number(number: u64) -> String {
    itoa::Buffer::new().format(number).to_owned()
}

/// Draft 07: a dictionary of one limit.
fn draft_07(
    limit: &LimitVerdict<'_, '_>,
    limits: &[LimitVerdict<'_, '_>],
    headers: &mut Vec<(&'static str, String)>,
) {
    let (quota, remaining, reset) = numbers(limit);
    headers.push(("ratelimit", format!("limit={quota}, remaining={remaining}, reset={reset}")));
    headers.push(("ratelimit-policy", unnamed_policies(limits)));
}

/// Drafts up to 06: three fields of one limit.
fn draft_06(
    limit: &LimitVerdict<'_, '_>,
    limits: &[LimitVerdict<'_, '_>],
    headers: &mut Vec<(&'static str, String)>,
) {
    let (quota, remaining, reset) = numbers(limit);
    headers.push(("ratelimit-limit", quota.to_string()));
    headers.push(("ratelimit-remaining", remaining.to_string()));
    headers.push(("ratelimit-reset", reset.to_string()));
    headers.push(("ratelimit-policy", unnamed_policies(limits)));
}

/// What everybody sent before there was a draft: GitHub's three fields, of one limit.
fn x_ratelimit(
    style: XRateLimit,
    limit: &LimitVerdict<'_, '_>,
    unix_time: Duration,
    headers: &mut Vec<(&'static str, String)>,
) {
    let status = limit.decision().status;
    let reset = match style {
        XRateLimit::Off => return,
        XRateLimit::Epoch => {
            let reset = unix_time.saturating_add(status.reset_after.into());
            reset.as_secs().saturating_add(u64::from(reset.subsec_nanos() > 0))
        }
        _ => status.reset_after.as_secs_ceil(),
    };
    headers.push(("x-ratelimit-limit", number(limit.capacity())));
    headers.push(("x-ratelimit-remaining", number(status.remaining)));
    headers.push(("x-ratelimit-reset", number(reset)));
}

/// The order from the tightest limit on: those that deny come first, the longest wait before all; then those with least
/// remaining.
fn tightness(limit: &LimitVerdict<'_, '_>) -> impl Ord + use<> {
    let decision = limit.decision();
    let wait = Reverse(match decision.outcome {
        Outcome::Deny { retry } => Some(retry), // "never" is the longest
        Outcome::Allow { .. } => None,
    });
    (limit.is_allowed(), wait, decision.status.remaining, Reverse(decision.status.reset_after))
}

/// The tightest limits, as many as a header has, in the order of the policy.
fn keep_tightest<'v, 'a>(limits: &[LimitVerdict<'v, 'a>]) -> Limits<'v, 'a> {
    if limits.len() <= MOST_LIMITS {
        return limits.into();
    }
    let mut kept: Vec<(usize, &LimitVerdict<'v, 'a>)> = limits.iter().enumerate().collect();
    kept.sort_by_key(|(_, limit)| tightness(limit));
    kept.truncate(MOST_LIMITS);
    kept.sort_unstable_by_key(|(place, _)| *place);
    kept.into_iter().map(|(_, limit)| *limit).collect()
}

/// Quota, remaining and reset of the one limit that is told of. What is denied resets, for these drafts, when it may try
/// again: `Retry-After` must not say something earlier.
fn numbers(limit: &LimitVerdict<'_, '_>) -> (u64, u64, u64) {
    let decision = limit.decision();
    let reset = decision.retry_after().unwrap_or(decision.status.reset_after);
    let clamped = |number: u64| number.min(LARGEST);
    (clamped(limit.capacity()), clamped(decision.status.remaining), clamped(reset.as_secs_ceil()))
}

/// `100;w=60, 5000;w=86400`.
fn unnamed_policies(limits: &[LimitVerdict<'_, '_>]) -> String {
    let policy = |limit: &LimitVerdict<'_, '_>| {
        let quota = limit.capacity().min(LARGEST);
        window_seconds(limit).map_or_else(|| quota.to_string(), |window| format!("{quota};w={window}"))
    };
    limits.iter().map(policy).collect::<Vec<_>>().join(", ")
}

/// The window of a limit in whole seconds, at least one.
fn window_seconds(limit: &LimitVerdict<'_, '_>) -> Option<u64> {
    limit.rule().period().map(|period| period.as_secs_ceil().clamp(1, LARGEST))
}

#[cfg(test)]
mod tests;
