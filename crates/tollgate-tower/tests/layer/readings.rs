//! The limits read a request as the application does. What has two readings is refused.

use std::sync::atomic::Ordering;

use http::Request;
use http_body_util::BodyExt as _;
use tower::{Layer as _, ServiceExt as _};

use crate::{hello, layer, text};

/// The status of each request, and what its problem says.
async fn answers(policy: &str, requests: Vec<Request<()>>) -> Vec<(u16, String)> {
    let (service, calls) = hello();
    let (layer, _) = layer(policy);
    let service = layer.layer(service);
    let mut answers = Vec::new();
    for request in requests {
        let answer = service.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        if status == 400 {
            assert_eq!(text(answer.headers(), "content-type"), Some("application/problem+json"));
        }
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        answers.push((status, String::from_utf8(body.to_vec()).unwrap()));
    }
    let passed = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(calls.load(Ordering::Relaxed), passed, "{answers:?}");
    answers
}

fn with(headers: &[(&str, &str)]) -> Request<()> {
    let request = Request::builder();
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).body(()).unwrap()
}

#[tokio::test]
async fn a_path_that_applications_read_in_two_ways_is_refused_where_limits_match_on_paths() {
    let rows = [
        ("//x/login", 400, "`//`"),
        ("/x\\..\\login", 400, "backslash"),
        ("/x%5c..%5clogin", 400, "backslash"),
        ("/login%0a", 400, "control character"),
        ("/login?x=//\\%0a", 200, "hello"),
    ];
    let requests = || rows.map(|(target, ..)| Request::builder().uri(target).body(()).unwrap()).to_vec();
    let policy =
        "limits: [{ name: login, key: [], match: { path: /login }, fixed_window: { limit: 9, window: 1h } }]";
    for (answer, (target, status, fault)) in answers(policy, requests()).await.into_iter().zip(rows) {
        assert!(answer.0 == status && answer.1.contains(fault), "{target}: {answer:?}");
    }
    let policy = "limits: [{ name: all, key: [], fixed_window: { limit: 9, window: 1h } }]";
    assert!(answers(policy, requests()).await.iter().all(|(status, _)| *status == 200));
}

#[tokio::test]
async fn a_header_that_the_policy_reads_comes_once_and_not_in_disguise() {
    let policy = "identity: { user: header.x-user }\n\
                  limits: [{ name: keyed, key: [header.x-api-key], fixed_window: { limit: 1, window: 1h } }]";
    let requests = vec![
        with(&[("x-api-key", "a"), ("x-api-key", "b")]),
        with(&[("x_api_key", "a")]),
        with(&[("x-user", "a"), ("x_user", "a")]),
        with(&[("x-api-key", "a")]),
        with(&[("x-api-key", "a ")]),
        with(&[("x-other", "a"), ("x-other", "b")]),
        with(&[("x-api-key", "")]),
    ];
    let statuses: Vec<u16> = answers(policy, requests).await.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [400, 400, 400, 200, 429, 200, 429]);
}

#[tokio::test]
async fn one_authorization_and_one_host_are_one_key_each() {
    let policy =
        "limits: [{ name: keyed, key: [header.authorization], fixed_window: { limit: 1, window: 1h } }]";
    let requests = ["Bearer x", "bearer x", "Bearer  x "].map(|value| with(&[("authorization", value)]));
    let statuses: Vec<u16> =
        answers(policy, requests.to_vec()).await.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 429, 429]);
    let policy = "limits: [{ name: keyed, key: [host], fixed_window: { limit: 1, window: 1h } }]";
    let hosts =
        ["a.example", "a.example:1", "a.example:", "A.example:00080"].map(|host| with(&[("host", host)]));
    let mut requests = hosts.to_vec();
    requests.push(Request::builder().uri("http://user@a.example:8080/").body(()).unwrap());
    // Which of two hosts the application takes, nobody knows.
    requests.push(with(&[("host", "b.example"), ("host", "a.example")]));
    requests.push(Request::builder().uri("http://b.example/").header("host", "c.example").body(()).unwrap());
    let statuses: Vec<u16> = answers(policy, requests).await.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 429, 429, 429, 429, 400, 400]);
}
