//! A real Prometheus that scrapes services of a test.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tollgate_testkit::{Http, Process, free_port};

use crate::service::{Directory, eventually, json_of};

/// A Prometheus that runs until it is dropped.
pub(super) struct Prometheus {
    address: SocketAddr,
    process: Process,
    _directory: Directory,
}

impl Prometheus {
    /// Starts one that scrapes the targets as the job `tollgate` five times per second, and evaluates the rules as often.
    pub(super) fn start(program: &Path, targets: &[SocketAddr], rules: &str) -> Self {
        let directory = Directory::new();
        directory.write("rules.yaml", rules);
        let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        let config = directory.write(
            "prometheus.yml",
            &format!(
                "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms }}
rule_files: [rules.yaml]
scrape_configs: [{{ job_name: tollgate, static_configs: [{{ targets: [{}] }}] }}]",
                targets.join(", ")
            ),
        );
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let process = Process::start(
            Command::new(program)
                .arg(format!("--config.file={}", config.display()))
                .arg(format!("--storage.tsdb.path={}", directory.path("data").display()))
                .arg(format!("--web.listen-address={address}"))
                .arg("--log.level=warn"),
        );
        let prometheus = Self { address, process, _directory: directory };
        eventually("Prometheus is ready", || {
            let connected = std::net::TcpStream::connect(address);
            connected.is_ok_and(|stream| {
                let ready = Http::over(stream).try_send("GET", "/-/ready", &[], b"");
                ready.is_ok_and(|answer| answer.status == 200)
            })
        });
        prometheus
    }

    fn get(&self, target: &str) -> Value {
        let answer = Http::connect(self.address).send("GET", target, &[], "");
        let answer_json = json_of(&answer);
        assert_eq!(answer_json["status"], "success", "{target}: {answer_json} {}", self.process.errors());
        answer_json["data"].clone()
    }

    /// The series that a query returns now: labels and value.
    pub(super) fn query(&self, query: &str) -> Vec<(Value, f64)> {
        let data = self.get(&format!("/api/v1/query?query={}", percent_encoded(query)));
        let series = data["result"].as_array().unwrap_or_else(|| panic!("{query}: {data}"));
        let value = |sample: &Value| sample["value"][1].as_str().unwrap().parse().unwrap();
        series.iter().map(|sample| (sample["metric"].clone(), value(sample))).collect()
    }

    /// All alerting rules, with their alerts.
    pub(super) fn alerting_rules(&self) -> Vec<Value> {
        let groups = self.get("/api/v1/rules?type=alert");
        let groups = groups["groups"].as_array().unwrap();
        groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect()
    }

    /// The alerts of this name that fire now.
    pub(super) fn firing(&self, name: &str) -> Vec<Value> {
        let alerts = self.get("/api/v1/alerts");
        let alerts = alerts["alerts"].as_array().unwrap().iter();
        let is_firing = |alert: &&Value| alert["labels"]["alertname"] == name && alert["state"] == "firing";
        alerts.filter(is_firing).cloned().collect()
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => encoded.push(char::from(byte)),
            _ => write!(encoded, "%{byte:02X}").unwrap(),
        }
    }
    encoded
}

/// The rules of `examples/grafana/alerts.yaml` for a test that takes seconds: they are evaluated five times per second, each
/// range of minutes is one of seconds, alerts fire at once, and the hour before is a span in which the test had not begun.
/// Expressions and thresholds stay as they are.
pub(super) fn hastened(rules: &str) -> String {
    let hastened = rules
        .replace("interval: 30s", "interval: 200ms")
        .replace("[5m]", "[10s]")
        .replace("[1h] offset 10m", "[10s] offset 10m");
    let is_duration = |line: &str| line.trim_start().starts_with("for: ");
    let lines = hastened.lines().map(|line| if is_duration(line) { "        for: 0s" } else { line });
    let hastened: String = lines.flat_map(|line| [line, "\n"]).collect();
    assert_eq!(hastened.matches("for: 0s").count(), rules.matches("- alert: ").count());
    hastened
}
