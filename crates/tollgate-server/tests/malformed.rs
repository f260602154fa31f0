//! A body that makes no sense is refused in words and costs nothing.

use std::net::SocketAddr;

use crate::service::{Service, assert_refused, json_of};
use serde_json::{Value, json};
use tollgate_testkit::http::Answer;
use tollgate_testkit::{Http, Random};

const POLICY: &str = "
tiers: { free: {}, pro: {} }
default_tier: free
adaptive_rates: { high: 20ms, low: 10ms, floor: 0.5 }
limits:
  - { name: guarded, key: [tenant], match: { attributes: { guard: 'yes' } }, token_bucket: { rate: 1/day, burst: 50000 } }
  - { name: in-flight, key: [tenant], match: { attributes: { guard: 'yes' } }, concurrency: { limit: 1000 } }
";

/// Every endpoint that reads a body, with one that it takes.
fn endpoints() -> Vec<(&'static str, &'static str, Value)> {
    let check =
        json!({ "attributes": { "tenant": "victim", "guard": "yes", "path": "/a b\u{e9}" }, "cost": 3 });
    vec![
        ("POST", "/v1/check", check.clone()),
        ("POST", "/v1/check", json!([check, check, check])),
        ("POST", "/v1/acquire", check.clone()),
        ("POST", "/v1/explain", check),
        (
            "POST",
            "/v1/throttle",
            json!({ "key": "victim", "token_bucket": { "rate": "1/day", "burst": 1000 }, "cost": 2 }),
        ),
        (
            "POST",
            "/v1/throttle",
            json!({ "key": "victim", "sliding_counter": { "limit": 1000, "window": "1day", "mode": "strict" } }),
        ),
        ("POST", "/v1/release", json!({ "permit": "0123456789abcdef0123456789abcdef" })),
        ("PUT", "/v1/tenants/victim", json!({ "tier": "pro" })),
        ("PUT", "/v1/pressure", json!({ "load": 0.7 })),
    ]
}

/// A body that is wrong whatever the endpoint: in its syntax, its shape, its types or its size.
fn wrong_body(random: &mut Random, right: &Value) -> Vec<u8> {
    let text = right.to_string();
    let mut bytes = text.clone().into_bytes();
    let place = random.below(bytes.len() as u64) as usize;
    match random.below(11) {
        0 => bytes.truncate(place),
        1 => bytes.extend_from_slice(random.pick(&["}", "]", ",", "{}", "\0", " x"]).as_bytes()),
        // Nothing that begins with one of these is JSON of an object or an array.
        2 => bytes[0] = *random.pick(&[b'(', b'"', 0xff, 0, b'<', b'}', b'-']),
        3 => {
            bytes = random
                .pick(&["", " ", "null", "true", "7", "\"text\"", "[7]", "[null]", "{}", "[[]]", "NaN"])
                .as_bytes()
                .to_vec()
        }
        4 => {
            let open = random.pick(&["[", "{\"attributes\":", "{\"a\":[", "{\"token_bucket\":"]);
            bytes = open.repeat(random.between(1, 3000) as usize).into_bytes();
        }
        5 => {
            return with_field(right, |fields| {
                let name = format!("unknown{}", random.below(100));
                _ = fields.insert(name, json!(1));
            });
        }
        6 => return with_field(right, |fields| _ = fields.shift_remove(&first(fields))),
        7 => {
            let wrong = [
                json!(null),
                json!(true),
                json!(-1),
                json!(1.5),
                json!([]),
                json!([1]),
                json!({ "a": 1 }),
                json!(1e300),
            ];
            return with_field(right, |fields| _ = fields.insert(first(fields), random.pick(&wrong).clone()));
        }
        // A number that no number can hold, for the last field, and for the first.
        8 => {
            let huge = format!("{}{}", random.pick(&["", "-"]), "9".repeat(random.between(20, 400) as usize));
            return text.replacen(":", &format!(":{huge},\"x\":"), 1).into_bytes();
        }
        9 => return with_twice(right),
        // Bytes that are no text, where text stands.
        _ => {
            let quote = text.find(":\"").map_or(1, |quote| quote + 2);
            bytes.splice(
                quote..quote,
                random
                    .pick(&[
                        &b"\xff"[..],
                        b"\xc3\x28",
                        b"\xed\xa0\x80",
                        b"\xf8\x88",
                        b"\n",
                        b"\\x",
                        b"\\ud800",
                    ])
                    .iter()
                    .copied(),
            );
            if text.find(":\"").is_none() {
                bytes.insert(1, 0xff);
            }
        }
    }
    bytes
}

fn first(fields: &serde_json::Map<String, Value>) -> String {
    fields.keys().next().unwrap().clone()
}

/// The body with its object changed, or one of its objects.
fn with_field(right: &Value, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Vec<u8> {
    let mut wrong = right.clone();
    let object = match &mut wrong {
        Value::Array(all) => all.last_mut().unwrap(),
        one => one,
    };
    change(object.as_object_mut().unwrap());
    wrong.to_string().into_bytes()
}

/// The body with a field of its object said twice.
fn with_twice(right: &Value) -> Vec<u8> {
    let text = right.to_string();
    let object = text.rfind("{\"attributes\"").unwrap_or(0);
    let (field, value) = (&text[object + 1..], right.as_array().map_or(right, |all| all.last().unwrap()));
    let (name, value) = value.as_object().unwrap().iter().next().unwrap();
    format!("{}{}:{value},{field}", &text[..=object], json!(name)).into_bytes()
}

/// The body with a few bytes changed, which may leave it right.
fn changed_body(random: &mut Random, right: &Value) -> Vec<u8> {
    let mut bytes = right.to_string().into_bytes();
    for _ in 0..random.between(1, 4) {
        let place = random.below(bytes.len() as u64) as usize;
        match random.below(4) {
            0 => bytes[place] ^= 1 << random.below(8),
            1 => bytes[place] = random.below(256) as u8,
            2 => bytes.insert(place, random.below(256) as u8),
            _ => _ = bytes.remove(place),
        }
    }
    bytes
}

/// Sends a body. The connection is kept until the server closes it, which it may after a body it has not read.
fn send(client: &mut Http, address: SocketAddr, method: &str, target: &str, body: &[u8]) -> Answer {
    let answer = client.try_send(method, target, &[], body);
    let answer = answer
        .unwrap_or_else(|error| panic!("{method} {target} {:?}: {error}", String::from_utf8_lossy(body)));
    if body.len() > 1 << 20 || answer.header("connection") == Some("close") {
        *client = Http::connect(address);
    }
    answer
}

#[test]
fn ten_thousand_malformed_bodies_are_refused_in_words_and_cost_nothing() {
    let service = Service::start(POLICY);
    let mut client = Http::connect(service.address);
    let mut random = Random::new(7);
    let endpoints = endpoints();
    for _ in 0..10_000 {
        let (method, target, right) = random.pick(&endpoints);
        let body = wrong_body(&mut random, right);
        let answer = send(&mut client, service.address, method, target, &body);
        assert_refused(&answer, (target, String::from_utf8_lossy(&body)));
    }
    assert_untouched(&service);
}

#[test]
fn too_long_names_values_bodies_and_lists_are_refused_and_cost_nothing() {
    let service = Service::start(POLICY);
    let mut client = Http::connect(service.address);
    let long = "n".repeat(4097);
    let check = |name: &str, value: &str| json!({ "attributes": { "tenant": "victim", "guard": "yes", name: value } });
    let many: serde_json::Map<String, Value> = (0..65).map(|i| (format!("guard{i}"), json!("yes"))).collect();
    let right = check("a", "b");
    let targets = ["/v1/check", "/v1/acquire", "/v1/explain"];
    for (status, body) in [
        (422, check(&long, "x").to_string()),
        (422, check("x", &long).to_string()),
        (422, json!({ "attributes": many }).to_string()),
        (413, format!("{right}{}", " ".repeat(1 << 20))),
        (413, " ".repeat((1 << 20) + 1)),
    ] {
        for target in targets {
            let answer = send(&mut client, service.address, "POST", target, body.as_bytes());
            assert_refused(&answer, target);
            assert_eq!(answer.status, status, "{answer:?}");
        }
    }
    for (body, status) in [
        (Value::Array(vec![right.clone(); 1025]), 422),
        (json!([right, right, { "attributes": { "tenant": "victim" }, "cost": -1 }]), 422),
        (json!([right, right, check("x", &long)]), 422),
        (json!([[right]]), 422),
    ] {
        let answer = send(&mut client, service.address, "POST", "/v1/check", body.to_string().as_bytes());
        assert_refused(&answer, status);
        assert_eq!(answer.status, status, "{answer:?}");
    }
    let throttle = json!({ "key": long, "token_bucket": { "rate": "1/s" } }).to_string();
    assert_refused(&send(&mut client, service.address, "POST", "/v1/throttle", throttle.as_bytes()), "key");
    assert_refused(
        &send(&mut client, service.address, "PUT", &format!("/v1/tenants/{long}"), b"{\"tier\":\"pro\"}"),
        "id",
    );
    assert_untouched(&service);
}

/// That what only malformed requests were about is as it was.
fn assert_untouched(service: &Service) {
    let mut client = service.connect();
    let victim = [("tenant", "victim"), ("guard", "yes")];
    assert_eq!(client.remaining("guarded", &victim), 50_000);
    let throttle = json!({ "key": "victim", "token_bucket": { "rate": "1/day", "burst": 1000 }, "cost": 0 });
    assert_eq!(json_of(&client.post("/v1/throttle", &throttle))["limits"][0]["remaining"], 1000);
    let attributes = json!({ "attributes": { "tenant": "victim", "guard": "yes" }, "cost": 1 });
    let all = json_of(&client.post("/v1/acquire", &attributes));
    assert_eq!(all["limits"][1]["remaining"], 999, "{all}");
    assert_eq!(client.metric("tollgate_rate_multiplier"), Some(1.0));
    assert_eq!(client.get("/livez").status, 200);
}

#[test]
fn bodies_with_changed_bytes_are_charged_only_where_the_answer_says_so() {
    let service = Service::start(POLICY);
    let mut client = Http::connect(service.address);
    let mut random = Random::new(8);
    let right = json!({ "attributes": { "tenant": "victim", "guard": "yes" }, "cost": 3 });
    let (mut charged, mut refused) = (0, 0);
    for _ in 0..5000 {
        let body = changed_body(&mut random, &right);
        let answer = send(&mut client, service.address, "POST", "/v1/check", &body);
        if answer.status != 200 {
            assert_refused(&answer, String::from_utf8_lossy(&body));
            refused += 1;
            continue;
        }
        // It was right after all: then it is what a reader of JSON says it is.
        let asked: Value = serde_json::from_slice(&body).unwrap();
        let of_victim = asked["attributes"] == right["attributes"];
        assert!(asked["cost"].is_u64() || asked.get("cost").is_none(), "{asked}");
        if of_victim && json_of(&answer)["allowed"] == true {
            charged += asked["cost"].as_u64().unwrap_or(1);
        }
    }
    assert!(refused > 2000 && charged > 0, "{refused} refused, {charged} charged");
    let left = service.connect().remaining("guarded", &[("tenant", "victim"), ("guard", "yes")]);
    assert_eq!(left, 50_000 - charged);
    for (method, target, right) in &endpoints() {
        for _ in 0..300 {
            let body = changed_body(&mut random, right);
            let answer = send(&mut client, service.address, method, target, &body);
            if answer.status != 200 {
                assert_refused(&answer, (target, String::from_utf8_lossy(&body)));
            }
        }
    }
}

#[test]
fn what_is_no_object_is_refused_and_costs_nothing() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let attributes = json!({ "tenant": "victim", "guard": "yes" });
    assert_refused(&client.post("/v1/check", &json!([[attributes, 1]])), "a list in a list");
    assert_refused(&client.post("/v1/acquire", &json!([attributes, 1])), "a list");
    assert_refused(&client.post("/v1/release", &json!(["0123456789abcdef0123456789abcdef"])), "a list");
    assert_refused(&client.0.send("PUT", "/v1/tenants/a", &[], r#"["pro"]"#), "a list");
    assert_untouched(&service);
}
