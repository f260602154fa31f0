//! The playground decides as the rest of the lab does, and the parts of a reply agree with each other.

use serde_json::{Value, json};
use tollgate_core::Outcome;

use super::super::playable_scenarios;
use super::{every_rule, random_arrivals, reply};
use crate::algorithms::{Event, Limit, Name, lane};

#[test]
fn decisions_are_those_of_the_lanes_of_a_replay() {
    let limit = Limit { limit: 9, window: std::time::Duration::from_secs(2) };
    let rules = [
        (Name::TokenBucket, json!({"token_bucket": {"rate": "9/2s", "burst": 9}})),
        (Name::LeakyBucket, json!({"leaky_bucket": {"rate": "9/2s", "queue": 9}})),
        (Name::FixedWindow, json!({"fixed_window": {"limit": 9, "window": "2s"}})),
        (Name::SlidingLog, json!({"sliding_log": {"limit": 9, "window": "2s"}})),
        (Name::SlidingCounter, json!({"sliding_counter": {"limit": 9, "window": "2s"}})),
        (
            Name::StrictCounter,
            json!({"sliding_counter": {"limit": 9, "window": "2s", "buckets": 32, "mode": "strict"}}),
        ),
    ];
    // As a log, so that windows are aligned to a wall clock that does not show 0.
    let start = 1_700_000_001.5;
    for (by, seed) in [("client", 5), ("global", 6)] {
        let arrivals = random_arrivals(3000, seed);
        let line = |arrival: &Value| {
            let at = start + (arrival["at"].as_f64().unwrap() * 1e3).floor() / 1e3;
            format!("{at:.3},{}\n", arrival["client"].as_str().unwrap())
        };
        let log: String = std::iter::once(format!("time,client\n{start:.3},a\n"))
            .chain(arrivals.iter().map(line))
            .collect();
        let with_by = rules.clone().map(|(_, mut rule)| {
            rule["by"] = by.into();
            rule
        });
        let reply = reply(&json!({"rules": with_by, "log": log}));
        assert_eq!(reply["start"].as_f64(), Some(start));
        let column = |name: &str| reply["arrivals"][name].as_array().unwrap().clone();
        let events = column("at").into_iter().zip(column("client"));
        let start = (start * 1e9) as u64;
        let events: Vec<Event> = events
            .map(|(at, client)| {
                let client = if by == "client" { client.as_u64().unwrap() as u32 } else { 0 };
                Event { at: start + (at.as_f64().unwrap() * 1e9).round() as u64, cost: 1, client }
            })
            .collect();
        for ((name, _), played) in rules.iter().zip(reply["rules"].as_array().unwrap()) {
            let mut outcomes: Vec<Outcome> = Vec::new();
            lane(*name, limit, start).unwrap().decide(&events, start, &mut outcomes);
            let decisions = &played["decisions"];
            for (place, outcome) in outcomes.iter().enumerate() {
                assert_eq!(decisions["allowed"][place], outcome.is_allowed(), "{name}, arrival {place}");
                let seconds = |nanos: tollgate_core::Nanos| nanos.get() as f64 / 1e9;
                assert_eq!(
                    decisions["delay"][place].as_f64(),
                    Some(seconds(outcome.delay())),
                    "{name}, arrival {place}"
                );
                let retry = outcome.retry_after().map(seconds);
                assert_eq!(decisions["retry_after"][place].as_f64(), retry, "{name}, arrival {place}");
            }
        }
    }
}

#[test]
fn sums_agree_with_columns() {
    let sum =
        |column: &Value| column.as_array().unwrap().iter().map(|cost| cost.as_u64().unwrap()).sum::<u64>();
    let reply = reply(&json!({"rules": every_rule("client"), "arrivals": random_arrivals(2000, 9)}));
    assert_eq!(sum(&reply["offered"]), sum(&reply["arrivals"]["cost"]));
    let bins = (reply["duration"].as_f64().unwrap() / reply["bin"].as_f64().unwrap()).ceil();
    assert_eq!(reply["offered"].as_array().unwrap().len() as f64, bins);
    for rule in reply["rules"].as_array().unwrap() {
        let allowed = rule["decisions"]["allowed"].as_array().unwrap();
        assert_eq!(rule["allowed"], allowed.iter().filter(|allowed| **allowed == true).count());
        assert_eq!(rule["denied"], allowed.iter().filter(|allowed| **allowed == false).count());
        assert_eq!(sum(&rule["load"]), rule["allowed_cost"].as_u64().unwrap(), "{}", rule["name"]);
        assert_eq!(rule["load"].as_array().unwrap().len() as f64, bins);
        assert!(rule["most"].as_u64() <= rule["allowed_cost"].as_u64());
        let received = rule["received"]["y"].as_array().unwrap();
        assert_eq!(
            received.iter().map(Value::as_u64).max().unwrap(),
            rule["most"].as_u64(),
            "{}",
            rule["name"]
        );
    }
}

#[test]
fn scenarios_and_logs_name_their_clients() {
    let played = reply(
        &json!({"rules": [{"sliding_log": {"limit": 100, "window": "60s"}}], "scenario": "boundary-attack"}),
    );
    assert_eq!(played["clients"], json!(["attacker"]));
    assert_eq!(played["rules"][0]["most"], 100);
    let text = "limit: 1\nwindow: 1s\nfor: 10s\nclients:\n  - {name: app, count: 2, rate: 1/s, even: true}\n  - {name: job, every: 5s}\n";
    let played = reply(&json!({"rules": every_rule("client"), "scenario": text, "watch": "app 2"}));
    assert_eq!(played["clients"], json!(["app 1", "app 2", "job"]));
    let log = "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET /a HTTP/1.1\" 200 12\nnonsense\n\
               10.0.0.2 - - [17/May/2015:10:05:01 +0000] \"GET /b HTTP/1.1\" 200 12\n";
    let played = reply(&json!({"rules": every_rule("client"), "log": log}));
    assert_eq!((&played["malformed"], &played["start"]), (&1.into(), &1_431_857_101.into()));
    assert_eq!(
        (&played["clients"], &played["arrivals"]["client"]),
        (&json!(["10.0.0.1", "10.0.0.2"]), &json!([1, 0]))
    );
}

#[test]
fn arrivals_of_a_log_that_are_sent_again_are_decided_again_the_same() {
    let log = "time,client\n1431857101,a\n1431857109.5,a\n1431857111,b\n1431857158,a\n1431857161,b\n";
    let rules = every_rule("client");
    let of_log = reply(&json!({"rules": rules, "log": log}));
    let (at, client) = (&of_log["arrivals"]["at"], &of_log["arrivals"]["client"]);
    let arrivals: Vec<Value> = (at.as_array().unwrap().iter().zip(client.as_array().unwrap()))
        .map(|(at, client)| json!({"at": at, "client": of_log["clients"][client.as_u64().unwrap() as usize]}))
        .collect();
    let again = reply(&json!({"rules": rules, "arrivals": arrivals, "start": of_log["start"]}));
    assert_eq!(again["start"], 1_431_857_101);
    assert_eq!(again["rules"], of_log["rules"]);
}

#[test]
fn playable_scenarios_can_be_played() {
    let scenarios = playable_scenarios();
    let names: Vec<&str> = scenarios.iter().map(|scenario| scenario.name).collect();
    assert_eq!(names, ["app-open", "boundary-attack", "spike", "retry-storm"]);
    for scenario in scenarios {
        let window = format!("{}s", scenario.window);
        let rule = json!({"fixed_window": {"limit": scenario.limit, "window": window}, "by": scenario.by});
        let played = reply(&json!({"rules": [rule], "scenario": scenario.name}));
        assert!(played["rules"][0]["denied"].as_u64() > Some(0), "{}", scenario.name);
    }
}

#[test]
fn a_timeline_is_as_long_as_it_is_asked_to_be() {
    for (at, until, expected) in [(1, 10.0, 10.0), (1, 12.5, 12.5), (20, 10.0, 21.0)] {
        let played = reply(&json!({"rules": every_rule("global"), "arrivals": [{"at": at}], "until": until}));
        assert_eq!(played["duration"].as_f64(), Some(expected));
        for rule in played["rules"].as_array().unwrap() {
            for line in [&rule["curve"]["t"], &rule["received"]["t"]] {
                assert_eq!(
                    line.as_array().unwrap().last().unwrap().as_f64(),
                    Some(expected),
                    "{}",
                    rule["name"]
                );
            }
        }
    }
}

#[test]
fn nothing_happens_without_arrivals() {
    let played =
        reply(&json!({"rules": [{"token_bucket": {"rate": "100/min", "burst": 5}}], "arrivals": []}));
    let rule = &played["rules"][0];
    assert_eq!((&played["duration"], &rule["window_for_most"]), (&62.into(), &60.into()));
    assert_eq!(
        (&rule["most"], &rule["most_from"], &rule["curve"]["y"]),
        (&0.into(), &Value::Null, &json!([5, 5]))
    );
}
