use std::time::Duration;

use tollgate::{
    Align, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Mode, Rate, Rule, SlidingCounter,
    SlidingLog, TokenBucket,
};

use super::*;

mod all_faults;

/// The whole language in one file.
const FULL: &str = include_str!("full.yaml");

fn read(source: &str) -> Result<Policy, Faults> {
    Policy::read_with(Path::new("dir/policy.yaml"), source, &|name| {
        (name == "HOST").then(|| "example".to_owned())
    })
}

fn per(tokens: u64, seconds: u64) -> Rate {
    Rate::new(tokens, Duration::from_secs(seconds)).unwrap()
}

fn bucket(tokens: u64, seconds: u64, burst: u64) -> Rule {
    TokenBucket::new(per(tokens, seconds), burst).unwrap().into()
}

#[test]
fn the_full_file_is_read() {
    let policy = read(FULL).unwrap_or_else(|faults| panic!("{faults}"));
    let listen = policy.listen.unwrap();
    assert_eq!(listen.http, Some("127.0.0.1:8080".parse().unwrap()));
    assert_eq!(policy.admin_token_file.as_deref(), Some("dir/./admin.token"));
    assert_eq!(policy.identity.tenant.as_deref(), Some("header.x-api-key"));
    let trust = Trust::Proxies([("127.0.0.1".parse().unwrap(), 32)].into_iter().collect());
    assert_eq!(policy.identity.client_ip.trust, trust);
    assert_eq!(policy.default_tier.as_deref(), Some("free"));
    assert_eq!((policy.tiers["enterprise"].weight.get(), policy.tiers["enterprise"].shed), (8, 0));
    assert_eq!(policy.tenants["globex"].weight.map(Weight::get), Some(16));
    // A tenant's own rate, its tier's burst.
    assert_eq!(policy.tenants["globex"].limits["per-tenant"], bucket(50_000, 60, 2000));
    let limit = |name: &str| policy.limits.iter().find(|limit| limit.name == name).unwrap();
    assert_eq!(limit("per-tenant").rule_for(None), &bucket(100, 60, 20));
    assert_eq!(limit("per-tenant").rule_for(Some("pro")), &bucket(1000, 60, 200));
    assert_eq!(limit("per-tenant").rule_for(Some("free")), &bucket(100, 60, 20));
    let minute = Duration::from_secs(60);
    let rules: [(&str, Rule); 8] = [
        ("driver-location", LeakyBucket::new(per(3000, 1), 5000).unwrap().into()),
        ("admin", FixedWindow::new(10, minute, Align::Epoch).unwrap().into()),
        ("partner-sla", SlidingLog::new(100, minute).unwrap().into()),
        ("history", SlidingCounter::new(50, minute, 1, Mode::Interpolate).unwrap().into()),
        (
            "login",
            MaxWait::new(TokenBucket::new(per(10, 60), 5).unwrap(), Duration::from_millis(500), 100)
                .unwrap()
                .into(),
        ),
        ("burst-friendly", BurstCredits::new(per(100, 1), per(1000, 1), 27_000).unwrap().into()),
        ("in-flight", Concurrency::new(20, Some(Duration::from_secs(30))).unwrap().into()),
        ("candidate", SlidingCounter::new(30, minute, 1, Mode::Interpolate).unwrap().into()),
    ];
    for (name, rule) in rules {
        assert_eq!(limit(name).rule, rule, "{name}");
    }
    assert_eq!(limit("login").key, [KeyPart(vec!["user".into(), "ip".into()])]);
    assert!(limit("driver-location").key.is_empty());
    assert!(limit("candidate").shadow && !limit("login").shadow);
    assert_eq!(policy.costs[0].cost, 10);
    assert!(policy.costs[0].applies_to.may_hold(&[("method", "POST".into()), ("path", "/export/a".into())]));
    assert!(!policy.costs[0].applies_to.may_hold(&[("method", "GET".into()), ("path", "/export/a".into())]));
    assert_eq!(policy.gateway.unwrap().slots, Some(Slots { min: 1, max: 64, adaptive: None }));
    assert_eq!(policy.adaptive_rates.unwrap().floor, 100);
}

/// Every fault of a file is told at once, each where it stands and with what would be right.
#[test]
fn faults_are_told_where_they_stand() {
    let faults = read(
        "limits:
  - name: per tenant
    key: [tenant]
    token_bucket: { rate: 5/sek, burts: 10 }
  - key: tenant
    leaky_bucket: { queue: 0, rate: 1/s }
  - name: both
    key: []
    token_bucket: { rate: 5/s }
    sliding_log: { limit: 5, window: 60s }
default_tier: gold
listne: {}
",
    )
    .unwrap_err();
    let told: Vec<_> = faults.iter().map(|fault| (faults.position(fault), fault.message.as_str())).collect();
    assert_eq!(
        told,
        [
            ((2, 11), "`per tenant` cannot be a name"),
            ((4, 27), "`5/sek` cannot be read"),
            ((4, 34), "unknown key `burts`"),
            ((5, 5), "`name` is missing"),
            ((5, 10), "text where a list should be"),
            ((6, 28), "`queue` of 0"),
            ((10, 18), "a limit with two algorithms, `token_bucket` and `sliding_log`"),
            ((11, 15), "unknown tier `gold`"),
            ((12, 1), "unknown key `listne`"),
        ]
    );
    let shown = faults.to_string();
    for line in [
        "error: unknown key `burts`",
        " --> dir/policy.yaml:4:34",
        "4 |     token_bucket: { rate: 5/sek, burts: 10 }",
        "  |                                  ^^^^^",
        "  = help: did you mean `burst`?",
        "write a rate as 5/s, 100/min",
    ] {
        assert!(shown.contains(line), "{line} in\n{shown}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    for (source, expected) in [
        (
            "limits: [{ name: a, key: [], concurrency: { limit: 5 }, max_wait: 1s }]",
            "a concurrency cannot hold requests back",
        ),
        (
            "limits: [{ name: a, key: [], token_bucket: { rate: 1/s }, max_waiting: 5 }]",
            "`max_waiting` without `max_wait`",
        ),
        ("listen: { http: 127.0.0.1:1, hosts: ['a.example:80'] }", "`a.example:80` cannot be read"),
        ("listen: { http: 127.0.0.1:1, hosts: ['https://a.example'] }", "`https://a.example` cannot be read"),
        ("listen: { http: 127.0.0.1:1, hosts: [''] }", "`` cannot be read"),
        ("telemetry: { otlp: collector:4318 }", "`collector:4318` cannot be read"),
        ("telemetry: { otlp: 'http://user:word@collector:4318' }", "cannot be read"),
        ("telemetry: { otlp: 'http://collector:4318/v1/traces' }", "cannot be read"),
        ("telemetry: { otlp: 'http://:4318' }", "cannot be read"),
        ("telemetry: { otlp: 'http://collector', sample: 2 }", "this cannot be a share of requests"),
        ("telemetry: { otlp: 'http://collector', interval: 10ms }", "an interval of 10ms"),
        ("telemetry: {}", "`otlp` is missing"),
        ("record: { path: ./log, max_files: 0 }", "`max_files` of 0"),
        ("record: { path: ./log, max_files: 1001 }", "`max_files` of 1001"),
        ("store: { memory: { max_bytes: 0 } }", "`0` cannot be read"),
        ("store: { memory: { max_bytes: 255KiB } }", "`255KiB` cannot be read"),
        ("store: { memory: { max_bytes: boundless } }", "`boundless` cannot be read"),
        ("limits: [{ name: a, key: [] }]", "a limit without an algorithm"),
        ("limits: [{ name: a, key: [], token_bucket: {} }]", "`rate` is missing"),
        ("limits: [{ name: a, key: [], burst_credits: { rate: 1/s, peak: 1x, credits: 5 } }]", "peak"),
        (
            "limits: [{ name: a, key: [], burst_credits: { rate: 1/s, peak: 2x, credits: 5, burst_for: 1s } }]",
            "both `burst_for` and `credits`",
        ),
        ("limits: [{ name: a, key: ['|'], token_bucket: { rate: 1/s } }]", "without a name"),
        (
            "tiers: { pro: {} }\nlimits: [{ name: a, key: [], fixed_window: { limit: 5, window: 1s }, tiers: { pro: { rate: 5/s } } }]",
            "a fixed_window has no `rate`",
        ),
        (
            "limits: [{ name: a, key: [], token_bucket: { rate: 1/s } }, { name: a, key: [], token_bucket: { rate: 1/s } }]",
            "two limits are called `a`",
        ),
        (
            "gateway: { upstream: 'http://x' }\nlisten: { http: 127.0.0.1:1 }",
            "a gateway that listens nowhere",
        ),
        ("gateway: { upstream: [] }", "no upstream"),
        ("gateway: { upstream: ['http://x', 'http://x:80'] }", "x:80 a second time"),
        ("gateway: { upstream: 'https://x' }", "`https://x` cannot be read"),
        (
            "gateway: { upstream: 'http://x', concurrency: { min: 2, max: 4 } }",
            "a least number of slots that never change",
        ),
        (
            "gateway: { upstream: 'http://x', concurrency: { max: 4 }, fair_queue: { by: tennant } }",
            "`tennant` cannot be read",
        ),
        ("listen: { gateway: 127.0.0.1:1 }", "a listener for a gateway that is not there"),
        ("listen: { http: nowhere }", "`nowhere` cannot be read"),
        ("tenants: { acme: { limits: { x: { rate: 5/s } } } }", "unknown limit `x`"),
        ("admin: { token_file: '${MISSING}' }", "`MISSING` is not set in the environment"),
        ("admin: { token_file: '${HOST' }", "`${` without a `}`"),
        ("store: disk", "unknown word `disk`"),
        ("store: { memory: {}, redis: { url: x } }", "two stores"),
        ("identity: { tenant: cookie }", "`cookie` cannot be read"),
        ("identity: { client_ip: { trusted_proxies: [10.0.0.0/33] } }", "`10.0.0.0/33` cannot be read"),
        ("adaptive_rates: { high: 10ms, low: 20ms }", "is not below"),
        ("headers: { ietf: draft-8 }", "unknown word `draft-8`"),
        ("tiers: { pro: { weight: 0 } }", "a weight of 0"),
        ("- a list", "a list where a section should be"),
        ("just text", "text where a section should be"),
        ("a: [1\nb: 2", ""),
        ("limits: 5", "a whole number where a list should be"),
        ("a: 1\na: 2", ""),
    ] {
        let faults = read(source).err().unwrap_or_else(|| panic!("accepted: {source}"));
        assert!(
            faults.iter().any(|fault| fault.message.contains(expected)),
            "{expected} of {source}:\n{faults}"
        );
        assert!(faults.to_string().contains("dir/policy.yaml:"), "{faults}");
    }
}

#[test]
fn small_things_are_read_as_people_write_them() {
    for source in [
        "",
        "{}",
        "limits: []",
        "headers: { ietf: off, x_ratelimit: false }",
        "store: memory",
        "{\"limits\": []}",
    ] {
        read(source).unwrap_or_else(|faults| panic!("{source}:\n{faults}"));
    }
    let policy = read("admin: { token_file: '/run/${HOST}.token' }").unwrap();
    assert_eq!(policy.admin_token_file.as_deref(), Some("/run/example.token"));
    for (written, path) in [
        ("/$${HOST}", "/${HOST}"),
        ("/$${HOST}/${HOST}", "/${HOST}/example"),
        ("/$$${HOST}", "/$${HOST}"),
        ("/$HOST$", "/$HOST$"),
        ("/$${", "/${"),
    ] {
        let policy = read(&format!("admin: {{ token_file: '{written}' }}")).unwrap();
        assert_eq!(policy.admin_token_file.as_deref(), Some(path), "{written}");
    }
    let rule =
        |text: &str| read(&format!("limits: [{{ name: a, key: [x], {text} }}]")).unwrap().limits[0].rule;
    // A burst left out is the tokens of one period; it may stand with the rate.
    assert_eq!(rule("token_bucket: { rate: 100/min }"), bucket(100, 60, 100));
    assert_eq!(rule("token_bucket: { rate: 6000/min burst 600 }"), bucket(6000, 60, 600));
    // A log too large to be kept is counted strictly.
    let strict = SlidingCounter::new(20_000, Duration::from_secs(1), 32, Mode::Strict).unwrap();
    assert_eq!(rule("sliding_log: { limit: 20k, window: 1s }"), strict.into());
}

#[test]
fn a_log_that_a_counter_replaces_is_named() {
    let policy = read(
        "tiers: { pro: {}, free: {} }
tenants: { acme: { limits: { a: { limit: 30k } } }, globex: { limits: { a: { limit: 5 } } } }
limits:
  - { name: a, key: [], sliding_log: { limit: 100, window: 1s }, tiers: { pro: { limit: 20000 } } }
  - { name: b, key: [], sliding_log: { limit: 100, window: 1s, exact_up_to: 99 }, tiers: { pro: { limit: 7 } } }
  - { name: c, key: [], sliding_log: { limit: 10000, window: 1s } }
  - { name: d, key: [], sliding_counter: { limit: 20000, window: 1s } }
",
    )
    .unwrap_or_else(|faults| panic!("{faults}"));
    let in_use = |limit: usize, tier| {
        let limit = &policy.limits[limit];
        (limit.algorithm_in_use(limit.rule_for(tier)), limit.replacement(limit.rule_for(tier)))
    };
    let words = "sliding_counter (strict, 32 buckets) in place of sliding_log: limit 20000 is above exact_up_to 10000";
    assert_eq!(in_use(0, None), ("sliding_log", None));
    assert_eq!(in_use(0, Some("free")), ("sliding_log", None));
    assert_eq!(in_use(0, Some("pro")), ("sliding_counter", Some(words.to_owned())));
    assert_eq!(in_use(1, None).0, "sliding_counter");
    assert_eq!(in_use(1, Some("pro")), ("sliding_log", None));
    assert_eq!(in_use(2, None), ("sliding_log", None));
    assert_eq!(in_use(3, None), ("sliding_counter", None));
    let of_tenant = |tenant: &str| policy.limits[0].algorithm_in_use(&policy.tenants[tenant].limits["a"]);
    assert_eq!((of_tenant("acme"), of_tenant("globex")), ("sliding_counter", "sliding_log"));
    assert_eq!(policy.limits[0].algorithm_name(), "sliding_log", "as the file has it");
    let warnings = policy.warnings();
    let replaced: Vec<&String> = warnings.iter().filter(|warning| warning.contains("in place of")).collect();
    assert_eq!(replaced.len(), 2, "{warnings:?}");
    assert!(
        replaced[0].starts_with("limit `a` uses sliding_counter (strict, 32 buckets)"),
        "{}",
        replaced[0]
    );
    assert!(
        replaced[0].contains("`exact_up_to` 10000: 20000 in tier pro, that of 1 tenant."),
        "{}",
        replaced[0]
    );
    assert!(replaced[1].contains("`exact_up_to` 99: 100."), "{}", replaced[1]);
}

/// A tier's rate keeps the burst that was written with the limit's.
#[test]
fn numbers_left_out_are_the_limits() {
    let policy = read(
        "tiers: { pro: {} }
limits:
  - { name: a, key: [], token_bucket: { rate: 10/s burst 7 }, tiers: { pro: { rate: 20/s } } }
  - { name: b, key: [], token_bucket: { rate: 10/s }, tiers: { pro: { burst: 3 } } }
  - { name: c, key: [], burst_credits: { rate: 1/s, peak: 5x, burst_for: 1s }, tiers: { pro: { credits: 9 } } }
",
    )
    .unwrap_or_else(|faults| panic!("{faults}"));
    let pro = |i: usize| *policy.limits[i].rule_for(Some("pro"));
    assert_eq!(pro(0), bucket(20, 1, 7));
    assert_eq!(pro(1), bucket(10, 1, 3));
    assert_eq!(pro(2), BurstCredits::new(per(1, 1), per(5, 1), 9).unwrap().into());
}

/// The text of a number goes with its value, from the limit to its tiers and tenants.
#[test]
fn numbers_of_the_environment_are_shown_as_the_file_has_them() {
    let source = "tiers: { pro: {}, free: {} }
tenants: { acme: { tier: pro, limits: { a: { burst: 9 } } } }
limits:
  - name: a
    key: []
    token_bucket: { rate: '${RATE}', burst: '${BURST}' }
    tiers: { pro: { rate: 7/s }, free: { burst: 8 } }
";
    let value = |name: &str| Some(if name == "RATE" { "5k/min" } else { "66" }.to_owned());
    let policy = Policy::read_with(Path::new("policy.yaml"), source, &value).unwrap();
    let limit = &policy.limits[0];
    let shown = |pairs: Vec<(&str, String)>| pairs.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>();
    assert_eq!(limit.rule, bucket(5000, 60, 66));
    assert_eq!(shown(limit.numbers(None)), ["${RATE}", "${BURST}"]);
    assert_eq!(shown(limit.numbers(Some("pro"))), ["7/s", "${BURST}"]);
    assert_eq!(shown(limit.numbers(Some("free"))), ["${RATE}", "8"]);
    assert_eq!(shown(policy.tenants["acme"].numbers("a")), ["7/s", "9"]);
}

/// Whatever stands in a file, reading it ends in a policy or in faults that can be shown.
#[test]
fn no_file_makes_the_reader_panic() {
    let mut random = tollgate_testkit::Random::new(1);
    let pieces = [
        "{", "}", "[", "]", ":", "- ", "\n", "  ", "\t", "'", "\"", "&a", "*a", "|", "#", "${X}", "é",
        "\u{0}", "0", "-1", "1e9", "~",
    ];
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..10_000 {
        let mut text = FULL.to_owned();
        for _ in 0..=random.below(3) {
            let at = |random: &mut tollgate_testkit::Random, text: &str| {
                text.floor_char_boundary(random.below(text.len() as u64) as usize)
            };
            let (start, end) = (at(&mut random, &text), at(&mut random, &text));
            let piece: &str = pieces[random.below(pieces.len() as u64) as usize];
            match random.below(3) {
                0 => text.insert_str(start, piece),
                1 => text.truncate(start.max(1)),
                _ => {
                    let start = start.min(end);
                    let end = text.floor_char_boundary(end.max(start).min(start + 5)).max(start);
                    text.replace_range(start..end, piece);
                }
            }
            text.truncate(text.floor_char_boundary(20_000));
        }
        match read(&text) {
            Ok(_) => accepted += 1,
            Err(faults) => {
                refused += 1;
                assert!(faults.iter().next().is_some(), "refused without a word:\n{text}");
                assert!(faults.to_string().contains("error"), "{faults}");
            }
        }
    }
    assert!(accepted > 100 && refused > 1000, "{accepted} accepted, {refused} refused");
}

/// The description in words is that of the table of keys. Where this fails: `TOLLGATE_BLESS=1 cargo test`.
#[test]
fn docs_describe_every_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policy.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mark = "<!-- from here on made from crates/tollgate-policy/src/keys.rs -->\n";
    let (head, described) = text.split_once(mark).expect("docs/policy.md has its mark");
    let reference = crate::reference();
    if std::env::var_os("TOLLGATE_BLESS").is_some() {
        std::fs::write(path, format!("{head}{mark}{reference}")).unwrap();
    } else {
        assert!(
            described == reference,
            "docs/policy.md is not what keys.rs says; TOLLGATE_BLESS=1 cargo test writes it"
        );
    }
}

/// `no` is a tenant, and `n` a name.
#[test]
fn only_true_and_false_are_flags() {
    let file =
        "limits: [{ name: n, match: { tenant: no }, key: [y], fixed_window: { limit: 1, window: 1s } }]";
    let policy = Policy::read(Path::new("tollgate.yaml"), file).expect("valid");
    assert_eq!(
        (policy.limits[0].name.as_str(), &policy.limits[0].key[0].0[..]),
        ("n", &["y".to_owned()][..])
    );
}

#[test]
fn a_descriptor_stands_alone_and_once() {
    let fault = |limit: &str| {
        let file = format!("limits:\n  - {{ name: a, {limit} }}");
        let faults = Policy::read(Path::new("tollgate.yaml"), &file).expect_err(limit);
        faults.iter().map(|fault| fault.message.clone()).collect::<Vec<_>>()
    };
    let of = "descriptor: { domain: d, entries: [{ key: k }] }";
    let window = "fixed_window: { limit: 1, window: 1s }";
    assert_eq!(fault(&format!("{of}, {window}, key: [user]")), ["`key` beside `descriptor`"]);
    assert_eq!(fault(&format!("{of}, {window}, unlimited: true")), ["`unlimited` beside `descriptor`"]);
    assert_eq!(fault(&format!("{of}, shadow: true")), ["`shadow` of a descriptor that nobody counts"]);
    assert_eq!(
        fault(&format!("descriptor: {{ domain: d, entries: [] }}, {window}")),
        ["a descriptor without entries"]
    );
    assert_eq!(
        fault(&format!("{of}, {window} }}\n  - {{ name: b, {of}")),
        ["two descriptors of `d` are `k`"]
    );
    assert_eq!(
        fault("key: [user], token_bucket: { rate: 1/s }, count_denied: true"),
        ["a token_bucket cannot count denied requests"]
    );
}
