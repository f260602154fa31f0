//! Nodes and a store on a simulated network, to see how the two halves work together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

/// A round trip of half a millisecond.
const ONE_WAY: u64 = 250_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    Draw(usize, usize),  // at the store: the node, and the place of the draw
    Reply(usize, usize), // at the node: the node, and the place of the reply
    Return(u64, u64),    // at the store: units, and when they were charged
    Exact(usize),        // at the store: the node
}

#[derive(Default, Debug)]
struct Result {
    admitted: u64,
    admitted_by_node: Vec<u64>,
    decided_by_node: Vec<u64>,
    decided: u64,
    calls: u64,
    waited: u64,
    exceeded: bool, // more than the burst and what has come since, at any time
}

/// The time until the next of `demand` requests per second, which come at random.
#[expect(clippy::cast_sign_loss, reason = "the logarithm of a number up to 1 is not above 0")]
fn gap(random: &mut Random, demand: u64) -> u64 {
    let unit = (random.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
    (-unit.ln() * S as f64 / demand as f64) as u64
}

/// `demands` are the requests per second at each node.
fn simulate(rule: Rule, rate: u64, demands: &[u64], seconds: u64) -> Result {
    let terms = rule.lease_terms(Nanos::new(100 * MS)).unwrap();
    let mut random = Random::new(7);
    let mut gap = |demand: u64| gap(&mut random, demand);
    let (mut nodes, mut store) = (vec![Lease::new(terms); demands.len()], State::default());
    let mut waiting = vec![0_u64; demands.len()];
    let (mut draws, mut replies) = (Vec::new(), Vec::new());
    let mut events = BinaryHeap::new();
    for (node, &demand) in demands.iter().enumerate() {
        events.push(Reverse((gap(demand), Event::Arrival(node))));
    }
    let none = vec![0; demands.len()];
    let mut result = Result { admitted_by_node: none.clone(), decided_by_node: none, ..Result::default() };
    let mut first = None;
    while let Some(Reverse((now, event))) = events.pop() {
        if now > seconds * S {
            break;
        }
        let mut admit = |result: &mut Result, node: usize| {
            result.admitted += 1;
            result.admitted_by_node[node] += 1;
            let start = *first.get_or_insert(now.saturating_sub(ONE_WAY));
            let most = rule.capacity() + (u128::from(now - start) * u128::from(rate) / u128::from(S)) as u64;
            result.exceeded |= result.admitted > most + 1;
        };
        let touched = match event {
            Event::Arrival(node) => {
                events.push(Reverse((now + gap(demands[node]), Event::Arrival(node))));
                match nodes[node].take(1, at(now)) {
                    Take::Taken(_) => admit(&mut result, node),
                    Take::Denied(_) => {}
                    Take::Wait => {
                        waiting[node] += 1;
                        result.waited += 1;
                    }
                    Take::Exact => events.push(Reverse((now + ONE_WAY, Event::Exact(node)))),
                }
                result.decided += 1;
                result.decided_by_node[node] += 1;
                Some(node)
            }
            Event::Exact(node) => {
                result.calls += 1;
                if rule.decide(&mut store, PermitId(0), 1, at(now)).is_allowed() {
                    admit(&mut result, node);
                }
                None
            }
            Event::Draw(node, place) => {
                result.calls += 1;
                let (id, draw) = draws[place];
                replies.push((id, rule.grant(&mut store, &draw, at(now)), at(now)));
                events.push(Reverse((now + ONE_WAY, Event::Reply(node, replies.len() - 1))));
                None
            }
            Event::Reply(node, place) => {
                let (id, grant, charged) = replies[place];
                nodes[node].accept_grant(id, &grant, charged, at(now));
                for _ in 0..std::mem::take(&mut waiting[node]) {
                    match nodes[node].take_again(1, at(now)) {
                        Take::Taken(_) => admit(&mut result, node),
                        Take::Denied(_) => {}
                        Take::Wait => waiting[node] += 1,
                        Take::Exact => events.push(Reverse((now + ONE_WAY, Event::Exact(node)))),
                    }
                }
                Some(node)
            }
            Event::Return(units, charged) => {
                result.calls += 1;
                rule.refund(&mut store, units, at(charged), at(now));
                None
            }
        };
        let Some(node) = touched else { continue };
        while let Some(step) = nodes[node].next_step(at(now)) {
            match step {
                Step::Draw { id, draw } => {
                    draws.push((id, draw));
                    events.push(Reverse((now + ONE_WAY, Event::Draw(node, draws.len() - 1))));
                }
                Step::Return { units, charged, .. } => {
                    events.push(Reverse((now + ONE_WAY, Event::Return(units, charged.as_nanos()))));
                }
            }
        }
    }
    result
}

/// The bars of the lease table, with the simulated network in place of processes: decisions per call, and the part of the limit that is
/// used. The research model had 472, 157, 160, 80, 241 and 15 decisions per call.
#[test]
fn nodes_use_the_whole_limit_with_few_calls_and_never_exceed_it() {
    let skewed = |one: u64, others: u64| [vec![one], vec![others; 7]].concat();
    for (name, rule, rate, demands, per_call) in [
        ("1000/s at 20 x", bucket(1000, 1000), 1000, vec![5000; 4], 450),
        ("100/s at 20 x", bucket(100, 100), 100, vec![500; 4], 140),
        ("burst 100", bucket(1000, 100), 1000, vec![5000; 4], 150),
        ("burst 16", bucket(1000, 16), 1000, vec![5000; 4], 75),
        ("80 % of 20 x at one of 8", bucket(1000, 1000), 1000, skewed(16_000, 571), 220),
        ("80 % of 1.2 x at one of 8", bucket(1000, 1000), 1000, skewed(960, 34), 15),
        ("60 % load", bucket(1000, 1000), 1000, vec![150; 4], 13),
    ] {
        let result = simulate(rule, rate, &demands, 30);
        let offered = result.decided.min(rule.capacity() + rate * 30);
        assert!(!result.exceeded, "{name}: {result:?}");
        assert!(result.admitted * 100 >= offered * 99, "{name}: {result:?} of {offered}");
        assert!(result.decided >= per_call * result.calls, "{name}: {result:?}");
        assert!(result.waited * 100 <= result.decided, "{name}: {result:?}");
    }
}

#[test]
fn nodes_with_few_requests_pass_beside_nodes_with_many() {
    let demands = [vec![5000; 4], vec![2; 40]].concat();
    let result = simulate(bucket(1000, 1000), 1000, &demands, 30);
    let sum = |nodes: &[u64]| nodes[4..].iter().sum::<u64>();
    let (passed, asked) = (sum(&result.admitted_by_node), sum(&result.decided_by_node));
    assert!(passed * 100 >= asked * 97, "{passed} of {asked}");
    // The busy nodes get equal shares.
    let busy = &result.admitted_by_node[..4];
    let (least, most) = (busy.iter().min().unwrap(), busy.iter().max().unwrap());
    assert!(most * 100 <= least * 110, "{busy:?}");
}

#[test]
fn nodes_use_a_whole_window_with_few_calls() {
    for (rule, windows, demand, per_call) in
        [(window(1000, S), 60, 5000, 1400), (window(1000, 60 * S), 1, 83, 120)]
    {
        let result = simulate(rule, 1_000_000, &[demand; 4], 60);
        let most = 1000 * (windows + 1); // the last window has just begun
        assert!(result.admitted * 100 >= 1000 * windows * 99 && result.admitted <= most, "{result:?}");
        assert!(result.decided >= per_call * result.calls, "{result:?}");
    }
}
