//! Adaptive rates over HTTP: what `PUT /v1/pressure` says is what tenants get.

use std::thread;
use std::time::Duration;

use crate::service::{Client, Service, assert_refused, eventually, json_of, timed};
use serde_json::{Value, json};

const POLICY: &str = "
identity: { tenant: header.x-tenant, client_ip: { trusted_proxies: [127.0.0.1] } }
adaptive_rates: { high: 20ms, low: 10ms, floor: 0.1 }
tiers: { exempt: { shed: 0 }, normal: { shed: 1 } }
default_tier: normal
tenants: { spared: { tier: exempt } }
limits: [{ name: per-tenant, key: [tenant], token_bucket: { rate: 100/s, burst: 10 } }]
";

/// Tells a load, and is told the multiplier.
fn press(client: &mut Client, load: f64) -> f64 {
    let answer = client.0.send("PUT", "/v1/pressure", &[], &json!({ "load": load }).to_string());
    assert_eq!(answer.status, 200, "{answer:?}");
    json_of(&answer)["multiplier"].as_f64().unwrap()
}

fn is_near(number: f64, expected: f64) -> bool {
    (number - expected).abs() < 1e-6
}

#[test]
fn without_the_section_there_is_nothing_to_press() {
    let service = Service::start("limits: []");
    let mut client = service.connect();
    let answer = client.0.send("PUT", "/v1/pressure", &[], r#"{"load": 0.9}"#);
    assert_refused(&answer, "pressure");
    assert_eq!(answer.status, 409);
}

#[test]
fn the_multiplier_follows_the_load_step_by_step() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    for (load, multiplier) in [
        (0.7, 1.0),
        (0.9, 0.8),
        (0.9, 0.64),
        (0.9, 0.512),
        (0.7, 0.512), // neither high nor low
        (0.8, 0.512),
        (0.6, 0.512),
        (0.3, 0.562),
        (0.0, 0.612),
        (0.59, 0.662),
        (0.81, 0.5296),
        (1.0, 0.42368),
    ] {
        let told = press(&mut client, load);
        assert!(is_near(told, multiplier), "after {load}: {told}, not {multiplier}");
        assert!(is_near(client.metric("tollgate_rate_multiplier").unwrap(), multiplier));
    }
    // Down to the floor, and up to what the policy says; no further.
    assert!(is_near((0..20).map(|_| press(&mut client, 1.0)).fold(1.0, f64::min), 0.1));
    assert!(is_near((0..20).map(|_| press(&mut client, 0.0)).fold(0.0, f64::max), 1.0));
    for load in ["-0.1", "1.1", "1e300", "\"high\"", "null"] {
        let answer = client.0.send("PUT", "/v1/pressure", &[], &format!("{{\"load\": {load}}}"));
        assert_refused(&answer, load);
        assert_eq!(client.metric("tollgate_rate_multiplier"), Some(1.0), "{load}");
    }
}

/// How many a second pass of one who asks without a pause for two seconds, once the burst is spent.
fn pace(client: &mut Client, tenant: &str) -> f64 {
    let request = [("tenant", tenant)];
    while client.passes(&request) {}
    let mut admitted = 0;
    let mut spent = Duration::ZERO;
    while spent < Duration::from_secs(2) {
        let (took, passes) = timed(|| client.passes(&request));
        (spent, admitted) = (spent + took, admitted + u64::from(passes));
    }
    admitted as f64 * 1e9 / spent.as_nanos() as f64
}

#[test]
fn tenants_get_their_share_of_the_reduced_rate_and_the_exempt_get_all() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    assert!(is_near((0..3).map(|_| press(&mut client, 0.9)).fold(1.0, f64::min), 0.512));
    let (reduced, full) = thread::scope(|scope| {
        let [mut one, mut other] = [service.connect(), service.connect()];
        let reduced = scope.spawn(move || pace(&mut one, "acme"));
        let full = scope.spawn(move || pace(&mut other, "spared"));
        (reduced.join().unwrap(), full.join().unwrap())
    });
    assert!((45.0..58.0).contains(&reduced), "{reduced} a second of 51");
    assert!((92.0..108.0).contains(&full), "{full} a second of 100");
}

#[test]
fn a_denial_says_that_rates_are_reduced() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let mut denied = |tenant: &str| {
        let denied =
            (0..200).map(|_| client.ask("/", &[("x-tenant", tenant)])).find(|answer| answer.status != 204);
        let denied = denied.unwrap();
        let body = json_of(&denied);
        (denied.status, body["reduced"].clone(), body["retry_after"].as_f64().unwrap())
    };
    let (status, reduced, _) = denied("early");
    assert_eq!((status, reduced), (429, Value::Null));
    let mut presser = service.connect();
    for _ in 0..20 {
        press(&mut presser, 1.0);
    }
    // A tenth of a hundred a second: the next is a tenth of a second away.
    let (status, reduced, wait) = denied("late");
    assert_eq!((status, reduced), (429, json!(true)));
    assert!(wait > 0.05 && wait <= 0.1, "{wait}");
    for _ in 0..20 {
        press(&mut presser, 0.0);
    }
    let (status, reduced, wait) = denied("later");
    assert_eq!((status, reduced), (429, Value::Null));
    assert!(wait <= 0.01, "{wait}");
}

#[test]
fn denied_check_reports_reduced_rates() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let drain = |client: &mut Client, tenant: &str| {
        let replies = (0..200).map(|_| client.check(&[("tenant", tenant)], None));
        replies.into_iter().find(|reply| reply["allowed"] == false).unwrap()
    };
    assert_eq!(drain(&mut client, "early")["reduced"], Value::Null);
    press(&mut client, 0.9);
    assert_eq!(drain(&mut client, "late")["reduced"], true);
    assert_eq!(client.check(&[("tenant", "other")], None)["reduced"], Value::Null, "it is allowed");
}

#[test]
fn without_a_word_for_five_seconds_rates_recover_by_themselves() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    assert!(is_near(press(&mut client, 0.9), 0.8));
    let multiplier = |client: &mut Client| client.metric("tollgate_rate_multiplier").unwrap();
    let (silence, ()) = timed(|| eventually("it recovers", || multiplier(&mut client) > 0.81));
    assert!(is_near(multiplier(&mut client), 0.85));
    assert!((4900..6500).contains(&silence.as_millis()), "{silence:?}");
    let (step, ()) = timed(|| eventually("it recovers further", || multiplier(&mut client) > 0.86));
    assert!(is_near(multiplier(&mut client), 0.9) && step < Duration::from_millis(1500), "{step:?}");
}
