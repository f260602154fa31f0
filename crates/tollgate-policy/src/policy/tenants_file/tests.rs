use std::fmt::Write as _;

use tollgate_testkit::{Directory, Random};

use super::*;
use crate::policy::tenants::tests::numbers_read;

const POLICY: &str = "
tiers: { free: {}, pro: {} }
default_tier: free
tenants_file: ./tenants.csv
tenants: { in-policy: { tier: pro } }
limits:
  - { name: 'api:v1', key: [tenant], token_bucket: { rate: 5/s, burst: 10 }, tiers: { pro: { burst: 20 } } }
  - { name: per-user, key: [user], fixed_window: { limit: 100, window: 60s } }
";

fn read_bytes(file: &[u8]) -> Result<Policy, Faults> {
    let directory = Directory::new();
    std::fs::write(directory.path().join("tenants.csv"), file).unwrap();
    Policy::read(&directory.path().join("policy.yaml"), POLICY)
}

fn read(file: &str) -> Policy {
    read_bytes(file.as_bytes()).unwrap_or_else(|faults| panic!("{faults}"))
}

/// The faults of a file, each with its line and column.
fn faults(file: &str) -> Vec<(usize, usize, String)> {
    let faults = read_bytes(file.as_bytes()).expect_err("a fault");
    let fault = |fault: &Fault| {
        let (line, column) = faults.position(fault);
        let help = fault.help.as_ref().map_or(String::new(), |help| format!(": {help}"));
        (line, column, format!("{}{help}", fault.message))
    };
    faults.iter().map(fault).collect()
}

/// Each tenant of the file with its tier.
fn tiers(policy: &Policy) -> Vec<(&str, Option<&str>)> {
    let in_file = policy.tenants.iter().filter(|(_, tenant)| tenant.is_in_file);
    in_file.map(|(name, tenant)| (name.as_str(), tenant.tier.as_deref())).collect()
}

#[test]
fn each_line_is_a_tenant_with_its_tier() {
    for (file, expected) in [
        ("acme,pro\nglobex,free\n", &[("acme", Some("pro")), ("globex", Some("free"))][..]),
        ("acme,pro\r\nglobex,\r\n", &[("acme", Some("pro")), ("globex", None)]),
        ("\u{feff}acme,pro", &[("acme", Some("pro"))]),
        ("\u{feff}# tenant,tier\n\n  \t\n  # more\n acme\t, pro \n", &[("acme", Some("pro"))]),
        (
            "\"a,b\",pro\n \"c \"\"d\"\"\" ,\"free\"\n\"#1\",pro",
            &[("a,b", Some("pro")), ("c \"d\"", Some("free")), ("#1", Some("pro"))],
        ),
        ("a b,pro\na#b,pro", &[("a b", Some("pro")), ("a#b", Some("pro"))]),
        ("\"  \",\"\"", &[("  ", None)]),
        ("${HOME},pro", &[("${HOME}", Some("pro"))]),
        ("", &[]),
        ("# nothing", &[]),
    ] {
        let policy = read(file);
        assert_eq!(tiers(&policy), expected, "{file:?}");
        assert_eq!(policy.tenants["in-policy"].tier.as_deref(), Some("pro"));
    }
}

#[test]
fn numbers_in_the_file_mean_what_they_mean_in_the_policy_file() {
    for (line, yaml) in [
        ("t,pro,api:v1:rate=7/s", "{ tier: pro, limits: { 'api:v1': { rate: 7/s } } }"),
        ("t,,api:v1:rate=7/s burst 3", "{ limits: { 'api:v1': { rate: 7/s burst 3 } } }"),
        ("t,,per-user:limit=0", "{ limits: { per-user: { limit: 0 } } }"),
        ("t,,api:v1:limit=0", "{ limits: { 'api:v1': { limit: 0 } } }"),
        (
            "t,pro,api:v1:burst=1k,per-user:window=1h, \"api:v1:rate = 1/min\" ,per-user:limit=5",
            "{ tier: pro, limits: { 'api:v1': { burst: 1k, rate: 1/min }, per-user: { window: 1h, limit: 5 } } }",
        ),
    ] {
        let policy = read(line);
        let in_yaml = POLICY
            .replace("in-policy: { tier: pro }", &format!("t: {yaml}"))
            .replace("tenants_file: ./tenants.csv", "");
        let in_yaml = Policy::read(Path::new("policy.yaml"), &in_yaml).unwrap();
        assert_eq!(policy.tenants["t"].limits, in_yaml.tenants["t"].limits, "{line}");
        assert_eq!(policy.tenants["t"].tier, in_yaml.tenants["t"].tier, "{line}");
        assert!(!policy.tenants["t"].limits.is_empty());
    }
}

#[test]
fn a_bad_number_has_the_fault_that_it_has_in_the_policy_file() {
    for (field, yaml) in [
        ("api:v1:burts=7", "'api:v1': { burts: 7 }"),
        ("api:v1:burst=0", "'api:v1': { burst: 0 }"),
        ("api:v1:burst=-5", "'api:v1': { burst: -5 }"),
        ("api:v1:rate=fast", "'api:v1': { rate: fast }"),
        ("api:v1:window=5s", "'api:v1': { window: 5s }"),
        ("per-user:window=0s", "per-user: { window: 0s }"),
        ("per-usr:limit=7", "per-usr: { limit: 7 }"),
        ("nothing-like-it:limit=7", "nothing-like-it: { limit: 7 }"),
    ] {
        let in_yaml = POLICY.replace("in-policy: { tier: pro }", &format!("t: {{ limits: {{ {yaml} }} }}"));
        let in_yaml = Policy::read(Path::new("policy.yaml"), &in_yaml).expect_err("a fault");
        let in_file = read_bytes(format!("a,pro\nt,,{field}").as_bytes()).expect_err("a fault");
        let texts = |faults: &Faults| -> Vec<(String, Option<String>)> {
            faults.iter().map(|fault| (fault.message.clone(), fault.help.clone())).collect()
        };
        assert_eq!(texts(&in_file), texts(&in_yaml), "{field}");
        assert_eq!(in_file.position(in_file.iter().next().unwrap()), (2, 4), "{field}");
    }
}

#[test]
fn a_bad_line_refuses_the_file_with_its_line_and_what_would_be_right() {
    let long_line = format!("t,pro{}", " ".repeat(MAX_LINE_BYTES));
    let long_tenant = format!("{},pro", "t".repeat(MAX_TENANT_BYTES + 1));
    for (line, column, fault) in [
        (
            "t",
            1,
            "a line without a tier: write `tenant,tier`; an empty tier, as in `tenant,`, is the default tier",
        ),
        ("t;pro", 1, "a line without a tier: write"),
        (",pro", 1, "a line without a tenant: write `tenant,tier`"),
        ("\"\",pro", 1, "a line without a tenant"),
        ("t,prp", 3, "unknown tier `prp`: did you mean `pro`?"),
        ("t,pro # text", 3, "unknown tier `pro # text`: the tiers are `free`, `pro`"),
        ("t,Pro", 3, "unknown tier `Pro`: did you mean `pro`?"),
        ("tenant,tier", 8, "unknown tier `tier`: begin the line of headings with `#`"),
        ("t,pro,", 7, "an empty field: write `limit:field=value`, such as `per-user:burst=200`"),
        ("t,pro,weight=3", 7, "`weight=3` is not a number of a limit: write `limit:field=value`"),
        ("t,pro,per-user:limit", 7, "`per-user:limit` is not a number of a limit"),
        (
            "t,pro,per-user:limit=${N}",
            7,
            "`${N}` in a tenants file: only the policy file is expanded from the environment",
        ),
        ("t,pro,per-user:limit=1,per-user:limit=1", 24, "`per-user:limit` a second time: keep one of them"),
        (
            "t,\"pro",
            3,
            "a quote that is not closed on its line: close it with `\"`; a quote inside of quotes is `\"\"`",
        ),
        ("\"t\"x,pro", 4, "text after a closing quote: quote the whole field"),
        ("t,pro\rx,pro", 6, "a carriage return inside of a line: end each line with LF or with CRLF"),
        ("a,pro", 1, "tenant `a` a second time: line 2 has this tenant; keep one of the lines"),
        (
            "in-policy,pro",
            1,
            "tenant `in-policy` a second time: `tenants:` of the policy file has this tenant; keep it in one place",
        ),
        (&long_line, 1, "a line of 65541 bytes: a line of a tenants file has at most 65536 bytes"),
        (&long_tenant, 1, "a tenant of 4097 bytes: a tenant has at most 4096 bytes"),
    ] {
        let head = if line == "tenant,tier" { "# x\n# y\n" } else { "# x\na,pro\n" };
        let found = faults(&format!("{head}{line}\nb,free\n"));
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (3, column), "{found:?}");
        assert!(found[0].2.starts_with(fault), "{fault}: {}", found[0].2);
    }
}

#[test]
fn a_fault_is_shown_with_its_file_its_line_and_its_text() {
    let shown = read_bytes(b"a,pro\n\nb,pro\nc,prp\n").expect_err("a fault").to_string();
    assert!(shown.contains("tenants.csv:4:3\n"), "{shown}");
    assert!(shown.contains("\n4 | c,prp\n") && shown.contains("help: did you mean `pro`?"), "{shown}");
    assert!(!shown.contains("b,pro"), "{shown}");
}

#[test]
fn reading_ends_at_the_faults_that_are_shown() {
    let file: String = (0..1000).map(|i| format!("t{i},prp\n")).collect();
    assert_eq!(faults(&file).len(), MOST_SHOWN);
}

#[test]
fn a_file_that_cannot_be_read_is_a_fault_of_the_key() {
    let directory = Directory::new();
    let read = |policy: &str| {
        Policy::read(&directory.path().join("policy.yaml"), policy).expect_err("a fault").to_string()
    };
    let missing = read(POLICY);
    assert!(
        missing.contains("policy.yaml:4:15") && missing.contains("tenants.csv: No such file or directory"),
        "{missing}"
    );
    let directory_named = read("tenants_file: .");
    assert!(directory_named.contains("this is a directory; name a file"), "{directory_named}");
    let pipe = read("tenants_file: /dev/null");
    assert!(pipe.contains("/dev/null: not a regular file"), "{pipe}");
    let latin_1 = read_bytes(b"a,pro\nM\xfcller,pro\n").expect_err("a fault").to_string();
    assert!(latin_1.contains("line 2 is not UTF-8 text; save the file as UTF-8"), "{latin_1}");
    // A file that is too large is not read. This one has no content on the disk.
    let large = directory.path().join("tenants.csv");
    std::fs::File::create(&large).and_then(|file| file.set_len(MAX_FILE_BYTES + 1)).unwrap();
    let large = read(POLICY);
    assert!(large.contains("the file has 536870913 bytes; a tenants file has at most 536870912"), "{large}");
}

#[test]
fn the_number_of_tenants_is_bounded() {
    let policy = read("");
    assert_eq!(policy.tenants_of("a,\nb,\n# x\n", 2).map(|tenants| tenants.len()), Ok(3));
    let faults = policy.tenants_of("a,\nb,\nc,\n", 2).expect_err("a fault");
    assert_eq!((faults[0].span.clone(), faults[0].message.as_str()), (6..8, "more than 2 tenants"));
}

#[test]
fn equal_numbers_of_a_hundred_thousand_lines_are_read_once() {
    let mut file = String::new();
    for i in 0..100_000 {
        let _ = match i % 4 {
            0 => writeln!(file, "t{i},pro,api:v1:burst={}", i % 100),
            1 => writeln!(file, "t{i},,api:v1:burst=7,per-user:limit=9"),
            _ => writeln!(file, "t{i},free"),
        };
    }
    // `burst=0` is a fault: the others are multiples of 4 below 100.
    let policy = read(&file.replace(",api:v1:burst=0\n", "\n"));
    assert_eq!((policy.tenants.len(), numbers_read(&policy.tenants)), (100_001, 24 + 2));
    assert_eq!(policy.tenants.with_numbers_of("per-user").len(), 25_000);
}

#[test]
fn a_line_that_changed_is_told_from_one_that_did_not() {
    let before = read("t,pro,api:v1:burst=7,per-user:limit=9\nsame,pro\n");
    for (file, has_other_line) in [
        ("t,pro,api:v1:burst=7,per-user:limit=9\n", false),
        ("# moved\r\nnew,free\r\n\"t\" , pro, per-user:limit=9, api:v1:burst=7\r\n", false),
        ("t,free,api:v1:burst=7,per-user:limit=9", true),
        ("t,,api:v1:burst=7,per-user:limit=9", true),
        ("t,pro,api:v1:burst=8,per-user:limit=9", true),
        ("t,pro,api:v1:burst=7", true),
        ("same,pro", true),
    ] {
        assert_eq!(read(file).tenants.has_other_line("t", &before.tenants), has_other_line, "{file}");
    }
    assert!(read("new,pro").tenants.has_other_line("new", &before.tenants));
    assert!(!read("new,pro").tenants.has_other_line("in-policy", &before.tenants));
    // The limit has another rate, and the tenant's rule with it. The line is as it was.
    let mut changed =
        Policy::read(Path::new("p"), &POLICY.replace("rate: 5/s", "rate: 6/s").replace("tenants_file", "#"))
            .unwrap();
    changed.tenants = changed.tenants_of("t,pro,api:v1:burst=7,per-user:limit=9", 10).unwrap();
    assert_ne!(changed.tenants["t"], before.tenants["t"]);
    assert!(!changed.tenants.has_other_line("t", &before.tenants));
}

#[test]
fn a_second_reading_replaces_the_first() {
    let directory = Directory::new();
    directory.write("tenants.csv", "a,pro\nb,pro\n");
    let mut policy = Policy::read(&directory.path().join("policy.yaml"), POLICY).unwrap();
    let before = policy.tenants.clone();
    directory.write("tenants.csv", "b,free\n");
    policy.read_tenants_file().unwrap();
    assert_eq!(tiers(&policy), [("b", Some("free"))]);
    directory.write("tenants.csv", "b,fre\n");
    policy.read_tenants_file().expect_err("a fault");
    assert_eq!((policy.tenants.len(), before.len()), (2, 3));
}

/// The fields of a line, one character at a time. None where the line is wrong.
fn fields_of(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest: Vec<char> = line.chars().rev().collect(); // the next one is the last
    loop {
        while matches!(rest.last(), Some(' ' | '\t')) {
            rest.pop();
        }
        let mut field = String::new();
        if rest.last() == Some(&'"') {
            rest.pop();
            loop {
                match rest.pop()? {
                    '"' if rest.last() == Some(&'"') => field.push(rest.pop()?),
                    '"' => break,
                    other => field.push(other),
                }
            }
            while matches!(rest.last(), Some(' ' | '\t')) {
                rest.pop();
            }
            if !matches!(rest.last(), None | Some(',')) {
                return None;
            }
        } else {
            while rest.last().is_some_and(|next| *next != ',') {
                field.extend(rest.pop());
            }
            field.truncate(field.trim_end_matches([' ', '\t']).len());
        }
        fields.push(field);
        if rest.pop().is_none() {
            return Some(fields);
        }
    }
}

#[test]
fn random_lines_are_split_as_one_character_at_a_time() {
    let mut random = Random::new(20);
    for _ in 0..50_000 {
        let length = random.below(12);
        let line: String =
            (0..length).map(|_| *random.pick(&['a', 'b', ',', ',', '"', '"', ' ', '\t', 'ü', '#'])).collect();
        let mut fields = Vec::new();
        let split = split(&line, 100, &mut fields)
            .ok()
            .map(|()| fields.iter().map(|field| field.text.clone().into_owned()).collect::<Vec<String>>());
        assert_eq!(split, fields_of(&line), "{line:?}");
        for field in fields.iter().filter(|field| matches!(field.text, Cow::Borrowed(_))) {
            let span = field.span.start - 100..field.span.end - 100;
            assert_eq!(line[span].trim_matches('"'), field.text.trim_matches('"'), "{line:?}");
        }
    }
}

#[test]
fn any_text_is_read_or_refused_with_its_lines() {
    let policy = read("");
    let mut random = Random::new(21);
    let pieces = [
        "a",
        "b",
        ",",
        "\n",
        "\r\n",
        "\r",
        "\"",
        " ",
        "#",
        "pro",
        "free",
        "api:v1:burst=7",
        "per-user:limit=",
        "=",
        ":",
        "${X}",
        "\u{feff}",
        "ü",
        "\0",
    ];
    let (mut valid, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let length = random.below(14);
        let text: String = (0..length).map(|_| *random.pick(&pieces)).collect();
        match policy.tenants_of(&text, 3) {
            Ok(_) => valid += 1,
            Err(faults) => {
                refused += 1;
                let lines = text.matches('\n').count() + 1;
                let faults = Faults::of_lines("f".to_owned(), &text, faults);
                assert!(
                    faults.iter().all(|fault| (1..=lines).contains(&faults.position(fault).0)),
                    "{text:?}"
                );
                assert!(faults.to_string().contains("f:"), "{text:?}");
            }
        }
    }
    assert!(valid > 1000 && refused > 1000, "{valid} valid, {refused} refused");
}
