use super::*;
use crate::Policy;

fn import(files: &[&str]) -> Result<EnvoyImport, Vec<Faults>> {
    let name = |i: usize| PathBuf::from(format!("{}.yaml", ["one", "two", "three"][i]));
    let files: Vec<_> = files.iter().enumerate().map(|(i, file)| (name(i), (*file).to_owned())).collect();
    import_envoy(&files, false)
}

/// What is said of one descriptor, in a file of its own.
fn faults_of(descriptor: &str) -> Vec<String> {
    let wrong = import(&[&format!("domain: d\ndescriptors: [{descriptor}]")]).expect_err(descriptor);
    wrong[0].iter().map(|fault| fault.message.clone()).collect()
}

#[test]
fn a_policy_that_is_made_is_one_that_is_read() {
    let file = r#"
domain: edge "proxy"
descriptors:
  - key: path
    value: "/a\\b/*: {x}"
    share_threshold: true
    rate_limit: { unit: week, requests_per_unit: 4294967295, name: "n: #1", replaces: [{ name: other }] }
    quota_mode: true
    shadow_mode: true
    detailed_metric: true
    metadata: { team: [core, 7, 1.5, true, null], "quoted \"key\"": "é\n" }
    descriptors:
      - { key: user, value: 42 }
      - { key: version, value: 1.50, rate_limit: { unlimited: true } }
  - { key: blocked, rate_limit: { unit: second } }
"#;
    let import = import(&[file]).expect("valid");
    let policy = Policy::read(Path::new("made"), &import.policy).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!((policy.limits.len(), policy.descriptors.len()), (2, 2));
    let descriptor = policy.limits[0].descriptor.as_ref().expect("one");
    assert_eq!(descriptor.domain, "edge \"proxy\"");
    assert_eq!(descriptor.entries[0].value.as_deref(), Some("/a\\b/*: {x}"));
    assert_eq!(
        (descriptor.name.as_deref(), &descriptor.replaces[..]),
        (Some("n: #1"), &["other".to_owned()][..])
    );
    assert!(descriptor.quota_mode && descriptor.detailed_metric && policy.limits[0].shadow);
    let metadata = serde_json::json!({ "team": ["core", 7, 1.5, true, null], "quoted \"key\"": "é\n" });
    assert_eq!(descriptor.metadata, Some(metadata));
    let blocked = policy.limits[1].descriptor.as_ref().expect("one");
    assert!(blocked.blocked);
    let values: Vec<_> = policy.descriptors.iter().map(|of| of.descriptor.entries[1].value.clone()).collect();
    assert_eq!(values, [Some("42".to_owned()), Some("1.50".to_owned())], "as they are written");
    assert_eq!([false, true], [0, 1].map(|i| policy.descriptors[i].unlimited));
}

#[test]
fn names_tell_the_place_and_are_the_same_in_every_run() {
    let name = |domain: &str, entries: &[(&str, &str)]| {
        let entry = |(key, value): &(&str, &str)| Entry {
            key: (*key).to_owned(),
            value: Some((*value).to_owned()).filter(|value| !value.is_empty()),
            share_threshold: false,
            value_to_metric: false,
        };
        Rule { entries: entries.iter().map(entry).collect(), ..Rule::new(domain.to_owned()) }.name()
    };
    assert_eq!(name("mongo_cps", &[("database", "users")]), "mongo_cps/database_users");
    assert_eq!(
        name("messaging", &[("message_type", "marketing"), ("to_number", "")]),
        "messaging/message_type_marketing/to_number"
    );
    let changed = name("edge", &[("path", "/api/*")]);
    assert_eq!(changed, "edge/path_/api/--b0569186");
    assert_ne!(changed, name("edge", &[("path", "/api/+")]));
    assert_ne!(name("d", &[("a", ""), ("b", "")]), name("d", &[("a/b", "")]));
    assert_eq!(name(&"long".repeat(50), &[("k", "")]).len(), 64);
    assert!(name("ключ", &[("k", "")]).is_ascii());
}

#[test]
fn what_is_wrong_is_named() {
    for (descriptor, fault) in [
        ("{ value: x }", "a descriptor without a key"),
        ("{ key: '' }", "a descriptor without a key"),
        ("{ key: [a] }", "a list where text should be"),
        ("{ key: k, limit: 3 }", "unknown key `limit`"),
        ("{ key: k, rate_limit: { unit: fortnight, requests_per_unit: 1 } }", "unknown unit `fortnight`"),
        ("{ key: k, rate_limit: { requests_per_unit: 1 } }", "a rate limit without a `unit`"),
        ("{ key: k, rate_limit: { unit: day, requests_per_unit: -1 } }", "no number of requests"),
        ("{ key: k, rate_limit: { unit: day, requests_per_unit: 4294967296 } }", "no number of requests"),
        ("{ key: k, rate_limit: { unit: day, requests_per_unit: 1.5 } }", "no number of requests"),
        ("{ key: k, rate_limit: { unit: day, unlimited: true } }", "`unit` beside `unlimited`"),
        ("{ key: k, rate_limit: 5 }", "a whole number where a section should be"),
        (
            "{ key: k, rate_limit: { unlimited: true, replaces: [{ name: '' }] } }",
            "`replaces` without a name",
        ),
        (
            "{ key: k, rate_limit: { unlimited: true, name: n, replaces: [{ name: n }] } }",
            "`n` replaces itself",
        ),
        ("{ key: k, rate_limit: { unlimited: true, replaces: n } }", "`replaces` is no list"),
        ("{ key: k, value: v, share_threshold: true }", "`share_threshold` without a `*` in the value"),
        ("{ key: k, shadow_mode: yep }", "text where true or false should be"),
        ("{ key: k, descriptors: 5 }", "a whole number where a list of descriptors should be"),
        ("{ key: k, value: '${HOME}' }", "`${` cannot be imported"),
        ("{ key: a_b }, { key: a, value: b }", "`a_b` is there twice on one level"),
        ("{ key: k, descriptors: [{ key: j }, { key: j, value: '' }] }", "`j` is there twice on one level"),
        ("5", "a whole number where a section should be"),
    ] {
        assert_eq!(faults_of(descriptor), [fault], "{descriptor}");
    }
}

#[test]
fn a_domain_is_needed_and_stands_in_one_file() {
    let none = import(&["descriptors: []"]).expect_err("no domain");
    assert_eq!(none[0].iter().next().expect("one").message, "a file without a domain");
    let twice = import(&["domain: d", "domain: e", "domain: d"]).expect_err("twice");
    assert_eq!(twice[0].iter().next().expect("one").message, "the domain `d` is also in one.yaml");
    assert!(twice[0].to_string().contains("three.yaml:1:9"), "{}", twice[0]);
}

/// There, a key is looked for anywhere and has an effect only where it belongs; the same files are read here.
#[test]
fn a_key_in_the_wrong_place_has_no_effect_and_is_told() {
    let import =
        import(&["domain: d\ndescriptors:\n  - key: k\n    unit: day\n    rate_limit: { unlimited: true }"]);
    assert_eq!(import.expect("read").warnings, ["one.yaml:4: `unit` has no effect here"]);
}

#[test]
fn every_fault_of_every_file_is_told_at_once() {
    let wrong =
        import(&["domain: d\ndescriptors: [{ ky: x }, { key: k, unitt: 1 }]", "domain: [", "domain: ok"]);
    let wrong = wrong.expect_err("three faults in two files");
    assert_eq!(wrong.iter().map(|file| file.iter().count()).collect::<Vec<_>>(), [3, 1]);
}
