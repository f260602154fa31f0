//! Random plans of mixed algorithms, compared with the oracles answer by answer.

use super::rule::one_of_each;
use super::{Line, OracleStore, Rule, Store};
use crate::answer::{Retry, Verdict};
use crate::oracle::CounterMode;
use crate::random::Random;

const KEYS: [&str; 4] = ["alice", "bob", "", "a:b|{c}"];

/// Asks the store and the oracles the same random questions, `steps` of them, and expects the same
/// answers.
///
/// Time does not run backwards here: what a store forgets when a key is unused it may forget for
/// good.
pub fn random_plans_equal_the_oracles(mut store: impl Store, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let mut oracles = OracleStore::default();
    let limits = limits();
    let (mut now, mut retry) = (random.between(1, 1_000_000_000), 0);
    for step in 0..steps {
        now += wait(&mut random, retry);
        let plan = plan(&mut random, &limits);
        let expected = oracles.decide(now, &plan);
        retry = match expected.retry {
            Some(Retry::After(wait)) => wait,
            _ => 0,
        };
        let found = store.decide(now, &plan);
        assert_eq!(
            comparable(found),
            comparable(expected),
            "random plans must equal the oracles: seed {seed}, step {step} at {now}: {plan:#?}"
        );
    }
}

/// In a denied request nobody is held, so what a limit that would have admitted it says of a delay
/// is meaningless.
fn comparable(mut verdict: Verdict) -> Verdict {
    if !verdict.allowed {
        for answer in &mut verdict.answers {
            answer.delay = 0;
        }
    }
    verdict
}

/// One of each kind at a common scale, and some of other scales.
fn limits() -> Vec<(String, Rule)> {
    let mut rules = one_of_each();
    rules.extend([
        Rule::TokenBucket { tokens: 1, period: 7, burst: 1 },
        Rule::TokenBucket { tokens: 1, period: 2_592_000, burst: 3 },
        Rule::LeakyQueue { tokens: 1, period: 13, capacity: 50 },
        Rule::FixedWindow { limit: 3, window: 60_000 },
        Rule::AnchoredWindow { limit: 1, window: 17 },
        Rule::CountingWindow { limit: 5, window: 1500 },
        Rule::SlidingLog { limit: 100, window: 5000 },
        Rule::SlidingCounter { limit: 50, window: 60_000, buckets: 1, mode: CounterMode::Interpolate },
        Rule::SlidingCounter { limit: 7, window: 1000, buckets: 3, mode: CounterMode::Interpolate },
        Rule::SlidingCounter { limit: 20, window: 3200, buckets: 32, mode: CounterMode::Strict },
    ]);
    rules.into_iter().enumerate().map(|(number, rule)| (format!("limit-{number}"), rule)).collect()
}

fn wait(random: &mut Random, retry: u64) -> u64 {
    match random.below(20) {
        0..=9 => 0,
        10..=11 => retry,
        12 => retry.saturating_sub(1),
        13..=15 => random.between(1, 20),
        16..=18 => random.between(1, 1200),
        _ => random.log_uniform(1, 100_000),
    }
}

fn plan(random: &mut Random, limits: &[(String, Rule)]) -> Vec<Line> {
    let mut plan: Vec<Line> = Vec::new();
    for _ in 0..random.between(1, 5) {
        let (limit, rule) = random.pick(limits);
        let key = random.pick(&KEYS);
        if plan.iter().any(|line| line.limit == *limit && line.key == *key) {
            continue;
        }
        let capacity = rule.capacity();
        let cost = match random.below(40) {
            0..=3 => 0,
            4..=30 => 1,
            31..=36 => random.between(1, capacity.min(5)),
            37..=38 => random.between(1, capacity),
            _ => capacity + 1,
        };
        plan.push(Line::new(limit, key, *rule, cost));
    }
    plan
}
