//! Another `gateway:` in the policy file, while clients are connected.

use super::backend::Backend;
use super::running::Gateway;
use crate::service::{eventually, json_of};

fn url(backend: &Backend) -> String {
    format!("http://{}", backend.address)
}

#[test]
fn requests_go_to_other_places_and_no_client_notices() {
    let [old, kept, new] = [(); 3].map(|()| Backend::start());
    let gateway = Gateway::before(&format!("['{}', '{}']", url(&old), url(&kept)), "", "");
    let mut clients: Vec<_> = (0..4).map(|_| gateway.connect()).collect();
    let mut ask = || {
        for client in &mut clients {
            for _ in 0..4 {
                assert_eq!(client.send("GET", "/", &[], "").status, 200);
            }
        }
    };
    ask();
    assert_eq!(old.arrived().len() + kept.arrived().len(), 16);
    let connections = kept.connections();
    let told = gateway.reload(&format!("['{}', '{}']", url(&kept), url(&new)), "", "");
    assert_eq!(told["needs_restart"], serde_json::json!([]));
    let before = old.arrived().len();
    ask();
    assert_eq!(old.arrived().len(), before);
    assert!(!new.arrived().is_empty());
    assert!(kept.connections() <= connections.max(1), "connections to a place that stays are kept");
    let metrics = gateway.service.connect().get("/metrics").body;
    assert!(metrics.contains(&format!("tollgate_upstream_up{{upstream=\"{}\"}} 1", new.address)));
    assert!(!metrics.contains(&old.address.to_string()));
}

/// Ten ask at once of an application that has two slots, then five.
#[test]
fn more_slots_are_for_those_who_wait_already() {
    let backend = Backend::start();
    let slots =
        |max: usize| format!("concurrency: {{ max: {max} }}, fair_queue: {{ by: ip, max_wait: 20s }}");
    let gateway = Gateway::start(&backend, &slots(2), "");
    std::thread::scope(|scope| {
        for _ in 0..10 {
            let mut client = gateway.connect();
            scope.spawn(move || assert_eq!(client.send("GET", "/sleep/300", &[], "").status, 200));
        }
        eventually("two are at work", || backend.most_inside() == 2);
        let told = gateway.reload(&url(&backend), &slots(5), "");
        assert_eq!(told["needs_restart"], serde_json::json!([]));
        eventually("five are at work", || backend.most_inside() == 5);
    });
    assert_eq!(backend.most_inside(), 5);
    assert_eq!(gateway.service.connect().metric("tollgate_limit_current"), Some(5.0));
    // Who has a slot keeps it, however slots are shared from now on.
    std::thread::scope(|scope| {
        for _ in 0..5 {
            let mut client = gateway.connect();
            scope.spawn(move || assert_eq!(client.send("GET", "/sleep/300", &[], "").status, 200));
        }
        let mut seen = gateway.service.connect();
        eventually("all slots are taken", || seen.metric("tollgate_inflight") == Some(5.0));
        let other = "concurrency: { max: 5 }, fair_queue: { by: host, per_key: 1, max_wait: 10ms }";
        let told = gateway.reload(&url(&backend), other, "");
        assert_eq!(told["changes"], serde_json::json!(["`gateway` has changed"]));
        assert_eq!(seen.metric("tollgate_inflight"), Some(5.0));
        assert_eq!(gateway.connect().send("GET", "/", &[], "").status, 503);
    });
    // A controller, and none at all.
    let adaptive =
        "concurrency: { adaptive: gradient, min: 3, max: 3 }, fair_queue: { by: ip, max_wait: 20s }";
    gateway.reload(&url(&backend), adaptive, "");
    assert_eq!(gateway.service.connect().metric("tollgate_limit_current"), Some(3.0));
    gateway.reload(&url(&backend), "", "");
    assert_eq!(gateway.service.connect().metric("tollgate_limit_current"), None);
    assert_eq!(gateway.connect().send("GET", "/", &[], "").status, 200);
}

#[test]
fn bounds_are_those_of_the_policy_in_force() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "max_body: 10, timeouts: { answer: 60s }", "");
    let mut client = gateway.connect();
    assert_eq!(client.send("POST", "/", &[], "ten bytes.").status, 200);
    gateway.reload(&url(&backend), "max_body: 9, timeouts: { answer: 50ms }", "");
    assert_eq!(client.send("GET", "/sleep/2000", &[], "").status, 504);
    assert_eq!(gateway.connect().send("POST", "/", &[], "ten bytes.").status, 413);
    gateway.reload(&url(&backend), "timeouts: { answer: 60s }", "");
    assert_eq!(gateway.connect().send("POST", "/sleep/100", &[], "ten bytes.").status, 200);
}

#[test]
fn a_policy_without_a_gateway_leaves_it_as_it_is() {
    let backend = Backend::start();
    let gateway = Gateway::start(&backend, "", "");
    let listen = "listen: { http: '127.0.0.1:0' }\nlimits: []\n";
    gateway.service.directory.write("tollgate.yaml", listen);
    let told = json_of(&gateway.service.connect().post("/v1/reload", &serde_json::json!({})));
    assert_eq!(told["needs_restart"], serde_json::json!(["listen", "gateway"]), "{told}");
    assert_eq!(gateway.connect().send("GET", "/", &[], "").status, 200);
}
