//! Concurrency against its oracle.

use std::time::Duration;

use tollgate_core::{Concurrency, Decision, PermitId, Permits, Timestamp};
use tollgate_testkit::{Random, oracle};

use super::compare::{RUNS, STEPS};
use super::plain::answer;

#[test]
fn concurrency_equals_its_oracle() {
    let mut most_held = 0;
    for seed in 0..RUNS * tollgate_testkit::effort() {
        let mut random = Random::new(seed);
        // Every third key may hold hundreds of permits.
        let is_large = seed % 3 == 0;
        let pick_limit = |random: &mut Random| match is_large {
            true => random.log_uniform(100, 2000),
            false => random.log_uniform(1, 40),
        };
        let most_lease = if is_large { 100_000 } else { 1000 };
        let mut limit = pick_limit(&mut random);
        let mut lease = random.chance(2, 3).then(|| random.log_uniform(1, most_lease));
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
                _ if is_large && random.chance(9, 10) => now,
                _ => now + random.log_uniform(0, 1 << 40),
            };
            let time = Timestamp::from_nanos(now);
            let at = format!("seed {seed}, step {i} at {now}: {rule:?}");
            match random.below(20) {
                0..=6 if !given.is_empty() && (!is_large || random.chance(1, 2)) => {
                    // Sometimes for the second time.
                    let place = random.below(given.len() as u64) as usize;
                    let id = if random.chance(1, 8) { given[place] } else { given.swap_remove(place) };
                    assert_eq!(rule.release(&mut state, PermitId(id), time), oracle.release(now, id), "{at}");
                }
                7 => {
                    limit = pick_limit(&mut random);
                    if random.chance(1, 4) {
                        lease = random.chance(2, 3).then(|| random.log_uniform(1, most_lease));
                        oracle.set_lease(lease);
                    }
                    rule = Concurrency::new(limit, lease.map(Duration::from_nanos)).unwrap();
                    oracle.set_limit(limit);
                }
                _ => {
                    let is_one = if is_large { random.chance(19, 20) } else { random.chance(1, 2) };
                    let cost = if is_one { 1 } else { random.between(0, limit + 1) };
                    let id = ids.next().unwrap();
                    let outcome = rule.test(&state, cost, time);
                    most_held = most_held.max(given.len());
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
    assert!(most_held > 200, "no key held more than {most_held} permits");
}
