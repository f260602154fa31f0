use std::collections::HashSet;
use std::path::Path;

use tollgate_testkit::{Random, effort};

use super::*;

fn policy(paths: &[Vec<(String, String)>]) -> Policy {
    let limit = |(i, path): (usize, &Vec<(String, String)>)| {
        let entry = |(key, value): &(String, String)| format!("{{ key: '{key}', value: '{value}' }}");
        let entries: Vec<String> = path.iter().map(entry).collect();
        format!(
            "  - {{ name: l{i}, descriptor: {{ domain: d, entries: [{}] }}, fixed_window: {{ limit: 1, window: 1s }} }}\n",
            entries.join(", ")
        )
    };
    let file = format!("limits:\n{}", paths.iter().enumerate().map(limit).collect::<String>());
    Policy::read(Path::new("test.yaml"), &file).unwrap_or_else(|faults| panic!("{faults}"))
}

/// Key and value as they are compared. An empty value is any value.
fn joined((key, value): &(String, String)) -> String {
    if value.is_empty() { key.clone() } else { format!("{key}_{value}") }
}

fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match pattern {
        [] => text.is_empty(),
        [b'*', rest @ ..] => (0..=text.len()).any(|skipped| fits(rest, &text[skipped..])),
        [byte, rest @ ..] => text.first() == Some(byte) && fits(rest, &text[1..]),
    }
}

/// The lookup of envoyproxy/ratelimit, with every node of a level asked in the order of the file.
fn asked(paths: &[Vec<(String, String)>], entries: &[(&str, &str)]) -> Option<Leaf> {
    let mut below: Vec<(u32, Vec<String>)> =
        (0..).zip(paths).map(|(place, path)| (place, path.iter().map(joined).collect())).collect();
    for (depth, (key, value)) in entries.iter().enumerate() {
        below.retain(|(_, path)| path.len() > depth);
        let sent = format!("{key}_{value}");
        let node = |wanted: &dyn Fn(&str) -> bool| {
            below.iter().map(|(_, path)| &path[depth]).find(|node| wanted(node)).cloned()
        };
        let node = node(&|node| node == sent)
            .or_else(|| node(&|node| node.contains('*') && fits(node.as_bytes(), sent.as_bytes())))
            .or_else(|| node(&|node| node == *key))?;
        below.retain(|(_, path)| path[depth] == node);
    }
    below.iter().find(|(_, path)| path.len() == entries.len()).map(|(place, _)| Leaf::Limit(*place))
}

#[test]
fn descriptors_agree_with_asking_every_pattern_in_order() {
    let mut random = Random::new(20);
    let (mut found, mut not_found) = (0, 0);
    for _ in 0..150 * effort() {
        let mut known = HashSet::new();
        let entry = |random: &mut Random| {
            let key = *random.pick(&["path", "path", "user", "p*"]);
            let value = match random.below(8) {
                0 => String::new(),
                1 => "*".to_owned(),
                2 | 3 => format!("/{}*", random.below(8)),
                4 => format!("*/{}", random.below(8)),
                5 => format!("*{}*{}", random.below(8), random.below(8)),
                _ => format!("/{}/{}", random.below(8), random.below(8)),
            };
            (key.to_owned(), value)
        };
        let count = random.log_uniform(1, 120);
        let paths: Vec<Vec<(String, String)>> = (0..count)
            .map(|_| (0..random.between(1, 2)).map(|_| entry(&mut random)).collect::<Vec<_>>())
            .filter(|path| known.insert(path.iter().map(joined).collect::<Vec<_>>()))
            .collect();
        let descriptors = Descriptors::new(&policy(&paths));
        for _ in 0..300 {
            let entry = |random: &mut Random| {
                let value = match random.below(5) {
                    0 => "/*".to_owned(),
                    1 => random.below(8).to_string(),
                    _ => format!("/{}/{}", random.below(8), random.below(8)),
                };
                (*random.pick(&["path", "user", "p"]), value)
            };
            let entries: Vec<(&str, String)> =
                (0..random.between(1, 2)).map(|_| entry(&mut random)).collect();
            let entries: Vec<(&str, &str)> =
                entries.iter().map(|(key, value)| (*key, value.as_str())).collect();
            let expected = asked(&paths, &entries);
            assert_eq!(descriptors.find("d", &entries), expected, "{entries:?} in {paths:?}");
            *(if expected.is_some() { &mut found } else { &mut not_found }) += 1;
        }
    }
    assert!(found > 1_000 && not_found > 1_000, "{found} found, {not_found} not found");
}
