//! `adaptive_rates`: all rates go down while requests wait too long for the application, or it fails, and up again after.

use std::sync::atomic::{AtomicBool, Ordering};

use super::backend::Backend;
use super::running::Gateway;
use crate::service::{eventually, json_of, pause};

const POLICY: &str = "
adaptive_rates: { high: 20ms, low: 10ms, floor: 0.1 }
identity: { tenant: header.x-api-key }
tiers: { free: { shed: 2 }, paying: { shed: 0 } }
default_tier: free
tenants: { globex: { tier: paying }, hostile: { tier: free }, quiet: { tier: free }, one: { tier: free }, two: { tier: free }, three: { tier: free } }
limits: [{ name: per-tenant, match: { path: / }, key: [tenant], fixed_window: { limit: 100, window: 1h } }]
";

const MULTIPLIER: &str = "tollgate_rate_multiplier";

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Many ask for the same at once, again and again, until rates are as low as `at_most`.
fn press(gateway: &Gateway, target: &'static str, at_most: f64) {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            let (mut client, end) = (gateway.connect(), &end);
            scope.spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    client.send("GET", target, &[("x-api-key", "globex")], "");
                }
            });
        }
        // The clients end also where it is not so.
        let _end = End(&end);
        let mut seen = gateway.service.connect();
        eventually("rates go down", || seen.metric(MULTIPLIER).is_some_and(|now| now <= at_most));
    });
}

#[test]
fn rates_go_down_while_requests_wait_and_up_again_after() {
    let backend = Backend::start();
    let queue = "concurrency: { max: 2 }, fair_queue: { by: tenant, max_wait: 5s }";
    let gateway = Gateway::start(&backend, queue, POLICY);
    let mut seen = gateway.service.connect();
    assert_eq!(seen.metric(MULTIPLIER), Some(1.0));
    press(&gateway, "/sleep/20", 0.6);
    eventually("rates are as they were", || seen.metric(MULTIPLIER) == Some(1.0));
}

/// The gateway sees no load and reports that four times per second. The highest pressure that is valid holds.
#[test]
fn a_quiet_gateway_does_not_cancel_reported_pressure() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", POLICY);
    let mut client = gateway.service.connect();
    for expected in [0.8, 0.64, 0.512] {
        let answer = client.0.send("PUT", "/v1/pressure", &[], r#"{"load": 0.9}"#);
        let multiplier = json_of(&answer)["multiplier"].as_f64().unwrap();
        assert!((multiplier - expected).abs() < 1e-6, "{multiplier} instead of {expected}");
        // Long enough for two reports of the gateway.
        pause(std::time::Duration::from_millis(600));
    }
    let multiplier = client.metric(MULTIPLIER).unwrap();
    assert!((multiplier - 0.512).abs() < 1e-6, "{multiplier}");
    let answer = client.0.send("PUT", "/v1/pressure", &[], r#"{"load": 0.1}"#);
    assert!(json_of(&answer)["multiplier"].as_f64().unwrap() > 0.55, "{answer:?}");
}

#[test]
fn whoever_is_shed_first_is_told_so() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", POLICY);
    press(&gateway, "/status/503", 0.52);
    // Of a hundred, the free tier has the square of the multiplier left, and the other all.
    let mut client = gateway.connect();
    let denied = (0..100).find_map(|_| {
        let answer = client.send("GET", "/", &[("x-api-key", "acme")], "");
        (answer.status == 429).then_some(answer)
    });
    let denied = denied.expect("fewer than a hundred pass");
    assert_eq!(json_of(&denied)["reduced"], true, "{denied:?}");
    let answer = client.send("GET", "/", &[("x-api-key", "initech")], "");
    assert_eq!(answer.status, 200, "each tenant has what is left for it: {answer:?}");
}

/// Asks again and again, for as long as the gateway needs to look at the load six times.
fn ask_for_a_while(gateway: &Gateway, requests: &[(&'static str, &'static str)]) {
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for &(tenant, target) in requests {
            let (mut client, end) = (gateway.connect(), &end);
            scope.spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    client.send("GET", target, &[("x-api-key", tenant)], "");
                }
            });
        }
        let _end = End(&end);
        pause(std::time::Duration::from_millis(1500));
    });
}

#[test]
fn one_tenant_that_provokes_errors_slows_nobody() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", POLICY);
    let mut seen = gateway.service.connect();
    // A client can make an application say that it is broken, or that there is no such method, without any load.
    ask_for_a_while(&gateway, &[("hostile", "/status/501"), ("hostile", "/status/500")]);
    assert_eq!(seen.metric(MULTIPLIER), Some(1.0));
    // A tenant whose requests alone fail says little of the application.
    ask_for_a_while(
        &gateway,
        &[("hostile", "/status/503"), ("hostile", "/status/503"), ("quiet", "/sleep/1")],
    );
    assert_eq!(seen.metric(MULTIPLIER), Some(1.0));
    ask_for_a_while(&gateway, &[("one", "/status/503"), ("two", "/status/503"), ("three", "/status/502")]);
    assert!(seen.metric(MULTIPLIER).unwrap() < 1.0);
}
