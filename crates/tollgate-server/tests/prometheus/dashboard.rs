//! The dashboard of `examples/grafana`, read as Grafana reads it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::service::repository;

/// Grafana has as many columns.
const COLUMNS: u64 = 24;

pub(super) fn dashboard() -> Value {
    let text = std::fs::read_to_string(repository("examples/grafana/tollgate.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The elements of an array.
pub(super) fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("`{name}` is no array in {value}"))
}

pub(super) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("`{name}` is no text in {value}"))
}

/// The panels with queries. Those of a collapsed row are inside the row.
pub(super) fn panels(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let rows_and_panels = list(dashboard, "panels").iter();
    rows_and_panels
        .flat_map(|panel| if is_row(panel) { list(panel, "panels") } else { std::slice::from_ref(panel) })
}

fn is_row(panel: &Value) -> bool {
    panel["type"] == "row"
}

/// Every query of the dashboard, with where it is: of its panels, its variables and its annotations.
pub(super) fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let of_panels = panels(dashboard).flat_map(|panel| {
        let targets = list(panel, "targets").iter();
        targets.map(|target| (text(panel, "title").to_owned(), text(target, "expr").to_owned()))
    });
    let variables = list(&dashboard["templating"], "list").iter();
    let of_variables = variables.filter(|variable| variable["type"] == "query").map(|variable| {
        let query = text(&variable["query"], "query");
        assert_eq!(query, text(variable, "definition"));
        let arguments = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
        let (series, label) = arguments.rsplit_once(", ").unwrap();
        (format!("variable {label}"), format!("count by ({label}) ({series})"))
    });
    let annotations = list(&dashboard["annotations"], "list").iter();
    let of_annotations = annotations.filter(|annotation| annotation.get("expr").is_some());
    let of_annotations = of_annotations
        .map(|annotation| (text(annotation, "name").to_owned(), text(annotation, "expr").to_owned()));
    of_panels.chain(of_variables).chain(of_annotations).collect()
}

/// A query with all variables at `All`, and with ranges of some seconds, as Grafana sends it.
pub(super) fn with_values(query: &str) -> String {
    let query =
        ["$job", "$instance", "$limit"].iter().fold(query.to_owned(), |q, name| q.replace(name, ".*"));
    let query = query.replace("$__rate_interval", "20s").replace("$__range", "20s");
    assert!(!query.contains('$'), "a variable without a value in {query}");
    query
}

/// Names of Tollgate's metrics in some text, such as a query.
pub(super) fn metric_names(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_name(c));
    words.filter(|word| word.starts_with("tollgate_")).map(str::to_owned).collect()
}

/// Panics where Grafana would not show the dashboard as it is meant.
pub(super) fn check_structure(dashboard: &Value) {
    for key in ["title", "uid", "description"] {
        assert!(!text(dashboard, key).is_empty());
    }
    assert!(dashboard["id"].is_null(), "Grafana gives the dashboard its number");
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 38), "of Grafana 10");
    let variables: Vec<&str> =
        list(&dashboard["templating"], "list").iter().map(|variable| text(variable, "name")).collect();
    assert_eq!(variables, ["datasource", "job", "instance", "limit", "playbook"]);

    let (mut ids, mut titles) = (BTreeSet::new(), BTreeSet::new());
    let rows = list(dashboard, "panels").iter().filter(|panel| is_row(panel));
    for panel in panels(dashboard).chain(rows.clone()) {
        let title = text(panel, "title");
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is taken");
        assert!(is_row(panel) || titles.insert(title), "{title}: two panels have this title");
    }
    check_places(list(dashboard, "panels"), 0);
    for row in rows {
        assert_eq!(row["collapsed"] == true, !list(row, "panels").is_empty(), "{}", row["title"]);
        check_places(list(row, "panels"), row["gridPos"]["y"].as_u64().unwrap() + 1);
    }

    let required: BTreeSet<&str> = list(dashboard, "__requires")
        .iter()
        .filter(|r| r["type"] == "panel")
        .map(|r| text(r, "id"))
        .collect();
    let used: BTreeSet<&str> = panels(dashboard).map(|panel| text(panel, "type")).collect();
    assert_eq!(required, used);
    for panel in panels(dashboard) {
        let title = text(panel, "title");
        assert!(text(panel, "description").ends_with('.'), "{title}: a description in sentences");
        let defaults = &panel["fieldConfig"]["defaults"];
        assert!(!text(defaults, "unit").is_empty(), "{title}");
        assert!(!text(defaults, "noValue").is_empty(), "{title}: what it shows without data");
        let mut references = BTreeSet::new();
        assert!(!list(panel, "targets").is_empty(), "{title}");
        for target in list(panel, "targets") {
            assert!(references.insert(text(target, "refId")), "{title}: {}", target["refId"]);
            for source in [&panel["datasource"], &target["datasource"]] {
                assert_eq!(
                    (&source["type"], &source["uid"]),
                    (&"prometheus".into(), &"${datasource}".into())
                );
            }
            let is_table = panel["type"] == "table";
            assert_eq!(
                (target["instant"] == true, target["format"] == "table"),
                (is_table, is_table),
                "{title}"
            );
        }
        // Overrides by name apply to series that exist.
        let legends: Vec<&str> = list(panel, "targets").iter().map(|t| text(t, "legendFormat")).collect();
        for matcher in list(&panel["fieldConfig"], "overrides").iter().map(|of| &of["matcher"]) {
            let is_known = match text(matcher, "id") {
                "byRegexp" => true,
                _ if panel["type"] == "table" => true,
                _ => legends
                    .iter()
                    .any(|&legend| legend == text(matcher, "options") || legend.starts_with("{{")),
            };
            assert!(is_known, "{title}: no series has the name {}", matcher["options"]);
        }
        for link in list(panel, "links") {
            assert_page_exists(text(link, "url"));
        }
    }
    for link in list(dashboard, "links") {
        assert_page_exists(text(link, "url"));
    }
}

/// That panels fill all lines from the first on, without an overlap.
fn check_places(panels: &[Value], first: u64) {
    let mut taken = BTreeSet::new();
    for panel in panels {
        let place = &panel["gridPos"];
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|name| place[name].as_u64().unwrap());
        assert!(w > 0 && h > 0 && x + w <= COLUMNS && y >= first, "{}: {place}", panel["title"]);
        for cell in (y..y + h).flat_map(|line| (x..x + w).map(move |column| (line, column))) {
            assert!(taken.insert(cell), "{}: overlaps another panel at {cell:?}", panel["title"]);
        }
    }
    let lines = taken.last().map_or(0, |(line, _)| line + 1 - first);
    assert_eq!(taken.len() as u64, COLUMNS * lines, "panels without a gap");
}

fn assert_page_exists(url: &str) {
    let page = url.strip_prefix("${playbook}/").unwrap_or_else(|| panic!("{url} is no page of the playbook"));
    assert!(repository("docs/playbook").join(page).is_file(), "{page} does not exist");
}
