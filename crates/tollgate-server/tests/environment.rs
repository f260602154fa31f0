//! Values that came from the environment are used and not shown.

use std::process::Command;

use serde_json::json;

use crate::service::{Directory, Service, TOLLGATE, assert_refused, eventually, json_of};

/// Each has a value that nothing else contains.
const VALUES: [(&str, &str); 10] = [
    ("T_NAME", "named-zq1"),
    ("T_PATH", "/hidden-zq2"),
    ("T_KEY", "attribute-zq3"),
    ("T_LIMIT", "94711"),
    ("T_RATE", "83622/min burst 83623"),
    ("T_WAIT", "517ms"),
    ("T_WEIGHT", "72533"),
    ("T_UPSTREAM", "http://upstream-zq4.invalid:9000"),
    ("T_TOKEN", "token-zq5"),
    ("T_HOST", "host-zq6.example"),
];

const POLICY: &str = r#"
listen: { http: '127.0.0.1:0', gateway: '127.0.0.1:0' }
admin: { token_file: './${T_TOKEN}' }
tiers: { pro: { weight: '${T_WEIGHT}' } }
gateway: { upstream: '${T_UPSTREAM}' }
limits:
  - name: ${T_NAME}
    key: ['${T_KEY}']
    match: { path: '${T_PATH}/*' }
    fixed_window: { limit: '${T_LIMIT}', window: 1h }
  - name: rate
    key: [tenant]
    match: { attributes: { place: '$${T_PATH}' } }
    token_bucket: { rate: '${T_RATE}' }
    max_wait: ${T_WAIT}
    tiers: { pro: { burst: '${T_LIMIT}' } }
"#;

/// That a text has none of the values, nor a part of one that is not written elsewhere.
fn assert_hidden(text: &str, of: &str) {
    for value in ["zq1", "zq2", "zq3", "94711", "83622", "83623", "517ms", "72533", "zq4", "zq5", "zq6"] {
        assert!(!text.contains(value), "{value} is in {of}: {text}");
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(TOLLGATE);
    command.args(arguments).envs(VALUES);
    command
}

fn start() -> Service {
    let directory = Directory::new();
    directory.write("token-zq5", "s3cret");
    let file = directory.write("tollgate.yaml", POLICY);
    Service::run(directory, command(&["serve", "--config"]).arg(file))
}

#[test]
fn values_of_the_environment_decide_and_are_not_shown() {
    let mut service = start();
    assert!(service.process.line_with("carries requests").ends_with(" to ${T_UPSTREAM}"));
    let mut client = service.connect();
    let attributes = json!({ "path": "/hidden-zq2/x", "attribute-zq3": "a", "place": "${T_PATH}" });
    let reply = json_of(&client.post("/v1/check", &json!({ "attributes": attributes })));
    assert_eq!(reply["limits"][0]["remaining"], 94_710, "{reply}");
    assert_eq!(reply["limits"][1]["limit"], 83_623, "`$${{…}}` is text: {reply}");

    let limits = client.get("/v1/limits");
    assert_hidden(&limits.body, "/v1/limits");
    let limits = json_of(&limits);
    let first = &limits["limits"][0];
    assert_eq!(first["name"], "${T_NAME}");
    assert_eq!(first["key"], json!(["${T_KEY}"]));
    assert_eq!(first["match"], json!({ "path": ["${T_PATH}/*"] }));
    assert_eq!(first["numbers"], json!({ "limit": "${T_LIMIT}", "window": "1h" }));
    let second = &limits["limits"][1];
    assert_eq!(second["numbers"]["rate"], "${T_RATE}");
    assert_eq!(second["numbers"]["max_wait"], "${T_WAIT}");
    assert_eq!(second["tiers"]["pro"]["burst"], "${T_LIMIT}");
    assert_eq!(second["match"], json!({ "place": ["${T_PATH}"] }), "which the file has as text");
    assert_eq!(limits["tiers"]["pro"]["weight"], "${T_WEIGHT}");

    let explained = client.post("/v1/explain", &json!({ "attributes": { "path": "/other" } }));
    assert_hidden(&explained.body, "/v1/explain");
    assert!(explained.body.contains("does not match `${T_PATH}/*`"), "{}", explained.body);
    let explained = client.post("/v1/explain", &json!({ "attributes": { "path": "/hidden-zq2/mine" } }));
    assert!(explained.body.contains("the request has no `${T_KEY}`"), "{}", explained.body);
    assert!(!explained.body.contains("zq1") && !explained.body.contains("zq3"), "{}", explained.body);
}

#[test]
fn values_of_the_environment_are_not_logged() {
    let mut service = start();
    let gateway = tollgate_testkit::address_in(&service.process.line_with("listens on"));
    let mut through = tollgate_testkit::Http::connect(gateway);
    eventually("the upstream is missed", || {
        assert!(through.send("GET", "/", &[], "").status >= 500);
        service.process.errors().contains("${T_UPSTREAM}")
    });
    let token = ("authorization", "Bearer s3cret");
    let mut client = service.connect();
    // A limit whose name came from the environment goes, and a token is missing.
    service.directory.write("tollgate.yaml", &POLICY.replace("${T_NAME}", "other"));
    let reloaded = client.0.send("POST", "/v1/reload", &[token], "");
    assert_eq!(reloaded.status, 200, "{reloaded:?}");
    assert_hidden(&reloaded.body, "the answer to a reload");
    assert!(reloaded.body.contains("limit `${T_NAME}` is gone"), "{reloaded:?}");
    service.directory.write("tollgate.yaml", &POLICY.replace("./${T_TOKEN}", "./${T_TOKEN}-2"));
    let refused = client.0.send("POST", "/v1/reload", &[token], "");
    assert_refused(&refused, "a token file that is not there");
    assert_hidden(&refused.body, "the answer to a reload");
    service.process.signal("TERM");
    service.process.wait();
    assert_hidden(&service.process.errors(), "the log");
}

#[test]
fn the_address_and_password_of_a_store_are_not_shown() {
    let directory = Directory::new();
    let policy = "listen: { http: '127.0.0.1:0' }\nstore: { redis: { url: '${T_REDIS}' } }\nlimits: []";
    let file = directory.write("tollgate.yaml", policy);
    let url = "redis://:password-zq7@127.0.0.9:1/3"; // where nobody listens
    let service = Service::run(directory, command(&["serve", "--config"]).arg(file).env("T_REDIS", url));
    let mut client = service.connect();
    let mut ready = String::new();
    eventually("the store is missed", || {
        ready = client.get("/readyz?verbose").body;
        ready.contains("store down") && service.process.errors().contains("cannot be reached")
    });
    for (text, of) in [(&ready, "/readyz"), (&service.process.errors(), "the log")] {
        assert!(!text.contains("127.0.0.9") && !text.contains("zq7"), "{of}: {text}");
        assert!(text.contains("${T_REDIS}"), "{of}: {text}");
    }
}

#[test]
fn check_and_explain_show_the_text_of_the_file() {
    let directory = Directory::new();
    directory.write("token-zq5", "a-token");
    let text = |output: &std::process::Output| {
        [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
    };
    let check = |policy: &str| {
        let file = directory.write("tollgate.yaml", policy).display().to_string();
        text(&command(&["check", &file]).output().unwrap())
    };
    let costly = format!("{POLICY}costs: [{{ match: {{ path: 'no${{T_PATH}}' }}, cost: 100k }}]\n");
    let shown = check(&costly);
    assert_hidden(&shown, "check");
    for expected in [
        "${T_NAME}",
        "${T_KEY}",
        "path ${T_PATH}/*",
        "limit ${T_LIMIT}",
        "rate ${T_RATE}",
        "max_wait ${T_WAIT}",
        "to ${T_UPSTREAM}",
        "valid; 2 limits",
    ] {
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
    let file = directory.path("tollgate.yaml").display().to_string();
    let explained = text(&command(&["explain", "--config", &file, "path=/other"]).output().unwrap());
    assert_hidden(&explained, "explain");
    assert!(explained.contains("${T_NAME}"), "{explained}");

    let literal =
        check("limits: [{ name: a, key: [], match: { path: '${T_PATH}' }, token_bucket: { rate: 1/s } }]");
    assert!(literal.contains("note: `a`: `path` is compared as written"), "{literal}");
    assert_hidden(&literal.to_lowercase(), "a note of check");

    // Each with a fault in an expanded value.
    for (policy, message) in [
        (
            "limits: [{ name: 'a ${T_NAME}', key: [], token_bucket: { rate: 1/s } }]",
            "`a ${T_NAME}` cannot be a name",
        ),
        ("limits: [{ name: a, key: [], token_bucket: { rate: '${T_NAME}' } }]", "`${T_NAME}` cannot be read"),
        (
            "limits: [{ name: a, key: [], token_bucket: { rate: '${T_LIMIT}' } }]",
            "`${T_LIMIT}` cannot be read",
        ),
        (
            "limits: [{ name: a, key: [], token_bucket: { rate: '${T_LIMIT}99999999999999/s' } }]",
            "cannot be read",
        ),
        ("limits: [{ name: a, key: [], fixed_window: { limit: '${T_LIMIT}', window: 1ns } }]", "${T_"),
        ("tiers: { pro: { shed: '${T_LIMIT}' } }", "`shed` of ${T_LIMIT}"),
        ("default_tier: ${T_NAME}", "unknown tier `${T_NAME}`"),
        ("headers: { ietf: '${T_NAME}' }", "unknown word `${T_NAME}`"),
        ("gateway: { upstream: '${T_PATH}' }", "`${T_PATH}` cannot be read"),
        ("gateway: { upstream: ['${T_UPSTREAM}', '${T_UPSTREAM}'] }", "${T_UPSTREAM} a second time"),
        ("store: { redis: { url: '${T_UPSTREAM}' } }", "${T_UPSTREAM}"),
        ("store: { redis: { url: 'me:${T_NAME}@${T_HOST}' } }", "${T_HOST}"),
        ("limits: [{ name: a, key: [], token_bucket: { rate: '${T_UNSET}' } }]", "`T_UNSET` is not set"),
    ] {
        let shown = check(policy);
        assert!(shown.contains(message), "{message} is not in {shown}");
        assert_hidden(&shown, policy);
    }
}
