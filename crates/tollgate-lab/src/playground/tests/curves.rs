//! Curves agree with the status of the core at any moment between decisions.

use serde_json::{Value, json};
use tollgate_core::{AlgorithmKind, PermitId, State, Timestamp};
use tollgate_policy::sent_rule;

use super::{every_rule, random_arrivals, reply};
use crate::random::Random;

fn numbers(column: &Value) -> Vec<f64> {
    column.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// The level of a curve just after a moment that is not one of its points.
fn at(t: &[f64], y: &[f64], moment: f64) -> f64 {
    let next = t.partition_point(|time| *time <= moment).min(t.len() - 1);
    let before = next - 1;
    if t[next] == t[before] {
        return y[before];
    }
    y[before] + (y[next] - y[before]) * (moment - t[before]) / (t[next] - t[before])
}

#[test]
fn curves_are_what_the_core_says_remains_at_any_moment() {
    for (by, seed) in [("global", 1), ("client", 2)] {
        let rules = every_rule(by);
        let arrivals = random_arrivals(1500, seed);
        let reply = reply(&json!({"rules": rules, "arrivals": arrivals, "watch": "b"}));
        for (rule, played) in rules.iter().zip(reply["rules"].as_array().unwrap()) {
            compare(rule, played, &arrivals, by, reply["duration"].as_f64().unwrap());
        }
    }
}

fn compare(rule: &Value, played: &Value, arrivals: &[Value], by: &str, duration: f64) {
    let algorithm = played["algorithm"].as_str().unwrap();
    let core = sent_rule(AlgorithmKind::from_name(algorithm).unwrap(), &rule[algorithm].to_string()).unwrap();
    let (t, y) = (numbers(&played["curve"]["t"]), numbers(&played["curve"]["y"]));
    assert!(t.is_sorted() && t.len() <= 4000, "{rule}");
    assert_eq!((t[0], *t.last().unwrap()), (0.0, duration), "{rule}");
    let most = played["curve"]["max"].as_f64().unwrap();
    assert!(y.iter().all(|level| (0.0..=most).contains(level)), "{rule}");
    let second = played["curve"].get("y2").map(numbers);
    let (mut state, mut random, mut looked) = (State::default(), Random::new(7), 0);
    let ends = arrivals.iter().skip(1).map(|arrival| arrival["at"].as_f64().unwrap()).chain([duration]);
    for (arrival, end) in arrivals.iter().zip(ends) {
        let begin = arrival["at"].as_f64().unwrap();
        let nanos = |seconds: f64| (seconds * 1e9).round() as u64;
        if by == "global" || arrival["client"] == "b" {
            let cost = arrival["cost"].as_u64().unwrap();
            let _ = core.decide(&mut state, PermitId(0), cost, Timestamp::from_nanos(nanos(begin)));
        }
        for _ in 0..4 {
            let moment = nanos(begin) + random.below((nanos(end) - nanos(begin)).max(1));
            let seconds = moment as f64 / 1e9;
            if t.contains(&seconds) {
                continue; // there may be two levels
            }
            looked += 1;
            let status = core.status(&state, Timestamp::from_nanos(moment));
            let level = at(&t, &y, seconds);
            let what = format!("{rule} at {seconds}: {level}, {status:?}");
            let level = match &second {
                Some(second) => level.min(at(&t, second, seconds)),
                None => level,
            };
            if played["curve"]["what"] == "tat" {
                assert!((level - status.reset_after.get() as f64 / 1e9).abs() < 1e-8, "{what}");
                continue;
            }
            let is_left = matches!(played["curve"]["what"].as_str(), Some("tokens" | "credits"));
            let left = if is_left { level } else { most - level };
            let left_whole = status.remaining as f64;
            assert!((left_whole - 1e-5..left_whole + 1.0 + 1e-5).contains(&left), "{what}");
        }
    }
    assert!(looked > 3000, "{rule}: {looked}");
}

#[test]
fn levels_of_decisions_lie_on_the_curve() {
    let reply = reply(&json!({"rules": every_rule("global"), "arrivals": random_arrivals(300, 3)}));
    let times = numbers(&reply["arrivals"]["at"]);
    for rule in reply["rules"].as_array().unwrap() {
        let points: Vec<(f64, f64)> =
            numbers(&rule["curve"]["t"]).into_iter().zip(numbers(&rule["curve"]["y"])).collect();
        let (before, after) = (numbers(&rule["decisions"]["before"]), numbers(&rule["decisions"]["after"]));
        for (time, (before, after)) in times.iter().zip(before.iter().zip(&after)) {
            if before != after {
                assert!(
                    points.contains(&(*time, *before)) && points.contains(&(*time, *after)),
                    "{rule} at {time}"
                );
            }
        }
    }
}

#[test]
fn long_curves_keep_their_lowest_and_highest_points() {
    let arrivals: Vec<Value> = (0..10_000).map(|n| json!({"at": f64::from(n) / 100.0})).collect();
    let rules = json!([
        {"token_bucket": {"rate": "100/s", "burst": 10}},
        {"burst_credits": {"rate": "50/s", "peak": "100/s", "burst_for": "10s"}},
        {"sliding_counter": {"limit": 40, "window": "1s", "buckets": 10}},
    ]);
    let reply = reply(&json!({"rules": rules, "arrivals": arrivals}));
    for rule in reply["rules"].as_array().unwrap() {
        let curve = &rule["curve"];
        let points = numbers(&curve["t"]).len();
        assert!((1000..=4000).contains(&points), "{points}");
        assert_eq!(numbers(&curve["y"]).len(), points);
        let lowest = numbers(&curve["y"]).into_iter().fold(f64::MAX, f64::min);
        let after = numbers(&rule["decisions"]["after"]).into_iter().fold(f64::MAX, f64::min);
        assert!(lowest <= after, "{}: {lowest}, {after}", rule["name"]);
        for column in
            rule.get("counter").into_iter().flat_map(|counter| counter.as_object().unwrap().values())
        {
            assert_eq!(column.as_array().unwrap().len(), points);
        }
    }
}

#[test]
fn edges_are_those_of_the_windows() {
    let edges = |rule: Value| {
        let arrivals = json!([{"at": 0.5}, {"at": 3}, {"at": 3.2}]);
        let mut reply = reply(&json!({"rules": [rule], "arrivals": arrivals}));
        assert_eq!(reply["duration"], 3.3);
        reply["rules"][0]["edges"].take()
    };
    assert_eq!(edges(json!({"fixed_window": {"limit": 2, "window": "1s"}})), json!([0, 1, 2, 3]));
    assert_eq!(
        edges(json!({"fixed_window": {"limit": 2, "window": "1s", "align": "first"}})),
        json!([0.5, 1.5, 3])
    );
    assert_eq!(
        edges(json!({"sliding_counter": {"limit": 2, "window": "2s", "buckets": 2}})),
        json!([0, 1, 2, 3])
    );
    assert_eq!(edges(json!({"sliding_log": {"limit": 2, "window": "1s"}})), Value::Null);
    assert_eq!(edges(json!({"fixed_window": {"limit": 2, "window": "1ms"}})), Value::Null);
}
