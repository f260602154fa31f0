//! Requests that are refused, and what is hostile.

use serde_json::{Value, json};

use super::super::{PlaygroundError, PlaygroundRequest, play};
use super::{refused, reply};

const RULE: &str = r#"{"token_bucket": {"rate": "5/s", "burst": 10}}"#;

fn rule() -> Value {
    serde_json::from_str(RULE).unwrap()
}

#[test]
fn what_is_not_a_request_is_named() {
    for (body, expected) in [
        (r#"{"rules": [], "arivals": []}"#, "unknown field `arivals`, expected one of `rules`, `arrivals`"),
        (r#"{"arrivals": []}"#, "missing field `rules`"),
        (r#"{"rules": [{}], "arrivals": []}"#, "a rule without an algorithm: write one of `token_bucket`, "),
        (r#"{"rules": ["gcra"], "arrivals": []}"#, "expected a rule such as {\"token_bucket\""),
        (
            r#"{"rules": [{"tokenbucket": {}}]}"#,
            "unknown field `tokenbucket` in a rule: write `name`, `view`",
        ),
        (
            r#"{"rules": [{"token_bucket": {}, "sliding_log": {}}]}"#,
            "two algorithms: write one rule for each",
        ),
        (r#"{"rules": [{"name": "a", "name": "b"}]}"#, "`name` is twice in a rule"),
        (r#"{"rules": [{"fixed_window": {"limit": 1, "limit": 2}}]}"#, "`limit` is twice in a rule"),
        (r#"{"rules": [{"by": "tenant"}]}"#, "unknown variant `tenant`, expected `global` or `client`"),
        (r#"{"rules": [{"view": "tat"}]}"#, "unknown variant `tat`, expected `gcra`"),
        (r#"{"rules": [], "arrivals": [{"at": "1"}]}"#, "expected f64"),
        (r#"{"rules": [], "arrivals": [{"at": 1, "cost": -1}]}"#, "expected u64"),
        (r#"{"rules": [], "arrivals": [{"cost": 1}]}"#, "missing field `at`"),
        (r#"{"rules": [], "arrivals": [{"at": 1, "key": 1}]}"#, "unknown field `key`"),
        (r#"{"rules": [], "sentences": {"to": 1}}"#, "unknown field `to`"),
    ] {
        let error = serde_json::from_str::<PlaygroundRequest>(body).unwrap_err().to_string();
        assert!(error.contains(expected), "{body}: {error}");
    }
}

#[test]
fn rules_that_make_no_sense_are_named_by_number() {
    for (rules, expected) in [
        (json!([]), "`rules` has 0 rules: send 1 to 16"),
        (json!(vec![rule(); 17]), "`rules` has 17 rules: send 1 to 16"),
        (
            json!([rule(), {"concurrency": {"limit": 3}}]),
            "rule 2: `concurrency` depends on how long requests take, which arrivals do not have: write one of `token_bucket`",
        ),
        (
            json!([{"sliding_log": {"limit": 3, "window": "1s"}, "view": "gcra"}]),
            "rule 1: `view: gcra` of a `sliding_log`: only a `token_bucket` has this view",
        ),
        (
            json!([{"name": "n".repeat(65), "token_bucket": {"rate": "1/s"}}]),
            "rule 1: its name has 65 characters: write at most 64",
        ),
        (json!([{"token_bucket": {"rate": "fast"}}]), "rule 1: `token_bucket`: "),
        (
            json!([{"token_bucket": {"rate": "1".repeat(2000)}}]),
            "rule 1: its numbers have 2011 bytes: write at most 1024",
        ),
        (
            json!([{"sliding_log": {"limit": 1001, "window": "1s"}}]),
            "a log sent with a call has at most 1000 entries",
        ),
        (json!([{"sliding_counter": {"limit": 1, "window": "1s", "buckets": 257}}]), "at most 256"),
        (
            json!([{"fixed_window": {"limit": 1_000_000_000_001_u64, "window": "1s"}}]),
            "rule 1: it lets 1000000000001 pass at once: write at most 1000000000000",
        ),
        (json!([{"fixed_window": {"limit": 0, "window": "1s"}}]), "`limit` of 0"),
        (json!([{"token_bucket": {"rate": "${HOME}"}}]), "rule 1: `token_bucket`"),
    ] {
        let error = refused(&json!({"rules": rules, "arrivals": []})).to_string();
        assert!(error.contains(expected), "{rules}: {error}");
    }
}

#[test]
fn arrivals_that_make_no_sense_are_named_by_number() {
    let many: Vec<Value> = (0..10_001).map(|_| json!({"at": 0})).collect();
    for (source, expected) in [
        (json!({}), "there is no source of arrivals: send exactly one of `arrivals`, `scenario` and `log`"),
        (json!({"arrivals": [], "log": ""}), "there are several sources of arrivals"),
        (
            json!({"arrivals": many}),
            "`arrivals` has 10001 arrivals, but at most 10000 are allowed: send a shorter span",
        ),
        (
            json!({"arrivals": [{"at": 1}, {"at": -0.1}]}),
            "arrival 2: `at` is -0.1: write seconds from 0 to 31536000",
        ),
        (json!({"arrivals": [{"at": 31_536_001}]}), "arrival 1: `at` is 31536001: write seconds"),
        (json!({"arrivals": [{"at": 1e300}]}), "`at` is 1e300: write seconds from 0 to 31536000"),
        (
            json!({"arrivals": [], "start": -1}),
            "`start` is -1: write a Unix time in seconds from 0 to 8589934592",
        ),
        (json!({"arrivals": [], "start": 1e300}), "write a Unix time in seconds from 0 to 8589934592"),
        (
            json!({"arrivals": [], "until": 31_536_001}),
            "`until` is 31536001: write seconds from 0 to 31536000",
        ),
        (json!({"scenario": "spike", "start": 1}), "`start` belongs to `arrivals`"),
        (
            json!({"arrivals": [{"at": 9}, {"at": 1, "cost": 1_000_000_001}]}),
            "arrival 2: it costs 1000000001: write a cost from 0 to 1000000000",
        ),
        (
            json!({"arrivals": [{"at": 1, "client": "ü".repeat(65)}]}),
            "arrival 1: the name of its client has 65 characters",
        ),
        (
            json!({"arrivals": [{"at": 1, "client": "a"}], "watch": "b"}),
            "`watch`: no arrival is of client `b`",
        ),
        (json!({"arrivals": [], "watch": "b".repeat(99)}), "no arrival is of client `bbbbbbb"),
        (
            json!({"arrivals": [], "sentences": {"count": 4001}}),
            "asks for 4001 sentences of all rules together, but at most 4000",
        ),
        (json!({"scenario": "flood"}), "there is no scenario `flood`: write `app-open`, `boundary-attack`"),
        (
            json!({"scenario": "soak"}),
            "the scenario has more than 10000 arrivals, but at most 10000 are allowed: write a shorter `for`",
        ),
        (
            json!({"scenario": format!("a\n{}", " ".repeat(70_000))}),
            "the text of the scenario has 70002 bytes",
        ),
        (json!({"scenario": "limit: 1\nwindow: 1s\n"}), "scenario"),
        (json!({"log": ""}), "line 1 of the log: there is no request in this file"),
        (json!({"log": "hello\n"}), "line 1 of the log: it is neither an access log"),
        (json!({"log": "time,client\n0,a\n99999999,a\n"}), "the log spans 99999999 seconds"),
    ] {
        let mut request = source.clone();
        request["rules"] = json!([rule()]);
        let error = refused(&request).to_string();
        assert!(error.contains(expected), "{source:.200}: {error}");
    }
}

fn scenario(groups: &str) -> Value {
    let text = format!("limit: 1\nwindow: 1s\nfor: 10s\nclients:\n{groups}");
    json!({"rules": [rule()], "scenario": text})
}

#[test]
fn scenarios_of_hostile_size_are_refused_before_they_are_generated() {
    let twenty: String = (0..20).map(|_| "  - {name: a, count: 9999, every: 1s}\n").collect();
    for (groups, expected) in [
        ("  - {name: a, count: 10000000, every: 1s}\n", "the scenario has 10000000 clients: write `count`"),
        (&*twenty, "the scenario has 199980 clients"),
        ("  - {name: a, rate: 1000000000/s}\n", "it has about 10000000000 requests"),
        ("  - {name: a, rate: 1000000/s}\n", "more than 10000 arrivals"),
        ("  - {name: a, burst: 1000000, at: [0s]}\n", "more than 10000 arrivals"),
        ("  - {name: a, cost: 18446744073709551615, every: 1s}\n", "write a `cost` from 0 to 1000000000"),
        (
            &format!("  - {{name: {}, every: 1s}}\n", "a".repeat(100)),
            "is too long: write at most 64 characters",
        ),
    ] {
        let error = refused(&scenario(groups)).to_string();
        assert!(error.contains(expected), "{groups:.100}: {error}");
    }
    // The second burst would be after the end of time.
    let reply = reply(&scenario("  - {name: a, count: 1000, burst: 2, every: 200000d}\n"));
    assert_eq!(reply["malformed"], 0);
}

#[test]
fn states_of_many_clients_are_bounded() {
    let arrivals: Vec<Value> =
        (0..10_000).map(|n| json!({"at": 0, "client": n.to_string(), "cost": 1000})).collect();
    let log = json!({"sliding_log": {"limit": 1000, "window": "1s"}, "by": "client"});
    let error = refused(&json!({"rules": [log], "arrivals": arrivals}));
    assert_eq!(error, PlaygroundError::Memory { number: 1, found: 80_000_000 });
    let counter = json!({"sliding_counter": {"limit": 1000, "window": "1s", "buckets": 256}, "by": "client"});
    let error = refused(&json!({"rules": [counter], "arrivals": arrivals}));
    assert_eq!(error, PlaygroundError::Memory { number: 1, found: 257 * 80_000 });
    let global = json!({"sliding_log": {"limit": 1000, "window": "1s"}});
    assert_eq!(reply(&json!({"rules": [global], "arrivals": arrivals}))["rules"][0]["allowed"], 1);
}

#[test]
fn the_budget_ends_every_part_of_the_work() {
    let arrivals: Vec<Value> = (0..1000).map(|n| json!({"at": n})).collect();
    let log: String =
        std::iter::once("time,client\n".to_owned()).chain((0..1000).map(|n| format!("{n},a\n"))).collect();
    let junk = format!("time,client\n0,a\n{}", "\"\n".repeat(500_000));
    for source in [
        json!({"arrivals": arrivals}),
        json!({"scenario": "boundary-attack"}),
        json!({"log": log}),
        json!({"log": junk}),
    ] {
        let mut request = source.clone();
        request["rules"] = json!([rule()]);
        let request: PlaygroundRequest = serde_json::from_value(request).unwrap();
        let mut calls = 0;
        for most in [0, 1, 3] {
            calls = 0;
            let mut budget = || {
                calls += 1;
                calls <= most
            };
            assert_eq!(play(&request, &mut budget).unwrap_err(), PlaygroundError::Budget, "{source:.60}");
        }
        assert_eq!(calls, 4);
    }
}

#[test]
fn hostile_numbers_do_no_harm() {
    for at in [0.0, 1e-9, 31_536_000.0] {
        let rules = json!([
            {"token_bucket": {"rate": "1/ns", "burst": 1_000_000_000_000_u64}},
            {"token_bucket": {"rate": "1/30d", "burst": 1000}, "view": "gcra"},
            {"leaky_bucket": {"rate": "1/30d", "queue": 1700}},
            {"leaky_bucket": {"rate": "999999937/s", "queue": 1_000_000_000}},
            {"fixed_window": {"limit": 1_000_000_000_000_u64, "window": "50000d"}},
            {"fixed_window": {"limit": 1, "window": "1ns"}},
            {"sliding_log": {"limit": 1000, "window": "50000d"}},
            {"sliding_log": {"limit": 1, "window": "1ns"}},
            {"sliding_counter": {"limit": 1_000_000_000_000_u64, "window": "50000d", "buckets": 256}},
            {"sliding_counter": {"limit": 1, "window": "1ns"}},
            {"sliding_counter": {"limit": 9, "window": "256ns", "buckets": 256}},
            {"burst_credits": {"rate": "1/30d", "peak": "1000000x", "burst_for": "1h"}},
        ]);
        let arrivals = json!([{"at": 0, "cost": 900}, {"at": at}, {"at": at, "cost": 1_000_000_000}, {"at": at, "cost": 0}]);
        let reply = reply(&json!({"rules": rules, "arrivals": arrivals, "sentences": {"count": 4}}));
        for rule in reply["rules"].as_array().unwrap() {
            assert_eq!(rule["sentences"].as_array().unwrap().len(), 4, "{rule}");
            let lengths = ["t", "y"].map(|column| rule["curve"][column].as_array().unwrap().len());
            assert_eq!(lengths[0], lengths[1]);
        }
    }
}
