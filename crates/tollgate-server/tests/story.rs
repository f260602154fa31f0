//! The ride-hailing story, end to end: `examples/ridehailing.yaml` in the real binary, with its minutes made seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::service::{Client, Service, pause, repository};
use serde_json::{Value, json};

/// The example, on a free port, with windows of three seconds.
fn story() -> Service {
    let file = std::fs::read_to_string(repository("examples/ridehailing.yaml")).unwrap();
    let (listen, rest) = file.split_once("\nheaders:").unwrap();
    assert!(listen.contains("http: 127.0.0.1:8080"), "the part that is left out here");
    Service::start(&format!("headers:{}", rest.replace("window: 60s", "window: 3s")))
}

/// Waits until a window of three seconds has just begun.
#[expect(clippy::disallowed_methods, reason = "windows begin by the time of day")]
fn until_window_begins() {
    let into = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() % 3_000_000_000;
    pause(Duration::from_nanos((3_000_000_000 - into) as u64 + 1_000_000));
}

fn limit<'v>(reply: &'v Value, name: &str) -> &'v Value {
    let limits = reply["limits"].as_array().unwrap();
    limits.iter().find(|limit| limit["name"] == name).unwrap_or_else(|| panic!("{name} in {reply}"))
}

/// How many of so many requests at once pass.
fn passed(client: &mut Client, requests: usize, attributes: &[(&str, &str)]) -> usize {
    (0..requests).filter(|_| client.passes(attributes)).count()
}

#[test]
fn six_calls_on_opening_the_app_pass_and_the_eleventh_does_not() {
    let service = story();
    let mut client = service.connect();
    let paths = ["/api/rides/request", "/api/fares/estimate", "/api/drivers/nearby"];
    for i in 0..10 {
        let reply = client.check(&[("tenant", "globex"), ("user", "rider"), ("path", paths[i % 3])], None);
        assert_eq!(reply["allowed"], true, "{i}: {reply}");
    }
    let reply = client.check(&[("tenant", "globex"), ("user", "rider"), ("path", paths[0])], None);
    // At five a second one may have come back in the meantime, not more.
    if reply["allowed"] == true {
        assert_eq!(passed(&mut client, 1, &[("tenant", "globex"), ("user", "rider"), ("path", paths[0])]), 0);
    } else {
        assert_eq!((&reply["reason"], limit(&reply, "app-open")["allowed"] == true), (&json!("rate"), false));
        assert!(reply["retry_after"].as_f64().unwrap() <= 0.2, "{reply}");
    }
    assert!(client.passes(&[("tenant", "globex"), ("user", "another"), ("path", paths[0])]));
}

#[test]
fn driver_locations_are_told_rising_delays() {
    let service = story();
    let mut client = service.connect();
    let post = json!({ "attributes": {
        "tenant": "globex", "method": "POST", "path": "/api/drivers/location" } });
    // More than fit, in arrays: at 3000 a second, the 5000 that fit take 1.67 s to leave. The tenant pays for none of it
    // here, since its own limit would come first: cost goes to both.
    let batch = Value::Array(vec![post; 500]);
    let (mut delays, mut denied) = (Vec::new(), 0);
    for _ in 0..4 {
        let answer = client.post("/v1/check", &batch);
        let replies: Vec<Value> = serde_json::from_str(&answer.body).unwrap();
        for reply in &replies {
            match reply["allowed"] == true {
                true => delays.push(reply["delay"].as_f64().unwrap()),
                false => denied += 1,
            }
        }
    }
    // The tenant's 2000 at once are what stops it first; until then every delay is longer than the one before.
    assert!(delays.len() >= 1990, "{} passed, {denied} were denied", delays.len());
    assert!(delays.windows(2).take(400).all(|pair| pair[1] > pair[0]), "{:?}", &delays[..10]);
    assert!(delays[400] > 0.05, "{}", delays[400]);
}

/// The bucket alone, without a tenant's limit before it.
#[test]
fn the_queue_of_driver_locations_holds_five_thousand() {
    let service = Service::start(
        "limits: [{ name: driver-location, key: [], leaky_bucket: { rate: 300/s, queue: 5000 } }]",
    );
    let mut client = service.connect();
    let batch = Value::Array(vec![json!({ "attributes": {} }); 1000]);
    let mut replies: Vec<Value> = Vec::new();
    for _ in 0..6 {
        replies.extend(serde_json::from_str::<Vec<Value>>(&client.post("/v1/check", &batch).body).unwrap());
    }
    let allowed = replies.iter().filter(|reply| reply["allowed"] == true).count();
    // While they came, at 300 a second, some left: fewer than in two seconds.
    assert!((5000..5600).contains(&allowed), "{allowed}");
    let last = replies.last().unwrap();
    assert_eq!((&last["allowed"], &last["reason"]), (&json!(false), &json!("rate")));
    assert!(last["retry_after"].as_f64().unwrap() <= 1.0 / 300.0, "{last}");
    let longest = replies.iter().filter_map(|reply| reply["delay"].as_f64()).fold(0.0, f64::max);
    assert!((16.0..=16.7).contains(&longest), "{longest}");
}

#[test]
fn the_admin_limit_lets_twice_as_much_pass_at_its_boundary() {
    let service = story();
    let mut client = service.connect();
    let admin = [("tenant", "acme"), ("path", "/api/admin/users")];
    until_window_begins();
    pause(Duration::from_millis(2600));
    let before = passed(&mut client, 12, &admin);
    pause(Duration::from_millis(500));
    let after = passed(&mut client, 12, &admin);
    assert_eq!((before, after), (10, 10)); // within half a second, of a limit of 10 in three
}

#[test]
fn the_partners_limit_holds_in_any_span_of_its_window() {
    let service = story();
    let mut client = service.connect();
    let fleet = [("tenant", "acme"), ("path", "/api/fleet/cars")];
    until_window_begins();
    pause(Duration::from_millis(2600));
    let before = passed(&mut client, 120, &fleet);
    pause(Duration::from_millis(500));
    let after = passed(&mut client, 20, &fleet);
    assert_eq!((before, after), (100, 0)); // the boundary makes no difference
    pause(Duration::from_millis(2600));
    assert!(client.passes(&fleet)); // three seconds after the first
}

#[test]
fn tiers_tenants_and_costs_are_as_the_policy_says() {
    let service = story();
    let mut client = service.connect();
    for (tenant, capacity) in [("nobody", 20), ("acme", 200), ("globex", 2000)] {
        let reply = client.check(&[("tenant", tenant), ("path", "/")], Some(0));
        assert_eq!(limit(&reply, "per-tenant")["limit"], capacity, "{tenant}");
    }
    // An export costs ten; the third of three is one too many for twenty.
    let export = [("tenant", "exporter"), ("method", "POST"), ("path", "/export/all")];
    assert_eq!(passed(&mut client, 3, &export), 2);
    let reply = client.check(&export, None);
    // At 100 a minute, ten come back in six seconds.
    let wait = reply["retry_after"].as_f64().unwrap();
    assert!((5.0..=6.0).contains(&wait), "{wait}");
}

#[test]
fn a_tenants_denial_costs_the_user_nothing() {
    let service = story();
    let mut client = service.connect();
    let open = [("tenant", "small"), ("user", "rider"), ("path", "/api/drivers/nearby")];
    // The tenant is spent by others.
    assert_eq!(client.check(&[("tenant", "small"), ("user", "x")], Some(20))["allowed"], true);
    for _ in 0..5 {
        let reply = client.check(&open, None);
        assert_eq!((&reply["allowed"], &limit(&reply, "app-open")["allowed"]), (&json!(false), &json!(true)));
    }
    assert_eq!(client.remaining("app-open", &open), 10);
}

#[test]
fn shadow_is_reported_and_never_enforced() {
    let service = story();
    let mut client = service.connect();
    let request = [("tenant", "globex"), ("user", "watched"), ("path", "/")];
    until_window_begins();
    let replies: Vec<Value> = (0..60).map(|_| client.check(&request, None)).collect();
    assert!(replies.iter().all(|reply| reply["allowed"] == true));
    assert!(replies.iter().all(|reply| reply["limits"].as_array().unwrap().len() == 1));
    let last = &replies[59]["shadow"][0];
    assert_eq!(
        (&last["name"], &last["allowed"], &last["reason"]),
        (&json!("candidate"), &json!(false), &json!("rate"))
    );
    let metrics = client.get("/metrics").body;
    let counted =
        "tollgate_decisions_total{limit=\"candidate\",outcome=\"shadow_deny\",protocol=\"http\"} 30";
    assert!(metrics.contains(counted), "{metrics}");
}

#[test]
fn searches_in_flight_are_counted_while_they_are() {
    let service = story();
    let mut client = service.connect();
    let search = json!({ "attributes": { "tenant": "acme", "path": "/api/search" } });
    let mut acquire =
        || -> Value { serde_json::from_str(&client.post("/v1/acquire", &search).body).unwrap() };
    let permits: Vec<String> = (0..20).map(|_| acquire()["permit"].as_str().unwrap().to_owned()).collect();
    let denied = acquire();
    assert_eq!((&denied["reason"], &denied["permit"]), (&json!("in_flight"), &Value::Null));
    assert!((29.0..=30.0).contains(&denied["retry_after"].as_f64().unwrap()), "{denied}");
    let release =
        |client: &mut Client, permit: &str| client.post("/v1/release", &json!({ "permit": permit })).body;
    assert_eq!(release(&mut client, &permits[0]), r#"{"released":true}"#);
    assert_eq!(release(&mut client, &permits[0]), r#"{"released":false}"#);
    let again: Value = serde_json::from_str(&client.post("/v1/acquire", &search).body).unwrap();
    assert_eq!(again["allowed"], true);
    // A check can hold nothing, and is not denied for it.
    assert!(client.passes(&[("tenant", "acme"), ("path", "/api/search")]));
}

#[test]
fn a_login_is_held_rather_than_refused() {
    let service = story();
    let mut client = service.connect();
    // Ten a minute: after five at once the next token is six seconds away, which is too long to hold.
    let login = [("tenant", "globex"), ("user", "forgetful"), ("path", "/login")];
    assert_eq!(passed(&mut client, 6, &login), 5);
    let reply = client.check(&login, None);
    assert!((5.0..5.6).contains(&reply["retry_after"].as_f64().unwrap()), "{reply}"); // half a second less
}
