//! A file with several faults: every one of them is reported, and nothing besides.

use super::read;

fn messages(source: &str) -> Vec<String> {
    let faults = read(source).err().unwrap_or_else(|| panic!("accepted: {source}"));
    faults.iter().map(|fault| fault.message.clone()).collect()
}

/// Expects faults with these texts, each once and in any order, and no other.
fn expect_faults(source: &str, expected: &[&str]) {
    let mut left = messages(source);
    for text in expected {
        let place = left.iter().position(|message| message.contains(text));
        let place = place.unwrap_or_else(|| panic!("no `{text}` in {left:?} of\n{source}"));
        left.remove(place);
    }
    assert!(left.is_empty(), "{left:?} besides {expected:?} of\n{source}");
}

/// A setting of a limit: how it is written when it is right, and when it is wrong with the fault.
type Setting = (&'static str, &'static [(&'static str, &'static str)]);

const SETTINGS: &[Setting] = &[
    (
        "name: a",
        &[("name: 'a b'", "cannot be a name"), ("", "`name` is missing"), ("name: []", "a list where")],
    ),
    (
        "key: [x]",
        &[("", "`key` is missing"), ("key: 5", "a whole number where"), ("key: ['|']", "without a name")],
    ),
    (
        "match: { path: /a }",
        &[("match: { pth: /a }", "unknown key `pth`"), ("match: 5", "a whole number where")],
    ),
    (
        "token_bucket: { rate: 5/s, burst: 3 }",
        &[
            ("token_bucket: {}", "`rate` is missing"),
            ("token_bucket: 5", "a whole number where"),
            ("token_bucket: { rate: 5/sek }", "`5/sek` cannot be read"),
            ("token_bucket: { rate: 0/s }", "`0/s` cannot be read"),
            ("token_bucket: { rate: 5/s, burst: 0 }", "`burst` of 0"),
            ("token_bucket: { rate: 5/s, burts: 3 }", "unknown key `burts`"),
            ("token_bucket: { rate: 5/s burst 3, burst: 3 }", "two bursts"),
            ("token_bucket: { rate: 5/s burst 0 }", "`5/s burst 0` cannot be read"),
            ("token_bucket: { rate: 5/s, burst: 18446744073709551615 }", "is too large"),
            ("token_bucket: { rate: 5/s }, concurrency: { limit: 5 }", "a limit with two algorithms"),
        ],
    ),
    ("max_wait: 1s", &[("max_wait: soon", "`soon` cannot be read")]),
    ("max_waiting: 5", &[("max_waiting: 0", "`max_waiting` of 0")]),
    ("shadow: true", &[("shadow: 5", "a whole number where true or false")]),
    ("when_missing: deny", &[("when_missing: drop", "unknown word `drop`")]),
    ("on_error: deny", &[("on_error: drop", "unknown word `drop`")]),
    (
        "count_denied: false",
        &[("count_denied: x", "text where true or false"), ("count_denied: true", "cannot count")],
    ),
    (
        "tiers: { pro: { burst: 9 } }",
        &[
            ("tiers: { prof: { burst: 9 } }", "unknown tier `prof`"),
            ("tiers: { pro: { brust: 9 } }", "unknown key `brust`"),
            ("tiers: { pro: { burst: many } }", "`many` cannot be read"),
            ("tiers: { pro: { limit: 9 } }", "a token_bucket has no `limit`"),
            ("tiers: { pro: { rate: 5/s burst 3, burst: 9 } }", "two bursts"),
            ("tiers: [pro]", "a list where"),
        ],
    ),
    (
        "",
        &[
            ("nmae: x", "unknown key `nmae`"),
            ("quota: {}", "`quota` is not built yet"),
            ("unlimited: true", "without a `descriptor`"),
        ],
    ),
];

#[test]
fn two_faults_in_one_limit_are_both_reported() {
    let file = |wrong: &[(usize, &str)]| {
        let settings = SETTINGS.iter().enumerate().map(|(place, (right, _))| {
            wrong.iter().find(|(of, _)| *of == place).map_or(*right, |(_, wrong)| *wrong)
        });
        let settings: Vec<&str> = settings.filter(|setting| !setting.is_empty()).collect();
        format!("tiers: {{ pro: {{}} }}\nlimits: [{{ {} }}]", settings.join(", "))
    };
    read(&file(&[])).unwrap_or_else(|faults| panic!("{faults}"));
    let mut pairs = 0;
    for (one, (_, first)) in SETTINGS.iter().enumerate() {
        for (text, fault) in *first {
            expect_faults(&file(&[(one, text)]), &[fault]);
            for (other, (_, second)) in SETTINGS.iter().enumerate().skip(one + 1) {
                for (other_text, other_fault) in *second {
                    expect_faults(&file(&[(one, text), (other, other_text)]), &[fault, other_fault]);
                    pairs += 1;
                }
            }
        }
    }
    assert!(pairs > 300, "{pairs} pairs");
}

#[test]
fn two_faults_in_one_algorithm_are_both_reported() {
    for (algorithm, faults) in [
        ("token_bucket: { rate: x/s, burst: y }", ["`x/s` cannot", "`y` cannot"]),
        ("token_bucket: { burst: 0 }", ["`rate` is missing", "`burst` of 0"]),
        ("leaky_bucket: {}", ["`rate` is missing", "`queue` is missing"]),
        ("leaky_bucket: { rate: 5/s burst 3, queue: 0 }", ["a leaky_bucket has no burst", "`queue` of 0"]),
        ("fixed_window: { limit: x, align: moon, window: 1s }", ["`x` cannot", "unknown word `moon`"]),
        ("fixed_window: {}", ["`limit` is missing", "`window` is missing"]),
        ("sliding_log: { limit: x }", ["`x` cannot", "`window` is missing"]),
        ("sliding_log: { window: 0s, limit: 5, exact_up_to: 0 }", ["`window` of 0", "`exact_up_to` of 0"]),
        ("sliding_counter: { limit: 5, window: x, mode: y }", ["`x` cannot", "unknown word `y`"]),
        ("sliding_counter: { limit: 5, buckets: 0 }", ["`buckets` of 0", "`window` is missing"]),
        ("burst_credits: { rate: 5/s burst 3, peak: 2x }", ["burst_credits has no burst", "`burst_for` is"]),
        ("burst_credits: { rate: 5/s, peak: 9/s burst 3, credits: 0 }", ["cannot be read", "`credits` of 0"]),
        ("burst_credits: { peak: 2x, credits: 1, burst_for: 1s }", ["`rate` is", "both `burst_for` and"]),
        ("concurrency: { lease: 0s }", ["`limit` is missing", "`lease` of 0"]),
        ("concurrency: { limit: 5 }, max_wait: 1s, count_denied: true", ["cannot hold", "cannot count"]),
        ("fixed_window: { limit: 5 }, sliding_log: {}", ["two algorithms", "`limit` is missing"]),
    ] {
        let mut expected = faults.to_vec();
        if algorithm.contains("sliding_log: {}") {
            expected.extend(["`window` is missing"; 2]);
        }
        expect_faults(&format!("limits: [{{ name: a, key: [], {algorithm} }}]"), &expected);
    }
}

#[test]
fn a_rule_that_cannot_be_made_is_reported_once_for_all_its_tiers() {
    let limit = "{ name: a, key: [], burst_credits: { rate: 5/s, peak: 1x, credits: 5 }, tiers: { pro: { credits: 9 } } }";
    expect_faults(&format!("tiers: {{ pro: {{}} }}\nlimits: [{limit}]"), &["is not above the base rate"]);
}

#[test]
fn two_faults_in_one_section_are_both_reported() {
    for (source, faults) in [
        ("5: 1\nlistne: {}", ["unknown key `5`", "unknown key `listne`"]),
        ("[a]: 1\nlistne: {}", ["a list where a name", "unknown key `listne`"]),
        ("listen: { http: x, idle: 0s }", ["`x` cannot", "no time at all"]),
        ("listen: { gateway: x }\ngateway: { upstream: [] }", ["`x` cannot", "no upstream"]),
        ("tls: {}", ["`cert_file` is missing", "`key_file` is missing"]),
        ("tls: { cert_file: [], key_file: [] }", ["a list where", "a list where"]),
        ("headers: { ietf: x, x_ratelimit: y }", ["unknown word `x`", "unknown word `y`"]),
        ("store: { memory: { max_keys: 0 }, redis: { url: [] } }", ["`max_keys` of 0", "two stores"]),
        (
            "store: { memory: { max_keys: 0, persist: { path: ./s } } }",
            ["`max_keys` of 0", "`persist` is not built"],
        ),
        ("store: { redis: { deadline: x } }", ["`url` is missing", "`x` cannot"]),
        ("store: { redis: { url: a, urls: [b], nodes: 0 } }", ["both `url` and `urls`", "`nodes` of 0"]),
        (
            "store: { redis: { url: a, mode: lease, lease: { sync: 6s }, nodes: 0 } }",
            ["a `sync` of 6s", "`nodes` of 0"],
        ),
        ("store: { redis: { url: a, lease: { sync: x } } }", ["`lease` without `mode: lease`", "`x` cannot"]),
        ("store: { redis: { url: a, sentinel: { username: [] } } }", ["`master` is missing", "a list where"]),
        ("identity: { tenant: x, client_ip: { trusted_hops: y } }", ["`x` cannot", "`y` cannot"]),
        ("identity: { client_ip: { trusted_hops: y, header: z } }", ["`y` cannot", "unknown word `z`"]),
        ("tiers: { pro: { weight: 0, shed: 3 } }", ["a weight of 0", "`shed` of 3"]),
        ("tiers: { pro: { shed: 3 } }\ndefault_tier: pro\nx: 1", ["`shed` of 3", "unknown key `x`"]),
        ("tiers: { pro: { shed: x } }\ndefault_tier: pro\nx: 1", ["`x` cannot", "unknown key `x`"]),
        ("tenants: { acme: { tier: x, weight: 0 } }", ["unknown tier `x`", "a weight of 0"]),
        ("costs: [{ match: { pth: /a } }]", ["`cost` is missing", "unknown key `pth`"]),
        ("envoy: { shadow_mode: 5, quota_mode: 5 }", ["a whole number", "a whole number"]),
        ("gateway: { max_body: x }", ["`upstream` is missing", "`x` cannot"]),
        ("gateway: { concurrency: { max: 4 }, fair_queue: { by: x } }", ["`upstream` is", "`x` cannot"]),
        ("gateway: { timeouts: { idle: x } }", ["`upstream` is missing", "`x` cannot"]),
        (
            "gateway: { upstream: 'http://x', concurrency: { max: x, min: 0, adaptive: aimd } }",
            ["`x` cannot", "`min` of 0"],
        ),
        (
            "gateway: { upstream: 'http://x', concurrency: { max: 4 }, fair_queue: { per_key: 0 } }",
            ["`by` is missing", "`per_key` of 0"],
        ),
        ("adaptive_rates: { high: x, floor: 5 }", ["`x` cannot", "cannot be a floor"]),
        ("record: { max_files: 0 }", ["`path` is missing", "`max_files` of 0"]),
        ("admin: { tokenfile: x }", ["unknown key `tokenfile`", "`token_file` is missing"]),
    ] {
        let mut expected = faults.to_vec();
        match source {
            "store: { memory: { max_keys: 0 }, redis: { url: [] } }" => expected.push("a list where"),
            "adaptive_rates: { high: x, floor: 5 }" => expected.push("`low` is missing"),
            _ => {}
        }
        expect_faults(source, &expected);
    }
}

#[test]
fn two_faults_in_one_descriptor_are_both_reported() {
    let window = "fixed_window: { limit: 1, window: 1s }";
    for (descriptor, faults) in [
        ("{}", ["`domain` is missing", "`entries` is missing"]),
        ("{ domain: d, entries: [{}, { key: '' }] }", ["`key` is missing", "an empty key"]),
        ("{ domain: d, quota_mode: x }", ["`entries` is missing", "text where true or false"]),
        ("{ entries: [{ key: k }], replaces: 5 }", ["`domain` is missing", "a whole number where a list"]),
        ("{ domain: d, entries: [{ value: [] }] }", ["`key` is missing", "a list where"]),
    ] {
        for algorithm in [window, "unlimited: true"] {
            expect_faults(
                &format!("limits: [{{ name: a, descriptor: {descriptor}, {algorithm} }}]"),
                &faults,
            );
        }
    }
}

/// A limit with a fault is still there for the tenants that have numbers of it, and its name is taken.
#[test]
fn a_fault_in_a_limit_causes_no_fault_elsewhere() {
    let tenants = "tenants: { acme: { limits: { a: { rate: 7/s } } } }";
    for limit in ["token_bucket: { rate: x/s }", "token_bucket: { rate: 5/s }, shadow: 5"] {
        let source = format!("{tenants}\nlimits: [{{ name: a, key: [], {limit} }}]");
        assert_eq!(messages(&source).len(), 1, "{source}");
    }
    let source = format!("{tenants}\nlimits: [{{ name: a, key: [] }}]");
    expect_faults(&source, &["a limit without an algorithm"]);
    let source = "tenants: { acme: { limits: { a: { rate: x } } } }\nlimits: [{ name: a, key: [] }]";
    expect_faults(source, &["a limit without an algorithm", "`x` cannot be read"]);
    let twice = "limits: [{ name: a, key: [] }, { name: a, key: [], token_bucket: { rate: 1/s } }]";
    expect_faults(twice, &["a limit without an algorithm", "two limits are called `a`"]);
}

/// What `5/s burst 3` says of the burst is used or refused, never dropped.
#[test]
fn a_burst_in_a_rate_that_has_no_effect_is_refused() {
    let file = |base: &str, tier: &str, tenant: &str| {
        format!(
            "tiers: {{ pro: {{}} }}\ntenants: {{ acme: {{ limits: {{ a: {{ {tenant} }} }} }} }}\n\
             limits: [{{ name: a, key: [], {base}, tiers: {{ pro: {{ {tier} }} }} }}]"
        )
    };
    let bucket = "token_bucket: { rate: 5/s, burst: 9 }";
    let leaky = "leaky_bucket: { rate: 5/s, queue: 9 }";
    let credits = "burst_credits: { rate: 5/s, peak: 5x, credits: 9 }";
    for (base, numbers, fault) in [
        (leaky, "rate: 5/s burst 3", "a leaky_bucket has no burst"),
        (credits, "rate: 5/s burst 3", "burst_credits has no burst"),
        (credits, "peak: 90/s burst 3", "cannot be read"),
        (bucket, "rate: 5/s burst 3, burst: 9", "two bursts"),
    ] {
        expect_faults(&file(base, numbers, ""), &[fault]);
        expect_faults(&file(base, "", numbers), &[fault]);
        expect_faults(&file(base, numbers, numbers), &[fault, fault]);
    }
    read(&file(bucket, "rate: 5/s burst 3", "rate: 5/s burst 4")).unwrap_or_else(|faults| panic!("{faults}"));
    for (algorithm, numbers) in [
        ("leaky_bucket", r#"{"rate": "5/s burst 3", "queue": 9}"#),
        ("burst_credits", r#"{"rate": "5/s burst 3", "peak": "5x", "credits": 9}"#),
        ("burst_credits", r#"{"rate": "5/s", "peak": "9/s burst 3", "credits": 9}"#),
        ("token_bucket", r#"{"rate": "5/s burst 3", "burst": 9}"#),
    ] {
        let refused =
            crate::policy::sent_rule(tollgate::AlgorithmKind::from_name(algorithm).unwrap(), numbers)
                .expect_err(numbers);
        assert!(refused.contains("burst"), "{refused}");
    }
}

#[test]
fn settings_that_are_not_built_are_faults_with_a_place_and_an_alternative() {
    for (source, place, message, help) in [
        ("store: { memory: { persist: { path: ./s } } }", (1, 29), "`persist` is not built yet", "`redis`"),
        (
            "limits:\n  - { name: a, key: [], quota: { limit: 5, per: month } }",
            (2, 25),
            "`quota` is not built yet",
            "`fixed_window`",
        ),
        (
            "limits:\n  - { name: a, key: [], token_bucket: { rate: 1/s }, count_when: x }",
            (2, 54),
            "`count_when` is not built yet",
            "leave it out",
        ),
    ] {
        let faults = read(source).expect_err(source);
        let found: Vec<_> =
            faults.iter().map(|fault| (faults.position(fault), fault.message.as_str())).collect();
        assert_eq!(found, [(place, message)], "{source}");
        assert!(
            faults.iter().all(|fault| fault.help.as_deref().is_some_and(|text| text.contains(help))),
            "{faults}"
        );
    }
}

#[test]
fn a_variable_in_a_key_is_refused() {
    for source in [
        "tiers: { '${HOST}': {} }",
        "tenants: { 'a${HOST}b': {} }",
        "'${HOST}': 1",
        "limits: [{ name: a, key: [], token_bucket: { rate: 1/s }, match: { attributes: { '${HOST}': x } } }]",
    ] {
        expect_faults(source, &["cannot be a key"]);
    }
    let policy = read("tiers: { '$${HOST}': {}, $HOST: {} }").unwrap_or_else(|faults| panic!("{faults}"));
    assert!(policy.tiers.contains_key("${HOST}") && policy.tiers.contains_key("$HOST"));
}

#[test]
fn several_documents_in_a_policy_are_refused() {
    expect_faults("limits: []\n---\nlimits: []\n", &["a second document in one file"]);
    for source in ["---\nlimits: []\n", "limits: []\n---\n", "---\nlimits: []\n...\n"] {
        read(source).unwrap_or_else(|faults| panic!("{source}:\n{faults}"));
    }
}
