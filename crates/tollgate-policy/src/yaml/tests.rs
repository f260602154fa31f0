use super::*;
use tollgate_testkit::{Random, effort};

/// Where the first two documents with content begin and end.
fn found(source: &str) -> [Option<&str>; 2] {
    documents(source).map(|place| place.map(|place| &source[place]))
}

#[test]
fn markers_at_the_start_of_a_line_separate_documents() {
    for (source, first, second) in [
        ("", None, None),
        ("# only a comment\n---\n...\n", None, None),
        ("a: 1", Some("a: 1"), None),
        ("---\na: 1\n", Some("---\na: 1\n"), None),
        ("a: 1\n---\n", Some("a: 1\n"), None),
        ("a: 1\n---", Some("a: 1\n"), None),
        ("a: 1\n...\n# end\n", Some("a: 1\n"), None),
        ("---\r\na: 1\r\n---\r\n", Some("---\r\na: 1\r\n"), None),
        ("\u{feff}---\na: 1\n", Some("\u{feff}---\na: 1\n"), None),
        ("%YAML 1.2\n---\na: 1\n", Some("%YAML 1.2\n---\na: 1\n"), None),
        ("---\n---\na: 1\n", Some("---\na: 1\n"), None),
        ("a: 1\n---\nb: 2\n", Some("a: 1\n"), Some("---\nb: 2\n")),
        ("--- {a: 1}\n--- {b: 2}\n---\nc: 3", Some("--- {a: 1}\n"), Some("--- {b: 2}\n")),
        ("a: 1\n...\nb: 2\n", Some("a: 1\n"), Some("b: 2\n")),
        ("a: 1\n...\n%YAML 1.2\n---\nb: 2\n", Some("a: 1\n"), Some("%YAML 1.2\n---\nb: 2\n")),
        ("a: |\n  ---\n  text\n", Some("a: |\n  ---\n  text\n"), None),
        ("a: b---\n----\n", Some("a: b---\n----\n"), None),
    ] {
        assert_eq!(found(source), [first, second], "{source:?}");
    }
}

#[test]
fn a_lone_marker_at_the_start_or_the_end_is_fine_and_a_second_document_is_not() {
    for source in
        ["---\na: 1\n", "a: 1\n---\n", "---\na: 1\n...\n", "---\n---\na: 1\n---\n---\n", "\u{feff}---\na: 1"]
    {
        let node = parse(source).unwrap_or_else(|fault| panic!("{source:?}: {fault:?}"));
        let value = node.get("a").unwrap_or_else(|| panic!("{source:?}: {node:?}"));
        assert!(matches!(value.value, Value::Integer(1)), "{source:?}: {value:?}");
        assert_eq!(&source[value.span.clone()], "1", "{source:?}");
    }
    for source in ["a: 1\n---\nb: 2\n", "a: 1\n...\nb: 2\n", "---\na: 1\n--- [ broken"] {
        let fault = parse(source).expect_err(source);
        assert_eq!(fault.message, "a second document in one file");
        let (node, second) = parse_first(source).unwrap_or_else(|fault| panic!("{source:?}: {fault:?}"));
        assert!(node.get("a").is_some());
        assert_eq!(second.map(|second| second.start), Some(fault.span.start), "{source:?}");
    }
}

/// A person who writes a policy knows nothing of the parser's types, functions and options.
#[test]
fn errors_of_the_parser_name_nothing_of_its_own() {
    let aliases = format!("a: &a [x, x]\nb: &b [{}]\nc: [{}]", "*a, ".repeat(5000), "*b, ".repeat(5000));
    let deep = "[".repeat(5000);
    let mut refused = 0;
    for source in [
        "a: [1\nb: 2",
        "a: {1",
        "a: 'x",
        "a: \"x",
        "a: \"\\q\"",
        "a: \"\\ud800\"",
        "a: 1\na: 2",
        "? [a]\n: 1\n? [a]\n: 2",
        "a: *x",
        "a: &x [*x]",
        "a: !!binary x",
        "a: !!binary gIA=",
        "a: !!int x",
        "a: !!bool x",
        "a: !!float x",
        "a: !!null x",
        "a: !x!y z",
        "a: !<",
        "<<: 5",
        "<<: [5]",
        "a:\n\t- b",
        "a:\n  b: 1\n c: 2",
        "a: b: c",
        "- a\nb: 1",
        "a: 1\n- b",
        "a: |x\n  b",
        "a: >\nb",
        "%YAML 9\n---\na: 1",
        "%FOO\na: 1",
        "a: @b",
        "a: `b`",
        "a: %b",
        "a: \u{1}",
        "a: \u{7f}",
        "a: \"\u{1}\"",
        "]",
        "}",
        ",",
        ": 1\n: 2",
        "a: 'x'y",
        "a: [1]]",
        "&",
        "*",
        "!",
        "'",
        "a: 99999999999999999999999999999999999999999999",
        "a: .nan",
        &aliases,
        &deep,
    ] {
        let shown: String = source.chars().take(40).collect();
        let Err(fault) = parse(source) else { continue };
        refused += 1;
        let text = format!("{} {}", fault.message, fault.help.as_deref().unwrap_or_default());
        assert!(!fault.message.is_empty(), "{shown:?}");
        let is_code = |word: &str| {
            let inner = word.trim_matches(|c: char| !c.is_alphanumeric());
            word.contains("::")
                || inner.chars().skip(1).any(char::is_uppercase) && inner.chars().any(char::is_lowercase)
                || inner.contains('_') && !word.contains('`')
        };
        let code: Vec<&str> = text.split_whitespace().filter(|word| is_code(word)).collect();
        assert!(code.is_empty(), "{code:?} in `{text}` of {shown:?}");
        for word in ["Option", "enum", "struct", "deserial", "from_", "policy", "budget", "internal", "serde"]
        {
            assert!(!text.contains(word), "`{word}` in `{text}` of {shown:?}");
        }
    }
    assert!(refused > 40, "{refused} were refused");
}

/// Most examples are written in flow style, where a variable is the start of a map.
#[test]
fn a_variable_without_quotes_in_a_flow_map_gets_a_hint() {
    let fault = parse("limits: [{ name: a, token_bucket: { rate: ${RATE}, burst: 5 } }]").unwrap_err();
    assert!(fault.help.as_deref().is_some_and(|help| help.contains("needs quotes")), "{fault:?}");
}

#[test]
fn a_file_of_envoy_gets_one_fault_with_a_hint() {
    let node = parse("domain: d\ndescriptors: [{ key: a }]").unwrap();
    let fault = envoy_file_fault(&node).unwrap();
    assert!(fault.help.as_deref().is_some_and(|help| help.contains("tollgate import envoy")), "{fault:?}");
    assert_eq!(envoy_file_fault(&parse("limits: []").unwrap()), None);
}

/// The tree of the YAML parser, without the fast path.
fn parse_as_yaml(source: &str) -> Result<Node, Fault> {
    let (node, second) = parse_first(source)?;
    assert_eq!(second, None, "{source:?}");
    Ok(node)
}

#[test]
fn usual_json_objects_take_the_fast_path() {
    for source in [
        "{}",
        " { } ",
        r#"{"rate":"5/s","burst":9}"#,
        r#"{"rate": "100/min burst 20"}"#,
        r#"{"rate":"5\/s","burst":18446744073709551}"#,
        "{\n  \"limit\": 100,\n  \"window\": \"1h30min\"\n}\n",
        r#"{ "limit" : 0 , "window" : "" }"#,
        r#"{"rate":"${RATE}","burst":"10k","queue":"x #y","peak":"~ : - [x], {y}","mode":"null","align":"yes"}"#,
    ] {
        let node = flat_json::parse(source).unwrap_or_else(|| panic!("{source:?} takes the slow path"));
        assert_eq!(Ok(node), parse_as_yaml(source), "{source:?}");
    }
}

#[test]
fn a_key_that_is_too_long_for_yaml_is_refused() {
    for source in [format!("{{\"{}\":1}}", "a".repeat(1030)), format!("{{\"a\"{}:1}}", " ".repeat(1030))] {
        assert!(parse_as_yaml(&source).is_err());
        assert_eq!(flat_json::parse(&source), None);
    }
}

#[test]
fn unusual_json_objects_go_to_the_yaml_parser() {
    let many: Vec<String> = ('a'..'k').map(|name| format!("\"{name}\":1")).collect();
    for source in [
        "",
        "{",
        "{}}",
        "[]",
        "null",
        r#"{"burst":1,"burst":2}"#,
        r#"{"":1}"#,
        r#"{"<<":1}"#,
        r#"{"burst":01}"#,
        r#"{"burst":-1}"#,
        r#"{"burst":1.5}"#,
        r#"{"burst":10000000000000000000}"#,
        r#"{"burst":null}"#,
        r#"{"burst":{}}"#,
        r#"{"burst":1,}"#,
        r#"{"burst" 1}"#,
        r#"{"burst":1 2}"#,
        r#"{"rate":"\u0035/s"}"#,
        r#"{"rate":"5/s}"#,
        r#"{"rate":"é"}"#,
        "{\"rate\":\"5\n/s\"}",
        &format!("{{{}}}", many.join(",")),
    ] {
        assert_eq!(flat_json::parse(source), None, "{source:?}");
    }
}

/// Objects of random tokens: valid, nearly valid and invalid.
#[test]
fn the_fast_path_returns_the_tree_of_the_yaml_parser() {
    const BLANKS: &[&str] = &["", "", "", " ", "\n", "  \n "];
    const NAMES: &[&str] = &["\"rate\"", "\"burst\"", "\"n\"", "\"y\"", "\"null\"", "\"_\""];
    const VALUES: &[&str] = &[
        "\"5/s\"",
        "\"a  b \"",
        "\"5\\/s\"",
        "\"\"",
        "\"'#&*!|>%@`-?:,[]{}\"",
        "\"<<\"",
        "\"---\"",
        "\"~\"",
        "\"true\"",
        "\"012\"",
        "\"0x1\"",
        "\"1.5\"",
        "0",
        "7",
        "123456789012345678",
        "9999999999999999999",
    ];
    const OTHERS: &[&str] =
        &["007", "-1", "1.5", "null", "é", "{", "}", ":", ",", "\t", "\r\n", "\"", "\\", "#", "---"];
    let (mut random, rounds) = (Random::new(1), 10_000 * effort());
    let mut fast = 0;
    for _ in 0..rounds {
        let mut tokens = vec![*random.pick(BLANKS), "{"];
        for entry in 0..random.below(4) {
            tokens.push(if entry > 0 { "," } else { "" });
            for choices in [BLANKS, NAMES, &["", "", " "], &[":"], BLANKS, VALUES, BLANKS] {
                tokens.push(*random.pick(choices));
            }
        }
        tokens.extend(["}", *random.pick(BLANKS)]);
        if random.chance(1, 2) {
            let place = random.below(tokens.len() as u64) as usize;
            tokens[place] = *random.pick(&[BLANKS, NAMES, VALUES, OTHERS].concat());
        }
        let source = tokens.concat();
        if let Some(node) = flat_json::parse(&source) {
            fast += 1;
            assert_eq!(Ok(node), parse_as_yaml(&source), "{source:?}");
        }
    }
    assert!(fast > rounds / 10, "only {fast} of {rounds} texts took the fast path");
}
