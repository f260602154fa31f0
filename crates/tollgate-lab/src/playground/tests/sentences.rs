//! What is written about each outcome of each algorithm.

use serde_json::{Value, json};

use super::rule_reply;

/// Compares the sentences of a rule with those that are expected.
fn sentences(rule: Value, rows: &[(f64, u64, &str)]) {
    let arrivals: Vec<(f64, u64)> = rows.iter().map(|(at, cost, _)| (*at, *cost)).collect();
    let reply = rule_reply(&rule, &arrivals);
    for (place, (at, cost, expected)) in rows.iter().enumerate() {
        assert_eq!(reply["sentences"][place], *expected, "{rule}: cost {cost} at {at}");
    }
}

#[test]
fn token_bucket() {
    sentences(
        json!({"token_bucket": {"rate": "5/s", "burst": 10}}),
        &[
            (0.0, 6, "10 tokens, costs 6: allowed, 4 left"),
            (0.1, 0, "peek: 4.5 tokens, nothing is charged"),
            (0.1, 1, "4.5 tokens, costs 1: allowed, 3.5 left"),
            (0.1, 3, "3.5 tokens, costs 3: allowed, 0.5 left"),
            (0.1, 1, "0.5 tokens, costs 1: denied, the missing 0.5 come in 100 ms"),
            (0.199_999_999, 1, "0.999 tokens, costs 1: denied, the missing 0.001 come in 1 ns"),
            (0.2, 1, "1 token, costs 1: allowed, 0 left"),
            (0.2, 11, "costs 11, but the bucket holds 10: denied, no wait helps"),
        ],
    );
}

#[test]
fn gcra() {
    sentences(
        json!({"token_bucket": {"rate": "5/s", "burst": 10}, "view": "gcra"}),
        &[
            (0.0, 7, "TAT is 0 s ahead, costs 1.4 s, at most 2 s: allowed, TAT is now 1.4 s ahead"),
            (0.1, 1, "TAT is 1.3 s ahead, costs 0.2 s, at most 2 s: allowed, TAT is now 1.5 s ahead"),
            (0.1, 0, "peek: TAT is 1.5 s ahead, nothing is charged"),
            (0.1, 3, "TAT is 1.5 s ahead, costs 0.6 s, at most 2 s: denied, passes in 100 ms"),
            (0.1, 11, "costs 11, but at most 10, which is 2 s, pass at once: denied, no wait helps"),
        ],
    );
}

#[test]
fn leaky_bucket() {
    sentences(
        json!({"leaky_bucket": {"rate": "1/s", "queue": 3}}),
        &[
            (0.0, 1, "0 of 3 places taken, costs 1: allowed, leaves the queue at once"),
            (0.0, 1, "1 of 3 places taken, costs 1: allowed, leaves the queue in 1 s"),
            (0.5, 0, "peek: 2 of 3 places taken, nothing is charged"),
            (0.5, 1, "2 of 3 places taken, costs 1: allowed, leaves the queue in 1.5 s"),
            (0.666, 1, "3 of 3 places taken, costs 1: denied, a place is free in 334 ms"),
            (0.666, 2, "3 of 3 places taken, costs 2: denied, 2 places are free in 1.334 s"),
            (0.666, 4, "costs 4, but the queue holds 3: denied, no wait helps"),
        ],
    );
}

#[test]
fn fixed_window() {
    sentences(
        json!({"fixed_window": {"limit": 10, "window": "1s"}}),
        &[
            (0.1, 9, "0 of 10 used in this window, costs 9: allowed, 9 used"),
            (0.2, 0, "peek: 9 of 10 used in this window, nothing is charged"),
            (0.5, 2, "9 of 10 used in this window, costs 2: denied, the next window begins in 500 ms"),
            (0.5, 1, "9 of 10 used in this window, costs 1: allowed, 10 used"),
            (0.5, 1, "10 of 10 used, costs 1: denied, the next window begins in 500 ms"),
            (0.5, 11, "costs 11, but the limit is 10: denied, no wait helps"),
            (1.0, 1, "0 of 10 used in this window, costs 1: allowed, 1 used"),
        ],
    );
}

#[test]
fn sliding_log() {
    sentences(
        json!({"sliding_log": {"limit": 3, "window": "10s"}}),
        &[
            (0.0, 1, "0 of 3 in the last 10 s, costs 1: allowed, 1 now"),
            (1.0, 1, "1 of 3 in the last 10 s, costs 1: allowed, 2 now"),
            (2.0, 1, "2 of 3 in the last 10 s, costs 1: allowed, 3 now"),
            (3.0, 1, "3 of 3 in the last 10 s, costs 1: denied, the oldest leaves in 7 s"),
            (3.0, 2, "3 of 3 in the last 10 s, costs 2: denied, the oldest 2 leave within 8 s"),
            (3.0, 4, "costs 4, but the limit is 3: denied, no wait helps"),
            (3.0, 0, "peek: 3 of 3 in the last 10 s, nothing is charged"),
        ],
    );
}

#[test]
fn sliding_counter() {
    sentences(
        json!({"sliding_counter": {"limit": 50, "window": "60s"}}),
        &[
            (0.0, 42, "0 × 1 + 0 = 0 of 50, costs 42: allowed, 42 now"),
            (75.0, 18, "42 × 0.75 + 0 = 31.5 of 50, costs 18: allowed, 49.5 now"),
            (75.0, 0, "peek: 42 × 0.75 + 18 = 49.5 of 50, nothing is charged"),
            (
                75.0,
                1,
                "42 × 0.75 + 18 = 49.5 of 50, costs 1: denied, 50.5 would be above 50, passes in 715 ms",
            ),
            (75.0, 51, "costs 51, but the limit is 50: denied, no wait helps"),
            // The weight is 0.73333…, the sum 48.8: both are rounded up.
            (
                76.0,
                2,
                "42 × 0.734 + 18 = 48.8 of 50, costs 2: denied, 50.8 would be above 50, passes in 1.143 s",
            ),
        ],
    );
    let mode = |mode: &str| json!({"sliding_counter": {"limit": 100, "window": "60s", "mode": mode}});
    sentences(
        mode("strict"),
        &[
            (0.0, 12, "0 + 0 = 0 of 100, costs 12: allowed, 12 now"),
            (70.0, 80, "12 + 0 = 12 of 100, costs 80: allowed, 92 now"),
            (70.0, 9, "12 + 80 = 92 of 100, costs 9: denied, 101 would be above 100, passes in 50 s"),
        ],
    );
    sentences(
        mode("lenient"),
        &[
            (0.0, 90, "0 of 100, costs 90: allowed, 90 now"),
            (70.0, 80, "0 of 100, costs 80: allowed, 80 now"),
        ],
    );
}

#[test]
fn burst_credits() {
    sentences(
        json!({"burst_credits": {"rate": "100/s", "peak": "10x", "burst_for": "30s"}}),
        &[
            (0.0, 1, "27000 credits and 1000 peak tokens, costs 1: allowed, 26999 and 999 left"),
            (0.0, 0, "peek: 26999 credits and 999 peak tokens, nothing is charged"),
            (
                0.0,
                1000,
                "26999 credits and 999 peak tokens, costs 1000: denied, the missing 1 peak token comes in 1 ms",
            ),
            (
                0.0,
                1001,
                "costs 1001, but there are at most 27000 credits and 1000 peak tokens: denied, no wait helps",
            ),
        ],
    );
    sentences(
        json!({"burst_credits": {"rate": "1/s", "peak": "5x", "burst_for": "500ms"}}),
        &[
            (0.0, 2, "2 credits and 5 peak tokens, costs 2: allowed, 0 and 3 left"),
            (
                0.5,
                1,
                "0.5 credits and 5 peak tokens, costs 1: denied, the missing 0.5 credits come in 500 ms",
            ),
        ],
    );
    sentences(
        json!({"burst_credits": {"rate": "4/s", "peak": "5/s", "burst_for": "5s"}}),
        &[
            (0.0, 5, "5 credits and 5 peak tokens, costs 5: allowed, 0 and 0 left"),
            (
                0.0,
                1,
                "0 credits and 0 peak tokens, costs 1: denied, the missing 1 credits and 1 peak tokens come within 250 ms",
            ),
        ],
    );
}

#[test]
fn only_the_range_that_is_asked_for_is_explained() {
    let request = json!({
        "rules": [{"token_bucket": {"rate": "1/s", "burst": 3}}, {"sliding_log": {"limit": 3, "window": "1s"}}],
        "arrivals": [{"at": 0}, {"at": 0}, {"at": 0}, {"at": 0}],
        "sentences": {"from": 2, "count": 9},
    });
    let reply = super::reply(&request);
    assert_eq!(reply["rules"][0]["sentences"].as_array().unwrap().len(), 2);
    assert_eq!(
        reply["rules"][1]["sentences"][1],
        "3 of 3 in the last 1 s, costs 1: denied, the oldest leaves in 1 s"
    );
}
