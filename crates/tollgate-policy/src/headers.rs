//! The headers that tell a client how it stands, in every generation of the draft.
//!
//! A new generation is one more variant of [`Ietf`] and one more function here.

use std::time::Duration;

use tollgate::Outcome;

use crate::engine::{LimitVerdict, Summary};
use crate::policy::{Headers, Ietf, XRateLimit};

/// As many limits are told of.
const MOST_LIMITS: usize = 8;

/// The largest number that a structured field can carry.
const LARGEST: u64 = 999_999_999_999_999;

/// The headers of an answer, allowed or denied. `unix_time` is the time of the verdict, for those who tell the reset as
/// a time of day.
pub fn headers<'v, 'a: 'v>(
    settings: &Headers,
    told: impl Into<Summary<'v, 'a>>,
    unix_time: Duration,
) -> Vec<(&'static str, String)> {
    let mut headers = Vec::with_capacity(7);
    let mut told = told.into();
    // What nobody has asked is not told of.
    told.limits.retain(|limit| limit.is_known());
    told.reported = told.reported.filter(LimitVerdict::is_known);
    put_tightest_first(&mut told);
    let (limits, told) = (&told.limits, &told);
    match settings.ietf {
        Ietf::Draft08 => draft_08(limits, &mut headers),
        Ietf::Draft07 => draft_07(told, limits, &mut headers),
        Ietf::Draft06 => draft_06(told, limits, &mut headers),
        Ietf::Off => {}
    }
    x_ratelimit(settings.x_ratelimit, told, unix_time, &mut headers);
    if !told.outcome.is_allowed() {
        // Never 0, lest a client try again at once; and not at all where no wait is known to help.
        if let Some(wait) = told.retry_after() {
            headers.push(("retry-after", wait.as_secs_ceil().max(1).to_string()));
        }
        headers.push(("cache-control", "no-store".to_owned()));
    }
    headers
}

/// Drafts 08 to 11: a list of items, each with the name of its policy. It goes with every answer of a proxy, so it is put
/// together without `write!`, which takes three times as long.
fn draft_08(limits: &[LimitVerdict<'_, '_>], headers: &mut Vec<(&'static str, String)>) {
    let length: usize = limits.iter().map(|limit| limit.name().len() + 40).sum();
    let (mut policy, mut state) = (String::with_capacity(length), String::with_capacity(length));
    for limit in limits {
        // Names need no escapes: the policy file allows none that would.
        for list in [&mut policy, &mut state] {
            list.push_str(if list.is_empty() { "\"" } else { ", \"" });
            list.push_str(limit.name());
        }
        push_number("\";q=", limit.capacity().min(LARGEST), &mut policy);
        match window_seconds(limit) {
            Some(window) => push_number(";w=", window, &mut policy),
            None => policy.push_str(";qu=\"concurrent-requests\""),
        }
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
    told: &Summary<'_, '_>,
    limits: &[LimitVerdict<'_, '_>],
    headers: &mut Vec<(&'static str, String)>,
) {
    let Some(limit) = told.reported else { return };
    let (quota, remaining, reset) = numbers(&limit);
    headers.push(("ratelimit", format!("limit={quota}, remaining={remaining}, reset={reset}")));
    headers.push(("ratelimit-policy", unnamed_policies(limits)));
}

/// Drafts up to 06: three fields of one limit.
fn draft_06(
    told: &Summary<'_, '_>,
    limits: &[LimitVerdict<'_, '_>],
    headers: &mut Vec<(&'static str, String)>,
) {
    let Some(limit) = told.reported else { return };
    let (quota, remaining, reset) = numbers(&limit);
    headers.push(("ratelimit-limit", quota.to_string()));
    headers.push(("ratelimit-remaining", remaining.to_string()));
    headers.push(("ratelimit-reset", reset.to_string()));
    headers.push(("ratelimit-policy", unnamed_policies(limits)));
}

/// What everybody sent before there was a draft: GitHub's three fields, of one limit.
fn x_ratelimit(
    style: XRateLimit,
    told: &Summary<'_, '_>,
    unix_time: Duration,
    headers: &mut Vec<(&'static str, String)>,
) {
    let (Some(limit), false) = (told.reported, style == XRateLimit::Off) else { return };
    let status = limit.decision().status;
    let reset = match style {
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

/// Of the limits, those that deny come first, the longest wait before all; then those with least remaining.
fn put_tightest_first(told: &mut Summary<'_, '_>) {
    told.limits.sort_by_key(|limit| {
        let decision = limit.decision();
        let wait = std::cmp::Reverse(match decision.outcome {
            Outcome::Deny { retry } => Some(retry), // the worst news first
            Outcome::Allow { .. } => None,
        });
        let (remaining, reset) = (decision.status.remaining, std::cmp::Reverse(decision.status.reset_after));
        (limit.is_allowed(), wait, remaining, reset)
    });
    told.limits.truncate(MOST_LIMITS);
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
