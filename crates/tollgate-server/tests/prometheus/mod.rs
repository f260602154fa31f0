//! The dashboard, the alerts and the playbook: promtool checks the rules and their unit tests, and a real Prometheus scrapes running
//! services, fires every alert and answers every query.

mod dashboard;
mod reference;
mod scene;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tollgate_testkit::{RedisServer, program, skip};

use self::dashboard::{list, metric_names, text};
use self::scene::Scene;
use self::server::{Prometheus, hastened};
use crate::service::{Directory, Service, TOLLGATE, eventually, repository};

/// Pages of the playbook that no alert points to.
const PAGES_WITHOUT_ALERT: [&str; 2] = ["README.md", "shadow-limits.md"];

fn rules() -> String {
    std::fs::read_to_string(repository("examples/grafana/alerts.yaml")).unwrap()
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

/// Runs a program with some text on its standard input.
fn run_on(command: &mut Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn promtool_accepts_the_rules_and_their_unit_tests() {
    let Some(promtool) = program("promtool") else { return };
    let promtool = |arguments: [&str; 3]| {
        let directory = repository("examples/grafana");
        let output = Command::new(&promtool).args(arguments).current_dir(directory).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    };
    promtool(["check", "rules", "alerts.yaml"]);
    promtool(["test", "rules", "alerts.test.yaml"]);
    let tests = std::fs::read_to_string(repository("examples/grafana/alerts.test.yaml")).unwrap();
    for name in alerts_with_pages().into_iter().map(|(name, _)| name) {
        assert!(tests.contains(&format!("alertname=\"{name}\"")), "{name} has no unit test");
    }
}

#[test]
fn the_429_alert_fires_after_denials() {
    let Some(prometheus) = program("prometheus") else { return };
    let service =
        Service::start("limits: [{ name: per-user, key: [user], token_bucket: { rate: 1/h, burst: 50 } }]");
    let prometheus = Prometheus::start(&prometheus, &[service.address], &hastened(&rules()));
    let mut client = service.connect();
    assert!(client.passes(&[("user", "ann")]));
    let series = "tollgate_decisions_total{limit=\"per-user\",outcome=\"deny\",protocol=\"http\"}";
    eventually("the limit is scraped", || !prometheus.query(series).is_empty());
    let denials = || prometheus.firing("TollgateDenialsSpike");
    assert_eq!(denials(), [Value::Null; 0]);
    (0..49).for_each(|_| assert!(client.passes(&[("user", "ann")])));
    (0..50).for_each(|_| assert!(!client.passes(&[("user", "ann")])));
    eventually("the alert fires", || !denials().is_empty());
    let [alert] = &denials()[..] else { panic!("one alert per limit: {:?}", denials()) };
    assert_eq!((text(&alert["labels"], "limit"), text(&alert["labels"], "job")), ("per-user", "tollgate"));
    let annotations = &alert["annotations"];
    assert_eq!(text(annotations, "runbook_url"), "docs/playbook/denials-spike.md");
    let description = text(annotations, "description");
    let (_, denied) = description.split_once("Limit per-user of job tollgate denies ").unwrap();
    let denied: f64 = denied.split(' ').next().unwrap().parse().unwrap();
    assert!(denied > 1.0 && denied <= 50.0, "{description}");
}

#[test]
fn every_alert_fires_and_every_query_returns_a_series() {
    let Some(prometheus) = program("prometheus") else { return };
    if !RedisServer::is_installed() {
        return skip("redis-server is not installed");
    }
    let scene = Scene::start();
    let gone = Service::start("limits: []");
    let targets = [&scene.targets()[..], &[gone.address]].concat();
    let prometheus = Prometheus::start(&prometheus, &targets, &hastened(&rules()));
    eventually("all services are scraped", || prometheus.query("up == 1").len() == targets.len());
    drop(gone);

    let rules = prometheus.alerting_rules();
    let of_rules = rules.iter().map(|rule| (text(rule, "name").to_owned(), text(rule, "query").to_owned()));
    let of_dashboard = dashboard::queries(&dashboard::dashboard());
    let of_dashboard = of_dashboard.into_iter().map(|(place, query)| (place, dashboard::with_values(&query)));
    let of_reference =
        reference::documented().into_values().map(|(_, query)| ("metrics.md".to_owned(), query));
    // A range of minutes returns a series as soon as it has two scrapes.
    let mut unanswered: Vec<_> = of_rules.chain(of_dashboard).chain(of_reference).collect();
    let all = unanswered.len();
    assert!(all > 100, "{all} queries");
    let mut firing = BTreeSet::new();
    let mut round = 0;
    let complete = tollgate_testkit::real_time::within(std::time::Duration::from_secs(30), || {
        scene.send(round);
        round += 1;
        let is_answered = |query: &str| prometheus.query(query).iter().any(|(_, value)| value.is_finite());
        unanswered.retain(|(_, query)| !is_answered(query));
        // `TollgateUpstreamOverloaded` has two rules, and must fire by both.
        let fires = |rule: &Value| rule["alerts"].as_array().is_some_and(|alerts| !alerts.is_empty());
        let names = prometheus.alerting_rules().into_iter().filter(fires);
        firing.extend(names.map(|rule| format!("{} {}", rule["name"], rule["labels"])));
        (unanswered.is_empty() && firing.len() == rules.len()).then_some(())
    });
    assert!(complete.is_some(), "after {round} rounds: firing {firing:?}, unanswered {unanswered:#?}");
    for rule in prometheus.alerting_rules() {
        for alert in list(&rule, "alerts") {
            let written = alert["annotations"].to_string();
            assert!(!written.contains('<'), "a template without a value: {written}");
        }
    }
}

#[test]
fn queries_use_the_metrics_that_are_described_and_those_are_all() {
    if !RedisServer::is_installed() {
        return skip("redis-server is not installed");
    }
    let scene = Scene::start();
    // The metrics of leases and descriptors come with their first request, those of an outcome with some more.
    (0..3).for_each(|number| scene.send(number));
    let scrapes = scene.scrapes();
    if let Some(promtool) = program("promtool") {
        for scrape in &scrapes {
            let output = run_on(Command::new(&promtool).args(["check", "metrics"]), scrape);
            assert!(output.status.success() && said(&output).is_empty(), "{}", said(&output));
        }
    }
    let described = reference::documented();
    let described: BTreeMap<_, _> = described.into_iter().map(|(name, (metric, _))| (name, metric)).collect();
    let scraped = reference::scraped(&scrapes);
    let names =
        |metrics: &BTreeMap<String, reference::Metric>| metrics.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&described), names(&scraped));
    for (name, metric) in &scraped {
        assert_eq!(&described[name], metric, "{name}");
    }
    let series: BTreeSet<String> =
        scraped.iter().flat_map(|(name, metric)| reference::series_of(name, &metric.kind)).collect();
    let dashboard = dashboard::queries(&dashboard::dashboard()).into_iter().map(|(_, query)| query);
    let documented = reference::documented().into_values().map(|(_, query)| query);
    for query in dashboard.chain(documented).chain([rules()]) {
        let unknown: Vec<String> =
            metric_names(&query).into_iter().filter(|name| !series.contains(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {query}");
    }
}

#[test]
fn the_dashboard_is_one_that_grafana_can_load() {
    dashboard::check_structure(&dashboard::dashboard());
}

/// The alerts of the rules, each with the page that it points to.
fn alerts_with_pages() -> BTreeSet<(String, String)> {
    let rules = rules();
    let values = |key: &str| -> Vec<String> {
        let values = rules.lines().filter_map(|line| line.trim_start().strip_prefix(key)?.strip_prefix(": "));
        values.map(str::to_owned).collect()
    };
    let (alerts, pages) = (values("- alert"), values("runbook_url"));
    assert_eq!(alerts.len(), pages.len(), "each alert has a page");
    for key in ["summary", "description", "threshold"] {
        assert_eq!(values(key).len(), alerts.len(), "each alert has a {key}");
    }
    alerts.into_iter().zip(pages).collect()
}

#[test]
fn every_alert_has_a_page_and_every_page_an_alert() {
    let alerts = alerts_with_pages();
    let pages: BTreeSet<&str> =
        alerts.iter().map(|(_, page)| page.strip_prefix("docs/playbook/").unwrap()).collect();
    let index = std::fs::read_to_string(repository("docs/playbook/README.md")).unwrap();
    for entry in std::fs::read_dir(repository("docs/playbook")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_known = pages.contains(&*name) || PAGES_WITHOUT_ALERT.contains(&&*name);
        assert!(is_known, "{name} is the page of no alert");
        assert!(name == "README.md" || index.contains(&format!("({name})")), "{name} is not in the index");
    }
    for (alert, page) in &alerts {
        let page =
            std::fs::read_to_string(repository(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(page.contains(&format!("`{alert}`")), "the page of {alert} names it");
    }
}

#[test]
fn the_policies_of_the_playbook_are_accepted() {
    let mut policies = 0;
    for entry in std::fs::read_dir(repository("docs/playbook")).unwrap() {
        let page = entry.unwrap().path();
        let written = std::fs::read_to_string(&page).unwrap();
        for policy in written.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
            check_policy(&page, policy);
            policies += 1;
        }
    }
    assert!(policies >= 6, "{policies} policies");
}

#[track_caller]
fn check_policy(page: &Path, policy: &str) {
    let directory = Directory::new();
    let file = directory.write("tollgate.yaml", policy);
    let output = Command::new(TOLLGATE).arg("check").arg(file).output().unwrap();
    assert!(output.status.success(), "{}: {policy}\n{}", page.display(), said(&output));
}
