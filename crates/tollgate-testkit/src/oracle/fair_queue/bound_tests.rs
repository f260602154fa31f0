//! WF-7: how far two backlogged tenants can come apart, over every interval of random runs.

use super::FairQueue;
use crate::Random;
use num_bigint::BigInt;
use num_rational::BigRational;

const LARGEST: [u64; 2] = [20, 80];

/// Keeps two tenants backlogged on `slots` slots and returns the spread of `served_A/w_A -
/// served_B/w_B` in units of the bound, at dispatch and at completion. The spread over the run is
/// the largest difference over any of its intervals.
fn spread(seed: u64, slots: usize) -> (BigRational, BigRational) {
    let mut random = Random::new(seed);
    let weights = [random.between(1, 7), random.between(1, 7)];
    let mut queue = FairQueue::new(slots, 10);
    let (mut next, mut running) = (0, Vec::new());
    let (mut at_dispatch, mut at_completion) = (Vec::new(), Vec::new());
    let mut costs = std::collections::HashMap::new();
    for _ in 0..2000 {
        for tenant in [0, 1] {
            while queue.waiting(tenant) < 5 {
                next += 1;
                let cost = random.between(1, LARGEST[tenant as usize]);
                costs.insert(next, cost);
                queue.push(tenant, weights[tenant as usize], cost, None, next);
            }
        }
        if let Some(id) = queue.dispatch(0) {
            running.push(id);
        } else {
            let place = usize::try_from(random.below(running.len() as u64)).unwrap();
            let id = running.swap_remove(place);
            assert!(queue.finish(id, costs[&id]));
        }
        let lead = |served: fn(&FairQueue, u32) -> u64| {
            ratio(served(&queue, 0), weights[0]) - ratio(served(&queue, 1), weights[1])
        };
        at_dispatch.push(lead(FairQueue::served));
        at_completion.push(lead(FairQueue::completed));
    }
    let bound = ratio(LARGEST[0], weights[0]) + ratio(LARGEST[1], weights[1]);
    let spread = |leads: &[BigRational]| (leads.iter().max().unwrap() - leads.iter().min().unwrap()) / &bound;
    (spread(&at_dispatch), spread(&at_completion))
}

fn ratio(numerator: u64, denominator: u64) -> BigRational {
    BigRational::new(BigInt::from(numerator), BigInt::from(denominator))
}

#[test]
fn wf_7_bound_at_dispatch_with_one_slot() {
    for seed in 0..50 {
        let (at_dispatch, _) = spread(seed, 1);
        assert!(at_dispatch <= ratio(1, 1), "seed {seed}: {at_dispatch}");
    }
}

#[test]
fn wf_7_bound_at_completion_with_many_slots() {
    for slots in [1, 2, 4, 16] {
        for seed in 0..20 {
            let (_, at_completion) = spread(seed, slots);
            assert!(
                at_completion <= ratio(slots as u64 + 1, 1),
                "seed {seed}, {slots} slots: {at_completion}"
            );
        }
    }
}
