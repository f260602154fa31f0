//! Each rule of deciding stands in one place of the shipped sources.
//!
//! A second place would have to be changed together with the first one, and would be forgotten.

use std::fs;
use std::path::Path;

/// A rule of deciding, and the places where it may stand.
struct DecidingRule {
    rule: &'static str,
    /// Whether a line of code states the rule.
    is_stated: fn(&str) -> bool,
    /// Files from `crates`, each with how many lines of it state the rule.
    places: &'static [(&'static str, Lines)],
}

#[derive(Clone, Copy)]
enum Lines {
    Exactly(usize),
    Any,
}

use Lines::{Any, Exactly};

const RULES: &[DecidingRule] = &[
    DecidingRule {
        rule: "a missing attribute denies",
        is_stated: |line| chooses(line, "Denial::MissingAttribute"),
        places: &[("tollgate-policy/src/engine/plan.rs", Exactly(1))],
    },
    DecidingRule {
        rule: "a limit of 0 denies: one of the policy, and one that was sent",
        is_stated: |line| chooses(line, "Denial::Blocked"),
        places: &[("tollgate-policy/src/engine/plan.rs", Exactly(2))],
    },
    DecidingRule {
        // Beside attributes and descriptors: shadow mode, a quota that has passed, and peeks.
        rule: "a shadow decides by itself",
        is_stated: |line| chooses(line, "Group::Independent"),
        places: &[
            ("tollgate-policy/src/compiled/limit.rs", Exactly(1)),
            ("tollgate-policy/src/engine/envoy.rs", Exactly(2)),
            ("tollgate-policy/src/engine/explain.rs", Exactly(1)),
            ("tollgate-policy/src/engine/plan.rs", Exactly(1)),
            ("tollgate-policy/src/engine/policy_in_force.rs", Exactly(1)),
            ("tollgate-policy/src/engine/verdict.rs", Exactly(1)),
        ],
    },
    DecidingRule {
        // Group: for attributes and for descriptors. Report: `is_shadow` of an ask, and quotas that have passed.
        rule: "a limit of the policy is a shadow",
        is_stated: |line| line.contains("policy.shadow"),
        places: &[
            ("tollgate-policy/src/engine/envoy.rs", Exactly(2)),
            ("tollgate-policy/src/engine/plan.rs", Exactly(2)),
            ("tollgate-server/src/http/explain.rs", Exactly(1)), // shows the policy
        ],
    },
    DecidingRule {
        rule: "`on_error` decides while the store gives no answer",
        is_stated: |line| {
            ["Allow", "Deny", "Local"].iter().any(|name| line.contains(&format!("OnError::{name}")))
        },
        places: &[
            ("tollgate-policy/src/engine/backend.rs", Any),
            ("tollgate-policy/src/engine/plan.rs", Any),
            ("tollgate-policy/src/policy/checks.rs", Exactly(1)), // a warning about a policy file
        ],
    },
    DecidingRule {
        rule: "whether an action is done",
        is_stated: |line| line.split(".is_done(").skip(1).any(|rest| !rest.starts_with(')')),
        places: &[
            ("tollgate-core/src/plan.rs", Exactly(1)),
            ("tollgate-policy/src/engine/verdict.rs", Exactly(1)),
            ("tollgate/src/table/shard.rs", Exactly(1)),
        ],
    },
    DecidingRule {
        rule: "whether the store is shared: only the engine knows, by its back end",
        is_stated: |line| line.contains("is_shared"),
        places: &[],
    },
];

/// The crates that are shipped.
const SHIPPED: [&str; 7] = [
    "tollgate",
    "tollgate-core",
    "tollgate-lab",
    "tollgate-policy",
    "tollgate-redis",
    "tollgate-server",
    "tollgate-tower",
];

/// Whether a line has a variant as a value, and neither compares with it nor matches it.
fn chooses(line: &str, variant: &str) -> bool {
    let mut rest = line;
    while let Some(place) = rest.find(variant) {
        let before = rest[..place].trim_end().trim_end_matches("Some(").trim_end();
        let after = &rest[place + variant.len()..];
        let is_compared = before.ends_with("==") || before.ends_with("!=");
        let is_matched = after.contains("=>") || line.contains("matches!");
        if !is_compared && !is_matched {
            return true;
        }
        rest = after;
    }
    false
}

/// A file of the shipped sources, from `crates`.
struct Source {
    file: String,
    text: String,
}

impl Source {
    /// The lines of code with their numbers. Comments are left out, and tests at the end of the file.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("#[cfg(test)]\nmod tests").unwrap_or(self.text.len());
        let lines = self.text[..end].lines().map(|line| line.split(" // ").next().unwrap_or_default());
        (1..).zip(lines).filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// What is wrong with the places of a rule.
fn faults(rule: &DecidingRule, sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, _) in rule.places {
        if !sources.iter().any(|source| source.file == *file) {
            faults.push(format!("`{}` should stand in {file}, which does not exist", rule.rule));
        }
    }
    for source in sources {
        let stated: Vec<String> = source
            .code()
            .filter(|(_, line)| (rule.is_stated)(line))
            .map(|(number, line)| format!("  {}:{number}: {}", source.file, line.trim()))
            .collect();
        let allowed = rule.places.iter().find(|(file, _)| *file == source.file).map(|(_, lines)| *lines);
        let (is_right, expected) = match allowed {
            None => (stated.is_empty(), "on no line".to_owned()),
            Some(Any) => (!stated.is_empty(), "on at least 1 line".to_owned()),
            Some(Exactly(count)) => (stated.len() == count, format!("on {count} line(s)")),
        };
        if !is_right {
            let (rule, file, count) = (rule.rule, &source.file, stated.len());
            faults.push(format!(
                "`{rule}` should stand {expected} in {file}, and stands on {count}:\n{}",
                stated.join("\n")
            ));
        }
    }
    faults
}

fn read_all(folder: &Path, file: &str, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let (path, file) = (entry.path(), format!("{file}/{name}"));
        if path.is_dir() && name != "tests" {
            read_all(&path, &file, sources);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            sources.push(Source { file, text: fs::read_to_string(path).unwrap() });
        }
    }
}

#[test]
fn each_rule_of_deciding_stands_in_one_place() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = Vec::new();
    for name in SHIPPED {
        read_all(&crates.join(name).join("src"), &format!("{name}/src"), &mut sources);
    }
    let faults: Vec<String> = RULES.iter().flat_map(|rule| faults(rule, &sources)).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn a_second_place_is_reported_with_its_file_and_line() {
    let rule = &RULES[0];
    let [(file, _)] = rule.places else { panic!("{} has one place", rule.rule) };
    let source = |file: &str, text: &str| Source { file: file.to_owned(), text: text.to_owned() };
    let first = "let denial = Some(Denial::MissingAttribute);\n";
    let others = "// Some(Denial::MissingAttribute)\nif denial == Some(Denial::MissingAttribute) {}\n\
                  Some(Denial::MissingAttribute) => 1,\n#[cfg(test)]\nmod tests {\nDenial::MissingAttribute\n";
    assert!(faults(rule, &[source(file, &format!("{first}{others}"))]).is_empty());
    for (sources, place) in [
        (vec![source(file, &format!("{first}\n(true, _) => {first}"))], format!("{file}:3: ")),
        (vec![source(file, first), source("b.rs", &format!("\n{first}"))], "b.rs:2: ".to_owned()),
        (vec![source(file, others)], format!("{file}, and stands on 0")),
        (vec![source("b.rs", "")], format!("{file}, which does not exist")),
    ] {
        let faults = faults(rule, &sources);
        assert!(
            faults.len() == 1 && faults[0].contains(&place) && faults[0].contains(rule.rule),
            "{faults:?}"
        );
    }
}
