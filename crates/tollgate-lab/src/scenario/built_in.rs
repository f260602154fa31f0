//! Scenarios that everybody meets sooner or later.

use std::time::Duration;

use super::{Group, Pattern, Scenario};
use crate::algorithms::Limit;

/// Their names, and what happens in each.
pub const BUILT_IN: [(&str, &str); 8] = [
    ("app-open", "200 people open an app, which makes six calls at once; a script asks 20 times a second"),
    (
        "boundary-attack",
        "100 requests in the last second of a minute, 100 in the first of the next, then ten a second",
    ),
    ("steady", "100 clients ask at random, each for nine tenths of its limit"),
    ("spike", "100 clients at a fifth of their limit; for five seconds they ask for thirty times that"),
    ("step", "50 clients go from half of their limit to 1.4 times it, and stay there"),
    ("soak", "an hour of 1000 clients, most below their limit, some above it"),
    (
        "noisy-neighbour",
        "ten quiet clients and one that asks for 100 times its share, under one limit for all",
    ),
    (
        "retry-storm",
        "500 clients lose an answer at the same moment, and all ask again after 1, 3, 7 and 15 seconds",
    ),
];

const SECOND: u64 = 1_000_000_000;

fn limit(limit: u64, seconds: u64) -> Limit {
    Limit { limit, window: Duration::from_secs(seconds) }
}

/// One of them.
pub fn built_in(name: &str) -> Option<Scenario> {
    let (name, about) = BUILT_IN.into_iter().find(|(known, _)| *known == name)?;
    let group = |name: &str, count: u64, (from, until): (u64, u64), pattern: Pattern| Group {
        name: name.to_owned(),
        count,
        cost: 1,
        from: from * SECOND,
        until: until * SECOND,
        pattern,
    };
    let random = |each_second: f64| Pattern::Random { interval: SECOND as f64 / each_second };
    let even = |each_second: f64| Pattern::Even { interval: SECOND as f64 / each_second };
    let scenario = |limit: Limit, seconds: u64, groups: Vec<Group>| Scenario {
        name: name.to_owned(),
        about: about.to_owned(),
        limit,
        is_global: matches!(name, "noisy-neighbour" | "retry-storm"),
        duration: seconds * SECOND,
        groups,
        seed: 1,
    };
    Some(match name {
        "app-open" => scenario(
            limit(10, 2),
            120,
            vec![
                group("script", 1, (0, 120), even(20.0)),
                group("people", 200, (0, 120), Pattern::Bursts { burst: 6, every: 30 * SECOND }),
            ],
        ),
        "boundary-attack" => scenario(
            limit(100, 60),
            180,
            vec![group("attacker", 1, (59, 61), even(100.0)), group("attacker", 1, (61, 180), even(10.0))],
        ),
        "steady" => scenario(limit(60, 60), 600, vec![group("clients", 100, (0, 600), random(0.9))]),
        "spike" => scenario(
            limit(60, 60),
            300,
            vec![
                group("clients", 100, (0, 300), random(0.2)),
                group("clients", 100, (120, 125), random(6.0)),
            ],
        ),
        "step" => scenario(
            limit(60, 60),
            600,
            vec![group("clients", 50, (0, 300), random(0.5)), group("clients", 50, (300, 600), random(1.4))],
        ),
        "soak" => scenario(
            limit(60, 60),
            3600,
            vec![
                group("above", 50, (0, 3600), random(1.5)),
                group("near", 250, (0, 3600), random(0.8)),
                group("below", 700, (0, 3600), random(0.3)),
            ],
        ),
        "noisy-neighbour" => scenario(
            limit(1000, 10),
            120,
            vec![group("quiet", 10, (0, 120), random(5.0)), group("noisy", 1, (30, 90), random(909.0))],
        ),
        _ => {
            let at = [30, 31, 33, 37, 45].map(|second| second * SECOND).to_vec();
            scenario(
                limit(200, 1),
                60,
                vec![
                    group("clients", 500, (0, 60), Pattern::Together { burst: 1, at }),
                    group("clients", 500, (0, 60), random(0.1)),
                ],
            )
        }
    })
}
