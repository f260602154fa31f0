//! Concurrency against its oracle.

use std::time::Duration;

use tollgate_core::{Concurrency, Decision, PermitId, Permits, Timestamp};
use tollgate_testkit::{Random, oracle};

use super::compare::{RUNS, STEPS};
use super::plain::answer;

#[test]
fn concurrency_equals_its_oracle() {
    for seed in 0..RUNS * tollgate_testkit::effort() {
        let mut random = Random::new(seed);
        let mut limit = random.log_uniform(1, 40);
        let lease = random.chance(2, 3).then(|| random.log_uniform(1, 1000));
        let mut rule = Concurrency::new(limit, lease.map(Duration::from_nanos)).unwrap();
        let mut oracle = oracle::Concurrency::new(limit, lease);
        let mut state = Permits::default();
        let mut now = random.log_uniform(0, 1 << 40);
        let mut ids = 0..;
        let mut given: Vec<u64> = Vec::new();
        for i in 0..STEPS {
            now = match random.below(20) {
                0..=9 => now,
                10..=15 => now + random.log_uniform(0, 100),
                16..=17 => now + lease.unwrap_or(50) - random.below(2),
                18 => now.saturating_sub(random.log_uniform(0, 2000)),
                _ => now + random.log_uniform(0, 1 << 40),
            };
            let time = Timestamp::from_nanos(now);
            let at = format!("seed {seed}, step {i} at {now}: {rule:?}");
            match random.below(20) {
                0..=6 if !given.is_empty() => {
                    // Sometimes for the second time.
                    let place = random.below(given.len() as u64) as usize;
                    let id = if random.chance(1, 8) { given[place] } else { given.swap_remove(place) };
                    assert_eq!(rule.release(&mut state, PermitId(id), time), oracle.release(now, id), "{at}");
                }
                7 => {
                    limit = random.log_uniform(1, 40);
                    rule = Concurrency::new(limit, lease.map(Duration::from_nanos)).unwrap();
                    oracle.set_limit(limit);
                }
                _ => {
                    let cost = if random.chance(1, 2) { 1 } else { random.between(0, limit + 1) };
                    let id = ids.next().unwrap();
                    let outcome = rule.test(&state, cost, time);
                    if outcome.is_allowed() {
                        rule.acquire(&mut state, PermitId(id), cost, time);
                        given.push(id);
                    }
                    let decision = answer(Decision { outcome, status: rule.status(&state, time) });
                    assert_eq!(decision, oracle.acquire(now, id, cost), "{at}: cost {cost}");
                    assert_eq!(rule.is_unused(&state, time), oracle.in_flight(now) == 0, "{at}");
                }
            }
        }
    }
}
