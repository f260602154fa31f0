use std::path::Path;

use serde_json::Value;
use tollgate::Clock;

use super::*;
use crate::engine::{Engine, Request};

const POLICY: &str = "limits: [{ name: hourly, key: [], fixed_window: { limit: 1, window: 1h } }]";

/// The response to the second request in the window of one request.
fn denial(method: &Method, status: StatusCode) -> Response<Bytes> {
    let policy = Policy::read(Path::new("test.yaml"), POLICY).unwrap();
    let engine = Engine::with_clock(policy, Clock::manual()).unwrap();
    let policy = engine.policy();
    let request = Request { attributes: &[], cost: None };
    let check = || policy.check(&request, engine.clock().now()).now().unwrap().unwrap();
    assert!(check().is_allowed());
    denial_response(&policy, &check(), Duration::ZERO, method, status)
}

fn member(response: &Response<Bytes>, name: &str) -> Value {
    serde_json::from_slice::<Value>(response.body()).unwrap()[name].take()
}

#[test]
fn denial_response_has_the_status_the_headers_and_a_problem_body() {
    let response = denial(&Method::GET, StatusCode::FORBIDDEN);
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert!(response.headers().contains_key("retry-after"));
    assert!(response.headers().contains_key("ratelimit-policy"));
    assert_eq!(member(&response, "status"), 403);
    assert_eq!(member(&response, "violated-policies"), serde_json::json!(["hourly"]));
}

#[test]
fn refusal_response_names_the_fault_and_is_not_stored() {
    let response = refusal_response(&RequestFault::TwoHosts, &Method::GET, StatusCode::BAD_REQUEST);
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
    assert_eq!(response.headers()["cache-control"], "no-store");
    assert_eq!(member(&response, "title"), "Bad Request");
    assert_eq!(
        member(&response, "detail"),
        "This request is refused: `host` differs from the host of the target; send one of them."
    );
}

#[test]
fn responses_to_head_have_headers_and_no_body() {
    let head = &Method::HEAD;
    for response in [
        denial(head, StatusCode::TOO_MANY_REQUESTS),
        refusal_response(&RequestFault::TwoHosts, head, StatusCode::BAD_REQUEST),
        error_response("too many limits", head, StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        assert_eq!(response.headers()["content-type"], PROBLEM_JSON);
        assert!(response.body().is_empty(), "{response:?}");
    }
}

#[test]
fn put_headers_replaces_headers_of_the_same_name() {
    let mut headers = HeaderMap::new();
    headers.append("ratelimit", HeaderValue::from_static("one"));
    headers.append("ratelimit", HeaderValue::from_static("two"));
    put_headers(vec![("ratelimit", "three".to_owned())], &mut headers);
    assert_eq!(headers.get_all("ratelimit").iter().collect::<Vec<_>>(), ["three"]);
}
