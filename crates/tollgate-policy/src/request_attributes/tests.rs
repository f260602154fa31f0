use std::path::Path;

use http::header::HOST;

use super::*;
use crate::engine::Engine;

/// The host that limits read from a target, the lines of `Host`, and the host that an adapter sets.
fn host(target: &str, lines: &[&str], set: Option<&str>) -> Result<Option<String>, RequestFault> {
    let file = "limits: [{ name: per-host, key: [host], token_bucket: { rate: 1/s } }]";
    let engine = Engine::new(Policy::read(Path::new("test.yaml"), file).unwrap()).unwrap();
    let policy = engine.policy();
    let uri: Uri = target.parse().unwrap();
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(HOST, line.parse().unwrap());
    }
    let mut request = RequestAttributes::new(&policy, &Method::GET, &uri, &headers, [203, 0, 113, 7].into());
    request.host = set.map(Cow::from);
    let attributes = request.attributes(&policy)?;
    Ok(attributes.iter().find(|(name, _)| *name == "host").map(|(_, value)| value.to_string()))
}

#[test]
fn host_is_the_adapters_then_the_targets_then_the_headers() {
    for (target, lines, set, expected) in [
        ("/", &["a.example"][..], None, Some("a.example")),
        ("/", &[], None, None),
        ("/", &[""], None, None),
        ("http://a.example/", &[], None, Some("a.example")),
        ("http://user@A.example:80/", &["a.example."], None, Some("a.example")),
        ("http://a.example/", &["b.example"], Some("C.example"), Some("c.example")),
        ("/", &["b.example"], Some("c.example"), Some("c.example")),
    ] {
        assert_eq!(host(target, lines, set).unwrap().as_deref(), expected, "{target} {lines:?} {set:?}");
    }
}

#[test]
fn host_header_that_differs_from_the_host_of_the_target_is_a_fault() {
    for line in ["b.example", "a.example:8080", ""] {
        assert_eq!(host("http://a.example/", &[line], None), Err(RequestFault::TwoHosts), "{line:?}");
    }
    let repeated = RequestFault::RepeatedHeader { name: "host".to_owned() };
    assert_eq!(host("http://a.example/", &["a.example", "a.example"], None), Err(repeated));
}
