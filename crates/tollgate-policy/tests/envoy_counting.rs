//! How descriptors are counted: hits, refunds, quotas, shadows, windows, limits that come with them; all together or none.

use std::path::Path;
use std::time::Duration;

use crate::envoy_files::{Entries, Files, MESSAGING, Over, Unlimited, Within};
use tollgate::Timestamp;
use tollgate_policy::{Described, Engine, Hits, NotDecided, Override, Policy, Reason};

#[test]
fn with_count_denied_every_descriptor_is_counted_as_in_the_reference() {
    let files = Files::with(&[MESSAGING], true, "");
    let marketing: Entries<'_> = &[("message_type", "marketing"), ("to_number", "2061111111")];
    let all: Entries<'_> = &[("to_number", "2061111111")];
    for _ in 0..7 {
        let _ = files.ask("messaging", &[marketing, all]);
    }
    assert_eq!(
        files.hit("messaging", &[marketing, all], &[Hits::Charge(0); 2]).1,
        [Within(5, 0), Within(100, 93)]
    );
}

/// Windows begin at multiples of their unit since the epoch; a month has thirty days, a year 365.
#[test]
fn windows_are_aligned_to_the_epoch() {
    let started = 1_700_000_000_u64;
    for (unit, seconds) in [
        ("second", 1),
        ("MINUTE", 60),
        ("Hour", 3600),
        ("day", 86_400),
        ("week", 604_800),
        ("month", 2_592_000),
        ("year", 31_536_000),
    ] {
        let file = format!(
            "domain: d\ndescriptors: [{{ key: k, rate_limit: {{ unit: {unit}, requests_per_unit: 3 }} }}]"
        );
        let files = Files::new(&[&file]);
        let attributes = [("domain", "d"), ("k", "v")];
        let policy = files.engine.policy();
        let described = [Described { attributes: &attributes, hits: Hits::Usual, limit: None }];
        let together = policy.check_descriptors(&described, files.now).now().unwrap().unwrap();
        let reset =
            together.descriptors().next().unwrap().limits().next().unwrap().decision().status.reset_after;
        assert_eq!(reset.as_secs_ceil(), seconds - started % seconds, "{unit}");
    }
}

/// Quota rules: one with room is enough. Ordinary ones must all have room.
#[test]
fn quota_mode() {
    let file = "
domain: d
descriptors:
  - { key: q1, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: q2, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: must, rate_limit: { unit: minute, requests_per_unit: 3 } }
";
    let files = Files::new(&[file]);
    let all: [Entries<'_>; 3] = [&[("q1", "")], &[("q2", "")], &[("must", "")]];
    assert_eq!(files.ask("d", &all), (true, vec![Within(1, 0), Within(2, 1), Within(3, 2)]));
    assert_eq!(files.ask("d", &all), (true, vec![Over(1, 0), Within(2, 0), Within(3, 1)]));
    assert_eq!(
        files.ask("d", &all),
        (false, vec![Over(1, 0), Over(2, 0), Within(3, 1)]),
        "all quotas are over"
    );
    assert_eq!(files.ask("d", &[all[2]]), (true, vec![Within(3, 0)]));
    let files = Files::new(&[file]);
    assert!(files.hit("d", &[all[2]], &[Hits::Charge(3)]).0);
    assert_eq!(
        files.ask("d", &all),
        (false, vec![Within(1, 1), Within(2, 2), Over(3, 0)]),
        "an ordinary one is over"
    );
    let files = Files::with(&[file], false, "envoy: { quota_mode: true }\n");
    assert!(files.hit("d", &[all[2]], &[Hits::Charge(3)]).0);
    assert!(files.ask("d", &all).0, "as if all said it");
}

#[test]
fn the_shadow_mode_of_all_denies_nothing_and_tells_what_it_would_have_been() {
    let file = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: minute, requests_per_unit: 1 } }]";
    let files = Files::with(&[file], false, "envoy: { shadow_mode: true }\n");
    assert_eq!(files.ask("d", &[&[("k", "v")]]), (true, vec![Within(1, 0)]));
    assert_eq!(files.ask("d", &[&[("k", "v")]]), (true, vec![Over(1, 0)]));
}

#[test]
fn hits_may_be_none_or_many_or_given_back() {
    let files = Files::new(&[
        "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 10 } }]",
    ]);
    let hit = |hits| files.hit("d", &[&[("k", "v")]], &[hits]);
    assert_eq!(hit(Hits::Charge(7)), (true, vec![Within(10, 3)]));
    assert_eq!(hit(Hits::Charge(0)), (true, vec![Within(10, 3)]));
    assert_eq!(hit(Hits::Charge(4)), (false, vec![Over(10, 3)]));
    assert_eq!(hit(Hits::Refund(5)), (true, vec![Within(10, 8)]));
    assert_eq!(hit(Hits::Refund(50)), (true, vec![Within(10, 10)]), "no more than was used");
    assert_eq!(hit(Hits::Charge(11)), (false, vec![Over(10, 10)]));
}

/// Usage that Envoy reports at the end of a stream is counted in full, as the reference does. The request before it asks
/// with 0 whether there is anything left.
#[test]
fn usage_is_counted_in_full_and_denies_what_comes_after() {
    let file = "
domain: d
descriptors:
  - { key: tokens, rate_limit: { unit: hour, requests_per_unit: 1000 } }
  - { key: calls, rate_limit: { unit: hour, requests_per_unit: 1 } }
";
    for count_denied in [false, true] {
        let files = Files::with(&[file], count_denied, "");
        let hit = |hits| files.hit("d", &[&[("tokens", "v")]], &[Hits::ChargeInFull(hits)]).0;
        assert_eq!([0, 900, 0, 300, 0].map(hit), [true, true, true, false, false], "{count_denied}");
        // At exactly the limit there is nothing left, and nothing was exceeded.
        let hit = |hits| files.hit("d", &[&[("tokens", "w")]], &[Hits::ChargeInFull(hits)]);
        assert_eq!(hit(1000), (true, vec![Within(1000, 0)]));
        assert_eq!(hit(0), (true, vec![Within(1000, 0)]));
        assert_eq!(hit(1), (false, vec![Over(1000, 0)]));
        assert_eq!(hit(0), (false, vec![Over(1000, 0)]));
    }
    // A descriptor without hits of its own is charged only if all pass, and those with hits of their own in any case.
    let files = Files::new(&[file]);
    let both: [Entries<'_>; 2] = [&[("tokens", "v")], &[("calls", "v")]];
    let hits = [Hits::ChargeInFull(600), Hits::Usual];
    assert_eq!(files.hit("d", &both, &hits), (true, vec![Within(1000, 400), Within(1, 0)]));
    assert_eq!(files.hit("d", &both, &hits), (false, vec![Over(1000, 0), Over(1, 0)]));
    let peek = [Hits::ChargeInFull(0), Hits::Charge(0)];
    assert_eq!(files.hit("d", &both, &peek), (false, vec![Over(1000, 0), Within(1, 0)]));
}

/// Each is decided after those before it, as the reference does.
#[test]
fn a_descriptor_that_comes_twice_is_counted_twice() {
    let file = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: hour, requests_per_unit: 3 } }]";
    let twice: [Entries<'_>; 2] = [&[("k", "v")], &[("k", "v")]];
    // What a denied request counts, and so what is left after it, is the one difference.
    for (count_denied, left) in [(true, 0), (false, 1)] {
        let files = Files::with(&[file], count_denied, "");
        assert_eq!(files.ask("d", &twice), (true, vec![Within(3, 2), Within(3, 1)]));
        assert_eq!(files.ask("d", &twice), (false, vec![Within(3, left), Over(3, left)]));
    }
}

/// A quota that only watches is one that passed: with it, no other quota denies.
#[test]
fn a_quota_in_shadow_mode_counts_as_one_that_passed() {
    let file = "
domain: d
descriptors:
  - { key: a, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: b, quota_mode: true, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
";
    let (a, b): (Entries<'_>, Entries<'_>) = (&[("a", "v")], &[("b", "v")]);
    for count_denied in [false, true] {
        let files = Files::with(&[file], count_denied, "");
        assert!(files.ask("d", &[a]).0);
        assert!(!files.ask("d", &[a]).0, "alone, a quota that is over denies");
        for _ in 0..3 {
            assert!(files.ask("d", &[a, b]).0);
        }
        assert!(!files.ask("d", &[a]).0);
    }
}

/// The reference takes an unlimited rule out of those that can be replaced.
#[test]
fn an_unlimited_descriptor_cannot_be_replaced() {
    let file = "
domain: d
descriptors:
  - { key: a, rate_limit: { unlimited: true, name: all } }
  - { key: b, rate_limit: { unit: hour, requests_per_unit: 5, replaces: [{ name: all }] } }
";
    let files = Files::new(&[file]);
    assert_eq!(files.ask("d", &[&[("a", "v")], &[("b", "v")]]), (true, vec![Unlimited, Within(5, 4)]));
}

/// What is given back is given back by a request that passes: a denial changes nothing.
#[test]
fn a_denied_request_gives_nothing_back() {
    let file = "
domain: d
descriptors:
  - { key: k, rate_limit: { unit: day, requests_per_unit: 10 } }
  - { key: full, rate_limit: { unit: day, requests_per_unit: 1 } }
";
    let files = Files::new(&[file]);
    assert!(files.ask("d", &[&[("full", "v")]]).0);
    assert!(files.hit("d", &[&[("k", "v")]], &[Hits::Charge(10)]).0);
    let both: [Entries<'_>; 2] = [&[("k", "v")], &[("full", "v")]];
    assert_eq!(
        files.hit("d", &both, &[Hits::Refund(4), Hits::Charge(1)]),
        (false, vec![Within(10, 0), Over(1, 0)])
    );
    assert_eq!(
        files.hit("d", &both, &[Hits::Refund(4), Hits::Charge(0)]),
        (true, vec![Within(10, 4), Within(1, 0)])
    );
}

/// A limit of 0 is over like any other: in quota mode another may have room, in shadow mode it is told each time.
#[test]
fn zero_is_a_limit_like_others() {
    let file = "
domain: d
descriptors:
  - { key: none, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: some, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 5 } }
  - { key: blocked, rate_limit: { unit: day, requests_per_unit: 0 } }
";
    let files = Files::new(&[file]);
    assert_eq!(files.ask("d", &[&[("none", "")], &[("some", "")]]), (true, vec![Over(0, 0), Within(5, 4)]));
    assert_eq!(files.ask("d", &[&[("none", "")]]), (false, vec![Over(0, 0)]));
    assert_eq!(
        files.ask("d", &[&[("blocked", "")], &[("some", "")]]),
        (false, vec![Over(0, 0), Within(5, 4)])
    );
    let files = Files::with(&[file], false, "envoy: { shadow_mode: true }\n");
    for _ in 0..3 {
        assert_eq!(files.ask("d", &[&[("blocked", "")]]), (true, vec![Over(0, 0)]));
    }
}

/// Limits by attributes apply beside those of descriptors, and all are decided together.
#[test]
fn every_algorithm_works_behind_descriptors() {
    let policy = "
limits:
  - { name: per-user, match: { attributes: { domain: edge } }, key: [user], token_bucket: { rate: 1/min, burst: 2 } }
  - name: reports
    descriptor: { domain: edge, entries: [{ key: path, value: /reports }] }
    sliding_log: { limit: 5, window: 60s }
";
    let policy = Policy::read(Path::new("policy.yaml"), policy).unwrap();
    let files = Files { engine: Engine::new(policy).unwrap(), now: Timestamp::from_nanos(0) };
    let both: [Entries<'_>; 2] = [&[("user", "alice")], &[("path", "/reports")]];
    // The second descriptor has no `user`, so that it counts under the empty value.
    let (allowed, _) = files.ask("edge", &both);
    assert!(allowed);
    let left = |entries: Entries<'_>| files.hit("edge", &[entries], &[Hits::Charge(0)]).1[0];
    assert_eq!([left(both[0]), left(&[("user", "")])], [Within(2, 1), Within(2, 1)]);
    assert!(files.ask("edge", &both).0);
    assert!(!files.ask("edge", &both).0, "the buckets are empty");
    let policy = files.engine.policy();
    let reports = policy.key("reports", &[("path", "/reports")], files.now).now().unwrap().unwrap().unwrap();
    assert_eq!(reports.status.remaining, 3, "what the buckets denied cost the log nothing");
}

#[test]
fn more_than_thirty_two_limits_are_refused_by_name_and_cost_nothing() {
    let files = Files::new(&[
        "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 3 } }]",
    ]);
    let values: Vec<String> = (0..33).map(|i| i.to_string()).collect();
    let attributes: Vec<_> = values.iter().map(|value| [("domain", "d"), ("k", value.as_str())]).collect();
    let described: Vec<_> = attributes
        .iter()
        .map(|attributes| Described { attributes, hits: Hits::Usual, limit: None })
        .collect();
    let policy = files.engine.policy();
    let Err(NotDecided::TooManyLimits(refused)) =
        policy.check_descriptors(&described, files.now).now().unwrap()
    else {
        panic!("33 limits were decided")
    };
    assert_eq!(refused.limits.len(), 33);
    assert!(policy.check_descriptors(&described[..32], files.now).now().unwrap().unwrap().is_allowed());
}

/// A limit that is sent with a descriptor is used instead of the policy's, and is decided with the others.
#[test]
fn a_limit_may_be_sent_with_a_descriptor() {
    let files = Files::new(&["
domain: d
descriptors:
  - { key: k, rate_limit: { unit: day, requests_per_unit: 1 }, shadow_mode: true }
  - { key: other, rate_limit: { unit: day, requests_per_unit: 4 } }
"]);
    let minute = Duration::from_secs(60);
    let policy = files.engine.policy();
    let ask = |domain: &str, limit: u32, cost: u64| {
        let (sent, other) = ([("domain", domain), ("k", "v")], [("domain", domain), ("other", "v")]);
        let described = [
            Described {
                attributes: &sent,
                hits: Hits::Charge(cost),
                limit: Some(Override { limit, window: minute }),
            },
            Described { attributes: &other, hits: Hits::Usual, limit: None },
        ];
        let together = policy.check_descriptors(&described, files.now).now().unwrap().unwrap();
        let first = together.descriptors().next().unwrap();
        let other = together
            .descriptors()
            .nth(1)
            .unwrap()
            .limits()
            .next()
            .map(|limit| limit.decision().status.remaining);
        let left = first.sent().map(|sent| sent.decision.status.remaining);
        (together.is_allowed(), first.is_allowed(), left, other)
    };
    assert_eq!(ask("d", 3, 2), (true, true, Some(1), Some(3)));
    assert_eq!(ask("d", 3, 2), (false, false, Some(1), Some(3)), "never shadow, and the other pays nothing");
    assert_eq!(
        ask("d", 5, 2),
        (true, true, Some(1), Some(2)),
        "another limit of the same descriptor: the count stays"
    );
    assert_eq!(ask("d", 0, 1), (false, false, Some(0), Some(2)), "0 lets nothing pass");
    assert_eq!(ask("d", 9, 0), (true, true, Some(5), Some(1)), "a peek at it charges the other");
    assert_eq!(ask("e", 1, 7), (true, true, None, None), "a domain that nobody has");
}

/// What is sent is counted by its window, so that each unit has a count of its own; of two limits for one key, the
/// strictest holds.
#[test]
fn limits_that_are_sent_count_by_unit_and_the_strictest_holds() {
    let engine = Engine::new(Policy::default()).unwrap();
    let policy = engine.policy();
    let attributes = [("domain", "d"), ("k", "v")];
    let of = |limit, seconds| Described {
        attributes: &attributes,
        hits: Hits::Usual,
        limit: Some(Override { limit, window: Duration::from_secs(seconds) }),
    };
    let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
    let passes = |asked: &[Described<'_>], now| {
        policy.check_descriptors(asked, now).now().unwrap().unwrap().is_allowed()
    };
    let day = 86_400;
    assert_eq!([0; 4].map(|_| passes(&[of(3, day)], at(0))), [true, true, true, false]);
    assert!(passes(&[of(1000, 1)], at(1)) && passes(&[of(1000, 1)], at(3)), "another unit");
    assert_eq!([0; 2].map(|_| passes(&[of(3, day)], at(4))), [false, false], "it gave nothing back");
    assert!(!passes(&[of(10, 3600), of(1, 3600)], at(5)), "the strictest of both is 1");
    assert!(passes(&[of(10, 3600)], at(5)), "and nothing was charged");
}

/// The table remembers a limit that was sent only as long as a key has it.
#[test]
fn any_number_of_different_limits_may_be_sent() {
    let engine = Engine::new(Policy::default()).unwrap();
    let (policy, now) = (engine.policy(), Timestamp::from_nanos(0));
    let attributes = [("domain", "d"), ("k", "v")];
    let of = |limit| Described {
        attributes: &attributes,
        hits: Hits::Usual,
        limit: Some(Override { limit, window: Duration::from_secs(1) }),
    };
    for limit in 1..=20_000 {
        let described = [of(limit), of(20_000 + limit), of(1 + limit)];
        let verdict = policy.check_descriptors(&described, now).now().unwrap();
        assert!(verdict.is_ok(), "limit {limit}: {verdict:?}");
    }
    assert!(engine.stats().rules <= 200, "{:?}", engine.stats());
}

/// Headers and problem bodies need a limit of the policy, also if another one has decided.
#[test]
fn a_limit_of_the_policy_is_reported_beside_a_sent_limit_and_in_shadow_mode() {
    let file = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 5 } }, \
                { key: z, rate_limit: { unit: day, requests_per_unit: 0 } }]";
    let [k, z, other] =
        [[("domain", "d"), ("k", "1")], [("domain", "d"), ("z", "1")], [("domain", "d"), ("o", "1")]];
    let sent = |limit| Some(Override { limit, window: Duration::from_secs(86_400) });
    let ask = |attributes, limit| Described { attributes, hits: Hits::Usual, limit };
    let reported = |files: &Files, described: &[Described<'_>]| {
        let policy = files.engine.policy();
        let verdict = policy.check_descriptors(described, files.now).now().unwrap().unwrap();
        let limit = verdict.reported().map(|limit| limit.decision().status.remaining);
        (verdict.is_allowed(), limit, verdict.reason())
    };
    let files = Files::new(&[file]);
    assert_eq!(reported(&files, &[ask(&k, None), ask(&other, sent(1))]), (true, Some(4), None));
    assert_eq!(
        reported(&files, &[ask(&k, None), ask(&other, sent(1))]),
        (false, None, None),
        "the sent limit denies"
    );
    let both = [ask(&z, None), ask(&other, sent(0))];
    assert_eq!(reported(&files, &both), (false, Some(0), Some(Reason::CostExceedsLimit)), "both deny");
    let files = Files::with(&[file], false, "envoy: { shadow_mode: true }\n");
    assert_eq!(reported(&files, &[ask(&k, None)]), (true, Some(4), None));
}
