//! From the JSON of a request to the JSON of the reply.

mod curves;
mod faults;
mod properties;
mod sentences;
mod vectors;

use serde_json::{Value, json};

use super::{PlaygroundError, PlaygroundRequest, play};
use crate::random::Random;

/// The reply to a request, as JSON.
fn reply(request: &Value) -> Value {
    let request: PlaygroundRequest = serde_json::from_value(request.clone()).unwrap();
    serde_json::to_value(play(&request, &mut || true).unwrap()).unwrap()
}

/// Why a request is refused.
fn refused(request: &Value) -> PlaygroundError {
    let request: PlaygroundRequest = serde_json::from_value(request.clone()).unwrap();
    play(&request, &mut || true).unwrap_err()
}

/// The reply of one rule to arrivals at these times, with these costs.
fn rule_reply(rule: &Value, arrivals: &[(f64, u64)]) -> Value {
    let sentences = json!({"from": 0, "count": arrivals.len().min(4000)});
    let arrivals: Vec<Value> = arrivals.iter().map(|(at, cost)| json!({"at": at, "cost": cost})).collect();
    let mut reply = reply(&json!({"rules": [rule], "arrivals": arrivals, "sentences": sentences}));
    reply["rules"][0].take()
}

/// Rules of every algorithm.
fn every_rule(by: &str) -> Vec<Value> {
    let rules = [
        json!({"token_bucket": {"rate": "5/s", "burst": 10}}),
        json!({"token_bucket": {"rate": "3/s", "burst": 4}, "view": "gcra"}),
        json!({"token_bucket": {"rate": "997/min", "burst": 7}}),
        json!({"leaky_bucket": {"rate": "3/s", "queue": 12}}),
        json!({"fixed_window": {"limit": 9, "window": "2s"}}),
        json!({"fixed_window": {"limit": 9, "window": "2s", "align": "first"}}),
        json!({"sliding_log": {"limit": 9, "window": "2s"}}),
        json!({"sliding_counter": {"limit": 9, "window": "2s"}}),
        json!({"sliding_counter": {"limit": 9, "window": "2s", "buckets": 3}}),
        json!({"sliding_counter": {"limit": 9, "window": "2s", "buckets": 7, "mode": "strict"}}),
        json!({"sliding_counter": {"limit": 9, "window": "2s", "buckets": 4, "mode": "lenient"}}),
        json!({"burst_credits": {"rate": "3/s", "peak": "4x", "burst_for": "2s"}}),
    ];
    rules
        .map(|mut rule| {
            rule["by"] = by.into();
            rule
        })
        .into()
}

/// Arrivals at random, of three clients: bursts and pauses.
fn random_arrivals(count: usize, seed: u64) -> Vec<Value> {
    let mut random = Random::new(seed);
    let mut at = 0_u64;
    let mut arrivals = Vec::new();
    for _ in 0..count {
        at += match random.below(10) {
            0 => random.below(3_000_000_000),
            1..=4 => 0,
            _ => random.below(200_000_000),
        };
        let cost = if random.below(4) == 0 { random.below(5) } else { 1 };
        let client = ["a", "b", "c"][random.below(3) as usize];
        arrivals.push(json!({"at": at as f64 / 1e9, "cost": cost, "client": client}));
    }
    arrivals
}
