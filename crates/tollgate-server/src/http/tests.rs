use std::collections::BTreeSet;
use std::path::Path;

use axum::http::Method;
use serde_json::Value;
use tollgate::AlgorithmKind;
use tollgate_policy::Policy;
use tower_service::Service as _;

use super::*;
use crate::reload::Reloader;

/// What is there without being described: for browsers, for those who look for it by an old name, and the description.
const NOT_DESCRIBED: [&str; 5] = ["/", "/playground", "/assets/{hash}/{*name}", "/healthz", "/openapi.json"];

fn described() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

#[test]
fn every_endpoint_is_described_and_what_is_described_is_there() {
    let described = described();
    let described: BTreeSet<&str> =
        described["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let there: BTreeSet<&str> = routes().into_iter().map(|(path, _)| path).collect();
    let there: BTreeSet<&str> = there.into_iter().filter(|path| !NOT_DESCRIBED.contains(path)).collect();
    assert_eq!(described, there);
}

/// But for HEAD, which whatever takes GET takes too.
#[tokio::test]
async fn an_endpoint_takes_the_methods_that_are_described_and_no_others() {
    let policy = Policy::read(Path::new("none"), "limits: []").unwrap();
    let service = crate::service::Service::new(
        policy.clone(),
        Reloader::new(crate::source::Source::default(), policy),
        None,
    )
    .unwrap();
    let mut router = router(Arc::new(service));
    for (path, methods) in described()["paths"].as_object().unwrap() {
        for method in ["GET", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
            let mut request = Request::new(Body::empty());
            *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
            *request.uri_mut() = path.replace("{id}", "acme").parse().unwrap();
            let peer = "127.0.0.1:1".parse().unwrap();
            request.extensions_mut().insert(Connection { peer, is_loopback: true, is_tls: false });
            let status = router.call(request).await.unwrap().status();
            let is_taken = status != StatusCode::METHOD_NOT_ALLOWED && status != StatusCode::NOT_FOUND;
            let is_described = methods.get(method.to_ascii_lowercase()).is_some();
            assert_eq!(is_taken, is_described, "{method} {path}: {status}");
        }
    }
}

#[test]
fn every_algorithm_is_described_with_the_keys_of_the_policy_file() {
    let names = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let schema: Value = serde_json::from_str(&tollgate_policy::schema()).unwrap();
    let in_policy = &schema["properties"]["limits"]["items"]["properties"];
    let described = described();
    let throttle = &described["components"]["schemas"]["Throttle"];
    let algorithms: Vec<&str> = AlgorithmKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names(&throttle["properties"]), [&["key", "cost"], &algorithms[..]].concat());
    let one_of = throttle["oneOf"].as_array().unwrap().iter().map(|one| one["required"][0].as_str().unwrap());
    assert_eq!(one_of.collect::<Vec<_>>(), algorithms);
    for name in algorithms {
        let (described, in_policy) = (&throttle["properties"][name], &in_policy[name]);
        assert_eq!(names(&described["properties"]), names(&in_policy["properties"]), "{name}");
        assert_eq!(described["additionalProperties"], false, "{name}");
    }
}

#[test]
fn the_description_is_of_this_version() {
    assert_eq!(described()["info"]["version"], env!("CARGO_PKG_VERSION"));
}
