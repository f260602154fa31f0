//! The files of envoyproxy/ratelimit: the examples of its documentation, and every rule of how descriptors are matched.

use crate::envoy_files::{Entries, Files, MESSAGING, Over, Shadow, Unlimited, Unmatched, Within};
use tollgate_policy::{Described, Hits};

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
        let together = policy.check_descriptors(&described, files.now).now().unwrap().unwrap();
        together.descriptors().next().unwrap().descriptor().unwrap().metric(entries)
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

/// envoyproxy/ratelimit looks for the `*` in `key_value`, so that one in the key counts. Versions with `share_threshold` take it at the
/// end only; here it stands for characters at any place, as in values.
#[test]
fn a_star_in_a_key_is_a_wildcard_of_key_and_value() {
    let files = Files::new(&["
domain: d
descriptors:
  - { key: exact, value: x, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: 'ex*', rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: 'user*', value: admin, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: 'shared*', share_threshold: true, rate_limit: { unit: day, requests_per_unit: 4 } }
  - { key: exact, rate_limit: { unit: day, requests_per_unit: 9 } }
  - key: 'top*'
    descriptors: [{ key: below, rate_limit: { unit: day, requests_per_unit: 5 } }]
"]);
    assert_eq!(files.one("d", &[("exact", "x")]), Within(1, 0), "the exact value comes first");
    assert_eq!(files.one("d", &[("exact", "y")]), Within(2, 1), "then patterns, before the key alone");
    assert_eq!(files.one("d", &[("exotic", "")]), Within(2, 1));
    assert_eq!(files.one("d", &[("user_name", "admin")]), Within(3, 2));
    assert_eq!(files.one("d", &[("user_name", "guest")]), Unmatched);
    assert_eq!(files.one("d", &[("top1", "a"), ("below", "b")]), Within(5, 4));
    // Keys count apart, also where their values are the same.
    assert_eq!(files.one("d", &[("extra", "y")]), Within(2, 1));
    assert_eq!(files.one("d", &[("extra", "y")]), Within(2, 0));
    assert_eq!(files.one("d", &[("extras", "y")]), Within(2, 1));
    assert_eq!(files.one("d", &[("top2", "a"), ("below", "b")]), Within(5, 4));
    // With `share_threshold` the values of one key share a count.
    assert_eq!(files.one("d", &[("shared1", "a")]), Within(4, 3));
    assert_eq!(files.one("d", &[("shared1", "b")]), Within(4, 2));
    assert_eq!(files.one("d", &[("shared2", "b")]), Within(4, 3));
}
