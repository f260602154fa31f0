//! `GET /v1/events` and `GET /v1/history`: what the dashboard and `tollgate top` show.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::service::{Directory, Service, assert_refused, eventually, json_of};

const POLICY: &str = "
limits:
  - { name: per-user, key: [user], token_bucket: { rate: 1/h, burst: 3 } }
  - { name: unused, key: [user], match: { path: /never }, fixed_window: { limit: 5, window: 60s } }
  - { name: candidate, shadow: true, key: [user], token_bucket: { rate: 1/h, burst: 2 } }
";

/// A stream of events. HTTP/1.0 has no chunks, so its lines are those of the events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(service: &Service, headers: &str) -> Self {
        let mut stream = TcpStream::connect(service.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET /v1/events HTTP/1.0\r\nhost: localhost\r\n{headers}\r\n").unwrap();
        Self(BufReader::new(stream))
    }

    /// The head of the answer.
    fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && self.0.read_line(&mut head).unwrap() > 0 {}
        head
    }

    /// The next event: its name and its data. None at the end.
    fn next(&mut self) -> Option<(String, Value)> {
        let (mut name, mut data, mut end) = (String::new(), String::new(), String::new());
        if self.0.read_line(&mut name).unwrap_or(0) == 0 {
            return None;
        }
        self.0.read_line(&mut data).ok()?;
        self.0.read_line(&mut end).ok()?;
        assert_eq!(end, "\n", "{name}{data}");
        let name = name.strip_prefix("event: ").unwrap().trim_end().to_owned();
        Some((name, serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()))
    }

    /// The next event of a name.
    fn next_named(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.next().expect("the stream goes on");
            if name == wanted {
                return data;
            }
        }
    }
}

fn start(service: &Service, headers: &str) -> Value {
    let mut events = Events::open(service, headers);
    assert!(events.head().starts_with("HTTP/1.0 200"));
    let (name, data) = events.next().unwrap();
    assert_eq!(name, "start");
    data
}

fn limit<'v>(frame: &'v Value, name: &str) -> &'v Value {
    let limits = frame["limits"].as_array().unwrap();
    limits.iter().find(|limit| limit["name"] == name).unwrap_or(&Value::Null)
}

#[test]
fn a_stream_starts_with_everything_and_goes_on_with_what_changes() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let _ = (0..4).map(|_| client.passes(&[("user", "ann")])).count();
    let mut events = Events::open(&service, "");
    let head = events.head().to_ascii_lowercase();
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    assert!(head.contains("cache-control: no-store"), "{head}");
    let (name, start) = events.next().unwrap();
    assert_eq!(name, "start");
    let names: Vec<&Value> =
        start["policy"]["limits"].as_array().unwrap().iter().map(|limit| &limit["name"]).collect();
    assert_eq!(names, ["per-user", "unused", "candidate"], "also those without a request");
    assert_eq!((&start["requests"]["allowed"], &start["requests"]["denied"]), (&3.into(), &1.into()));
    let per_user = limit(&start, "per-user");
    assert_eq!((&per_user["allowed"], &per_user["denied"]), (&3.into(), &1.into()));
    let candidate = limit(&start, "candidate");
    assert_eq!((&candidate["denied"], &candidate["newly_denied"]), (&2.into(), &1.into()));
    assert!(limit(&start, "unused").is_null());
    assert_eq!(start["hot"]["per-user"]["denials"]["keys"][0]["key"][0], "ann");
    assert_eq!(start["hot"]["candidate"]["newly_denied"]["keys"][0]["key"][0], "ann");
    assert_eq!(start["store"]["kind"], "memory");

    // What a tick has equals the metrics.
    let _ = (0..5).map(|_| client.passes(&[("user", "bob")])).count();
    let tick = std::iter::from_fn(|| Some(events.next_named("tick")))
        .find(|tick| limit(tick, "per-user")["denied"] == 3)
        .unwrap();
    let metric = |client: &mut crate::service::Client, outcome: &str| {
        client.metric(&format!(
            r#"tollgate_decisions_total{{limit="per-user",outcome="{outcome}",protocol="http"}}"#
        ))
    };
    assert_eq!(limit(&tick, "per-user")["allowed"].as_f64(), metric(&mut client, "allow"));
    assert_eq!(limit(&tick, "per-user")["denied"].as_f64(), metric(&mut client, "deny"));
    assert_eq!(
        tick["requests"]["denied"].as_f64(),
        client.metric(r#"tollgate_requests_total{outcome="deny",protocol="http"}"#)
    );
}

#[test]
fn key_names_are_shown_to_admins_only_and_a_new_token_ends_their_streams() {
    let directory = Directory::new();
    directory.write("token", "first");
    let policy = format!("admin: {{ token_file: ./token }}\n{POLICY}");
    let service = Service::start_in(directory, &policy);
    let mut client = service.connect();
    let _ = (0..4).map(|_| client.passes(&[("user", "ann")])).count();

    let hidden = start(&service, "");
    assert_eq!(hidden["key_names"], "hashed");
    assert!(!hidden.to_string().contains("ann"), "{hidden}");
    let hash = &hidden["hot"]["per-user"]["hits"]["keys"][0]["key"][0];
    assert_eq!(hash.as_str().unwrap().len(), 16);
    let mut wrong = Events::open(&service, "authorization: Bearer second\r\n");
    assert!(wrong.head().starts_with("HTTP/1.0 401"));

    let mut events = Events::open(&service, "authorization: Bearer first\r\n");
    events.head();
    let (_, shown) = events.next().unwrap();
    assert_eq!(shown["key_names"], "clear");
    assert_eq!(shown["hot"]["per-user"]["hits"]["keys"][0]["key"][0], "ann");
    // The callers without a token go on, and get the policy that is now in force.
    let mut others = Events::open(&service, "");
    others.head();
    service.directory.write("token", "second");
    service.write_policy(&format!("{policy}  - {{ name: new, key: [], token_bucket: {{ rate: 1/s }} }}\n"));
    others.next_named("start");
    let restarted = others.next_named("start");
    assert_eq!(restarted["policy"]["limits"][3]["name"], "new");
    assert!(restarted["events"][0]["text"].as_str().unwrap().contains("limit `new`"), "{restarted}");
    while events.next().is_some() {}
}

#[test]
fn there_are_100_streams_and_no_more() {
    let service = Service::start(POLICY);
    let mut streams: Vec<Events> = (0..100).map(|_| Events::open(&service, "")).collect();
    for events in &mut streams {
        assert!(events.head().starts_with("HTTP/1.0 200"));
    }
    let refused = service.connect().get("/v1/events");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.header("retry-after"), Some("5"));
    assert!(json_of(&refused)["detail"].as_str().unwrap().contains("100 event streams"), "{refused:?}");
    streams.pop();
    eventually("another stream can be opened", || {
        Events::open(&service, "").head().starts_with("HTTP/1.0 200")
    });
}

/// Small frames fit into the buffers of the kernel for minutes.
#[test]
fn a_stream_that_is_no_longer_acknowledged_is_closed() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let open = || {
        let mut events = Events::open(&service, "");
        let head = events.head();
        let number = head.split("tollgate-stream: ").nth(1).unwrap().split("\r\n").next().unwrap().to_owned();
        (events, format!("/v1/events?stream={number}"))
    };
    let (mut silent, silent_target) = open();
    let (mut gone, gone_target) = open();
    let (mut acknowledged, target) = open();
    let mut is_open = |target: &str| {
        let answer = client.post(target, &Value::Null);
        assert_eq!(answer.status, 200, "{answer:?}");
        json_of(&answer)["open"] == true
    };
    assert!(is_open(&gone_target));
    // The stream that stays open says how much time has passed, in ticks.
    for _ in 0..10 {
        assert!(is_open(&target));
        acknowledged.next_named("tick");
    }
    while gone.next().is_some() {}
    eventually("its place is free", || !is_open(&gone_target));
    silent.next_named("tick");
    assert!(is_open(&silent_target), "one that was never acknowledged");
    let refused = service.connect().post("/v1/events", &Value::Null);
    assert_refused(&refused, ["stream=N"]);
}

/// With many limits, `start` is larger than what the kernel takes for a client that does not read.
#[test]
fn a_stream_that_is_not_read_is_closed() {
    let limits: String = (0..20_000)
        .map(|i| format!("  - {{ name: limit-{i}, key: [user], match: {{ path: /{i} }}, token_bucket: {{ rate: 5/s }} }}\n"))
        .collect();
    let service = Service::start(&format!("limits:\n{limits}"));
    let mut read = Events::open(&service, "");
    read.head();
    let mut stalled = Events::open(&service, "");
    stalled.head();
    let connections = |client: &mut crate::service::Client| client.metric("tollgate_connections").unwrap();
    let mut client = service.connect();
    assert_eq!(connections(&mut client), 3.0);
    // The stream that is read goes on meanwhile.
    eventually("the other one is closed", || {
        read.next().unwrap();
        connections(&mut client) < 3.0
    });
    read.next_named("tick");
    // What is left in the buffers of the kernel ends in the midst of `start`.
    let mut rest = Vec::new();
    let _ = stalled.0.read_to_end(&mut rest);
    assert!(!rest.ends_with(b"\n\n"));
}

#[test]
fn open_streams_end_when_the_process_is_to_end() {
    let mut service = Service::start(POLICY);
    let mut events = Events::open(&service, "");
    events.head();
    events.next_named("tick");
    service.process.signal("TERM");
    while events.next().is_some() {}
    assert!(service.process.wait().success());
}

#[test]
fn the_history_of_a_limit_has_its_requests_in_steps() {
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let _ = (0..4).map(|_| client.passes(&[("user", "ann")])).count();
    eventually("the step is over", || {
        let history = json_of(&client.get("/v1/history?limit=per-user"));
        let sum = |field: &str| -> u64 {
            let steps = history["steps"].as_array().map_or(&[][..], |steps| steps);
            steps.iter().map(|step| step[field].as_u64().unwrap_or(0)).sum()
        };
        (sum("allowed"), sum("denied")) == (3, 1)
    });
    let unused = json_of(&client.get("/v1/history?limit=unused"));
    assert!(unused["steps"].is_null(), "{unused}");
    assert_eq!(client.get("/v1/history?limit=nothing").status, 404);
    for query in ["", "?limit", "?limit=a&limit=b", "?of=a"] {
        let refused = client.get(&format!("/v1/history{query}"));
        assert_refused(&refused, query);
    }
}
