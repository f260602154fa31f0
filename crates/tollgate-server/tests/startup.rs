//! How the program starts, or says in a line why it does not.

use std::net::TcpListener;
use std::process::Command;

use tollgate_testkit::{program, skip};

use crate::service::{Directory, Service, TOLLGATE, eventually, json_of, self_signed_certificate, tollgate};
use serde_json::json;

/// What it says when it is to serve by a policy that it cannot serve by: the last line, all it printed, and the code.
fn refusal(policy: &str) -> (String, String) {
    let directory = Directory::new();
    let file = directory.write("tollgate.yaml", policy);
    let output = tollgate(&["serve", "--config", file.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{policy}: {errors}");
    assert!(output.stdout.is_empty(), "{policy}: {}", String::from_utf8_lossy(&output.stdout));
    (errors.lines().last().unwrap().to_owned(), errors)
}

#[test]
fn what_cannot_be_served_is_told_in_a_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (policy, words) in [
        (format!("listen: {{ http: '{address}' }}"), &["listen.http", &address, "in use"][..]),
        ("listen: { http: '192.0.2.1:80' }".to_owned(), &["listen.http", "192.0.2.1:80"]),
        (
            "store: { redis: { url: 'http://127.0.0.1:1' } }".to_owned(),
            &["store.redis", "http://127.0.0.1:1"],
        ),
        (format!("listen: {{ grpc: '{address}' }}"), &["listen.grpc", &address, "in use"]),
        (format!("listen: {{ resp: '{address}' }}"), &["listen.resp", &address, "in use"]),
        ("resp_password_file: ./nowhere".to_owned(), &["resp_password_file: ", "nowhere", "No such file"]),
        ("admin: { token_file: ./nowhere }".to_owned(), &["admin.token_file: ", "nowhere", "No such file"]),
        ("tls: { cert_file: ./nowhere, key_file: ./nowhere }".to_owned(), &["tls.key_file: ", "nowhere"]),
        ("record: { path: ./nowhere/file }".to_owned(), &["record.path: ", "nowhere/file", "No such file"]),
    ] {
        let (line, _) = refusal(&policy);
        assert!(words.iter().all(|word| line.contains(word)), "{policy}: {line}");
    }
}

/// A policy names files that may be missing where it is checked, such as in a pipeline without secrets.
#[test]
fn check_refuses_files_that_serve_refuses() {
    let directory = Directory::new();
    directory.write("empty", "");
    for (policy, key) in [
        ("tls: { cert_file: ./nowhere, key_file: ./empty }", "tls.cert_file"),
        ("tls: { cert_file: ./nowhere, key_file: ./empty }", "tls.key_file"),
        ("admin: { token_file: ./nowhere }", "admin.token_file"),
        ("admin: { token_file: ./empty }", "admin.token_file"),
        ("resp_password_file: .", "resp_password_file"),
        ("record: { path: ./nowhere/file }", "record.path"),
        (
            "store: { redis: { url: 'redis://127.0.0.1:1', username: u, password_file: ./nowhere } }",
            "store.redis.password_file",
        ),
        (
            "store: { redis: { url: 'rediss://127.0.0.1:1', tls: { ca_file: ./nowhere } } }",
            "store.redis.tls.ca_file",
        ),
    ] {
        let file = directory
            .write("tollgate.yaml", &format!("listen: {{ http: '127.0.0.1:0' }}\n{policy}\nlimits: []"));
        let file = file.to_str().unwrap();
        let errors = [&["check", file][..], &["serve", "--config", file]].map(|arguments| {
            let output = tollgate(arguments);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {policy}");
            String::from_utf8(output.stderr).unwrap()
        });
        assert!(errors.iter().all(|error| error.contains(key)), "{policy}: {errors:?}");
        let help = "help: pass --skip-files where secrets are not mounted";
        assert!(errors[0].lines().any(|line| line == help), "{policy}: {}", errors[0]);
        let skipped = tollgate(&["check", file, "--skip-files"]);
        let stdout = String::from_utf8(skipped.stdout).unwrap();
        assert_eq!(skipped.status.code(), Some(0), "{policy}: {}", String::from_utf8_lossy(&skipped.stderr));
        assert!(
            stdout.lines().any(|line| line.starts_with(&format!("warning: {key}: "))),
            "{policy}: {stdout}"
        );
    }
}

/// A limit whose log would be too large uses a counter. Every surface that names the algorithm names the one that decides.
#[test]
fn the_algorithm_that_decides_is_named_everywhere() {
    const POLICY: &str = "
tiers: { free: {}, pro: {} }
default_tier: free
tenants: { acme: { tier: pro } }
limits:
  - name: calls
    key: [tenant]
    sliding_log: { limit: 100, window: 60s }
    tiers: { pro: { limit: 20000 } }
";
    let service = Service::start(POLICY);
    let mut client = service.connect();
    let limit = &json_of(&client.get("/v1/limits"))["limits"][0];
    assert_eq!(
        (&limit["algorithm"], &limit["algorithm_in_use"]),
        (&json!("sliding_log"), &json!("sliding_log"))
    );
    assert_eq!(limit["tier_algorithms"]["pro"], "sliding_counter");
    let explained = client.post("/v1/explain", &json!({ "attributes": { "tenant": "acme" } }));
    assert_eq!(json_of(&explained)["limits"][0]["algorithm_in_use"], "sliding_counter");
    let file = service.directory.path("tollgate.yaml").display().to_string();
    let stdout = |arguments: &[&str]| String::from_utf8(tollgate(arguments).stdout).unwrap();
    let warning = "uses sliding_counter (strict, 32 buckets) in place of sliding_log";
    let reason = "in place of sliding_log: limit 20000 is above exact_up_to 10000";
    let shown = stdout(&["check", &file]);
    assert!(shown.contains("sliding_log (as sliding_counter)") && shown.contains(warning), "{shown}");
    let shown = stdout(&["explain", "--config", &file, "tenant=acme"]);
    assert!(shown.contains(reason), "{shown}");
    let shown = stdout(&["explain", "--config", &file, "tenant=other"]);
    assert!(!shown.contains("in place of"), "{shown}");
    let log = service.process.errors();
    assert!(log.contains(warning), "{log}");
}

/// A file can be wrong in more places than anybody reads, and have values longer than a terminal is wide.
#[test]
fn check_bounds_its_output() {
    let directory = Directory::new();
    let fault = "  - { name: l, kex: [u], token_bucket: { rate: x/s } }\n";
    let file = directory.write("faults.yaml", &format!("limits:\n{}", fault.repeat(5000)));
    let output = tollgate(&["check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.matches("error: ").count() == 100 && errors.contains("more faults are not shown"),
        "{errors}"
    );
    let long = format!(
        "limits: [{{ name: l, key: [u], match: {{ path: /{} }}, token_bucket: {{ rate: 1/s }} }}]",
        "a".repeat(70_000)
    );
    let file = directory.write("long.yaml", &long);
    let output = tollgate(&["check", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// `check` shows which limits are leased, by how much they may be exceeded in a span, and why others are exact.
#[test]
fn check_shows_how_limits_are_leased() {
    let directory = Directory::new();
    let policy = "
store: { redis: { url: 'redis://127.0.0.1', mode: lease } }
limits:
  - { name: bucket, key: [user], token_bucket: { rate: 1000/s, burst: 1000 } }
  - { name: window, key: [user], fixed_window: { limit: 100, window: 60s } }
  - { name: small, key: [user], token_bucket: { rate: 5/s, burst: 10 } }
  - { name: log, key: [user], sliding_log: { limit: 100, window: 60s } }
  - { name: chosen, key: [user], mode: exact, token_bucket: { rate: 1000/s, burst: 1000 } }";
    let file = directory.write("tollgate.yaml", policy).display().to_string();
    let output = tollgate(&["check", &file]);
    let shown = String::from_utf8(output.stdout).unwrap();
    for (limit, lease) in [
        ("LIMIT", "LEASE"),
        ("bucket", "yes; excess 500 per process, 500 for all"),
        ("window", "yes; no excess"),
        ("small", "exact (burst 10 is below 16)"),
        ("log", "exact (sliding_log cannot be leased)"),
        ("chosen", "exact (mode: exact)"),
    ] {
        let line = shown.lines().find(|line| line.starts_with(limit)).unwrap_or_default();
        assert!(line.ends_with(lease), "{limit}: {shown}");
    }
}

/// A tenant with numbers of its own is explained by these.
#[test]
fn explain_shows_the_numbers_of_a_tenant() {
    let directory = Directory::new();
    let policy = "
tenants: { acme: { limits: { a: { rate: 7/min } } } }
limits: [{ name: a, key: [tenant], token_bucket: { rate: 5/s, burst: 3 } }]";
    let file = directory.write("tollgate.yaml", policy).display().to_string();
    let output = tollgate(&["explain", "--config", &file, "tenant=acme"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("rate 7/min, burst 3") && !shown.contains("5/s"), "{shown}");
}

/// A setting that is not built is a fault with its place, and both commands report the same.
#[test]
fn check_and_serve_refuse_what_is_not_built_alike() {
    let directory = Directory::new();
    for (policy, words) in [
        ("store: { memory: { persist: { path: ./state } } }", ["`persist` is not built yet", ":1:29"]),
        ("limits: [{ name: a, key: [], quota: { limit: 5 } }]", ["`quota` is not built yet", ":1:30"]),
    ] {
        let file = directory.write("tollgate.yaml", policy);
        let file = file.to_str().unwrap();
        let refused = [&["check", file][..], &["serve", "--config", file]].map(|arguments| {
            let output = tollgate(arguments);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}: {policy}");
            String::from_utf8(output.stderr).unwrap()
        });
        assert_eq!(refused[0], refused[1], "{policy}");
        assert!(words.iter().all(|word| refused[0].contains(word)), "{}", refused[0]);
    }
}

#[test]
fn a_policy_file_that_is_wrong_starts_nothing() {
    let (_, errors) = refusal("limits:\n  - { name: a, key: [], token_bucket: { rate: fast } }\n");
    assert!(errors.contains("tollgate.yaml:2:") && errors.contains("fast"), "{errors}");
    for command in ["serve --config", "check", "explain --config"] {
        let arguments: Vec<&str> = command.split(' ').chain(["/nowhere/tollgate.yaml"]).collect();
        let output = tollgate(&arguments);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{command}: {errors}");
        assert!(errors.contains("/nowhere/tollgate.yaml: No such file"), "{errors}");
    }
}

#[test]
fn wrong_usage_is_told_from_refused_input() {
    for arguments in [
        &[][..],
        &["nothing"],
        &["check"],
        &["serve", "--nothing"],
        &["serve", "--config"],
        &["explain", "tenant=acme"],
        &["explain", "--config", "x", "no-attribute"],
        &["explain", "--config", "x", "--cost", "many", "a=b"],
        &["serve", "--log-format", "xml"],
    ] {
        let output = tollgate(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains("Usage") || errors.contains("--help"), "{arguments:?}: {errors}");
    }
    for arguments in [&["--help"][..], &["--version"], &["serve", "--help"], &["schema"]] {
        let output = tollgate(arguments);
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(0), false), "{arguments:?}");
    }
}

#[test]
fn without_a_policy_file_it_says_what_to_try_and_that_works() {
    if ["127.0.0.1:8080", "127.0.0.1:6380"].iter().any(|address| TcpListener::bind(address).is_err()) {
        return skip("127.0.0.1:8080 or :6380 is taken, where the built-in policy listens");
    }
    let mut service = Service::run(Directory::new(), Command::new(TOLLGATE).arg("serve"));
    assert_eq!(service.address.to_string(), "127.0.0.1:8080");
    let commands = [(); 3].map(|()| service.process.line_with("curl "));
    let mut client = service.connect();
    for command in commands {
        let (target, body) = match command.split_once(" -d '") {
            Some((target, body)) => (target, body.trim_end_matches('\'')),
            None => (&*command, ""),
        };
        let target = target.strip_prefix("curl http://127.0.0.1:8080").unwrap();
        let answer = client.0.send(if body.is_empty() { "GET" } else { "POST" }, target, &[], body);
        assert_eq!(answer.status, 200, "{command}: {answer:?}");
    }
    let refused = client.0.send("POST", "/v1/reload", &[], "");
    crate::service::assert_refused(&refused, "there is no file to reload");
}

#[test]
fn a_demo_shows_something() {
    let directory = Directory::new();
    let text = "listen: { http: '127.0.0.1:0' }\nlimits: [{ name: per-tenant, key: [tenant], token_bucket: { rate: 5/s } }]";
    let file = directory.write("tollgate.yaml", text);
    let mut command = Command::new(TOLLGATE);
    let service = Service::run(directory, command.args(["serve", "--demo", "--config"]).arg(file));
    let mut client = service.connect();
    let mut count = |outcome: &str| {
        let labels = format!("limit=\"per-tenant\",outcome=\"{outcome}\",protocol=\"http\"");
        client.metric(&format!("tollgate_decisions_total{{{labels}}}")).unwrap_or(0.0)
    };
    eventually("requests pass", || count("allow") > 10.0);
    eventually("requests are denied", || count("deny") > 10.0);
    let before = count("allow");
    eventually("more come", || count("allow") > before);
}

#[test]
fn with_a_certificate_it_speaks_tls_and_nothing_else() {
    let directory = Directory::new();
    if program("curl").is_none() || !self_signed_certificate(&directory) {
        return;
    }
    let service =
        Service::start_in(directory, "tls: { cert_file: ./cert.pem, key_file: ./key.pem }\nlimits: []");
    let curl = |arguments: &[&str], scheme: &str| {
        let url = format!("{scheme}://{}/v1/check", service.address);
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "8", "-d", r#"{"attributes":{}}"#]).args(arguments).arg(url);
        command.output().unwrap()
    };
    let answer = curl(&["-k"], "https");
    let body = String::from_utf8(answer.stdout).unwrap();
    assert!(body.starts_with("{\"allowed\":true"), "{body} {}", String::from_utf8_lossy(&answer.stderr));
    // Whoever does not know the certificate does not believe it; whoever speaks no TLS gets no answer.
    assert!(!curl(&[], "https").status.success());
    assert!(!curl(&[], "http").status.success());
    let certificate = service.directory.path("cert.pem");
    let trusted = [
        "--cacert",
        certificate.to_str().unwrap(),
        "--connect-to",
        &format!("localhost:443:{}", service.address),
    ];
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "8"])
        .args(trusted)
        .arg("https://localhost/livez")
        .output();
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "ok\n");
}

/// Who says where HTTP is spoken has not said that there be no gateway.
#[test]
fn a_gateway_listens_also_where_the_command_says_where_http_is_spoken() {
    if TcpListener::bind("127.0.0.1:8000").is_err() {
        return skip("127.0.0.1:8000 is taken, where a gateway listens by default");
    }
    let directory = Directory::new();
    let file = directory.write("tollgate.yaml", "gateway: { upstream: 'http://127.0.0.1:9' }\nlimits: []\n");
    let mut command = Command::new(TOLLGATE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
    let mut service = Service::run(directory, &mut command);
    let line = service.process.line_with("listens on");
    assert!(line.contains("127.0.0.1:8000"), "{line}");
}
