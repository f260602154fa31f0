use std::path::Path;

use tollgate_testkit::{Random, effort};

use super::*;
use crate::policy::Policy;

fn matches(written: impl Iterator<Item = String>) -> Vec<Match> {
    let cost = |written: String| format!("  - {{ match: {{ {written} }}, cost: 1 }}\n");
    let file = format!("costs:\n{}", written.map(cost).collect::<String>());
    let policy = Policy::read(Path::new("test.yaml"), &file).unwrap();
    policy.costs.into_iter().map(|cost| cost.applies_to).collect()
}

fn random_match(random: &mut Random) -> String {
    let mut conditions = Vec::new();
    if random.chance(1, 3) {
        conditions.push(format!("method: {}", random.pick(&["GET", "get", "[GET, 'P*']", "'*'", "[]"])));
    }
    if random.chance(1, 2) {
        let path = ["/a", "'/a/*'", "'*/b'", "'/A'", "['/a', '/b/*']", "'*a*'", "/c/", "'*'"];
        conditions.push(format!("path: {}", random.pick(&path)));
        if random.chance(1, 3) {
            conditions.push("ignore_case: true, trailing_slash: any".to_owned());
        }
    }
    if random.chance(1, 2) {
        conditions.push(format!("tenant: {}", random.pick(&["a", "b", "'*'", "[a, b, c]", "'a*'"])));
    }
    if random.chance(1, 3) {
        let host = ["a.example", "'a.example:8443'", "'*.example'", "'*:8443'"];
        conditions.push(format!("attributes: {{ host: {} }}", random.pick(&host)));
    }
    if random.chance(1, 4) {
        conditions.push(format!("user: {}", random.pick(&["a", "b", "'a*'"])));
    }
    conditions.join(", ")
}

#[test]
fn groups_agree_with_asking_every_match() {
    let mut random = Random::new(20);
    for _ in 0..200 * effort() {
        let count = random.log_uniform(1, 100);
        let matches = matches((0..count).map(|_| random_match(&mut random)));
        let mut groups = MatchGroups::new(matches.iter());
        for one in &matches {
            let sample = one.sample();
            let held = groups.may_hold(&sample);
            let mut found: Vec<u32> = held.places_while(|_| true).collect();
            assert_eq!(held.count(), found.len());
            found.sort_unstable();
            let asked = (0..).zip(&matches).filter(|(_, other)| other.may_hold(&sample));
            assert_eq!(
                found,
                asked.map(|(place, _)| place).collect::<Vec<u32>>(),
                "{sample:?} in {matches:#?}"
            );
        }
    }
}

#[test]
fn groups_compared_grow_with_the_matches_and_not_with_their_pairs() {
    type Kind = fn(usize) -> String;
    let kinds: [Kind; 6] = [
        |i| format!("path: /p{i}"),
        |i| format!("method: GET, path: '/p{i}/*'"),
        |i| format!("path: '*/p{i}/*', attributes: {{ host: '*.h{i}.*' }}"),
        |i| if i % 2 == 0 { format!("path: '/p{i}/*'") } else { format!("tenant: t{i}") },
        |i| format!("path: '/p{i}/*', attributes: {{ header.x-{i}: '1' }}"),
        |i| if i % 2 == 0 { format!("path: '/*', user: u{i}") } else { format!("path: /p{i}, tenant: t{i}") },
    ];
    for (kind, written) in kinds.into_iter().enumerate() {
        let compared = |count: usize| {
            let matches = matches((0..count).map(written));
            let mut groups = MatchGroups::new(matches.iter());
            let found: usize = matches.iter().map(|one| groups.may_hold(&one.sample()).groups.len()).sum();
            assert!(found >= count, "each match holds for its own sample");
            assert!(groups.by_attributes.len() < 10, "{} sets of attributes", groups.by_attributes.len());
            groups.compared
        };
        let (few, many) = (compared(1_000), compared(4_000));
        assert!(many <= 5 * few && many <= 4 * 4_000, "kind {kind}: {few} compared, then {many}");
    }
}
