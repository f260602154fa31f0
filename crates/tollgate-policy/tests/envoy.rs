//! The files of envoyproxy/ratelimit: the examples of its documentation, and every rule of how descriptors are matched
//! and counted.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::path::Path;
use std::time::Duration;

use tollgate::{Clock, Timestamp};
use tollgate_policy::{Described, Engine, Hits, NotDecided, Override, Policy, import_envoy};

/// A service that has read some files.
struct Files {
    engine: Engine,
    now: Timestamp,
}

/// What a descriptor is told: whether it is within its limit, and what that limit is and has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Unmatched,
    Unlimited,
    Ok(u64, u64),
    Over(u64, u64),
    Shadow(u64, u64),
}

use Told::{Ok as Within, Over, Shadow, Unlimited, Unmatched};

type Entries<'a> = &'a [(&'a str, &'a str)];

impl Files {
    fn new(files: &[&str]) -> Self {
        Self::with(files, false, "")
    }

    fn with(files: &[&str], count_denied: bool, settings: &str) -> Self {
        let files: Vec<_> = files
            .iter()
            .enumerate()
            .map(|(i, file)| (format!("{i}.yaml").into(), (*file).to_owned()))
            .collect();
        let import = import_envoy(&files, count_denied).unwrap_or_else(|faults| panic!("{}", faults[0]));
        let policy = format!("{}{settings}", import.policy);
        let policy = Policy::read(Path::new("policy.yaml"), &policy)
            .unwrap_or_else(|faults| panic!("{faults}\n{policy}"));
        let clock = Clock::manual_from(Duration::from_secs(1_700_000_000));
        Self { engine: Engine::with_clock(policy, clock).unwrap(), now: Timestamp::from_nanos(0) }
    }

    fn later(&mut self, seconds: u64) {
        self.now = Timestamp::from_nanos(self.now.as_nanos() + seconds * 1_000_000_000);
    }

    fn ask(&self, domain: &str, descriptors: &[Entries<'_>]) -> (bool, Vec<Told>) {
        self.hit(domain, descriptors, &vec![Hits::Usual; descriptors.len()])
    }

    fn hit(&self, domain: &str, descriptors: &[Entries<'_>], hits: &[Hits]) -> (bool, Vec<Told>) {
        let attributes: Vec<Vec<(&str, &str)>> = descriptors
            .iter()
            .map(|entries| [("domain", domain)].into_iter().chain(entries.iter().copied()).collect())
            .collect();
        let described: Vec<Described<'_>> = attributes
            .iter()
            .zip(hits)
            .map(|(attributes, hits)| Described { attributes, hits: *hits, limit: None })
            .collect();
        let policy = self.engine.policy();
        let together = policy.check_together(&described, self.now).unwrap();
        let told = together.answers.iter().map(|answer| {
            let verdict = &answer.verdict;
            let numbers = |limit: &tollgate_policy::LimitVerdict<'_, '_>| {
                (limit.capacity(), limit.decision().status.remaining)
            };
            match (verdict.limits().next(), verdict.shadow().next()) {
                (Some(limit), _) if limit.is_allowed() => Within(numbers(&limit).0, numbers(&limit).1),
                (Some(limit), _) => Over(numbers(&limit).0, numbers(&limit).1),
                (None, Some(limit)) => Shadow(numbers(&limit).0, numbers(&limit).1),
                (None, None) if answer.is_unlimited() => Unlimited,
                (None, None) => Unmatched,
            }
        });
        (together.is_allowed(), told.collect())
    }

    /// One descriptor alone.
    fn one(&self, domain: &str, entries: Entries<'_>) -> Told {
        self.ask(domain, &[entries]).1[0]
    }
}

#[test]
fn example_1_two_databases() {
    let files = Files::new(&["
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: { unit: second, requests_per_unit: 500 }
  - key: database
    value: default
    rate_limit: { unit: second, requests_per_unit: 500 }
"]);
    assert_eq!(files.one("mongo_cps", &[("database", "users")]), Within(500, 499));
    assert_eq!(files.one("mongo_cps", &[("database", "default")]), Within(500, 499));
    assert_eq!(files.one("mongo_cps", &[("database", "other")]), Unmatched);
    assert_eq!(files.one("mongo", &[("database", "users")]), Unmatched);
}

const MESSAGING: &str = "
domain: messaging
descriptors:
  # Only allow 5 marketing messages a day
  - key: message_type
    value: marketing
    descriptors:
      - key: to_number
        rate_limit: { unit: day, requests_per_unit: 5 }
  # Only allow 100 messages a day to any unique phone number
  - key: to_number
    rate_limit: { unit: day, requests_per_unit: 100 }
";

#[test]
fn example_2_nested_descriptors_and_several_in_one_call() {
    let files = Files::new(&[MESSAGING]);
    let marketing: Entries<'_> = &[("message_type", "marketing"), ("to_number", "2061111111")];
    let all: Entries<'_> = &[("to_number", "2061111111")];
    for i in 1..=5 {
        assert_eq!(
            files.ask("messaging", &[marketing, all]),
            (true, vec![Within(5, 5 - i), Within(100, 100 - i)])
        );
    }
    // The sixth is denied, and costs the number nothing: all or nothing.
    assert_eq!(files.ask("messaging", &[marketing, all]), (false, vec![Over(5, 0), Within(100, 95)]));
    let other: Entries<'_> = &[("message_type", "marketing"), ("to_number", "2062222222")];
    assert_eq!(files.one("messaging", other), Within(5, 4));
    assert_eq!(files.one("messaging", &[("message_type", "marketing")]), Unmatched);
}

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

#[test]
fn example_3_the_exact_value_before_the_key_alone_and_zero_denies_always() {
    let mut files = Files::new(&["
domain: edge_proxy_per_ip
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 10 }
  # Black list IP
  - key: remote_address
    value: 50.0.0.5
    rate_limit: { unit: second, requests_per_unit: 0 }
"]);
    assert_eq!(files.one("edge_proxy_per_ip", &[("remote_address", "50.0.0.1")]), Within(10, 9));
    assert_eq!(files.one("edge_proxy_per_ip", &[("remote_address", "50.0.0.2")]), Within(10, 9));
    for _ in 0..3 {
        assert!(!files.ask("edge_proxy_per_ip", &[&[("remote_address", "50.0.0.5")]]).0);
        files.later(10);
    }
}

#[test]
fn example_4_the_depth_must_be_the_same() {
    let flat = "
domain: example4
descriptors:
  - key: key
    value: value
    rate_limit: { requests_per_unit: 300, unit: second }
";
    let nested = "
domain: example4
descriptors:
  - key: key
    value: value
    descriptors:
      - key: subkey
        rate_limit: { requests_per_unit: 300, unit: second }
";
    let entries: Entries<'_> = &[("key", "value"), ("subkey", "subvalue")];
    assert_eq!(Files::new(&[flat]).one("example4", entries), Unmatched);
    assert_eq!(Files::new(&[nested]).one("example4", entries), Within(300, 299));
    assert_eq!(Files::new(&[nested]).one("example4", &entries[..1]), Unmatched);
}

#[test]
fn example_5_unlimited() {
    let files = Files::new(&["
domain: internal
descriptors:
  - key: ldap
    rate_limit: { unlimited: true }
  - key: azure
    rate_limit: { unit: minute, requests_per_unit: 100 }
"]);
    assert_eq!(files.one("internal", &[("ldap", "x")]), Unlimited);
    assert_eq!(files.one("internal", &[("azure", "x")]), Within(100, 99));
}

#[test]
fn example_6_shadow_mode_counts_and_never_denies() {
    let files = Files::new(&["
domain: example6
descriptors:
  - key: service
    descriptors:
      - key: user
        value: user-a
        rate_limit: { requests_per_unit: 10, unit: second }
        shadow_mode: true
      - key: user
        value: user-b
        rate_limit: { requests_per_unit: 20, unit: second }
"]);
    let of = |user: &'static str| [("service", "auth-service"), ("user", user)];
    for i in 1..=12 {
        let expected = (true, vec![Shadow(10, 10_u64.saturating_sub(i))]);
        assert_eq!(files.ask("example6", &[&of("user-a")]), expected);
    }
    assert_eq!(files.one("example6", &of("user-b")), Within(20, 19));
}

#[test]
fn example_7_a_rule_that_replaces_another() {
    let files = Files::new(&["
domain: example7
descriptors:
  - key: key_1
    value: value_1
    descriptors:
      - key: user
        value: bkthomps
        rate_limit: { name: specific_limit, requests_per_unit: 5, unit: second }
  - key: key_2
    value: value_2
    descriptors:
      - key: user
        value: bkthomps
        rate_limit:
          replaces: [{ name: specific_limit }]
          requests_per_unit: 10
          unit: second
"]);
    let one: Entries<'_> = &[("key_1", "value_1"), ("user", "bkthomps")];
    let other: Entries<'_> = &[("key_2", "value_2"), ("user", "bkthomps")];
    assert_eq!(files.ask("example7", &[one]).1, [Within(5, 4)]);
    assert_eq!(files.ask("example7", &[other]).1, [Within(10, 9)]);
    assert_eq!(files.ask("example7", &[one, other]).1, [Unmatched, Within(10, 8)]);
    assert_eq!(files.ask("example7", &[one]).1, [Within(5, 3)], "what is replaced is not counted");
}

#[test]
fn an_unlimited_rule_can_replace_too() {
    let files = Files::new(&["
domain: d
descriptors:
  - key: path
    rate_limit: { name: paths, unit: second, requests_per_unit: 1 }
  - key: staff
    rate_limit: { unlimited: true, replaces: [{ name: paths }] }
"]);
    for _ in 0..3 {
        assert_eq!(
            files.ask("d", &[&[("path", "/")], &[("staff", "yes")]]),
            (true, vec![Unmatched, Unlimited])
        );
    }
}

#[test]
fn example_8_and_the_metrics_of_values() {
    let file = "
domain: d
descriptors:
  - { key: key1, detailed_metric: true, rate_limit: { unit: minute, requests_per_unit: 10 } }
  - { key: key1, value: value1, rate_limit: { unit: minute, requests_per_unit: 20 } }
  - { key: key2, value_to_metric: true, descriptors: [{ key: sub, rate_limit: { unit: hour, requests_per_unit: 1 } }] }
  - { key: key3, value: a*, share_threshold: true, detailed_metric: true, rate_limit: { unit: day, requests_per_unit: 1 } }
";
    let files = Files::new(&[file]);
    let metric = |entries: Entries<'_>| {
        let attributes: Vec<_> = [("domain", "d")].into_iter().chain(entries.iter().copied()).collect();
        let policy = files.engine.policy();
        let described = [Described { attributes: &attributes, hits: Hits::Charge(0), limit: None }];
        let together = policy.check_together(&described, files.now).unwrap();
        together.answers[0].descriptor().unwrap().metric(entries)
    };
    assert_eq!(metric(&[("key1", "unspecified_value")]).as_deref(), Some("d.key1_unspecified_value"));
    assert_eq!(metric(&[("key1", "value1")]), None, "the limit's own metrics are enough");
    assert_eq!(metric(&[("key2", "x"), ("sub", "y")]).as_deref(), Some("d.key2_x.sub"));
    assert_eq!(
        metric(&[("key3", "abc")]).as_deref(),
        Some("d.key3_a*"),
        "what shares a count shares a metric"
    );
}

#[test]
fn example_9_wildcards_count_each_value_unless_they_share() {
    let files = Files::new(&["
domain: example9
descriptors:
  - { key: key1, value: value*, rate_limit: { unit: minute, requests_per_unit: 20 } }
  - { key: key2, value: value*, share_threshold: true, rate_limit: { unit: minute, requests_per_unit: 20 } }
  - key: key3
    value: '*'
    share_threshold: true
    descriptors: [{ key: user, rate_limit: { unit: minute, requests_per_unit: 20 } }]
"]);
    let told = |entries: Entries<'_>| files.one("example9", entries);
    assert_eq!([told(&[("key1", "value_1")]), told(&[("key1", "value_2")])], [Within(20, 19); 2]);
    assert_eq!(told(&[("key2", "value_1")]), Within(20, 19));
    assert_eq!(told(&[("key2", "value_2")]), Within(20, 18));
    assert_eq!(told(&[("key3", "a"), ("user", "x")]), Within(20, 19));
    assert_eq!(told(&[("key3", "b"), ("user", "x")]), Within(20, 18), "also where the limit sits deeper");
    assert_eq!(told(&[("key3", "b"), ("user", "y")]), Within(20, 19));
}

/// At each level: the exact value, then patterns in the order of the file, then the key alone. What was found is kept.
#[test]
fn the_order_of_matching() {
    let files = Files::new(&["
domain: d
descriptors:
  - { key: path, value: /api/*/x, rate_limit: { unit: second, requests_per_unit: 1 } }
  - { key: path, value: /api/*, rate_limit: { unit: second, requests_per_unit: 2 } }
  - { key: path, value: '*end', rate_limit: { unit: second, requests_per_unit: 3 } }
  - { key: path, rate_limit: { unit: second, requests_per_unit: 4 } }
  - { key: path, value: /api/exact, rate_limit: { unit: second, requests_per_unit: 5 } }
  - { key: path, value: /api/free }
  - key: path
    value: /deep
    descriptors: [{ key: user, value: alice, rate_limit: { unit: second, requests_per_unit: 6 } }]
  - { key: a_b, rate_limit: { unit: second, requests_per_unit: 7 } }
  - { key: none }
"]);
    for (entries, expected) in [
        (&[("path", "/api/v1/x")][..], Within(1, 0)),
        (&[("path", "/api//x")], Within(1, 0)),
        (&[("path", "/api/v1/y")], Within(2, 1)),
        (&[("path", "/api/")], Within(2, 1)),
        (&[("path", "/api/end")], Within(2, 1)),
        (&[("path", "/the/end")], Within(3, 2)),
        (&[("path", "/other")], Within(4, 3)),
        (&[("path", "")], Within(4, 3)),
        (&[("path", "/api/exact")], Within(5, 4)),
        (&[("path", "/api/free")], Unmatched), // known, and not limited
        (&[("path", "/deep")], Unmatched),     // the exact one, though only those below it are limited
        (&[("path", "/deep"), ("user", "alice")], Within(6, 5)),
        (&[("path", "/deep"), ("user", "bob")], Unmatched), // no way back to `path` alone
        (&[("path", "/other"), ("user", "alice")], Unmatched),
        (&[("Path", "/other")], Unmatched), // case matters
        (&[("a", "b")], Within(7, 6)),      // key and value are compared as one text
        (&[("none", "x")], Unmatched),
        (&[("user", "alice"), ("path", "/deep")], Unmatched), // so does the order
    ] {
        assert_eq!(files.one("d", entries), expected, "{entries:?}");
    }
}

#[test]
fn every_value_has_a_count_and_no_two_keys_are_run_together() {
    let files = Files::new(&["
domain: d
descriptors:
  - key: a
    descriptors: [{ key: b, rate_limit: { unit: minute, requests_per_unit: 9 } }]
"]);
    for entries in [
        [("a", "x"), ("b", "yz")],
        [("a", "xy"), ("b", "z")],
        [("a", ""), ("b", "xyz")],
        [("a", "x_b"), ("b", "yz")],
    ] {
        assert_eq!(files.one("d", &entries), Within(9, 8), "{entries:?}");
    }
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
        let together = policy.check_together(&described, files.now).unwrap();
        let reset = together.answers[0].verdict.limits().next().unwrap().decision().status.reset_after;
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
    assert_eq!(files.ask("d", &[&[("none", "")], &[("some", "")]]), (true, vec![Over(1, 1), Within(5, 4)]));
    assert_eq!(files.ask("d", &[&[("none", "")]]), (false, vec![Over(1, 1)]));
    assert_eq!(
        files.ask("d", &[&[("blocked", "")], &[("some", "")]]),
        (false, vec![Over(1, 1), Within(5, 4)])
    );
    let files = Files::with(&[file], false, "envoy: { shadow_mode: true }\n");
    for _ in 0..3 {
        assert_eq!(files.ask("d", &[&[("blocked", "")]]), (true, vec![Over(1, 1)]));
    }
}

/// The reference looks `key_value` up as one text, also where another key comes to the same; its values count apart.
#[test]
fn values_count_apart_under_whatever_key_they_were_found() {
    let files = Files::new(&[
        "domain: d\ndescriptors: [{ key: a, value: x, rate_limit: { unit: day, requests_per_unit: 9 } }]",
    ]);
    for value in ["p", "q", "r"] {
        assert_eq!(files.one("d", &[("a_x", value)]), Within(9, 8), "{value}");
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
    let reports = policy.key("reports", &[("path", "/reports")], files.now).unwrap();
    assert_eq!(reports.status.remaining, 3, "what the buckets denied cost the log nothing");
}

#[test]
fn the_same_descriptor_twice_pays_twice_and_is_told_the_same() {
    let files = Files::new(&[
        "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 3 } }]",
    ]);
    let twice: [Entries<'_>; 2] = [&[("k", "v")], &[("k", "v")]];
    assert_eq!(files.ask("d", &twice), (true, vec![Within(3, 1), Within(3, 1)]));
    assert_eq!(files.ask("d", &twice), (false, vec![Over(3, 1), Over(3, 1)]));
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
    let Err(NotDecided::TooManyLimits(refused)) = policy.check_together(&described, files.now) else {
        panic!("33 limits were decided")
    };
    assert_eq!(refused.limits.len(), 33);
    assert!(policy.check_together(&described[..32], files.now).unwrap().is_allowed());
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
        let together = policy.check_together(&described, files.now).unwrap();
        let left = |answer: &tollgate_policy::Answer<'_>| {
            answer.overridden.map(|sent| sent.decision.status.remaining)
        };
        let other =
            together.answers[1].verdict.limits().next().map(|limit| limit.decision().status.remaining);
        (together.is_allowed(), together.answers[0].is_allowed(), left(&together.answers[0]), other)
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
    let passes = |asked: &[Described<'_>], now| policy.check_together(asked, now).unwrap().is_allowed();
    let day = 86_400;
    assert_eq!([0; 4].map(|_| passes(&[of(3, day)], at(0))), [true, true, true, false]);
    assert!(passes(&[of(1000, 1)], at(1)) && passes(&[of(1000, 1)], at(3)), "another unit");
    assert_eq!([0; 2].map(|_| passes(&[of(3, day)], at(4))), [false, false], "it gave nothing back");
    assert!(!passes(&[of(10, 3600), of(1, 3600)], at(5)), "the strictest of both is 1");
    assert!(passes(&[of(10, 3600)], at(5)), "and nothing was charged");
}

/// So many different limits are remembered; a request that brings one more than there is room for is refused, and none
/// that is asked together with it is lost.
#[test]
fn more_limits_than_are_remembered_may_be_sent() {
    let engine = Engine::new(Policy::default()).unwrap();
    let (policy, now) = (engine.policy(), Timestamp::from_nanos(0));
    let attributes = [("domain", "d"), ("k", "v")];
    let of = |limit| Described {
        attributes: &attributes,
        hits: Hits::Usual,
        limit: Some(Override { limit, window: Duration::from_secs(1) }),
    };
    for limit in 1..=4096 {
        let _ = policy.check_together(&[of(limit)], now);
    }
    for limit in 0..300 {
        let _ = policy.check_together(&[of(4096 + limit), of(1 + limit), of(5000 + limit)], now);
    }
    let refused = policy.check_together(&[of(1), of(9999)], now);
    assert!(matches!(refused, Ok(_) | Err(NotDecided::Override(_))), "{refused:?}");
}
