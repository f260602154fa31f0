//! Random calls by random policies, compared with the model reply by reply.

use super::call::{Attributes, Call, Descriptor, SentLimit};
use super::differences::{BackEnd, Known};
use super::language::{Action, OnError};
use super::policy::{Blocked, Limit, Policy, Scope};
use super::rule::Rule;
use super::smallest::smallest;
use super::{Expected, Fresh, Reply, Subject};
use crate::answer::Retry;
use crate::conformance::Rule as Rate;
use crate::oracle::CounterMode;
use crate::random::Random;

/// All times are multiples of a microsecond, the tick of Redis.
pub(super) const TICK: u64 = 1000;

/// Calls per policy.
const CALLS: usize = 100;

/// A policy and calls, each with the time since the one before.
#[derive(Clone, Debug)]
pub struct Case {
    /// The policy.
    pub policy: Policy,
    /// The calls.
    pub calls: Vec<(u64, Call)>,
}

/// Makes the same random calls of a back end and of the model, a hundred by each of `policies` random policies, and expects
/// the same replies. Calls that show a [known difference](super::KNOWN_DIFFERENCES) are left out.
///
/// # Panics
///
/// At the first difference. The message has the shortest sequence of calls that shows it.
pub fn random_calls_equal_the_model<S: Subject>(
    back_end: BackEnd,
    fresh: Fresh<'_, S>,
    seed: u64,
    policies: usize,
) {
    let (mut random, known) = (Random::new(seed), Known::of(back_end));
    for number in 0..policies {
        let case = random_case(&mut random, back_end, CALLS);
        if difference(back_end, &known, &case, fresh).is_some() {
            let case = smallest(&case, &mut |case| difference(back_end, &known, case, fresh).is_some());
            let shown = difference(back_end, &known, &case, fresh).unwrap_or_default();
            panic!(
                "random calls must equal the model: seed {seed}, policy {number}\n{}{shown}",
                case.policy.yaml()
            );
        }
    }
}

/// Makes random calls without each row of [`KNOWN_DIFFERENCES`](super::KNOWN_DIFFERENCES) in turn, and expects the back end
/// to differ from the model.
///
/// # Panics
///
/// When a row is no longer needed. The message names the rows to delete.
pub fn known_differences_are_still_there<S: Subject>(
    back_end: BackEnd,
    fresh: Fresh<'_, S>,
    policies: usize,
) {
    let mut is_needed = |name: &&'static str| {
        let (all, known) = (Known::of(back_end), Known::without(back_end, name));
        let mut random = Random::new(0);
        let mut cases = (0..policies).map(|_| random_case(&mut random, back_end, CALLS));
        // A row that leaves out calls shows only in cases that have such a call.
        let is_shown = |case: &Case| {
            let left_out = |known: &Known, call: &Call| known.has(call, &case.policy.asks(call));
            !all.is_of_calls(name)
                || case.calls.iter().any(|(_, call)| left_out(&all, call) && !left_out(&known, call))
        };
        cases.any(|case| is_shown(&case) && difference(back_end, &known, &case, fresh).is_some())
    };
    let ended: Vec<&str> = Known::of(back_end).names().filter(|name| !is_needed(name)).collect();
    assert!(ended.is_empty(), "{back_end:?} no longer differs: delete it from these rows: {ended:#?}");
}

/// The calls up to the first that is decided differently, if there is one.
fn difference<S: Subject>(
    back_end: BackEnd,
    known: &Known,
    case: &Case,
    fresh: Fresh<'_, S>,
) -> Option<String> {
    let mut subject = fresh(&case.policy);
    let mut expected = Expected::new(&case.policy, back_end.model());
    let (mut now, mut shown) = (START, String::new());
    for (wait, call) in &case.calls {
        now += wait;
        let asks = case.policy.asks(call);
        if known.has(call, &asks) {
            continue;
        }
        let (found, expected) = (subject.call(now, call), expected.call(now, call));
        shown += &format!("{now}: {call:?}\n");
        if !known.is_same(call, &asks, &found, &expected) {
            let asks: String = asks.iter().map(|ask| format!("  {ask:?}\n")).collect();
            return Some(format!("{shown}{asks}found    {}expected {}", lines(&found), lines(&expected)));
        }
    }
    None
}

fn lines(reply: &Reply) -> String {
    let answers = reply.answers.iter().map(|answer| format!("    {answer:?}\n"));
    format!("{:?}, reported {:?}\n{}", reply.outcome, reply.reported, answers.collect::<String>())
}

/// The first moment: not the start of a window.
pub(super) const START: u64 = 12_345_678 * TICK;

/// A random policy with random calls. The model decides them, so that some come exactly when a wait ends.
pub(super) fn random_case(random: &mut Random, back_end: BackEnd, calls: usize) -> Case {
    let policy = random_policy(random, back_end);
    let mut model = Expected::new(&policy, back_end.model());
    let mut case = Case { policy, calls: Vec::new() };
    let (mut now, mut retry) = (START, 0);
    for number in 0..calls as u64 {
        let wait = wait(random, retry);
        let call = match case.calls.last() {
            // The same descriptors with other actions, so that refunds find what was charged.
            Some((_, Call::Describe(last))) if random.chance(1, 3) => {
                let again = |of: &Descriptor| Descriptor { action: *random.pick(&ACTIONS), ..of.clone() };
                Call::Describe(last.iter().map(again).collect())
            }
            _ => random_call(random, &case.policy, number),
        };
        // A store that gives no answer explains nothing.
        let call = match call {
            Call::Explain { attributes, .. } if back_end == BackEnd::Fallback => {
                Call::Check { attributes, cost: 0 }
            }
            call => call,
        };
        now += wait;
        let reply = model.call(now, &call);
        let answers = reply.answers.iter().filter_map(|answer| answer.answer.retry);
        retry = answers.fold(0, |retry, next| if let Retry::After(wait) = next { wait } else { retry });
        case.calls.push((wait, call));
    }
    case
}

fn wait(random: &mut Random, retry: u64) -> u64 {
    let ticks = match random.below(20) {
        0..=10 => 0,
        11..=12 => retry.div_ceil(TICK),
        13 => retry.div_ceil(TICK).saturating_sub(1),
        14..=16 => random.between(1, 100),
        17..=18 => random.between(1, 1200),
        _ => random.log_uniform(1, 5_000_000),
    };
    ticks * TICK
}

/// Rules of every algorithm. Their intervals are whole ticks.
pub(super) fn rules() -> Vec<Rule> {
    let counter = |limit, buckets, mode| Rate::SlidingCounter { limit, window: 1000, buckets, mode };
    let rates = [
        Rate::TokenBucket { tokens: 5, period: 1000, burst: 10 },
        Rate::TokenBucket { tokens: 1, period: 70, burst: 3 },
        Rate::LeakyQueue { tokens: 1, period: 200, capacity: 10 },
        Rate::FixedWindow { limit: 10, window: 1000 },
        Rate::FixedWindow { limit: 3, window: 60_000 },
        Rate::AnchoredWindow { limit: 4, window: 700 },
        Rate::CountingWindow { limit: 5, window: 1500 },
        Rate::CountingWindow { limit: 9, window: 20_000 },
        Rate::SlidingLog { limit: 6, window: 1000 },
        counter(10, 1, CounterMode::Interpolate),
        counter(10, 4, CounterMode::Strict),
        counter(7, 4, CounterMode::Lenient),
        Rate::BurstCredits {
            tokens: 10,
            period: 1000,
            ceiling: 15,
            peak_tokens: 10,
            peak_period: 500,
            peak_burst: 10,
        },
    ];
    let rates = rates.map(|rate| rate.in_units_of(TICK));
    let delaying = |bucket| Rule::Delaying { bucket, max_wait: 500 * TICK, max_waiting: 3 };
    let delaying = [rates[0], rates[2]].map(delaying);
    let slots = [Some(3000 * TICK), None].map(|lease| Rule::Slots { limit: 4, lease });
    rates.map(Rule::Rate).into_iter().chain(delaying).chain(slots).collect()
}

fn random_policy(random: &mut Random, back_end: BackEnd) -> Policy {
    let mut rules = rules();
    rules.retain(|rule| back_end.has(*rule));
    let mut limits = Vec::new();
    for number in 0..random.between(1, 4) {
        let rule = *random.pick(&rules);
        let attribute = *random.pick(&["a", "b", "tenant"]);
        let mut limit = Limit::new(&format!("limit{number}"), attribute, rule);
        limit.is_shadow = random.chance(1, 4);
        limit.denies_missing = random.chance(1, 10);
        limit.on_error = on_error(random);
        if attribute == "tenant" && random.chance(1, 2) {
            limit.blocked = Blocked::Tenant;
        } else if rule.has_limit() && !limit.denies_missing && random.chance(1, 16) {
            limit.blocked = Blocked::Always;
        }
        limits.push(limit);
    }
    let described: Vec<&str> = ["a", "b", "c"].into_iter().filter(|_| random.chance(2, 3)).collect();
    for attribute in &described {
        let rule = *random.pick(&rules);
        let mut limit = Limit::new(&format!("described-{attribute}"), attribute, rule);
        if rule.is_concurrency() {
            continue;
        }
        let replaced = random.pick(&described);
        let replaces = if random.chance(1, 8) { vec![format!("described-{replaced}")] } else { Vec::new() };
        limit.scope = Scope::Descriptor { is_quota: random.chance(1, 2), replaces };
        limit.is_shadow = random.chance(1, 4);
        limit.on_error = on_error(random);
        if rule.has_limit() && random.chance(1, 12) {
            limit.blocked = Blocked::Always;
        }
        limits.push(limit);
    }
    Policy { limits, shadow_mode: random.chance(1, 8) }
}

fn on_error(random: &mut Random) -> OnError {
    *random.pick(&[OnError::Local, OnError::Local, OnError::Local, OnError::Allow, OnError::Deny])
}

fn random_call(random: &mut Random, policy: &Policy, number: u64) -> Call {
    let cost = cost(random, policy);
    match random.below(100) {
        0..=29 => Call::Check { attributes: attributes(random), cost },
        30..=44 => Call::Hold { attributes: attributes(random), cost, permit: number },
        45..=54 => Call::Release { permit: number.saturating_sub(random.between(1, 12)) },
        55..=61 => Call::Explain { attributes: attributes(random), cost },
        62..=65 => {
            let rules = rules();
            let place = random.below(6) as usize; // rules that do not count denied requests
            Call::Sent { key: format!("key{place}"), rule: rules[place], cost }
        }
        66..=69 => Call::Cell { key: "cell".to_owned(), max_burst: 2, count: 5, period_seconds: 1, cost },
        _ => {
            let count = *random.pick(&[1, 1, 2, 2, 3]);
            Call::Describe((0..count).map(|_| descriptor(random, policy)).collect())
        }
    }
}

fn cost(random: &mut Random, policy: &Policy) -> u64 {
    let capacity = random.pick(&policy.limits).rule.capacity();
    match random.below(40) {
        0..=4 => 0,
        5..=28 => 1,
        29..=34 => random.between(1, capacity.min(5)),
        35..=37 => random.between(1, capacity),
        _ => capacity + 1,
    }
}

fn attributes(random: &mut Random) -> Attributes {
    let mut attributes = Attributes::new();
    for name in ["a", "b"] {
        if random.chance(3, 4) {
            attributes.push((name.to_owned(), (*random.pick(&["x", "y"])).to_owned()));
        }
    }
    if random.chance(1, 2) {
        attributes.push(("tenant".to_owned(), (*random.pick(&["acme", Policy::BANNED])).to_owned()));
    }
    attributes
}

/// The actions of descriptors. Charges are the most frequent.
const ACTIONS: [Action; 5] =
    [Action::Charge, Action::Charge, Action::Charge, Action::ChargeInFull, Action::Refund];

fn descriptor(random: &mut Random, policy: &Policy) -> Descriptor {
    let attributes = match random.below(3) {
        0 => attributes(random),
        _ => vec![((*random.pick(&["a", "b", "c"])).to_owned(), "x".to_owned())],
    };
    // One length of window always has the same limit.
    let sent = [(3, 1), (0, 2), (7, 5)].map(|(limit, seconds)| SentLimit { limit, seconds });
    Descriptor {
        attributes,
        action: *random.pick(&ACTIONS),
        cost: cost(random, policy),
        sent: random.chance(1, 8).then(|| *random.pick(&sent)),
    }
}
