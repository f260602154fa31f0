//! `docs/metrics.md`, and the metrics of a scrape: they must have the same names, types and labels.

use std::collections::{BTreeMap, BTreeSet};

use crate::service::repository;

/// A metric as it is described, and as a scrape has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Metric {
    pub(super) kind: String,
    pub(super) labels: BTreeSet<String>,
}

/// The metrics of `docs/metrics.md`, by their names, with an example query of each.
pub(super) fn documented() -> BTreeMap<String, (Metric, String)> {
    let page = std::fs::read_to_string(repository("docs/metrics.md")).unwrap();
    let mut metrics = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `tollgate_")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning, query] = cells[..] else {
            panic!("metric, type, labels, meaning, example: {line}")
        };
        assert!(!meaning.is_empty(), "{line}");
        let labels = labels.split(", ").filter(|label| !label.is_empty());
        let metric = Metric { kind: kind.to_owned(), labels: labels.map(unquoted).collect() };
        let before = metrics.insert(unquoted(name), (metric, unquoted(query)));
        assert!(before.is_none(), "{name} is there twice");
    }
    metrics
}

fn unquoted(code: &str) -> String {
    let inner = code.strip_prefix('`').and_then(|code| code.strip_suffix('`'));
    inner.unwrap_or_else(|| panic!("{code} is not in backticks")).to_owned()
}

/// The metrics of scrapes in the text format, by their names.
pub(super) fn scraped(scrapes: &[String]) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for line in scrapes.iter().flat_map(|scrape| scrape.lines()) {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            let new = Metric { kind: kind.to_owned(), labels: BTreeSet::new() };
            let metric = metrics.entry(name.to_owned()).or_insert(new);
            assert_eq!(metric.kind, kind, "{name}");
        } else if let Some((sample, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            // Values of labels in the tests have no comma and no bracket.
            let labels = labels.rsplit_once('}').unwrap().0.split(',');
            let names = labels.map(|label| label.split_once('=').unwrap().0).filter(|name| *name != "le");
            let suffixes = ["", "_bucket", "_sum", "_count"];
            let name = suffixes
                .iter()
                .find_map(|suffix| sample.strip_suffix(suffix).filter(|name| metrics.contains_key(*name)));
            let metric = metrics.get_mut(name.unwrap_or_else(|| panic!("{line}"))).unwrap();
            metric.labels.extend(names.map(str::to_owned));
        }
    }
    metrics
}

/// The names that queries use for a metric of this kind.
pub(super) fn series_of(name: &str, kind: &str) -> Vec<String> {
    let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
    suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect()
}
