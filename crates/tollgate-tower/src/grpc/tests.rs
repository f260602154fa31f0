use super::*;

#[test]
fn a_message_is_escaped() {
    let problem = serde_json::json!({ "detail": "100% of `é`\n" }).to_string();
    let refused = Response::builder().status(429).body(Bytes::from(problem)).unwrap();
    let refusal = refusal(refused, &HeaderValue::from_static("application/grpc"));
    assert_eq!(refusal.headers()[GRPC_MESSAGE], "100%25 of `%C3%A9`%0A");
    assert_eq!(refusal.headers()[GRPC_STATUS], "8");
    assert_eq!(refusal.status(), StatusCode::OK);
}

#[test]
fn what_cannot_be_decided_is_an_internal_error() {
    let refused = Response::builder().status(500).body(Bytes::new()).unwrap();
    let refusal = refusal(refused, &HeaderValue::from_static("application/grpc"));
    assert_eq!(refusal.headers()[GRPC_STATUS], "13");
    assert_eq!(refusal.headers().get(GRPC_MESSAGE), None);
}
