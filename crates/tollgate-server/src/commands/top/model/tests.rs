use std::str::FromStr as _;

use serde_json::json;

use super::super::frame::HotLists;
use super::*;

/// What a service sent: `start`, then a tick per second.
const RECORDED: &str = include_str!("recorded.sse");

fn recorded() -> impl Iterator<Item = (&'static str, &'static str)> {
    RECORDED.split_terminator("\n\n").map(|event| {
        let (name, data) = event.split_once('\n').unwrap();
        (name.strip_prefix("event: ").unwrap(), data.strip_prefix("data: ").unwrap())
    })
}

fn frame(name: &str, data: &str) -> Frame {
    Frame::read(name, data).unwrap().unwrap()
}

fn recorded_model() -> Model {
    recorded().fold(None, |known, (name, data)| Model::follow(known, frame(name, data))).unwrap()
}

fn totals(model: &Model, limit: &str) -> (u64, u64) {
    let totals = model.limit(limit).unwrap().recent.totals();
    (totals.allowed, totals.denied)
}

#[test]
fn recorded_frames_make_the_numbers_of_the_service() {
    let model = recorded_model();
    let names: Vec<&str> = model.limits.iter().map(|limit| limit.label.as_str()).collect();
    assert_eq!(names, ["per-user", "unused", "candidate"], "as in the policy");
    assert_eq!(totals(&model, "per-user"), (6, 3));
    assert_eq!(totals(&model, "unused"), (0, 0));
    let candidate = model.limit("candidate").unwrap();
    assert!(candidate.is_shadow);
    assert_eq!(candidate.recent.totals().newly_denied, 2);
    let per_user = model.limit("per-user").unwrap();
    assert_eq!(
        (per_user.algorithm.as_str(), per_user.numbers.as_str()),
        ("token_bucket", "rate 1/h, burst 3")
    );
    assert_eq!(per_user.tiers, ["pro: rate 10/h, burst 30"]);
    assert_eq!(model.limit("unused").unwrap().matches, "path /never");
    assert_eq!(per_user.hottest("hits"), Some(("bob".to_owned(), 5.0 / 9.0)));
    assert!(model.has_clear_names);
    let steps: Vec<_> =
        per_user.history.all.iter().map(|step| step.map(|step| (step.allowed, step.denied))).collect();
    assert_eq!(steps, [Some((3, 1)), Some((3, 2))], "one that was sent, and one of ticks");
    let rates = model.requests.rates(model.now).unwrap();
    let in_five_seconds = |rate: f64| (rate * 5.0).round();
    assert_eq!((in_five_seconds(rates.allowed), in_five_seconds(rates.denied)), (1.0, 2.0));
}

#[test]
fn a_tick_with_unknown_and_missing_fields_is_read() {
    let mut model = recorded_model();
    let now = model.now + 1.0;
    let tick = json!({
        "now": now,
        "requests": { "allowed": 8, "denied": 3, "new": [1, 2] },
        "what": { "nobody": "knows" },
        "limits": [{ "name": "per-user", "allowed": 8, "denied": 3, "in_flight": 7 }, { "name": "late", "allowed": 1 }],
        "store": { "kind": "etcd", "state": 3 },
    });
    model = Model::follow(Some(model), frame("tick", &tick.to_string())).unwrap();
    assert_eq!(totals(&model, "per-user"), (8, 3));
    assert_eq!(totals(&model, "late"), (1, 0), "a limit that the policy did not have");
    assert_eq!(model.store.kind, "etcd");
    assert!(Frame::read("other", "{}").unwrap().is_none(), "events of other kinds are skipped");
    let refused = Frame::read("tick", "{").unwrap_err();
    assert!(refused.contains("event `tick`"), "{refused}");
}

#[test]
fn a_restart_of_the_service_begins_again() {
    let model = recorded_model();
    let (_, start) = recorded().next().unwrap();
    let mut start: Value = Value::from_str(start).unwrap();
    // It counts from zero, and its events do, too.
    start["now"] = json!(model.now + 1.0);
    start["requests"] = json!({ "allowed": 1, "denied": 0 });
    start["limits"] = json!([{ "name": "per-user", "allowed": 1 }]);
    for known in [Some(model), None] {
        let restarted = Model::follow(known, frame("start", &start.to_string())).unwrap();
        assert_eq!(totals(&restarted, "per-user"), (1, 0));
        assert_eq!(totals(&restarted, "candidate"), (0, 0));
        assert_eq!(restarted.requests.rates(restarted.now), None, "no rate below zero, and none of the past");
        let tick = json!({ "now": restarted.now + 1.0, "requests": { "allowed": 11 },
            "limits": [{ "name": "per-user", "allowed": 11 }] });
        let ticked = Model::follow(Some(restarted), frame("tick", &tick.to_string())).unwrap();
        assert_eq!(ticked.requests.rates(ticked.now).unwrap().allowed, 10.0);
        assert_eq!(ticked.limit("per-user").unwrap().recent.rates(ticked.now).unwrap().allowed, 10.0);
    }
}

#[test]
fn rates_go_on_when_the_policy_changes() {
    let model = recorded_model();
    let before = model.requests.rates(model.now);
    let (_, start) = recorded().next().unwrap();
    let mut start: Value = Value::from_str(start).unwrap();
    start["now"] = json!(model.now);
    start["requests"] = json!({ "allowed": 6, "denied": 3 });
    start["policy"]["limits"].as_array_mut().unwrap().remove(1);
    let changed = Model::follow(Some(model), frame("start", &start.to_string())).unwrap();
    assert_eq!(changed.requests.rates(changed.now), before);
    assert!(changed.limit("unused").is_none());
}

#[test]
fn limits_missing_in_a_full_tick_keep_their_rates() {
    let tick = |now: f64, limits: Value| frame("tick", &json!({ "now": now, "limits": limits }).to_string());
    let all = |count: u64, number: usize| -> Value {
        (0..number).map(|limit| json!({ "name": format!("limit-{limit}"), "allowed": count })).collect()
    };
    let start = frame("start", &json!({ "now": 0.0, "limits": all(0, 300) }).to_string());
    let mut model = Model::follow(None, start).unwrap();
    model = Model::follow(Some(model), tick(1.0, all(10, 200))).unwrap();
    let rate =
        |model: &Model, name: &str| model.limit(name).unwrap().recent.rates(model.now).unwrap().allowed;
    assert_eq!(rate(&model, "limit-7"), 10.0);
    let late = json!([{ "name": "limit-250", "allowed": 40 }]);
    model = Model::follow(Some(model), tick(2.0, late)).unwrap();
    assert_eq!(rate(&model, "limit-250"), 20.0, "the mean of both seconds");
}

#[test]
fn memory_is_bounded() {
    let limits: Vec<Value> = (0..1500).map(|limit| json!({ "name": format!("limit-{limit}") })).collect();
    let start = json!({ "now": 0.0, "policy": { "limits": limits } });
    let mut model = Model::follow(None, frame("start", &start.to_string())).unwrap();
    for second in (5..=1000_u64).step_by(5) {
        let limits: Vec<Value> = (0..if second < 20 { 1500 } else { 1 })
            .map(|limit| json!({ "name": format!("limit-{limit}"), "allowed": second }))
            .collect();
        let events = json!([{ "number": second, "at": 1.0, "kind": "reload", "text": "x".repeat(10_000) }]);
        let tick = json!({ "now": second, "limits": limits, "events": events });
        model = Model::follow(Some(model), frame("tick", &tick.to_string())).unwrap();
    }
    assert_eq!(model.events.len(), MOST_EVENTS);
    assert!(model.events.iter().all(|event| event.text.chars().count() <= 201));
    let kept = model.limits.iter().filter(|limit| !limit.history.all.is_empty()).count();
    assert_eq!(kept, MOST_HISTORIES);
    assert!(model.limits.iter().all(|limit| limit.history.all.len() <= 180));
    assert_eq!(model.history.all.len(), 180);
}

#[test]
fn texts_of_the_service_are_fit_for_a_terminal() {
    let hostile = "\u{1b}]0;pwned\u{7}\u{202e}";
    let start = json!({
        "now": 1.0, "instance": hostile, "version": hostile,
        "policy": { "limits": [{ "name": hostile, "algorithm": hostile, "numbers": { "rate": hostile },
            "key": [hostile], "match": { "path": [hostile] }, "descriptor": hostile, "tiers": { hostile: { "rate": hostile } } }] },
        "events": [{ "kind": hostile, "text": hostile }],
        "store": { "kind": "redis", "mode": hostile, "shards": [{ "name": hostile, "state": hostile }] },
        "gateway": { "upstreams": [{ "name": hostile }], "ended": { hostile: 1 } },
        "hot": { hostile: { "hits": { "keys": [{ "key": [hostile], "count": 1 }], "total": 1 } } },
    });
    let mut model = Model::follow(None, frame("start", &start.to_string())).unwrap();
    assert_eq!(model.limits[0].label, "\\x1b]0;pwned\\x07\\u{202e}");
    assert_eq!(model.limits[0].name, hostile, "requests need it as it is");
    model.limits[0].name.clear();
    (model.numbers, model.store.mode) = (HashMap::new(), String::new()); // the view escapes the mode
    let mut lists: HotLists = std::mem::take(&mut model.limits[0].hot);
    make_shown(&mut lists);
    let text = format!("{model:?}{lists:?}");
    assert!(!text.contains("\\u{1b}") && !text.contains("\\u{202e}]"), "{text}");
    assert!(!text.contains("]0;pwned\\u{7}"), "{text}");
}
