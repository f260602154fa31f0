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

/// A text as YAML in which every character is escaped, so that this does not depend on what is tested.
fn escaped(text: &str) -> String {
    let escape = |c: char| format!("\\U{:08x}", u32::from(c));
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}

/// Texts with every kind of character that YAML, JSON or the policy file treats in its own way.
fn odd_texts() -> Vec<String> {
    let mut texts: Vec<String> = [
        "plain",
        " leading",
        "trailing ",
        "a b",
        "#",
        "a #b",
        ": ",
        "a: b",
        "- a",
        "---",
        "...",
        "? a",
        "%a",
        "@a",
        "`a`",
        "&a",
        "*",
        "a*b",
        "!a",
        "!!int 5",
        "|",
        ">",
        "'",
        "\"",
        "\\",
        "\\n",
        "\\/",
        "/",
        "{",
        "}",
        "[",
        "]",
        ",",
        "~",
        "null",
        "true",
        "no",
        "yes",
        "on",
        "1",
        "0x10",
        "1.50",
        "1e3",
        ".inf",
        ".nan",
        "2026-01-01",
        "<<",
        "=",
        "${",
        "${A}",
        "$${A}",
        "$$${A}",
        "$",
        "$$",
        "a$",
        "${A",
        "\u{1f600}",
        "\u{10ffff}",
        "\u{fffd}",
        "\u{e000}",
        "\u{d7ff}",
        "\u{fffe}",
        "\u{fdd0}",
        "\u{2028}",
        "\u{2029}",
        "\u{85}",
        "\u{a0}",
        "\u{feff}",
        "\u{feff}a",
        "a\u{feff}",
        "\t",
        "a\tb",
        "\n",
        "a\nb",
        "\r",
        "a\r\nb",
        "\n---\n",
        "\u{7f}",
        "\u{80}",
        "\u{9f}",
        "\u{ad}",
        "\u{200b}",
        "\u{202e}",
        "e\u{301}",
    ]
    .map(str::to_owned)
    .to_vec();
    texts.extend((0..0x20).filter_map(char::from_u32).map(|c| format!("a{c}b")));
    texts.push("long".repeat(1000));
    texts.push("\u{85}".repeat(500));
    texts
}

/// Imports a file and reads the policy that comes of it, as `tollgate import envoy FILE | tollgate check -` does.
fn import_and_read(file: &str) -> Policy {
    let import = import(&[file]).unwrap_or_else(|wrong| panic!("{file}\n{}", wrong[0]));
    Policy::read_with(Path::new("made"), &import.policy, &|_| None)
        .unwrap_or_else(|faults| panic!("{file}\n{}\n{faults}", import.policy))
}

#[test]
fn every_text_that_is_imported_is_read_back_as_it_was() {
    for text in odd_texts() {
        let quoted = escaped(&text);
        let file = format!(
            "domain: {quoted}\ndescriptors:\n  - key: {quoted}\n    value: {quoted}\n    metadata: {{ ? {quoted} : [{quoted}] }}\n    \
             rate_limit: {{ unit: day, requests_per_unit: 5, name: {quoted}, replaces: [{{ name: other }}, {{ name: {quoted}x }}] }}\n"
        )
        .replace("\"x }", &format!("{}\" }}", escaped("x").trim_matches('"')));
        let policy = import_and_read(&file);
        assert_eq!((policy.limits.len(), policy.descriptors.len()), (1, 0), "{text:?}");
        let descriptor = policy.limits[0].descriptor.as_ref().expect("one");
        assert_eq!(descriptor.domain, text);
        assert_eq!(descriptor.entries.len(), 1, "{text:?}");
        assert_eq!(descriptor.entries[0].key, text);
        assert_eq!(descriptor.entries[0].value.as_deref(), Some(text.as_str()));
        assert_eq!(descriptor.name.as_deref(), Some(text.as_str()));
        assert_eq!(descriptor.replaces, ["other".to_owned(), format!("{text}x")]);
        let metadata = serde_json::json!({ text.clone(): [text.clone()] });
        assert_eq!(descriptor.metadata, Some(metadata), "{text:?}");
        assert_eq!(policy.limits[0].rule.capacity(), 5);
    }
}

/// Texts of several odd parts, in trees of several levels: the same limits come back, in the same order.
#[test]
fn every_tree_that_is_imported_is_read_back_with_the_same_limits() {
    let (parts, mut random) = (odd_texts(), tollgate_testkit::Random::new(7));
    for _ in 0..if tollgate_testkit::is_long() { 3000 } else { 300 } {
        let mut text = || {
            let count = 1 + random.below(3);
            (0..count).map(|_| parts[random.below(parts.len() as u64) as usize].as_str()).collect::<String>()
        };
        let (domain, one, two) = (text(), [text(), text()], [text(), text()]);
        let [q_domain, k1, v1, k2, v2] =
            [&domain, &one[0], &one[1], &two[0], &two[1]].map(|text| escaped(text));
        let file = format!(
            "---\ndomain: {q_domain}\ndescriptors:\n- key: {k1}\n  value: {v1}\n  rate_limit: {{ unit: day, requests_per_unit: 1 }}\n  \
             descriptors:\n  - key: {k2}\n    rate_limit: {{ unlimited: true }}\n  - key: {k2}\n    value: {v2}\n    \
             rate_limit: {{ unit: hour, requests_per_unit: 2 }}\n---\n"
        );
        let policy = import_and_read(&file);
        let of_limits = policy.limits.iter().filter_map(|limit| limit.descriptor.as_ref());
        let all = of_limits.chain(policy.descriptors.iter().map(|of| &of.descriptor));
        let found: Vec<Vec<(String, Option<String>)>> = all
            .inspect(|descriptor| assert_eq!(descriptor.domain, domain))
            .map(|of| of.entries.iter().map(|entry| (entry.key.clone(), entry.value.clone())).collect())
            .collect();
        let first = (one[0].clone(), Some(one[1].clone()));
        let below = |value: Option<&String>| vec![first.clone(), (two[0].clone(), value.cloned())];
        assert_eq!(found, [vec![first.clone()], below(Some(&two[1])), below(None)]);
    }
}

#[test]
fn metadata_is_read_back_as_it_was() {
    let file = "domain: d\ndescriptors:\n- { key: k, metadata: { a: [1, -2, 1.5, 1e300, 1e-7, true, null, '', {}, []], '': x, 9223372036854775808: y } }";
    let import = import(&[file]).expect("valid");
    let policy = Policy::read(Path::new("made"), &import.policy).unwrap_or_else(|faults| panic!("{faults}"));
    let metadata = policy.descriptors[0].descriptor.metadata.clone().expect("some");
    assert_eq!(metadata["a"], serde_json::json!([1, -2, 1.5, 1e300, 1e-7, true, null, "", {}, []]));
    assert_eq!((&metadata[""], &metadata["9223372036854775808"]), (&"x".into(), &"y".into()));
}

#[test]
fn the_first_document_of_a_file_is_read_and_the_rest_is_named() {
    let first = "domain: d\ndescriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 1 } }]\n";
    for (before, after, warning) in [
        ("", "", None),
        ("---\n", "", None),
        ("---\n", "---\n", None),
        ("# a comment\n---\n", "...\n", None),
        ("", "---\ndomain: e\n", Some(3)),
        ("---\n", "---\ndomain: [ broken\n", Some(4)),
        ("", "---\ndomain: e\n---\ndomain: f\n", Some(3)),
    ] {
        let import = import(&[&format!("{before}{first}{after}")]).expect("valid");
        let text = "this document and those after it have no effect: the first is read";
        let expected: Vec<String> =
            warning.map(|line| format!("one.yaml:{line}: {text}")).into_iter().collect();
        assert_eq!(import.warnings, expected, "{before:?} {after:?}");
        let policy =
            Policy::read(Path::new("made"), &import.policy).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(policy.limits.len(), 1);
    }
}

#[test]
fn a_config_map_gets_one_fault_with_a_hint() {
    let map =
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: limits\ndata:\n  edge.yaml: |\n    domain: d\n";
    let wrong = import(&[map]).expect_err("a ConfigMap");
    let of_policy = Policy::read(Path::new("policy.yaml"), map).expect_err("a ConfigMap");
    for faults in [&wrong[0], &of_policy] {
        let found: Vec<_> =
            faults.iter().map(|fault| (faults.position(fault), fault.message.as_str())).collect();
        assert_eq!(found, [((2, 7), "this is a Kubernetes ConfigMap, not the file inside of it")]);
        let help = faults.iter().next().and_then(|fault| fault.help.clone()).unwrap_or_default();
        assert!(help.contains("under a key of `data`") && help.ends_with("`edge.yaml`"), "{help}");
    }
}

#[test]
fn equal_names_end_in_different_numbers() {
    let mut names = HashSet::new();
    let long = "n".repeat(MOST_LETTERS);
    let all: Vec<String> = (0..12).map(|_| unique(long.clone(), &mut names)).collect();
    assert_eq!((all[0].as_str(), all[1].len()), (long.as_str(), MOST_LETTERS));
    assert!(all[1].ends_with("nn-2") && all[11].ends_with("n-12"), "{all:?}");
}

/// Each rule repeats the entries above it, so that a small file could make a policy of any size.
#[test]
fn a_file_that_makes_too_long_a_policy_is_refused() {
    let children: String = (0..200).map(|i| format!("  - {{ key: k{i} }}\n")).collect();
    let long = "x".repeat(100_000);
    let file = format!("domain: d\ndescriptors:\n- key: {long}\n  descriptors:\n{children}");
    let wrong = import(&[&file]).expect_err("too long");
    assert!(wrong[0].iter().next().expect("one").message.contains("more than 16777216 bytes"));
}
