//! `Retry-After` is honest: whoever comes sooner is denied, whoever waits that long is admitted, by the server's own clock.

use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::service::{Client, Service, json_of, pause, timed};
use serde_json::{Value, json};
use tollgate_testkit::http::Answer;

const SECOND: Duration = Duration::from_secs(1);

/// Each under a path of its own: its name, its rule, how many pass at once, and the seconds that the next must wait.
const LIMITS: [(&str, &str, usize, u64); 9] = [
    ("token_bucket", "token_bucket: { rate: 1/2s, burst: 3 }", 3, 2),
    ("leaky_bucket", "leaky_bucket: { rate: 1/2s, queue: 1 }", 1, 2),
    ("fixed_window", "fixed_window: { limit: 3, window: 2s }", 3, 2),
    ("from_first", "fixed_window: { limit: 3, window: 3s, align: first }", 3, 3),
    ("sliding_log", "sliding_log: { limit: 3, window: 2s }", 3, 2),
    // Of two in the window before, one is still counted when half of this one is over.
    ("interpolate", "sliding_counter: { limit: 2, window: 2s }", 2, 3),
    // What came in a part counts until the whole part has left the window: two seconds and a half.
    ("strict", "sliding_counter: { limit: 2, window: 2s, buckets: 4, mode: strict }", 2, 3),
    ("burst_credits", "burst_credits: { rate: 1/2s, peak: 5/2s, credits: 4 }", 4, 2),
    ("max_wait", "token_bucket: { rate: 1/3s, burst: 1 }, max_wait: 10ms", 1, 3),
];

fn start() -> Service {
    let limits: Vec<String> = LIMITS
        .iter()
        .map(|(name, rule, _, _)| {
            format!("  - {{ name: {name}, key: [user], match: {{ path: /{name} }}, {rule} }}")
        })
        .collect();
    Service::start(&format!(
        "identity: {{ user: header.x-user, client_ip: {{ trusted_proxies: [127.0.0.1] }} }}
limits:
{}
  - {{ name: slower, key: [user], match: {{ path: /two }}, token_bucket: {{ rate: 1/10s, burst: 1 }} }}
  - {{ name: faster, key: [user], match: {{ path: /two }}, token_bucket: {{ rate: 1/3s, burst: 1 }} }}
  - {{ name: spare, key: [user], match: {{ path: /two }}, token_bucket: {{ rate: 1/s, burst: 100 }} }}
  - {{ name: in_flight, key: [user], match: {{ path: /held }}, concurrency: {{ limit: 2, lease: 2s }} }}
",
        limits.join("\n")
    ))
}

/// Waits until a window of two seconds, by the time of day, has just begun.
#[expect(clippy::disallowed_methods, reason = "windows begin by the time of day")]
fn until_window_begins() {
    let into = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() % 2_000_000_000;
    pause(Duration::from_nanos(2_000_000_000 - into as u64 + 1_000_000));
}

fn retry_after(answer: &Answer) -> Option<u64> {
    answer.header("retry-after").map(|seconds| seconds.parse().unwrap())
}

/// `t` of a limit in `RateLimit`.
fn t_of(answer: &Answer, limit: &str) -> Option<u64> {
    let item =
        answer.header("ratelimit")?.split(", ").find(|item| item.starts_with(&format!("\"{limit}\"")))?;
    item.split(';').find_map(|part| part.strip_prefix("t="))?.parse().ok()
}

/// What every denial tells, it tells the same everywhere.
fn assert_agrees(answer: &Answer, status: u16, limit: &str) {
    let body = json_of(answer);
    assert_eq!((answer.status, &body["status"]), (status, &json!(status)), "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(body["error"], "rate_limit_exceeded");
    assert_eq!(body["violated-policies"][0], limit, "{body}");
    assert!(!body["detail"].as_str().unwrap().is_empty() && body["detail"] == body["message"]);
    match retry_after(answer) {
        None => {
            assert_eq!((&body["retry_after"], &body["retry_after_seconds"]), (&Value::Null, &Value::Null))
        }
        Some(seconds) => {
            assert_eq!(body["retry_after_seconds"], seconds);
            let exact = body["retry_after"].as_f64().unwrap();
            assert!(exact <= seconds as f64 && exact > seconds as f64 - 1.0, "{body}");
            assert!(seconds >= t_of(answer, limit).unwrap(), "{answer:?}");
            assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
        }
    }
}

/// Spends a limit, comes a second early, then on time.
fn spend_and_return(client: &mut Client, (name, _, at_once, seconds): (&str, &str, usize, u64)) {
    let path = format!("/{name}");
    let user = [("x-user", "rider")];
    for i in 0..at_once {
        let answer = client.ask(&path, &user);
        assert_eq!((answer.status, retry_after(&answer)), (204, None), "{name} {i}: {answer:?}");
    }
    let denied = client.ask(&path, &user);
    assert_agrees(&denied, 429, name);
    assert_eq!(retry_after(&denied), Some(seconds), "{name}: {denied:?}");
    // From here the time runs: the answer has come.
    let (spent, early) = timed(|| {
        pause(SECOND * (seconds as u32 - 1));
        client.ask(&path, &user)
    });
    assert_eq!((early.status, retry_after(&early)), (429, Some(1)), "{name}, a second early: {early:?}");
    pause((SECOND * seconds as u32).saturating_sub(spent));
    let on_time = client.ask(&path, &user);
    assert_eq!(on_time.status, 204, "{name}, after {seconds} s: {on_time:?}");
}

#[test]
fn whoever_waits_as_long_as_told_is_admitted_and_nobody_sooner() {
    let service = start();
    until_window_begins();
    thread::scope(|scope| {
        for limit in LIMITS {
            let mut client = service.connect();
            scope.spawn(move || spend_and_return(&mut client, limit));
        }
    });
}

#[test]
#[expect(clippy::cast_sign_loss, reason = "a wait is not below zero")]
fn a_place_in_flight_is_free_when_its_lease_has_ended() {
    let service = start();
    let mut client = service.connect();
    let held = json!({ "attributes": { "user": "rider", "path": "/held" } });
    let mut acquire = || json_of(&client.post("/v1/acquire", &held));
    assert_eq!([acquire(), acquire()].map(|reply| reply["allowed"] == true), [true, true]);
    let denied = acquire();
    assert_eq!((&denied["allowed"], &denied["reason"]), (&json!(false), &json!("in_flight")));
    let wait = denied["retry_after"].as_f64().unwrap();
    assert!((1.5..=2.0).contains(&wait), "{denied}");
    let (spent, early) = timed(|| {
        pause(SECOND);
        acquire()
    });
    assert_eq!(early["allowed"], false, "{early}");
    pause(Duration::from_nanos((wait * 1e9).ceil() as u64).saturating_sub(spent));
    let on_time = acquire();
    assert_eq!(on_time["allowed"], true, "{wait} s after {denied}: {on_time}");
}

#[test]
fn of_several_that_deny_the_longest_wait_is_told() {
    let service = start();
    let mut client = service.connect();
    assert_eq!(client.ask("/two", &[]).status, 204);
    let denied = client.ask("/two", &[]);
    assert_agrees(&denied, 429, "slower");
    assert_eq!(
        (retry_after(&denied), t_of(&denied, "slower"), t_of(&denied, "faster")),
        (Some(10), Some(10), Some(3))
    );
    assert_eq!(json_of(&denied)["violated-policies"], json!(["slower", "faster"]));
    // One more comes within the second, but it is not what is waited for.
    assert!(denied.header("ratelimit").unwrap().contains("\"spare\";r=9"), "{denied:?}");
    let slower: Vec<&str> = ["limit", "remaining"]
        .iter()
        .map(|it| denied.header(&format!("x-ratelimit-{it}")).unwrap())
        .collect();
    assert_eq!(slower, ["1", "0"]);
}

#[test]
fn no_wait_is_told_where_none_helps() {
    let service = start();
    let mut client = service.connect();
    for (name, _, at_once, _) in LIMITS {
        let target = format!("/v1/forward-auth?cost={}", at_once + 2);
        let denied = client.0.send(
            "GET",
            &target,
            &[("x-forwarded-uri", &format!("/{name}")), ("x-user", "large")],
            "",
        );
        assert_agrees(&denied, 429, name);
        assert_eq!(
            (retry_after(&denied), &json_of(&denied)["reason"]),
            (None, &json!("cost_exceeds_limit")),
            "{name}"
        );
        // And it was charged nothing.
        assert_eq!(client.ask(&format!("/{name}"), &[("x-user", "large")]).status, 204, "{name}");
    }
}

#[test]
fn the_status_of_a_denial_is_the_proxys_choice_and_a_head_has_no_body() {
    let service = start();
    let mut client = service.connect();
    let about = [("x-forwarded-uri", "/token_bucket")];
    assert_eq!(client.0.send("GET", "/v1/forward-auth?cost=3", &about, "").status, 204);
    for status in [429, 403, 401] {
        let denied = client.0.send("GET", &format!("/v1/forward-auth?deny={status}"), &about, "");
        assert_agrees(&denied, status, "token_bucket");
    }
    let names = |answer: &Answer| -> Vec<String> {
        let names = answer.headers.iter().map(|(name, _)| name.clone());
        names.filter(|name| name != "content-length").collect()
    };
    for method in ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"] {
        let denied = client.0.send(method, "/v1/forward-auth", &about, "");
        assert_agrees(&denied, 429, "token_bucket");
        // If a body came with it, what follows on this connection could not be read.
        let head = client.0.send("HEAD", "/v1/forward-auth", &about, "");
        assert_eq!((head.status, names(&head)), (429, names(&denied)), "{method}");
    }
    for wrong in ["deny=200", "deny=600", "deny=no", "cost=-1", "cost=1.5", "cost=", "other=1", "key=%ff"] {
        let refused = client.0.send("GET", &format!("/v1/forward-auth?{wrong}"), &about, "");
        let detail = json_of(&refused)["detail"].as_str().unwrap().to_owned();
        assert_eq!((refused.status, detail.is_empty()), (400, false), "{wrong}: {refused:?}");
    }
}

#[test]
fn an_admitted_request_is_told_how_it_stands() {
    let service = start();
    let mut client = service.connect();
    for (name, _, at_once, _) in LIMITS {
        let admitted = client.ask(&format!("/{name}"), &[("x-user", "calm")]);
        assert_eq!((admitted.status, &*admitted.body), (204, ""), "{name}");
        let told = |header: &str| {
            admitted.header(header).unwrap_or_else(|| panic!("{header} of {name}: {admitted:?}"))
        };
        let left = at_once - 1;
        assert_eq!(
            (told("x-ratelimit-limit"), told("x-ratelimit-remaining")),
            (&*at_once.to_string(), &*left.to_string()),
            "{name}"
        );
        assert!(told("x-ratelimit-reset").parse::<u64>().unwrap() > 1_700_000_000, "{name}");
        assert!(told("ratelimit").starts_with(&format!("\"{name}\";r={left}")), "{admitted:?}");
        assert!(told("ratelimit-policy").starts_with(&format!("\"{name}\";q={at_once};w=")), "{admitted:?}");
        assert_eq!((admitted.header("retry-after"), admitted.header("cache-control")), (None, None));
    }
    // Where no limit applies, none is told of.
    let free = client.ask("/free", &[]);
    assert_eq!((free.status, free.header("ratelimit"), free.header("x-ratelimit-limit")), (204, None, None));
}
