use std::path::Path;

use tollgate_testkit::{Random, effort};

use super::*;

fn policy(limits: impl Iterator<Item = String>) -> Policy {
    let limit = |(i, limit): (usize, String)| {
        format!("  - {{ name: l{i}, {limit}, fixed_window: {{ limit: 1, window: 1s }} }}\n")
    };
    let limits: String = limits.enumerate().map(limit).collect();
    let file =
        format!("store: {{ redis: {{ url: 'redis://127.0.0.1:1', cluster: true }} }}\nlimits:\n{limits}");
    Policy::read(Path::new("test.yaml"), &file).unwrap_or_else(|faults| panic!("{faults}"))
}

/// The first limit before this one that is kept apart from it, with each asked.
fn asked(limits: &[Limit], needs: &[Needs], place: usize) -> Option<usize> {
    let one = &limits[place];
    let is_apart = |other: &Limit| other.kept_by() != one.kept_by() && other.may_apply_with(one);
    (0..place).find(|other| is_apart(&limits[*other]) && needs[*other].must_be_together(needs[place]))
}

fn random_limit(random: &mut Random, place: usize) -> String {
    if random.chance(1, 6) {
        let key = random.pick(&["path", "tenant", "user", "p*"]);
        return format!(
            "descriptor: {{ domain: d{place}, entries: [{{ key: '{key}', value: '/{}' }}] }}",
            random.below(3)
        );
    }
    let mut conditions = Vec::new();
    if random.chance(2, 3) {
        let path = ["/a", "/A/", "/b", "'/a*'", "'/b/*'", "['/a', '/c']", "['/d', '/e*']", "/f", "/g", "[]"];
        conditions.push(format!("path: {}", random.pick(&path)));
        if random.chance(1, 3) {
            conditions.push("ignore_case: true".to_owned());
        }
        if random.chance(1, 3) {
            conditions.push("trailing_slash: any".to_owned());
        }
    }
    if random.chance(1, 2) {
        conditions.push(format!("method: {}", random.pick(&["GET", "get", "POST", "'P*'"])));
    }
    if random.chance(1, 3) {
        let hosts = ["a.example", "'A.example:8443'", "b.example", "'*.example'", "'b.example:80'"];
        conditions.push(format!("attributes: {{ host: {} }}", random.pick(&hosts)));
    }
    let key = random.pick(&["[tenant]", "[ip]", "[]", "[domain]", "[user, tenant]"]);
    format!("match: {{ {} }}, key: {key}", conditions.join(", "))
}

#[test]
fn limits_kept_apart_agree_with_asking_every_pair() {
    let mut random = Random::new(20);
    let (mut apart, mut together) = (0, 0);
    for _ in 0..400 * effort() {
        let count = random.log_uniform(2, 60) as usize;
        let policy = policy((0..count).map(|place| random_limit(&mut random, place)));
        let all = [Needs::Nothing, Needs::ExactLimits, Needs::AllLimits];
        let needs: Vec<Needs> = (0..count).map(|_| *random.pick(&all)).collect();
        let mut earlier = EarlierLimits::new(&policy.limits, needs.clone());
        for place in 0..count {
            let expected = asked(&policy.limits, &needs, place);
            assert_eq!(earlier.first_kept_apart(place).0, expected, "{place} of {:#?}", policy.limits);
            *(if expected.is_some() { &mut apart } else { &mut together }) += 1;
            earlier.add(place);
        }
    }
    assert!(apart > 1_000 && together > 1_000, "{apart} apart, {together} together");
}

#[test]
fn limits_compared_for_a_cluster_grow_with_the_limits_and_not_with_their_pairs() {
    type Kind = fn(usize) -> String;
    let kinds: [Kind; 4] = [
        |i| format!("match: {{ path: /p{i} }}, key: [{}]", ["ip", "user"][i % 2]),
        |i| format!("match: {{ method: GET, path: /p{i} }}, key: [{}]", ["ip", "user"][i % 2]),
        |i| format!("match: {{ path: '*/p{i}/*' }}, key: [{}]", ["ip", "user"][i % 2]),
        |i| format!("match: {{ path: '*/p{i}/*' }}, key: [user, h{i}]"),
    ];
    for (kind, limit) in kinds.into_iter().enumerate() {
        let count = 2_000;
        let policy = policy((0..count).map(limit));
        let (mut earlier, mut compared) =
            (EarlierLimits::new(&policy.limits, vec![Needs::ExactLimits; count]), 0);
        for place in 0..count {
            compared += earlier.first_kept_apart(place).1;
            earlier.add(place);
        }
        assert!(compared <= count, "kind {kind}: {compared} compared");
    }
}
