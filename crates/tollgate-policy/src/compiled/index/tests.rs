use std::path::Path;

use tollgate_testkit::{Random, effort, is_long};

use super::super::attributes::Names;
use super::super::attributes_of;
use super::super::conditions::Conditions;
use super::*;
use crate::host::{host_name, is_host_attribute};
use crate::policy::{Match, Policy};

/// Matches, indexed.
struct Indexed {
    matches: Vec<Match>,
    names: Names,
    conditions: Vec<Conditions>,
    index: MatchIndex,
}

impl Indexed {
    /// The matches are those of costs, which are read faster than limits.
    fn new(written: impl Iterator<Item = String>) -> Self {
        let cost = |written: String| format!("  - {{ match: {{ {written} }}, cost: 1 }}\n");
        let file = format!("costs:\n{}", written.map(cost).collect::<String>());
        let policy =
            Policy::read(Path::new("test.yaml"), &file).unwrap_or_else(|faults| panic!("{faults}\n{file}"));
        let names = Names::new(attributes_of(&policy));
        let matches: Vec<Match> = policy.costs.into_iter().map(|cost| cost.applies_to).collect();
        let conditions: Vec<Conditions> =
            matches.iter().map(|applies_to| Conditions::new(applies_to, &names)).collect();
        let index = MatchIndex::new((0..).zip(&conditions).map(|(place, each)| each.index_entry(place)));
        Self { matches, names, conditions, index }
    }

    fn candidates(&self, attributes: &[(&str, &str)], tier: Option<&str>) -> Vec<u32> {
        let values = self.names.values(attributes, tier);
        self.index.candidates(&values).to_vec()
    }

    /// The matches that apply by the index.
    fn indexed(&self, attributes: &[(&str, &str)], tier: Option<&str>) -> Vec<u32> {
        let (values, mut places) = (self.names.values(attributes, tier), self.candidates(attributes, tier));
        places.retain(|&place| self.conditions[place as usize].hold(&values));
        places
    }

    /// The matches that apply, found by asking every pattern of every match.
    fn asked(&self, attributes: &[(&str, &str)], tier: Option<&str>) -> Vec<u32> {
        let matches = (0..).zip(&self.matches);
        matches.filter(|(_, each)| applies(each, attributes, tier)).map(|(place, _)| place).collect()
    }
}

fn applies(applies_to: &Match, attributes: &[(&str, &str)], tier: Option<&str>) -> bool {
    applies_to.conditions().iter().all(|condition| {
        let sent = attributes.iter().find(|(name, _)| *name == condition.attribute).map(|(_, value)| *value);
        let has_port = condition.patterns.iter().any(Pattern::has_port);
        let value = match condition.attribute.as_str() {
            "tier" => tier,
            name if is_host_attribute(name) && !has_port => sent.map(host_name),
            _ => sent,
        };
        value.is_some_and(|value| condition.patterns.iter().any(|pattern| pattern.matches(value)))
    })
}

const PIECES: [&str; 14] =
    ["/", "/a", "/b", "/ab", "a", "b", "/A", "B/", "/a/b/", "/\u{e9}", "\u{c9}", "i", "\u{130}", "/abcdefgh"];
const HOSTS: [&str; 8] = [
    "a.example",
    "b.example",
    "a.example:8443",
    "A.example:80",
    "b.example:8443",
    "[::1]",
    "[::1]:8443",
    "::1",
];

/// One to four pieces of a path. A pattern has stars between some of them.
fn path(random: &mut Random, is_pattern: bool) -> String {
    let mut path = String::new();
    for _ in 0..random.between(1, 4) {
        if is_pattern && random.chance(1, 3) {
            path.push('*');
        }
        path += *random.pick(&PIECES);
    }
    if is_pattern && random.chance(1, 3) {
        path.push('*');
    }
    path
}

/// A value, or a list of up to `most` values.
fn values(random: &mut Random, most: u64, mut value: impl FnMut(&mut Random) -> String) -> String {
    let count = if random.chance(1, 2) { 1 } else { random.log_uniform(1, most) };
    let values: Vec<String> = (0..count).map(|_| format!("'{}'", value(random))).collect();
    if count == 1 { values[0].clone() } else { format!("[{}]", values.join(", ")) }
}

/// A `match`. `headers` is the number of headers that the policy may look at.
fn random_match(random: &mut Random, headers: u64) -> String {
    let mut conditions = Vec::new();
    if random.chance(1, 3) {
        let method = |random: &mut Random| (*random.pick(&["GET", "POST", "get", "P*", "*"])).to_owned();
        conditions.push(format!("method: {}", values(random, 3, method)));
    }
    if random.chance(2, 3) {
        conditions.push(format!("path: {}", values(random, 30, |random| path(random, true))));
        if random.chance(1, 3) {
            conditions.push("ignore_case: true".to_owned());
        }
        if random.chance(1, 3) {
            conditions.push("trailing_slash: any".to_owned());
        }
    }
    if random.chance(1, 3) {
        let tenant = |random: &mut Random| match random.below(20) {
            0 => "*".to_owned(),
            1 => "t*".to_owned(),
            2 => format!("*{}", random.below(9)),
            number => format!("t{number}"),
        };
        conditions.push(format!("tenant: {}", values(random, 40, tenant)));
    }
    if random.chance(1, 6) {
        conditions.push(format!("tier: {}", random.pick(&["free", "pro", "'*'"])));
    }
    let mut attributes = Vec::new();
    if random.chance(1, 3) {
        let host = |random: &mut Random| match random.below(6) {
            0 => "*.example".to_owned(),
            1 => "*:8443".to_owned(),
            2 => "*".to_owned(),
            _ => (*random.pick(&HOSTS)).to_owned(),
        };
        attributes.push(format!("host: {}", values(random, 12, host)));
    }
    if random.chance(1, if headers > 3 { 2 } else { 6 }) {
        attributes.push(format!(
            "header.x-{}: {}",
            random.below(headers),
            random.pick(&["v", "w", "'*'", "'v*w'", "''"])
        ));
    }
    if random.chance(1, 20) {
        attributes.push("path: '*a*'".to_owned());
    }
    if !attributes.is_empty() {
        conditions.push(format!("attributes: {{ {} }}", attributes.join(", ")));
    }
    conditions.join(", ")
}

fn random_request(random: &mut Random) -> Vec<(&'static str, String)> {
    let mut attributes = Vec::new();
    for _ in 0..random.between(0, 7) {
        let one = match random.below(6) {
            0 => ("method", (*random.pick(&["GET", "POST", "PUT", "get"])).to_owned()),
            1 | 2 => ("path", path(random, false)),
            3 => ("tenant", format!("t{}", random.below(22))),
            4 => ("host", (*random.pick(&HOSTS)).to_owned()),
            _ => (
                *random.pick(&["header.x-0", "header.x-1", "header.x-2"]),
                (*random.pick(&["v", "w", "vw", ""])).to_owned(),
            ),
        };
        attributes.push(one); // a name may come twice
    }
    attributes
}

#[test]
fn the_index_agrees_with_asking_every_limit() {
    let mut random = Random::new(20);
    let (mut applied, mut candidates, mut asked) = (0, 0, 0);
    for _ in 0..400 * effort() {
        let (limits, headers) = (random.log_uniform(1, 120), *random.pick(&[3, 3, 200]));
        let indexed = Indexed::new((0..limits).map(|_| random_match(&mut random, headers)));
        for _ in 0..250 {
            let request = random_request(&mut random);
            let request: Vec<(&str, &str)> =
                request.iter().map(|(name, value)| (*name, value.as_str())).collect();
            let tier = *random.pick(&[None, Some("free"), Some("pro")]);
            let expected = indexed.asked(&request, tier);
            assert_eq!(
                indexed.indexed(&request, tier),
                expected,
                "{request:?} {tier:?} {:#?}",
                indexed.matches
            );
            let found = indexed.candidates(&request, tier).len();
            assert!(found <= indexed.index.most(), "{found} candidates of at most {}", indexed.index.most());
            applied += expected.len();
            candidates += found;
            asked += indexed.matches.len();
        }
    }
    // The comparison means something: limits apply, and the index leaves many out.
    assert!(applied > asked / 50, "{applied} of {asked} applied");
    assert!(candidates < asked / 2, "{candidates} of {asked} were candidates");
}

/// A kind of policy: its name, the `match` of limit `i` of `n`, and the request to limit `i`.
type Kind = (&'static str, fn(usize) -> String, fn(usize) -> Vec<(&'static str, String)>);

const KINDS: [Kind; 14] = [
    ("exact path", |i| format!("path: /p{i}"), |i| vec![("path", format!("/p{i}"))]),
    ("path prefix", |i| format!("path: '/p{i}/*'"), |i| vec![("path", format!("/p{i}/x"))]),
    ("path suffix", |i| format!("path: '/*.e{i}'"), |i| vec![("path", format!("/x.e{i}"))]),
    ("path with a segment", |i| format!("path: '*/p{i}/*'"), |i| vec![("path", format!("/v1/p{i}/x"))]),
    (
        "path with a prefix and a segment",
        |i| format!("path: '/v1/*/p{i}/*'"),
        |i| vec![("path", format!("/v1/x/p{i}/y"))],
    ),
    (
        "path in any case, with any slash",
        |i| format!("path: /P{i}, ignore_case: true, trailing_slash: any"),
        |i| vec![("path", format!("/p{i}/"))],
    ),
    (
        "method and path",
        |i| format!("method: [GET, PUT], path: /p{i}"),
        |i| vec![("method", "GET".into()), ("path", format!("/p{i}"))],
    ),
    (
        "paths by tenants",
        |i| format!("path: /p{}, tenant: t{}", i % 100, i / 100),
        |i| vec![("path", format!("/p{}", i % 100)), ("tenant", format!("t{}", i / 100))],
    ),
    (
        "prefixes by suffixes",
        |i| format!("path: '/p{}/*/s{}'", i % 100, i / 100),
        |i| vec![("path", format!("/p{}/x/s{}", i % 100, i / 100))],
    ),
    (
        "host and port",
        |i| format!("attributes: {{ host: 'h{i}.example:8443' }}"),
        |i| vec![("host", format!("h{i}.example:8443"))],
    ),
    (
        "domains of hosts",
        |i| format!("attributes: {{ host: '*.h{i}.example' }}"),
        |i| vec![("host", format!("a.h{i}.example"))],
    ),
    ("lists of tenants", |i| format!("tenant: [t{i}, u{i}, v{i}]"), |i| vec![("tenant", format!("u{i}"))]),
    (
        "two wildcards",
        |i| format!("path: '*/p{i}/*', attributes: {{ host: '*.h{i}.*' }}"),
        |i| vec![("path", format!("/v1/p{i}/x")), ("host", format!("a.h{i}.b"))],
    ),
    (
        "attributes of their own",
        |i| format!("attributes: {{ header.x-{i}: '1' }}"),
        |_| vec![("header.x-7", "1".into())],
    ),
];

#[test]
fn limits_looked_at_do_not_grow_with_the_policy() {
    for (kind, applies_to, request) in KINDS {
        for limits in [10, if is_long() { 10_000 } else { 4_000 }] {
            let indexed = Indexed::new((0..limits).map(applies_to));
            // Up to 16 limits may be looked at one by one.
            let most = if limits > 16 { 4 } else { 16 };
            for place in [0, 7, limits / 2, limits - 1] {
                let request = request(place);
                let request: Vec<(&str, &str)> =
                    request.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let found = indexed.candidates(&request, None);
                assert!(found.len() <= most, "{kind}, {limits} limits: {} looked at", found.len());
                assert_eq!(indexed.indexed(&request, None), indexed.asked(&request, None), "{kind}");
                assert!(!indexed.indexed(&request, None).is_empty(), "{kind}: {request:?} has no limit");
            }
        }
    }
}

#[test]
fn a_policy_bounds_the_candidates_of_any_request() {
    let bound = |applies_to: fn(usize) -> String| Indexed::new((0..1_000).map(applies_to)).index.most();
    assert_eq!(bound(|i| format!("path: /p{i}")), 1);
    assert_eq!(bound(|i| format!("path: '/p{i:03}/*', tenant: t{}", i % 2)), 1);
    assert_eq!(bound(|i| format!("path: '{}/*'", "/a".repeat(i % 10 + 1))), 1_000); // 100 limits for each of ten prefixes
    assert_eq!(bound(|i| format!("path: '*/p{i}/*'")), 1_000); // a path may contain all
    assert_eq!(bound(|_| String::new()), 1_000);
}
