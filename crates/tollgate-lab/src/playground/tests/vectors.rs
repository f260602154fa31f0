//! The tables of VECTORS.md.

use serde_json::{Value, json};

use super::rule_reply;

/// What a row expects: allowed with a delay, denied with a retry, or never.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Allow,
    Delay(f64),
    Deny(f64),
    Never,
}
use Verdict::{Allow, Delay, Deny, Never};

/// Time, cost, verdict, remaining, reset.
type Row = (f64, u64, Verdict, u64, f64);

/// Compares every column with the rows.
fn compare(what: &str, rule: &Value, rows: &[Row]) -> Value {
    let arrivals: Vec<(f64, u64)> = rows.iter().map(|row| (row.0, row.1)).collect();
    let reply = rule_reply(rule, &arrivals);
    let decisions = &reply["decisions"];
    let mut never = Vec::new();
    for (place, (at, cost, verdict, remaining, reset)) in rows.iter().enumerate() {
        let what = format!("{what}, row {place}: cost {cost} at {at}");
        let (allowed, delay, retry) = match verdict {
            Allow => (true, 0.0, None),
            Delay(delay) => (true, *delay, None),
            Deny(retry) => (false, 0.0, Some(*retry)),
            Never => {
                never.push(place);
                (false, 0.0, None)
            }
        };
        assert_eq!(decisions["allowed"][place], allowed, "{what}: allowed");
        assert_eq!(decisions["delay"][place].as_f64(), Some(delay), "{what}: delay");
        assert_eq!(decisions["retry_after"][place].as_f64(), retry, "{what}: retry");
        assert_eq!(decisions["remaining"][place], *remaining, "{what}: remaining");
        assert_eq!(decisions["reset_after"][place].as_f64(), Some(*reset), "{what}: reset");
    }
    assert_eq!(decisions["never"], json!(never), "{what}");
    reply
}

const BUCKET: &str = r#"{"token_bucket": {"rate": "5/s", "burst": 10}}"#;

fn rule(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn tb_1_burst_then_refill() {
    let mut rows: Vec<Row> = (0..6).map(|n| (0.0, 1, Allow, 9 - n, 0.2 * (n + 1) as f64)).collect();
    rows[2].4 = 0.6;
    rows[5].4 = 1.2;
    let begin = rows.clone();
    rows.extend([
        (0.1, 1, Allow, 3, 1.3),
        (0.2, 1, Allow, 3, 1.4),
        (1.6, 0, Allow, 10, 0.0),
        (2.0, 0, Allow, 10, 0.0),
    ]);
    let reply = compare("TB-1", &rule(BUCKET), &rows);
    assert_eq!(reply["decisions"]["after"][6], 3.5);
    assert_eq!(reply["decisions"]["before"], json!([10, 9, 8, 7, 6, 5, 4.5, 4, 10, 10]));
    assert_eq!(reply["policy"], "token_bucket: { rate: 5/s, burst: 10 }");
    assert_eq!(
        (&reply["capacity"], &reply["rate"], &reply["window_for_most"]),
        (&10.into(), &5.into(), &1.into())
    );
    assert_eq!((&reply["most"], &reply["most_from"], &reply["most_to"]), (&8.into(), &0.into(), &0.2.into()));

    let mut rows = begin;
    rows.extend([
        (0.1, 1, Allow, 3, 1.3),
        (0.2, 1, Allow, 3, 1.4),
        (0.2, 1, Allow, 2, 1.6),
        (0.2, 1, Allow, 1, 1.8),
        (0.2, 1, Allow, 0, 2.0),
        (0.2, 1, Deny(0.2), 0, 2.0),
    ]);
    let reply = compare("TB-1, variant", &rule(BUCKET), &rows);
    assert_eq!((&reply["allowed"], &reply["denied"]), (&11.into(), &1.into()));
}

#[test]
fn tb_3_costs() {
    let rows = [
        (0.0, 7, Allow, 3, 1.4),
        (0.0, 4, Deny(0.2), 3, 1.4),
        (0.0, 3, Allow, 0, 2.0),
        (0.0, 11, Never, 0, 2.0),
        (0.0, 0, Allow, 0, 2.0),
        (0.8, 4, Allow, 0, 2.0),
    ];
    compare("TB-3", &rule(BUCKET), &rows);
    let gcra = json!({"token_bucket": {"rate": "5/s", "burst": 10}, "view": "gcra"});
    let reply = compare("TB-3, as GCRA", &gcra, &rows);
    assert_eq!(reply["decisions"]["after"], json!([1.4, 1.4, 2, 2, 2, 2]));
    assert_eq!(
        (&reply["name"], &reply["view"], &reply["curve"]["max"]),
        (&"gcra".into(), &"gcra".into(), &2.into())
    );
}

#[test]
fn tb_9_a_rate_that_does_not_divide() {
    let rule = json!({"token_bucket": {"rate": "3/s", "burst": 3}});
    let mut rows = vec![(0.0, 3, Allow, 0, 1.0), (0.333_333_333, 1, Deny(0.000_000_001), 0, 0.666_666_667)];
    for k in 1..=2999_u64 {
        let at = (k * 1_000_000_000).div_ceil(3);
        // The schedule reaches exactly one second ahead of the third of a nanosecond at which the token came.
        let reset = (k + 3) * 1_000_000_000;
        let reset = reset.div_ceil(3) - at;
        rows.push((at as f64 / 1e9, 1, Allow, 0, reset as f64 / 1e9));
    }
    rows.push((999.999_999_999, 1, Deny(0.000_000_001), 0, 0.666_666_668));
    rows.push((1000.0, 1, Allow, 0, 1.0)); // the 3000th
    compare("TB-9", &rule, &rows);
}

#[test]
fn lq_2_a_burst_leaves_one_by_one() {
    let rule = json!({"leaky_bucket": {"rate": "1/s", "queue": 50}});
    let mut rows: Vec<Row> = (0..50)
        .map(|n| (0.0, 1, if n == 0 { Allow } else { Delay(n as f64) }, 49 - n, (n + 1) as f64))
        .collect();
    rows.push((0.0, 1, Deny(1.0), 0, 50.0));
    let reply = compare("LQ-2", &rule, &rows);
    assert_eq!((&reply["delayed"], &reply["most"]), (&49.into(), &1.into()));
    let releases = reply["releases"].as_array().unwrap();
    assert_eq!((&releases[0], &releases[49], &releases[50]), (&0.into(), &49.into(), &Value::Null));
    let load: u64 = reply["load"].as_array().unwrap().iter().map(|cost| cost.as_u64().unwrap()).sum();
    assert_eq!(load, 50);
}

#[test]
fn fw_1_twice_the_limit_around_an_edge() {
    let rule = json!({"fixed_window": {"limit": 10, "window": "60s"}});
    let mut rows: Vec<Row> = (0..10).map(|n| (50.0 + n as f64, 1, Allow, 9 - n, 10.0 - n as f64)).collect();
    rows.push((59.5, 1, Deny(0.5), 0, 0.5));
    rows.extend((0..10).map(|n| (60.0 + n as f64, 1, Allow, 9 - n, 60.0 - n as f64)));
    let reply = compare("FW-1", &rule, &rows);
    assert_eq!(
        (&reply["most"], &reply["most_from"], &reply["most_to"]),
        (&20.into(), &50.into(), &69.into())
    );
    assert_eq!(reply["edges"], json!([0, 60]));
}

#[test]
fn fw_3_costs_and_denial() {
    let rule = json!({"fixed_window": {"limit": 10, "window": "60s"}});
    let rows = [(0.0, 8, Allow, 2, 60.0), (1.0, 3, Deny(59.0), 2, 59.0), (2.0, 2, Allow, 0, 58.0)];
    let reply = compare("FW-3", &rule, &rows);
    assert_eq!(reply["decisions"]["after"], json!([8, 8, 10]));
}

#[test]
fn sl_1_one_at_a_time() {
    let rule = json!({"sliding_log": {"limit": 3, "window": "10s"}});
    let rows = [
        (0.0, 1, Allow, 2, 10.0),
        (1.0, 1, Allow, 1, 10.0),
        (2.0, 1, Allow, 0, 10.0),
        (3.0, 1, Deny(7.0), 0, 9.0),
        (9.999_999_999, 1, Deny(0.000_000_001), 0, 2.000_000_001),
        (10.0, 1, Allow, 0, 10.0),
        (10.5, 1, Deny(0.5), 0, 9.5),
    ];
    compare("SL-1", &rule, &rows);
}

#[test]
fn sl_3_costs() {
    let rule = json!({"sliding_log": {"limit": 5, "window": "10s"}});
    let rows = [
        (0.0, 3, Allow, 2, 10.0),
        (4.0, 2, Allow, 0, 10.0),
        (5.0, 1, Deny(5.0), 0, 9.0),
        (5.0, 3, Deny(5.0), 0, 9.0),
        (5.0, 4, Deny(9.0), 0, 9.0),
        (5.0, 6, Never, 0, 9.0),
    ];
    compare("SL-3", &rule, &rows);
}

#[test]
fn sc_1_the_estimate_keeps_its_fraction() {
    let begin = [(0.0, 42, Allow, 8, 120.0), (60.0, 0, Allow, 8, 60.0)];
    let rule = |limit: u64| json!({"sliding_counter": {"limit": limit, "window": "60s"}});
    let passed = 75.714_285_715;
    let mut rows = begin.to_vec();
    rows.extend([
        (75.0, 18, Allow, 0, 105.0),
        (75.0, 1, Deny(0.714_285_715), 0, 105.0),
        (75.714_285_714, 1, Deny(0.000_000_001), 0, 104.285_714_286),
        (passed, 1, Allow, 0, 104.285_714_285),
    ]);
    let reply = compare("SC-1", &rule(50), &rows);
    assert_eq!(reply["decisions"]["before"][3], 49.5);
    assert_eq!(
        reply["counter"]["old"].as_array().unwrap().iter().max_by_key(|old| old.as_u64()),
        Some(&42.into())
    );
    let mut rows =
        begin.map(|(at, cost, verdict, remaining, reset)| (at, cost, verdict, remaining + 1, reset)).to_vec();
    rows.extend([(75.0, 18, Allow, 1, 105.0), (75.0, 1, Allow, 0, 105.0)]);
    compare("SC-1, limit 51", &rule(51), &rows);
}

#[test]
fn sc_2_retry_beyond_the_window() {
    let rule = json!({"sliding_counter": {"limit": 10, "window": "60s"}});
    let rows = [
        (60.0, 10, Allow, 0, 120.0),
        (80.0, 1, Deny(46.0), 0, 100.0),
        (125.999_999_999, 1, Deny(0.000_000_001), 0, 54.000_000_001),
        (126.0, 1, Allow, 0, 114.0),
    ];
    compare("SC-2", &rule, &rows);
}

/// BC-2 with a hundredth of the credits: 270 of them, full, and one request per millisecond.
#[test]
fn bc_2_credits_last_as_long_as_they_should_at_the_peak() {
    let rule = json!({"burst_credits": {"rate": "100/s", "peak": "10x", "burst_for": "300ms"}});
    let arrivals: Vec<(f64, u64)> = (0..400).map(|ms| (f64::from(ms) / 1e3, 1)).collect();
    let reply = rule_reply(&rule, &arrivals);
    let decisions = &reply["decisions"];
    let allowed: Vec<bool> = serde_json::from_value(decisions["allowed"].clone()).unwrap();
    assert_eq!(allowed.iter().position(|allowed| !allowed), Some(299));
    assert_eq!((&decisions["retry_after"][299], &decisions["remaining"][299]), (&0.001.into(), &0.into()));
    let later = |from: usize| allowed[from..from + 10].iter().filter(|allowed| **allowed).count();
    assert_eq!([300, 310, 350, 390].map(later), [1; 4]);
    assert_eq!((&reply["curve"]["max"], &reply["curve"]["max2"]), (&270.into(), &1000.into()));
    assert_eq!((&reply["rate"], &reply["window"]), (&100.into(), &Value::Null));
}
