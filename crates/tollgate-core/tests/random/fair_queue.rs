//! The fair queue against its oracle, and the bound it promises.

use std::collections::BTreeMap;

use tollgate_core::{Dispatch, FairQueue, Request, Running, Ticket, Timestamp, Weight};
use tollgate_testkit::{Random, oracle};

use super::compare::{RUNS, STEPS};

fn request(weight: u32, cost: u64, deadline: Option<u64>, item: u64) -> Request<u64> {
    let deadline = deadline.map(Timestamp::from_nanos);
    Request { weight: Weight::new(weight).unwrap(), cost, deadline, item }
}

#[test]
fn fair_queue_equals_its_oracle() {
    let mut longest = 0;
    for seed in 0..RUNS * tollgate_testkit::effort() {
        let mut random = Random::new(seed);
        // In every tenth run, lines reach hundreds of requests. There, half of the calls after step 400 cancel a request.
        let is_long = seed % 10 == 0;
        let (slots, cap) =
            (random.between(1, 5) as usize, random.between(1, if is_long { 500 } else { 12 }) as usize);
        let tenants = if is_long { random.between(1, 2) } else { random.between(1, 6) };
        let mut queue = FairQueue::new(slots, usize::MAX, cap);
        let mut oracle = oracle::FairQueue::new(slots, cap);
        let mut running: Vec<(u64, Running<u32>, u64)> = Vec::new();
        let mut tickets: BTreeMap<u64, (u32, Ticket)> = BTreeMap::new();
        let mut now = 0;
        for id in 0..STEPS as u64 {
            now += random.below(4);
            let at = format!("seed {seed}, step {id}");
            let is_leaving = is_long && id > 400 && random.chance(1, 2);
            match if is_leaving { 5 } else { random.below(if is_long { 8 } else { 10 }) } {
                0..=4 => {
                    let tenant = random.below(tenants) as u32;
                    // Powers of two, for which the tags are exact.
                    let weight = 1 << (tenant % 5);
                    let cost = random.log_uniform(1, 50);
                    let deadline = random.chance(1, 4).then(|| now + random.below(12));
                    let pushed = queue.push(tenant, request(weight, cost, deadline, id));
                    assert_eq!(
                        pushed.is_ok(),
                        oracle.push(tenant, weight.into(), cost, deadline, id),
                        "{at}"
                    );
                    longest = longest.max(queue.waiting());
                    tickets.extend(pushed.ok().map(|ticket| (id, (tenant, ticket))));
                }
                5 if !tickets.is_empty() => {
                    let place = random.below(tickets.len() as u64) as usize;
                    let (&id, &(tenant, ticket)) = tickets.iter().nth(place).unwrap();
                    assert_eq!(queue.cancel(&tenant, ticket).is_some(), oracle.cancel(id), "{at}");
                    tickets.remove(&id);
                }
                6 | 7 if !running.is_empty() => {
                    let (id, slot, cost) = running.swap_remove(random.below(running.len() as u64) as usize);
                    let actual = if random.chance(1, 2) { cost } else { random.log_uniform(1, 200) };
                    queue.finish(slot, actual);
                    assert!(oracle.finish(id, actual));
                }
                _ => {
                    let (mut started, mut expired) = (None, Vec::new());
                    while let Some(taken) = queue.dispatch(Timestamp::from_nanos(now)) {
                        match taken {
                            Dispatch::Expired(id) => expired.push(id),
                            Dispatch::Run(slot, id) => {
                                started = Some(id);
                                running.push((id, slot, random.log_uniform(1, 50)));
                                break;
                            }
                        }
                    }
                    assert_eq!(started, oracle.dispatch(now), "{at}");
                    assert_eq!(expired, oracle.take_expired(), "{at}");
                }
            }
            assert_eq!(queue.running(), oracle.running(), "{at}");
        }
    }
    assert!(longest > 150, "no more than {longest} requests waited");
}

/// What has been served of a tenant, per weight, as a fraction of a common denominator.
#[derive(Default)]
struct Served {
    dispatched: BTreeMap<u32, u64>,
    completed: BTreeMap<u32, u64>,
}

#[test]
fn wf_7_shares_stay_within_the_bound_and_no_slot_is_idle() {
    for seed in 0..100 * tollgate_testkit::effort() {
        let mut random = Random::new(seed);
        let slots = *random.pick(&[1, 1, 2, 4, 16, 64]);
        let tenants: Vec<(u32, u64)> = (0..random.between(2, 6))
            .map(|_| (random.between(1, 20) as u32, random.log_uniform(1, 100)))
            .collect();
        let mut queue = FairQueue::new(slots, usize::MAX, usize::MAX);
        let mut running: Vec<(Running<u32>, u64)> = Vec::new();
        let mut served = Served::default();
        let mut costs = BTreeMap::new();
        let mut waiting = vec![0_usize; tenants.len()];
        for id in 0..2000_u64 {
            // Everybody always has work waiting.
            for (tenant, &(weight, largest)) in tenants.iter().enumerate() {
                while waiting[tenant] <= slots {
                    let id = id * 1000 + costs.len() as u64;
                    let cost = random.between(1, largest);
                    costs.insert(id, cost);
                    queue.push(tenant as u32, request(weight, cost, None, id)).unwrap();
                    waiting[tenant] += 1;
                }
            }
            if running.len() == slots {
                let (slot, cost) = running.swap_remove(random.below(slots as u64) as usize);
                *served.completed.entry(*slot.tenant()).or_default() += cost;
                queue.finish(slot, cost);
            }
            while let Some(taken) = queue.dispatch(Timestamp::default()) {
                let Dispatch::Run(slot, id) = taken else { panic!("nothing here has a deadline") };
                let cost = costs.remove(&id).unwrap();
                *served.dispatched.entry(*slot.tenant()).or_default() += cost;
                waiting[*slot.tenant() as usize] -= 1;
                running.push((slot, cost));
            }
            assert_eq!(queue.running(), slots, "seed {seed}: a slot is idle while work waits");
            within(&tenants, &served.dispatched, 1, seed);
            within(&tenants, &served.completed, slots as u64 + 1, seed);
        }
    }
}

/// |served_i / w_i - served_j / w_j| <= times * (cmax_i / w_i + cmax_j / w_j), for all i and j.
fn within(tenants: &[(u32, u64)], served: &BTreeMap<u32, u64>, times: u64, seed: u64) {
    let of = |tenant: usize| served.get(&(tenant as u32)).copied().unwrap_or(0);
    for (i, &(wi, ci)) in tenants.iter().enumerate() {
        for (j, &(wj, cj)) in tenants.iter().enumerate().skip(i + 1) {
            let (wi, wj) = (u64::from(wi), u64::from(wj));
            let apart = (of(i) * wj).abs_diff(of(j) * wi);
            // Tags are rounded up to 2^-20, of which 2000 requests add up to nothing that is seen here.
            let bound = times * (ci * wj + cj * wi) + 1;
            assert!(apart <= bound, "seed {seed}: {i} and {j} are {apart} apart, bound {bound}");
        }
    }
}

#[test]
fn shares_follow_the_weights() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let weights: Vec<u32> = (0..random.between(2, 5)).map(|_| random.between(1, 12) as u32).collect();
        let mut queue = FairQueue::new(1, usize::MAX, usize::MAX);
        let mut served = vec![0_u64; weights.len()];
        for _ in 0..10_000 {
            for (tenant, &weight) in weights.iter().enumerate() {
                queue.push(tenant, request(weight, 1, None, 0)).unwrap();
            }
            let Some(Dispatch::Run(slot, _)) = queue.dispatch(Timestamp::default()) else { panic!() };
            served[*slot.tenant()] += 1;
            queue.finish(slot, 1);
        }
        let total: u32 = weights.iter().sum();
        for (tenant, &weight) in weights.iter().enumerate() {
            let due = 10_000 * u64::from(weight) / u64::from(total);
            assert!(served[tenant].abs_diff(due) <= 100, "seed {seed}: {served:?} for {weights:?}");
        }
    }
}
