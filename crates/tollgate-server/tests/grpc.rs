//! Envoy's rate limit service over gRPC, asked by a client made from all of Envoy's own protos: whatever our subset has
//! wrong, a field that ends up elsewhere or not at all, would show here.

use crate::envoy_client::{Envoy, descriptor};
use crate::service::{Directory, Service, TOLLGATE, json_of};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use serde_json::json;
use tonic::Code as Grpc;

const POLICY: &str = "
limits:
  - name: edge/path
    descriptor: { domain: edge, entries: [{ key: path }], name: paths, metadata: { team: core } }
    fixed_window: { limit: 10, window: 1day }
  - name: edge/blocked
    descriptor: { domain: edge, entries: [{ key: blocked }], blocked: true }
    fixed_window: { limit: 1, window: 60s }
  - name: edge/watched
    descriptor: { domain: edge, entries: [{ key: watched }] }
    fixed_window: { limit: 1, window: 1day }
    shadow: true
  - name: edge/free
    descriptor: { domain: edge, entries: [{ key: free }] }
    unlimited: true
  - name: per-user
    match: { attributes: { domain: edge, user: '*' } }
    key: [user]
    token_bucket: { rate: 100/min, burst: 20 }
";

fn status(response: &RateLimitResponse, place: usize) -> (Code, Option<(u32, Unit, &str)>, u32) {
    let DescriptorStatus { current_limit, limit_remaining, .. } = &response.statuses[place];
    let limit =
        current_limit.as_ref().map(|limit| (limit.requests_per_unit, limit.unit(), limit.name.as_str()));
    (response.statuses[place].code(), limit, *limit_remaining)
}

fn header<'r>(response: &'r RateLimitResponse, name: &str) -> Option<&'r str> {
    response
        .response_headers_to_add
        .iter()
        .find(|header| header.key == name)
        .map(|header| header.value.as_str())
}

#[test]
fn each_descriptor_is_told_of_in_order() {
    let (_service, address) = Service::start_grpc(POLICY);
    let mut envoy = Envoy::connect(address);
    let response = envoy.ask(
        "edge",
        &[
            &[("path", "/a")],
            &[("nothing", "x")],
            &[("watched", "x")],
            &[("free", "x")],
            &[("user", "alice")],
        ],
    );
    assert_eq!(response.overall_code(), Code::Ok);
    assert_eq!(status(&response, 0), (Code::Ok, Some((10, Unit::Day, "paths")), 9));
    assert_eq!(status(&response, 1), (Code::Ok, None, 0));
    assert!(response.statuses[1].duration_until_reset.is_none());
    assert_eq!(status(&response, 2), (Code::Ok, Some((1, Unit::Day, "")), 0));
    assert_eq!(status(&response, 3), (Code::Ok, None, u32::MAX));
    assert_eq!(status(&response, 4), (Code::Ok, Some((100, Unit::Minute, "per-user")), 19));
    let reset = response.statuses[0].duration_until_reset.as_ref().unwrap();
    assert!((1..=86_400).contains(&reset.seconds) && reset.nanos == 0, "{reset:?}");
    assert_eq!(header(&response, "x-ratelimit-remaining"), Some("9"));
    assert!(header(&response, "ratelimit").unwrap().contains("\"per-user\";r=19"), "{response:?}");
    assert!(response.raw_body.is_empty());
    // What only watches never denies.
    assert_eq!(envoy.ask("edge", &[&[("watched", "x")]]).overall_code(), Code::Ok);
}

#[test]
fn a_denial_tells_when_to_come_again_and_costs_nobody_anything() {
    let (_service, address) = Service::start_grpc(POLICY);
    let mut envoy = Envoy::connect(address);
    for _ in 0..20 {
        assert_eq!(envoy.ask("edge", &[&[("user", "bob")]]).overall_code(), Code::Ok);
    }
    let response = envoy.ask("edge", &[&[("user", "bob")], &[("path", "/b")]]);
    assert_eq!(response.overall_code(), Code::OverLimit);
    assert_eq!(status(&response, 0), (Code::OverLimit, Some((100, Unit::Minute, "per-user")), 0));
    assert_eq!(response.statuses[0].duration_until_reset.as_ref().unwrap().seconds, 1);
    assert_eq!(status(&response, 1), (Code::Ok, Some((10, Unit::Day, "paths")), 10));
    assert_eq!(header(&response, "retry-after"), Some("1"));
    assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
    let problem: serde_json::Value = serde_json::from_slice(&response.raw_body).unwrap();
    assert_eq!((&problem["status"], &problem["violated-policies"]), (&json!(429), &json!(["per-user"])));
    let blocked = envoy.ask("edge", &[&[("blocked", "x")]]);
    assert_eq!(status(&blocked, 0), (Code::OverLimit, Some((0, Unit::Minute, "")), 0));
    assert_eq!(header(&blocked, "retry-after"), None, "no wait helps");
}

/// A descriptor's own hits, where 0 looks, else the request's, where 0 means 1; negative ones are given back.
#[test]
fn hits_of_the_descriptor_and_of_the_request() {
    let (_service, address) = Service::start_grpc(POLICY);
    let mut envoy = Envoy::connect(address);
    let mut left = |own: Option<u64>, is_negative_hits: bool, hits_addend: u32| {
        let hits = own.map(|value| UInt64Value { value });
        let descriptor =
            RateLimitDescriptor { hits_addend: hits, is_negative_hits, ..descriptor(&[("path", "/c")]) };
        let request =
            RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![descriptor], hits_addend };
        let response = envoy.call(request).unwrap();
        (response.overall_code() == Code::Ok, response.statuses[0].limit_remaining)
    };
    assert_eq!(left(None, false, 0), (true, 9));
    assert_eq!(left(None, false, 2), (true, 7));
    assert_eq!(left(Some(3), false, 5), (true, 4));
    assert_eq!(left(Some(0), false, 5), (true, 4), "a look");
    assert_eq!(left(None, false, 5), (false, 4), "nothing is charged");
    assert_eq!(left(Some(5), false, 0), (false, 0), "11 of 10 are charged");
    assert_eq!(left(Some(0), false, 0), (false, 0), "above the limit");
    assert_eq!(left(Some(2), true, 0), (true, 1), "given back");
    assert_eq!(left(None, true, 0), (true, 2));
    assert_eq!(left(Some(u64::MAX), true, 0), (true, 10), "no more than was used");
}

#[test]
fn a_limit_that_is_sent_is_used_instead() {
    let (_service, address) = Service::start_grpc(POLICY);
    let mut envoy = Envoy::connect(address);
    let mut ask = |requests_per_unit, unit: RateLimitUnit| {
        let limit = Some(RateLimitOverride { requests_per_unit, unit: unit.into() });
        let descriptors = vec![RateLimitDescriptor { limit, ..descriptor(&[("path", "/d")]) }];
        envoy.call(RateLimitRequest { domain: "edge".to_owned(), descriptors, hits_addend: 0 })
    };
    let response = ask(3, RateLimitUnit::Month).unwrap();
    assert_eq!(status(&response, 0), (Code::Ok, Some((3, Unit::Month, "")), 2));
    assert_eq!(status(&ask(2, RateLimitUnit::Month).unwrap(), 0), (Code::Ok, Some((2, Unit::Month, "")), 0));
    let over = ask(2, RateLimitUnit::Month).unwrap();
    assert_eq!((over.overall_code(), status(&over, 0).0), (Code::OverLimit, Code::OverLimit));
    assert!(header(&over, "retry-after").is_some());
    assert_eq!(ask(1, RateLimitUnit::Unknown).unwrap_err().code(), Grpc::InvalidArgument);
}

#[test]
fn what_makes_no_sense_is_refused_by_name_and_charges_nothing() {
    let (_service, address) = Service::start_grpc(POLICY);
    let mut envoy = Envoy::connect(address);
    let request = |domain: &str, descriptors: Vec<RateLimitDescriptor>| RateLimitRequest {
        domain: domain.to_owned(),
        descriptors,
        hits_addend: 0,
    };
    let long = "x".repeat(4097);
    let many: Vec<(&str, &str)> = vec![("path", "x"); 33];
    for (request, code, words) in [
        (request("", vec![descriptor(&[("path", "x")])]), Grpc::InvalidArgument, "domain must not be empty"),
        (request("edge", vec![]), Grpc::InvalidArgument, "descriptor list must not be empty"),
        (request("edge", vec![descriptor(&[("path", &long)])]), Grpc::InvalidArgument, "4096 bytes"),
        (request("edge", vec![descriptor(&many)]), Grpc::InvalidArgument, "33 entries"),
        (request("edge", vec![descriptor(&[]); 65]), Grpc::InvalidArgument, "65 descriptors"),
        (request("edge", vec![descriptor(&[("path", "x")]); 33]), Grpc::ResourceExhausted, "33 limits apply"),
        (request("edge", vec![descriptor(&[("path", &"x".repeat(2 << 20))])]), Grpc::OutOfRange, "message"),
    ] {
        let status = envoy.call(request).unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(words), "{status:?}");
    }
    assert_eq!(status(&envoy.ask("edge", &[&[("path", "x")]]), 0).2, 9);
    assert_eq!(
        envoy.ask("edge", &[&[]]).overall_code(),
        Code::Ok,
        "a descriptor without entries is nobody's"
    );
}

#[test]
fn metadata_tells_what_was_asked_and_what_the_rules_say() {
    let (service, address) = Service::start_grpc(&format!("{POLICY}envoy: {{ dynamic_metadata: true }}\n"));
    let mut envoy = Envoy::connect(address);
    assert!(envoy.ask("edge", &[&[("path", "/a")]]).dynamic_metadata.is_some());
    let body = json!({ "domain": "edge", "hitsAddend": 2, "descriptors": [{ "entries": [{ "key": "path", "value": "/a" }] }] });
    let answer = json_of(&service.connect().post("/json", &body));
    let expected = json!({
        "domain": "edge", "hitsAddend": 2.0, "metadata": { "team": "core" },
        "descriptors": [{ "entries": ["path=/a"] }],
    });
    assert_eq!(answer["dynamicMetadata"], expected);
}

/// The way in of those who have no gRPC: the same messages as JSON.
#[test]
fn the_same_is_asked_as_json() {
    let (service, address) = Service::start_grpc(&format!("{POLICY}envoy: {{ response_headers: false }}\n"));
    let mut client = service.connect();
    let entries = json!([{ "key": "path", "value": "/a" }]);
    let asked = json!({ "domain": "edge", "descriptors": [{ "entries": entries, "hits_addend": "4" }, {}] });
    let answer = client.post("/json", &asked);
    assert_eq!(answer.status, 200, "{answer:?}");
    let mut told = json_of(&answer);
    let reset = told["statuses"][0]["durationUntilReset"].take();
    assert!(reset.as_str().unwrap().ends_with('s'), "{reset}");
    let limit = json!({ "name": "paths", "requestsPerUnit": 10, "unit": "DAY" });
    let status =
        json!({ "code": "OK", "currentLimit": limit, "limitRemaining": 6, "durationUntilReset": null });
    assert_eq!(told, json!({ "overallCode": "OK", "statuses": [status, { "code": "OK" }] }));
    // Over gRPC it is the same count.
    let response = Envoy::connect(address).ask("edge", &[&[("path", "/a")]]);
    assert_eq!(response.statuses[0].limit_remaining, 5);
    let over = client.post(
        "/json",
        &json!({ "domain": "edge", "hitsAddend": 6, "descriptors": [{ "entries": entries }] }),
    );
    assert_eq!((over.status, json_of(&over)["overallCode"].clone()), (429, json!("OVER_LIMIT")));
    for wrong in [
        json!({}),
        json!({ "domain": "edge", "descriptors": [] }),
        json!({ "domain": "edge", "descriptors": [{ "entries": entries, "hits": 1 }] }),
        json!({ "domain": "edge", "descriptors": [{ "entries": entries, "hitsAddend": -1 }] }),
        json!({ "domain": "edge", "descriptors": [{ "entries": entries, "limit": { "unit": "FORTNIGHT" } }] }),
        json!([]),
    ] {
        let answer = client.post("/json", &wrong);
        assert_eq!(answer.status, 400, "{wrong}: {answer:?}");
        crate::service::assert_refused(&answer, wrong);
    }
}

#[test]
fn files_of_the_reference_are_served_as_they_are_and_again_when_they_change() {
    let directory = Directory::new();
    let file = |limit: u32| {
        format!(
            "domain: mongo_cps\ndescriptors:\n  - key: database\n    value: users\n    rate_limit: {{ unit: day, requests_per_unit: {limit} }}\n"
        )
    };
    let folder = directory.path("config");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("mongo.yaml"), file(5)).unwrap();
    std::fs::write(folder.join(".notes.txt"), "no YAML").unwrap();
    let settings = directory.write("tollgate.yaml", "listen: { http: '127.0.0.1:0', grpc: '127.0.0.1:0' }\n");
    let mut command = std::process::Command::new(TOLLGATE);
    command.args(["serve", "--config"]).arg(&settings).arg("--envoy-config").arg(&folder);
    let (service, address) = Service::run_grpc(directory, &mut command);
    let mut envoy = Envoy::connect(address);
    let users: &[(&str, &str)] = &[("database", "users")];
    assert_eq!(status(&envoy.ask("mongo_cps", &[users]), 0), (Code::Ok, Some((5, Unit::Day, "")), 4));
    // A bad file changes nothing; a good one keeps the count.
    std::fs::write(folder.join("mongo.yaml"), "domain: [").unwrap();
    let answer = service.connect().post("/v1/reload", &json!({}));
    assert!(answer.status == 422 && answer.body.contains("mongo.yaml"), "{answer:?}");
    std::fs::write(folder.join("mongo.yaml"), file(3)).unwrap();
    let look = RateLimitDescriptor { hits_addend: Some(UInt64Value::default()), ..descriptor(users) };
    let look = RateLimitRequest { domain: "mongo_cps".to_owned(), descriptors: vec![look], hits_addend: 0 };
    crate::service::eventually("the file is read again", || {
        status(&envoy.call(look.clone()).unwrap(), 0) == (Code::Ok, Some((3, Unit::Day, "")), 2)
    });
    // And printed, they are a policy that says the same.
    let printed =
        std::process::Command::new(TOLLGATE).args(["import", "envoy"]).arg(&folder).output().unwrap();
    assert!(printed.status.success());
    let policy = service.directory.write("imported.yaml", &String::from_utf8(printed.stdout).unwrap());
    let checked = std::process::Command::new(TOLLGATE).arg("check").arg(&policy).output().unwrap();
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success() && text.contains("mongo_cps/database_users"), "{text}");
}

/// One key of a limit by a descriptor is looked at, and set free, by the values that count apart.
#[test]
fn a_key_of_a_descriptor_is_looked_at_and_reset() {
    let (service, address) = Service::start_grpc(POLICY);
    let (mut envoy, mut client) = (Envoy::connect(address), service.connect());
    for _ in 0..4 {
        envoy.ask("edge", &[&[("path", "/e")]]);
    }
    let target = "/v1/keys?limit=edge/path&path=/e";
    let key = json_of(&client.get(target));
    assert_eq!((&key["key"], &key["remaining"]), (&json!(["/e"]), &json!(6)), "{key}");
    assert_eq!(client.get("/v1/keys?limit=edge/path").status, 400, "which path?");
    assert_eq!(json_of(&client.0.send("DELETE", target, &[], "")), json!({ "reset": true }));
    assert_eq!(json_of(&client.get(target))["remaining"], 10);
    let hot = json_of(&client.get("/v1/hot?limit=edge/path")).to_string();
    assert!(hot.contains("/e"), "{hot}");
}
