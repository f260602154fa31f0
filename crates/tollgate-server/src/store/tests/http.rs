use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tower_service::Service as _;

use super::*;
use crate::http::{Http, router};
use crate::listener::Speak as _;

/// The status of an answer, and its body.
async fn call(router: &Router, method: &str, target: &str, body: &str) -> (u16, String) {
    let mut request =
        Request::builder().method(method).uri(target).body(Body::from(body.to_owned())).unwrap();
    request.extensions_mut().insert(connection());
    let response = router.clone().call(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn post(router: &Router, target: &str, body: Value) -> Value {
    let (status, body) = call(router, "POST", target, &body.to_string()).await;
    assert_eq!(status, 200, "{target}: {body}");
    serde_json::from_str(&body).unwrap()
}

fn check(user: &str, path: &str) -> Value {
    json!({ "attributes": { "user": user, "path": path } })
}

/// What an answer tells of a decision.
fn told(answer: &Value) -> (&Value, &Value) {
    (&answer["allowed"], &answer["source"])
}

#[tokio::test]
async fn every_endpoint_asks_the_store() {
    let router = router(shared(policy("deny"), &Slow::new(Duration::ZERO)));
    for allowed in [true, true, false] {
        let answer = post(&router, "/v1/check", check("u", "/few")).await;
        assert_eq!(told(&answer), (&json!(allowed), &json!("store")), "{answer}");
    }
    let explained = post(&router, "/v1/explain", check("u", "/few")).await;
    assert_eq!(
        (&explained["limits"][2]["allowed"], &explained["limits"][2]["remaining"]),
        (&json!(false), &json!(0))
    );
    let (status, key) = call(&router, "GET", "/v1/keys?limit=few&user=u", "").await;
    assert!(status == 200 && key.contains("\"remaining\":0"), "{key}");
    for reset in [true, false] {
        let (status, answer) = call(&router, "DELETE", "/v1/keys?limit=few&user=u", "").await;
        assert_eq!((status, answer), (200, format!("{{\"reset\":{reset}}}")));
    }
    assert_eq!(post(&router, "/v1/check", check("u", "/few")).await["allowed"], true);
    for allowed in [true, false] {
        let rule = json!({ "key": "k", "token_bucket": { "rate": "1/day", "burst": 1 } });
        let answer = post(&router, "/v1/throttle", rule).await;
        assert_eq!(told(&answer), (&json!(allowed), &json!("store")), "{answer}");
    }
    // Of whom nothing is believed, it is the request itself that is asked about.
    for expected in [204, 429] {
        assert_eq!(call(&router, "GET", "/v1/forward-auth", "").await.0, expected);
    }
    let descriptors = json!({ "domain": "edge", "descriptors": [{ "entries": [{ "key": "path", "value": "/" }] }], "hits_addend": 6 });
    for expected in [200, 429] {
        assert_eq!(call(&router, "POST", "/json", &descriptors.to_string()).await.0, expected);
    }
}

#[tokio::test]
async fn descriptors_that_a_cluster_keeps_apart_are_refused() {
    let text = "
store: { redis: { urls: ['redis://127.0.0.1'], cluster: true } }
limits: [{ name: a, key: [user], token_bucket: { rate: 1/day, burst: 10 } }]
";
    let policy = Policy::read(Path::new("tollgate.yaml"), text).unwrap();
    let router = router(shared(policy, &Slow::new(Duration::ZERO)));
    let descriptor = |user: &str| json!({ "entries": [{ "key": "user", "value": user }] });
    for (users, expected) in [(["u1", "u1"], 200), (["u1", "u2"], 400), (["u2", "u2"], 200)] {
        let asked = json!({ "domain": "edge", "descriptors": users.map(descriptor) });
        let (status, body) = call(&router, "POST", "/json", &asked.to_string()).await;
        assert_eq!(status, expected, "{users:?}: {body}");
        assert_eq!(body.contains("limit `a` by `u1` and of limit `a` by `u2`"), expected == 400, "{body}");
    }
    let (_, key) = call(&router, "GET", "/v1/keys?limit=a&user=u1", "").await;
    assert!(key.contains("\"remaining\":8"), "what was refused charged nothing: {key}");
}

#[tokio::test]
async fn an_array_is_asked_of_at_once_and_answered_in_order() {
    let store = Slow::new(TAKES);
    let router = router(shared(policy("deny"), &store));
    let checks: Vec<Value> = (0..110).map(|_| check("u", "/")).collect();
    let begin = tokio::time::Instant::now();
    let answers = post(&router, "/v1/check", json!(checks)).await;
    assert!(begin.elapsed() < TAKES * 40, "{:?}", begin.elapsed());
    for (place, answer) in answers.as_array().unwrap().iter().enumerate() {
        let remaining = 99_u64.saturating_sub(place as u64);
        assert_eq!(told(answer), (&json!(place < 100), &json!("store")), "{place}");
        assert_eq!(answer["limits"][0]["remaining"], remaining, "{place}: {answer}");
    }
    assert_eq!(store.most_under_way(), 64);
}

#[tokio::test]
async fn permits_are_held_in_the_store() {
    let store = Slow::new(Duration::ZERO);
    let router = router(shared(policy("deny"), &store));
    let first = post(&router, "/v1/acquire", check("u", "/hold")).await;
    let permit = json!({ "permit": first["permit"] });
    assert_eq!((told(&first), store.held()), ((&json!(true), &json!("store")), 1));
    let second = post(&router, "/v1/acquire", check("u", "/hold")).await;
    assert_eq!(
        (&second["allowed"], &second["reason"], second.get("permit")),
        (&json!(false), &json!("in_flight"), None)
    );
    for released in [true, false] {
        assert_eq!(post(&router, "/v1/release", permit.clone()).await, json!({ "released": released }));
    }
    let third = post(&router, "/v1/acquire", check("u", "/hold")).await;
    store.go();
    let (status, problem) =
        call(&router, "POST", "/v1/release", &json!({ "permit": third["permit"] }).to_string()).await;
    assert!(status == 503 && problem.contains("the store gave no answer"), "{problem}");
}

#[tokio::test]
async fn a_caller_that_hangs_up_holds_nothing() {
    let store = Slow::new(TAKES);
    let router = router(shared(policy("deny"), &store));
    let body = check("u", "/hold").to_string();
    let acquire = call(&router, "POST", "/v1/acquire", &body);
    assert!(tokio::time::timeout(TAKES / 4, acquire).await.is_err());
    assert_eq!(store.most_under_way(), 1, "the store was asked");
    eventually("it is given back", || store.held() == 0).await;
}

#[tokio::test]
async fn without_the_store_the_policy_says_what_is_decided() {
    for (on_error, allowed, status) in [("allow", true, 204), ("deny", false, 429), ("local", true, 204)] {
        let store = Slow::new(Duration::ZERO);
        let text = format!(
            "store: {{ redis: {{ url: 'redis://127.0.0.1', on_error: {on_error} }} }}
limits:
  - {{ name: queue, key: [], leaky_bucket: {{ rate: 10/s, queue: 10 }} }}
"
        );
        let policy = Policy::read(Path::new("tollgate.yaml"), &text).unwrap();
        let router = router(shared(policy, &store));
        store.go();
        let answer = post(&router, "/v1/check", check("u", "/")).await;
        assert_eq!(told(&answer), (&json!(allowed), &json!("fallback")), "{on_error}: {answer}");
        if !allowed {
            assert_eq!(answer["reason"], "unavailable");
        }
        let look = post(&router, "/v1/check", json!({ "attributes": {}, "cost": 0 })).await;
        assert_eq!(told(&look), (&json!(allowed), &json!("fallback")), "{on_error}: {look}");
        for target in ["/v1/forward-auth", "/v1/forward-auth?cost=0"] {
            let (found, body) = call(&router, "GET", target, "").await;
            assert_eq!(found, status, "{on_error}: {target}: {body}");
        }
        for (method, target) in
            [("POST", "/v1/explain"), ("GET", "/v1/keys?limit=queue"), ("DELETE", "/v1/keys?limit=queue")]
        {
            let (status, problem) = call(&router, method, target, r#"{"attributes": {}}"#).await;
            assert!(status == 503 && problem.contains("the store gave no answer"), "{target}: {problem}");
        }
        let (_, metrics) = call(&router, "GET", "/metrics", "").await;
        assert!(metrics.contains("tollgate_decisions_by_source_total{source=\"fallback\"} 4\n"), "{metrics}");
    }
}

#[tokio::test]
async fn the_store_is_seen_and_its_loss_takes_nobody_out() {
    let store = Slow::new(Duration::ZERO);
    let router = router(shared(policy("deny"), &store));
    post(&router, "/v1/check", check("u", "/")).await;
    assert_eq!(call(&router, "GET", "/readyz", "").await, (200, "ok\n".to_owned()));
    let (_, metrics) = call(&router, "GET", "/metrics", "").await;
    for line in [
        "# TYPE tollgate_store_up gauge",
        "tollgate_store_up{shard=\"10.0.0.1:6379\"} 1",
        "# TYPE tollgate_store_calls_total counter",
        "tollgate_store_calls_total{shard=\"10.0.0.1:6379\"} 40",
        "tollgate_store_errors_total{shard=\"10.0.0.2:6379\",kind=\"timeout\"} 2",
        "tollgate_store_reconnects_total{shard=\"10.0.0.2:6379\"} 3",
        "tollgate_decisions_by_source_total{source=\"store\"} 1",
        "tollgate_decisions_by_source_total{source=\"memory\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    store.go();
    assert_eq!(call(&router, "GET", "/readyz", "").await, (200, "ok, store degraded\n".to_owned()));
    let (_, verbose) = call(&router, "GET", "/readyz?verbose", "").await;
    let store = "store degraded, 10.0.0.1:6379 unreachable for 7 s: it is gone, 10.0.0.2:6379 tried again for 7 s, 10.0.0.3:6379 in use for 7 s";
    assert!(verbose.lines().any(|line| line == store), "{verbose}");
    assert!(verbose.lines().any(|line| line == "listeners ok"), "{verbose}");
    let (_, metrics) = call(&router, "GET", "/metrics", "").await;
    assert!(metrics.contains("tollgate_store_up{shard=\"10.0.0.1:6379\"} 0\n"), "{metrics}");
}

#[tokio::test]
async fn what_was_asked_is_answered_before_the_end() {
    let store = Slow::new(TAKES);
    let (mut stream, theirs) = tokio::io::duplex(1 << 16);
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let stopped = async move { _ = stopped.await };
    let http = Http::new(shared(policy("deny"), &store));
    let ended = tokio::spawn(http.speak(theirs, connection(), activity(), stopped));
    let body = check("u", "/").to_string();
    let head =
        format!("POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    eventually("it is asked", || store.under_way() == 1).await;
    stop.send(()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"source\":\"store\""), "{answer}");
    ended.await.unwrap();
}

#[tokio::test]
async fn what_the_store_decides_is_recorded() {
    let file = std::env::temp_dir().join(format!("tollgate-shared-record-{}", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let record =
        tollgate_policy::Record { path: file.display().to_string(), max_bytes: 1 << 20, max_files: 1 };
    let service =
        shared(Policy { record: Some(record), ..policy("deny") }, &Slow::new(Duration::from_millis(8)));
    let router = router(Arc::clone(&service));
    let checks: Vec<Value> = (0..30).map(|_| check("u", "/few")).collect();
    post(&router, "/v1/check", json!(checks)).await;
    service.finish();
    let lines = std::fs::read_to_string(&file).unwrap();
    let allowed = lines.lines().filter(|line| line.contains("\"allowed\":true")).count();
    assert_eq!((lines.lines().count(), allowed), (30, 2), "{lines}");
    std::fs::remove_file(&file).unwrap();
}
