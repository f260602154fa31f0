//! Random configurations of envoyproxy/ratelimit, and random requests, beside an independent model of it.
//!
//! Tollgate differs from the reference on purpose in three ways, which the model has as switches (`Counting`):
//!
//! - By default a denied request charges nothing (`counts_denied: false`). With `--count-denied` it is counted.
//! - Counters never share a name (`joins_names: false`). The reference joins keys, values and the start of the window with `_`, so
//!   that `a=b_c` and `a_b=c`, or an hour and a day that start together, or a limit that is sent and the rule in the file,
//!   are one counter there. That is an accident of its names for keys in Redis.
//! - Of several limits that one request sends for one counter, the strictest holds for all (`uses_strictest: true`). So a request is
//!   decided the same in whatever order Envoy lists them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use tollgate::{Clock, Timestamp};
use tollgate_policy::{
    Described, DescriptorVerdict, Engine, Hits, LimitVerdict, Override, Policy, import_envoy,
};
use tollgate_testkit::oracle::envoy::{
    Case, Counting, CurrentLimit, Descriptor, Features, Request, Response, Service, Status, Unit,
    random_case, smallest,
};
use tollgate_testkit::{Random, is_long};

/// Unix time at the start of a case, in seconds: the start of a day.
const START: u64 = 1_699_920_000;

/// Compares the answers to `count` random cases, both with counting as in the reference and with all or nothing. A failure shows the
/// smallest case for each difference.
fn compare(seed: u64, count: u64, features: Features) {
    for counts_denied in [true, false] {
        let mut random = Random::new(seed);
        let mut differences: BTreeSet<(usize, String)> = BTreeSet::new();
        let mut differing = 0;
        for _ in 0..count {
            let case = random_case(&mut random, "d", features);
            if differs(&case, counts_denied) {
                differing += 1;
                if differing <= MOST_SHOWN {
                    let shown = shown(&smallest(&case, |case| differs(case, counts_denied)), counts_denied);
                    differences.insert((shown.len(), shown));
                }
            }
        }
        let shown: String = differences.iter().map(|(_, shown)| shown.as_str()).collect();
        assert_eq!(
            differing, 0,
            "{differing} of {count} cases differ (seed {seed}, counts_denied {counts_denied}):\n{shown}"
        );
    }
}

/// The most differences that a failure shows.
const MOST_SHOWN: u64 = 20;

fn differs(case: &Case, counts_denied: bool) -> bool {
    let responses = ours(case, counts_denied).into_iter().zip(expected(case, counts_denied));
    responses.into_iter().any(|(ours, expected)| !is_same(&ours, &expected))
}

/// Whether two responses are the same. For an unused window the engine reports no time until the reset, which the service
/// must fill in: the test of the service compares it.
fn is_same(ours: &Response, expected: &Response) -> bool {
    let mut expected = expected.clone();
    for (ours, expected) in ours.statuses.iter().zip(&mut expected.statuses) {
        if ours.duration_until_reset == Some(0) {
            expected.duration_until_reset = Some(0);
        }
    }
    *ours == expected
}

fn shown(case: &Case, counts_denied: bool) -> String {
    let mut text = format!("\n{}", case.config.yaml());
    let responses = ours(case, counts_denied).into_iter().zip(expected(case, counts_denied));
    for ((at, request), (ours, expected)) in case.requests.iter().zip(responses) {
        text += &format!("{:>3}.{:09}s {}\n", at / 1_000_000_000, at % 1_000_000_000, request.json());
        if !is_same(&ours, &expected) {
            text += &format!("  ours      {}\n  reference {}\n", line(&ours), line(&expected));
        }
    }
    text
}

fn line(response: &Response) -> String {
    let code = |is_over| if is_over { "OVER" } else { "OK" };
    let mut text = code(response.is_over).to_owned();
    for status in &response.statuses {
        text += &format!(" | {}", code(status.is_over));
        if let Some(limit) = &status.current_limit {
            text += &format!(" {}/{} {:?}", limit.requests_per_unit, limit.unit.name(), limit.name);
        }
        text += &format!(" left {} reset {:?}", status.limit_remaining, status.duration_until_reset);
    }
    text
}

fn expected(case: &Case, counts_denied: bool) -> Vec<Response> {
    let counting = Counting { counts_denied, joins_names: false, uses_strictest: true };
    let mut service = Service::new(vec![case.config.clone()], counting);
    case.requests.iter().map(|(at, request)| service.answer(request, START + at / 1_000_000_000)).collect()
}

fn ours(case: &Case, counts_denied: bool) -> Vec<Response> {
    let import = import_envoy(&[("d.yaml".into(), case.config.yaml())], counts_denied);
    let import = import.unwrap_or_else(|faults| panic!("{}", faults[0]));
    let policy = Policy::read(Path::new("policy.yaml"), &import.policy);
    let policy = policy.unwrap_or_else(|faults| panic!("{faults}\n{}", import.policy));
    let engine = Engine::with_clock(policy, Clock::manual_from(Duration::from_secs(START))).unwrap();
    case.requests.iter().map(|(at, request)| decide(&engine, request, Timestamp::from_nanos(*at))).collect()
}

fn decide(engine: &Engine, request: &Request, now: Timestamp) -> Response {
    let attributes: Vec<Vec<(&str, &str)>> = request
        .descriptors
        .iter()
        .map(|descriptor| {
            let entries = descriptor.entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            [("domain", request.domain.as_str())].into_iter().chain(entries).collect()
        })
        .collect();
    let described: Vec<Described<'_>> = request
        .descriptors
        .iter()
        .zip(&attributes)
        .map(|(descriptor, attributes)| Described {
            attributes,
            hits: hits(request, descriptor),
            limit: descriptor
                .limit
                .map(|(limit, unit)| Override { limit, window: Duration::from_secs(unit.seconds()) }),
        })
        .collect();
    let policy = engine.policy();
    let together = policy.check_descriptors(&described, now).now().unwrap().unwrap();
    Response { is_over: !together.is_allowed(), statuses: together.descriptors().map(status).collect() }
}

fn hits(request: &Request, descriptor: &Descriptor) -> Hits {
    match (descriptor.hits_addend, request.hits_addend) {
        (Some(hits), _) => Hits::ChargeInFull(hits),
        (None, 0) => Hits::Usual,
        (None, hits) => Hits::Charge(hits.into()),
    }
}

/// What the service answers for a descriptor: `grpc/answer.rs` of the server.
fn status(answer: DescriptorVerdict<'_, '_>) -> Status {
    let nothing =
        Status { is_over: false, current_limit: None, limit_remaining: 0, duration_until_reset: None };
    let (decision, rule, is_over, name, blocked) = if let Some(sent) = &answer.sent() {
        (sent.decision, sent.rule, !sent.decision.is_allowed(), String::new(), sent.limit == 0)
    } else {
        let (limit, is_over): (LimitVerdict<'_, '_>, bool) = match (answer.reported(), answer.shadow().next())
        {
            (Some(limit), _) => (limit, !answer.outcome().is_allowed()),
            (None, Some(limit)) => (limit, false),
            (None, None) if answer.is_unlimited() => {
                return Status { limit_remaining: u32::MAX, ..nothing };
            }
            (None, None) => return nothing,
        };
        let descriptor = limit.limit().descriptor.as_ref().unwrap();
        let name = descriptor.name.clone().unwrap_or_default();
        (limit.decision(), *limit.rule(), is_over, name, descriptor.blocked)
    };
    let period = rule.period().unwrap().get() / 1_000_000_000;
    let unit = Unit::ALL.into_iter().find(|unit| unit.seconds() == period).unwrap();
    let requests_per_unit = if blocked { 0 } else { u32::try_from(rule.capacity()).unwrap() };
    let reset = decision.retry_after().unwrap_or(decision.status.reset_after);
    Status {
        is_over,
        current_limit: Some(CurrentLimit { requests_per_unit, unit, name }),
        limit_remaining: if blocked { 0 } else { u32::try_from(decision.status.remaining).unwrap() },
        duration_until_reset: Some(reset.as_secs_ceil()),
    }
}

/// Descriptors with nested descriptors and patterns in values, limits of 0, hits of the request, and windows that end.
const BASE: Features = Features {
    replaces: false,
    unlimited: false,
    shadow_mode: false,
    quota_mode: false,
    share_threshold: false,
    special_keys: false,
    own_hits: false,
    sent_limits: false,
    same_counter_twice: false,
    time: true,
};

/// Cases for one feature.
const FEW: u64 = 300;

#[test]
fn nested_descriptors_and_patterns_are_found_as_in_the_reference() {
    compare(1, FEW, BASE);
}

#[test]
fn shared_patterns_count_as_in_the_reference() {
    compare(2, FEW, Features { share_threshold: true, ..BASE });
}

#[test]
fn replaced_rules_are_left_out_as_in_the_reference() {
    compare(3, FEW, Features { replaces: true, shadow_mode: true, ..BASE });
}

#[test]
fn replaced_rules_without_a_limit_stay_unlimited_as_in_the_reference() {
    compare(4, FEW, Features { replaces: true, unlimited: true, ..BASE });
}

#[test]
fn quotas_in_shadow_mode_pass_as_in_the_reference() {
    compare(5, FEW, Features { quota_mode: true, shadow_mode: true, ..BASE });
}

#[test]
fn keys_with_stars_and_underscores_count_as_in_the_reference() {
    compare(6, FEW, Features { special_keys: true, share_threshold: true, ..BASE });
}

#[test]
fn own_hits_of_a_descriptor_count_as_in_the_reference() {
    compare(7, FEW, Features { own_hits: true, ..BASE });
}

#[test]
fn sent_limits_count_as_in_the_reference() {
    compare(8, FEW, Features { sent_limits: true, ..BASE });
}

#[test]
fn one_counter_twice_in_a_request_counts_in_order_as_in_the_reference() {
    compare(9, FEW, Features { same_counter_twice: true, share_threshold: true, ..BASE });
}

/// 10 000 configurations in the long form.
#[test]
fn random_configurations_with_every_feature_answer_as_the_reference() {
    compare(10, if is_long() { 10_000 } else { 1_000 }, Features::ALL);
}
