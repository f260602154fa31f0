//! What operators see of decisions: the metrics.

use crate::service::Service;
use serde_json::json;

#[test]
fn only_what_a_shadow_limit_let_pass_is_its_cost() {
    let service = Service::start(
        "limits: [{ name: w, shadow: true, key: [], token_bucket: { rate: 1/day, burst: 1 } }]",
    );
    let mut client = service.connect();
    (0..5).for_each(|_| assert!(client.passes(&[])));
    assert_eq!(client.metric("tollgate_cost_total{limit=\"w\"}"), Some(1.0));
}

#[test]
fn rules_that_are_sent_are_counted() {
    let service = Service::start("limits: []");
    let mut client = service.connect();
    for _ in 0..3 {
        let sent = json!({ "key": "k", "fixed_window": { "limit": 2, "window": "1h" } });
        assert_eq!(client.post("/v1/throttle", &sent).status, 200);
    }
    for (outcome, count) in [("allow", 2.0), ("deny", 1.0)] {
        let name =
            format!("tollgate_decisions_total{{limit=\"(sent)\",outcome=\"{outcome}\",protocol=\"http\"}}");
        assert_eq!(client.metric(&name), Some(count));
    }
}
