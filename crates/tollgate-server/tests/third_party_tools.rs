//! Programs nobody here wrote, on the service: schemathesis on its API, Prometheus' own parser on its metrics.
//!
//! They come from PyPI. `./test` installs them.

use std::process::{Command, Output};

use tollgate_testkit::{is_long, packages};

use crate::service::{Service, repository};

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

fn built_in() -> Service {
    Service::start(&std::fs::read_to_string(repository("crates/tollgate-server/src/built_in.yaml")).unwrap())
}

#[test]
fn schemathesis_finds_nothing() {
    let Some(venv) = packages("TOLLGATE_VENV") else { return };
    let service = built_in();
    let examples = if is_long() { "500" } else { "15" };
    let output = Command::new(venv.join("bin/schemathesis"))
        .arg("--config-file")
        .arg(repository("crates/tollgate-server/tests/schemathesis.toml"))
        .args(["run", "--seed", "7", "--max-examples", examples])
        .arg(format!("http://{}/openapi.json", service.address))
        .current_dir(service.directory.path("."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn prometheus_reads_the_metrics() {
    let Some(venv) = packages("TOLLGATE_VENV") else { return };
    let service = built_in();
    let mut client = service.connect();
    for tenant in ["acme", "nobody"] {
        let _ = client.check(&[("tenant", tenant), ("path", "/x")], Some(15));
        let _ = client.check(&[("tenant", tenant), ("path", "/x")], Some(15));
    }
    let mut read = |parser: &str, accept: &str| {
        let answer = client.0.send("GET", "/metrics", &[("accept", accept)], "");
        let script = format!(
            "import sys\nfrom prometheus_client.{parser} import text_string_to_metric_families as parse\n\
             for family in parse(sys.stdin.read()):\n  for sample in family.samples:\n    \
             print(family.type, sample.name, sorted(sample.labels.items()), float(sample.value))"
        );
        let mut child = Command::new(venv.join("bin/python3"))
            .args(["-c", &script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), answer.body.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        (answer.header("content-type").unwrap().to_owned(), String::from_utf8(output.stdout).unwrap())
    };
    let (kind, classic) = read("parser", "*/*");
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    let (kind, open) = read("openmetrics.parser", "application/openmetrics-text; version=1.0.0");
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    for metrics in [classic, open] {
        for expected in [
            "counter tollgate_decisions_total [('limit', 'per-tenant'), ('outcome', 'deny'), ('protocol', 'http')] 1.0",
            "counter tollgate_cost_total [('limit', 'per-tenant')] 45.0",
            "histogram tollgate_remaining_ratio_bucket [('le', '+Inf'), ('limit', 'per-tenant')] 4.0",
            "histogram tollgate_decision_duration_seconds_count [] 4.0",
            "gauge tollgate_rate_multiplier [] 1.0",
            "counter tollgate_config_reloads_total [('result', 'success')] 1.0",
        ] {
            assert!(metrics.contains(expected), "{expected} in {metrics}");
        }
    }
}
