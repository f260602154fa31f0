//! `/v1/playground` and `tollgate playground`.

use std::process::Command;

use serde_json::{Value, json};
use tollgate_testkit::{Http, Process, address_in};

use crate::service::{Client, Service, TOLLGATE, assert_refused, json_of, tollgate};

fn burst_of_three() -> Value {
    json!({
        "rules": [{ "token_bucket": { "rate": "5/s", "burst": 2 } }],
        "arrivals": [{ "at": 0 }, { "at": 0 }, { "at": 0 }],
        "sentences": { "from": 2, "count": 1 }
    })
}

/// A request that needs as much CPU time as a request can.
fn heavy() -> Value {
    let arrivals: Vec<Value> = (0..10_000).map(|number| json!({ "at": f64::from(number) / 100.0 })).collect();
    let rules: Vec<Value> =
        (0..16).map(|_| json!({ "sliding_log": { "limit": 1000, "window": "60s" } })).collect();
    json!({ "rules": rules, "arrivals": arrivals })
}

#[test]
fn the_core_decides_and_the_service_is_not_touched() {
    let service = Service::start("limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/h } }]");
    let mut client = service.connect();
    let answer = client.post("/v1/playground", &burst_of_three());
    assert_eq!(answer.status, 200, "{answer:?}");
    let rule = &json_of(&answer)["rules"][0];
    assert_eq!(rule["decisions"]["allowed"], json!([true, true, false]));
    assert_eq!(rule["decisions"]["retry_after"], json!([null, null, 0.2]));
    assert_eq!(rule["sentences"][0], "0 tokens, costs 1: denied, the missing 1 comes in 200 ms");
    assert_eq!(client.metric("tollgate_keys"), Some(0.0));
    let counted = client.get("/metrics").body;
    let requests = counted.lines().filter(|line| line.starts_with("tollgate_requests_total{"));
    assert!(requests.clone().count() > 0 && requests.clone().all(|line| line.ends_with(" 0")), "{counted}");
}

#[test]
fn every_story_can_be_played() {
    let service = Service::start("limits: []");
    let mut client = service.connect();
    let listed = json_of(&client.get("/v1/playground"));
    let names: Vec<&str> =
        listed["stories"].as_array().unwrap().iter().map(|story| story["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["app-open", "boundary-attack", "driver-location", "noisy-neighbour", "retry-storm"]);
    for story in listed["stories"].as_array().unwrap() {
        assert_eq!(story["look"].as_array().unwrap().len(), 2, "two sentences of what to look at");
        let answer = client.post("/v1/playground", &story["request"]);
        assert_eq!(answer.status, 200, "{}: {answer:?}", story["name"]);
        let played = json_of(&answer);
        assert!(story["moment"].as_f64() < played["duration"].as_f64(), "{}", story["name"]);
    }
    assert!(listed["scenarios"].as_array().unwrap().iter().any(|scenario| scenario["name"] == "retry-storm"));
}

#[test]
fn what_is_beyond_a_bound_is_refused_with_what_would_be_right() {
    let service = Service::start("limits: []");
    let mut client = service.connect();
    let refuse = |client: &mut Client, change: &dyn Fn(&mut Value), words: &[&str]| {
        let mut request = burst_of_three();
        change(&mut request);
        let answer = client.post("/v1/playground", &request);
        assert_refused(&answer, words);
        let detail = json_of(&answer)["detail"].as_str().unwrap().to_owned();
        assert!(words.iter().all(|word| detail.contains(word)), "{words:?} in {detail}");
    };
    refuse(&mut client, &|request| request["rules"] = json!([]), &["rules", "1 to 16"]);
    refuse(
        &mut client,
        &|request| request["rules"] = (0..17).map(|_| request["rules"][0].clone()).collect(),
        &["17 rules", "1 to 16"],
    );
    refuse(
        &mut client,
        &|request| request["arrivals"] = (0..10_001).map(|_| json!({ "at": 0 })).collect(),
        &["10001", "10000"],
    );
    refuse(&mut client, &|request| request["scenario"] = json!("steady"), &["exactly one"]);
    refuse(&mut client, &|request| request["arrival"] = json!([]), &["arrival"]);
    let large = json!({ "rules": [], "log": "x".repeat(1 << 20) });
    assert_eq!(client.post("/v1/playground", &large).status, 413);
    let answer = service.connect().post("/v1/playground", &burst_of_three());
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[test]
fn calls_beyond_two_are_refused_with_a_retry_after_and_all_end() {
    let service = Service::start("limits: []");
    let body = heavy().to_string();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    let mut http = Http::connect(service.address);
                    (0..5)
                        .map(|_| {
                            let headers = [("content-type", "application/json")];
                            let answer = http.send("POST", "/v1/playground", &headers, &body);
                            if answer.status == 503 {
                                assert_eq!(answer.header("retry-after"), Some("1"));
                            }
                            answer.status
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    // 422: the CPU time was not enough, as in a build without optimisation.
    assert!(statuses.iter().all(|status| [200, 422, 503].contains(status)), "{statuses:?}");
    assert!(statuses.iter().any(|status| [200, 422].contains(status)), "{statuses:?}");
    assert_eq!(service.connect().post("/v1/playground", &burst_of_three()).status, 200);
}

#[test]
fn the_policy_can_turn_it_off() {
    let service = Service::start("dashboard: off\nlimits: []");
    let mut client = service.connect();
    for answer in
        [client.get("/playground"), client.get("/v1/playground"), client.post("/v1/playground", &heavy())]
    {
        assert_eq!(answer.status, 404);
        assert!(answer.body.contains("dashboard: off"), "{answer:?}");
    }
}

#[test]
fn the_command_serves_the_playground_and_nothing_else() {
    let mut process = Process::start(Command::new(TOLLGATE).arg("playground"));
    let line = process.line_with("/playground");
    let address = address_in(line.split("/playground").next().unwrap());
    let mut http = Http::connect(address);
    let page = http.send("GET", "/playground", &[("accept", "text/html")], "");
    assert_eq!(page.status, 200);
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.contains("default-src 'none'"))
    );
    assert_eq!(http.send("GET", "/", &[], "").header("location"), Some("/playground"));
    let headers = [("content-type", "application/json")];
    assert_eq!(http.send("POST", "/v1/playground", &headers, &burst_of_three().to_string()).status, 200);
    assert_eq!(http.send("POST", "/v1/check", &headers, "{\"attributes\":{}}").status, 404);
    drop(http);
    process.signal("INT");
    assert!(process.wait().success());
}

#[test]
fn the_command_prints_stories_and_refuses_what_is_open_to_others() {
    let output = tollgate(&["playground", "--svg", "boundary-attack"]);
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("<svg "));
    let unknown = tollgate(&["playground", "--svg", "boundary"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8(unknown.stderr).unwrap().contains("`boundary-attack`"));
    let open = tollgate(&["playground", "--listen", "0.0.0.0:0"]);
    assert_eq!(open.status.code(), Some(2));
    assert!(String::from_utf8(open.stderr).unwrap().contains("127.0.0.1"));
}
