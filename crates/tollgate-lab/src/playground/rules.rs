//! The rules of a request.

use serde_json::{Map, Value};
use tollgate_core::{AlgorithmKind, Rule, RuleParts};
use tollgate_policy::{quantity, sent_rule};

use super::request::{By, RuleRequest, View, algorithms};
use super::{LARGEST_CAPACITY, LONGEST_NAME, MOST_RULES, PlaygroundError, PlaygroundRequest};

/// The longest text of the numbers of a rule, in bytes.
const LONGEST_NUMBERS: usize = 1024;

/// A rule to be run.
#[derive(Clone, Debug)]
pub(super) struct PlayedRule {
    pub(super) number: usize, // from 1, for errors
    pub(super) name: String,
    pub(super) rule: Rule,
    pub(super) view: Option<View>,
    pub(super) by: By,
    pub(super) policy: String,
    pub(super) window: Option<u64>,  // nanoseconds
    pub(super) window_for_most: u64, // nanoseconds
    pub(super) rate: f64,            // cost per second
}

/// The rules of a request, checked.
pub(super) fn rules(request: &PlaygroundRequest) -> Result<Vec<PlayedRule>, PlaygroundError> {
    let found = request.rules.len();
    if !(1..=MOST_RULES).contains(&found) {
        return Err(PlaygroundError::Rules { found });
    }
    (1..).zip(&request.rules).map(|(number, rule)| played_rule(number, rule)).collect()
}

fn played_rule(number: usize, request: &RuleRequest) -> Result<PlayedRule, PlaygroundError> {
    let RuleRequest { name, algorithm, numbers, view, by } = request;
    let refused = |why: String| PlaygroundError::Rule { number, why };
    if algorithm.has_permits() {
        return Err(refused(format!(
            "`{algorithm}` depends on how long requests take, which arrivals do not have: write one of {}",
            algorithms()
        )));
    }
    if view.is_some() && *algorithm != AlgorithmKind::TokenBucket {
        let token_bucket = AlgorithmKind::TokenBucket;
        return Err(refused(format!(
            "`view: gcra` of a `{algorithm}`: only a `{token_bucket}` has this view"
        )));
    }
    if let Some(found) = name.as_ref().map(|name| name.chars().count()).filter(|found| *found > LONGEST_NAME)
    {
        return Err(refused(format!("its name has {found} characters: write at most {LONGEST_NAME}")));
    }
    let text = Value::Object(numbers.clone()).to_string();
    if text.len() > LONGEST_NUMBERS {
        let found = text.len();
        return Err(refused(format!("its numbers have {found} bytes: write at most {LONGEST_NUMBERS}")));
    }
    let rule = sent_rule(*algorithm, &text).map_err(refused)?;
    if rule.capacity() > LARGEST_CAPACITY {
        return Err(PlaygroundError::Capacity { number, found: rule.capacity() });
    }
    let window = window(&rule);
    let default_name = match view {
        Some(View::Gcra) => "gcra",
        None => algorithm.name(),
    };
    Ok(PlayedRule {
        number,
        name: name.clone().unwrap_or_else(|| default_name.to_owned()),
        rule,
        view: *view,
        by: *by,
        policy: format!("{algorithm}: {{ {} }}", settings(numbers)),
        window,
        window_for_most: window.or_else(|| rate_period(numbers)).unwrap_or(1_000_000_000),
        rate: rate(&rule),
    })
}

/// The numbers as they stand in a policy file.
fn settings(numbers: &Map<String, Value>) -> String {
    let value = |value: &Value| match value {
        Value::String(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    };
    numbers.iter().map(|(name, number)| format!("{name}: {}", value(number))).collect::<Vec<_>>().join(", ")
}

/// The window of a rule that has one.
fn window(rule: &Rule) -> Option<u64> {
    match rule.parts() {
        RuleParts::FixedWindow { window, .. }
        | RuleParts::SlidingLog { window, .. }
        | RuleParts::SlidingCounter { window, .. } => Some(window.get()),
        RuleParts::TokenBucket { .. }
        | RuleParts::LeakyBucket { .. }
        | RuleParts::BurstCredits { .. }
        | RuleParts::Concurrency { .. } => None,
    }
}

/// The period of the rate as it is written: one minute of `100/min`.
fn rate_period(numbers: &Map<String, Value>) -> Option<u64> {
    let rate = quantity::rate(numbers.get("rate")?.as_str()?).ok()?.rate;
    u64::try_from(rate.period().as_nanos()).ok()
}

/// What passes per second in the long run.
fn rate(rule: &Rule) -> f64 {
    match rule.parts() {
        RuleParts::TokenBucket { bucket, .. }
        | RuleParts::LeakyBucket { bucket, .. }
        | RuleParts::BurstCredits { base: bucket, .. } => {
            1e9 * bucket.per_nano as f64 / bucket.interval as f64
        }
        RuleParts::FixedWindow { limit, window, .. }
        | RuleParts::SlidingLog { limit, window }
        | RuleParts::SlidingCounter { limit, window, .. } => 1e9 * limit as f64 / window.get() as f64,
        RuleParts::Concurrency { .. } => 0.0,
    }
}
