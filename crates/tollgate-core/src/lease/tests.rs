use std::time::Duration;

use tollgate_testkit::Random;

use super::*;
use crate::{
    AlgorithmKind, Align, BurstCredits, Concurrency, FixedWindow, LeakyBucket, MaxWait, Mode, Nanos, Outcome,
    PermitId, Rate, Retry, Rule, SlidingCounter, SlidingLog, State, Timestamp, TokenBucket,
};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn bucket(rate: u64, burst: u64) -> Rule {
    TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap().into()
}

fn draw(sync_ms: u64, demand: u64, cost: u64) -> Draw {
    Draw { sync: Nanos::new(sync_ms * MS), demand, ..Draw::of_cost(cost) }
}

/// LE-10 of the contract.
#[test]
fn three_draws_of_a_drained_bucket_get_dated_grants() {
    let (rule, now) = (bucket(1000, 1000), at(0));
    let mut key = State::default();
    rule.spend(&mut key, PermitId(0), 900, now);
    let mut next = || {
        let passes = rule.test(&key, 1, now);
        let grant = rule.grant(&mut key, &draw(100, 5000, 0), now);
        (grant.units, grant.start.get() / MS, passes.is_allowed())
    };
    assert_eq!([next(), next(), next()], [(83, 83, true), (14, 97, true), (8, 105, true)]);
    assert_eq!(rule.test(&key, 1, now), Outcome::Deny { retry: Retry::After(Nanos::new(6 * MS)) });
}

#[test]
fn a_full_bucket_gives_what_lasts_for_sync_at_once() {
    let (rule, now) = (bucket(1000, 1000), at(0));
    // What lasts for 100 ms, half of what is free, a fourth of the burst, and the least that is worth a call.
    for (demand, spent, units) in [(500, 0, 50), (5000, 600, 150), (50_000, 0, 250), (100, 0, 10), (25, 0, 5)]
    {
        let mut key = State::default();
        rule.spend(&mut key, PermitId(0), spent, now);
        let grant = rule.grant(&mut key, &draw(100, demand, 0), now);
        assert_eq!(
            (grant.units, grant.start, grant.retry),
            (units, Nanos::ZERO, None),
            "{demand} per second"
        );
        assert_eq!(rule.status(&key, now).remaining, 1000 - spent - units);
    }
}

#[test]
fn a_draw_gets_at_least_the_cost_that_waits_for_it() {
    let (rule, now) = (bucket(100, 100), at(0));
    let grant = rule.grant(&mut State::default(), &draw(100, 50, 40), now);
    assert_eq!((grant.units, grant.start), (40, Nanos::ZERO));
    // More than the bucket ever holds.
    let grant = rule.grant(&mut State::default(), &draw(100, 50, 101), now);
    assert_eq!((grant.units, grant.retry), (0, Some(Retry::Never)));
    // Units that come later than in a second are not promised.
    let mut key = State::default();
    rule.spend(&mut key, PermitId(0), 100, now);
    rule.spend_in_full(&mut key, 90, now);
    let grant = rule.grant(&mut key, &draw(100, 50, 40), now);
    assert_eq!((grant.units, grant.retry), (0, Some(Retry::After(Nanos::new(1300 * MS)))));
}

#[test]
fn a_draw_without_demand_is_decided_as_one_request() {
    let mut random = Random::new(1);
    for rule in [bucket(1000, 100), window(100, S), counter(100, 4 * S, 4, Mode::Interpolate), credits()] {
        let (mut key, mut other, mut now) = (State::default(), State::default(), 0);
        for _ in 0..20_000 {
            now += random.log_uniform(1, 100 * MS);
            let cost = 1 + random.below(9);
            let grant = rule.grant(&mut key, &Draw::of_cost(cost), at(now));
            let decision = rule.decide(&mut other, PermitId(0), cost, at(now));
            let expected = match decision.outcome {
                Outcome::Allow { .. } => (cost, None),
                Outcome::Deny { retry } => (0, Some(retry)),
            };
            assert_eq!((grant.units, grant.retry), expected, "{rule:?} at {now}");
            assert_eq!(rule.status(&key, at(now)), rule.status(&other, at(now)));
        }
    }
}

fn window(limit: u64, nanos: u64) -> Rule {
    FixedWindow::new(limit, Duration::from_nanos(nanos), Align::Epoch).unwrap().into()
}

fn counter(limit: u64, nanos: u64, buckets: u32, mode: Mode) -> Rule {
    SlidingCounter::new(limit, Duration::from_nanos(nanos), buckets, mode).unwrap().into()
}

fn credits() -> Rule {
    let rate = |tokens| Rate::per_second(tokens).unwrap();
    BurstCredits::with_peak_burst(rate(100), rate(1000), 500, 200).unwrap().into()
}

/// The contract as it is written, for an interval of `t` nanoseconds, in exact fractions. Returns the units and the start.
fn by_the_contract(burst: i128, t: i128, ahead: i128, draw: &Draw) -> Option<(i128, i128)> {
    let (sync, demand) = (i128::from(draw.sync.get()), i128::from(draw.demand));
    let h = sync.min(burst * t / 4);
    let w = demand * sync / i128::from(S);
    let most = (burst / 4).min(w * 5 / 2);
    let r_ms = (i128::from(MS) + t - 1) / t; // a unit begun counts
    let least = 8.max(r_ms).min(most).max(draw.cost.into()).max(1);
    let most = most.max(least);
    let beyond = ahead - (burst * t - h); // D in nanoseconds, negative if the lease part has room
    let free = (-beyond).div_euclid(t);
    if free >= least {
        return Some((least.max(w.min(free / 2).min(most)), 0));
    }
    // g = R * (H - D) * w / (w + R * H), with R = 1 / t, in one fraction.
    let (numerator, denominator) = ((h - beyond).max(0) * w, t * w + h);
    let g = if denominator == 0 { 0 } else { numerator / denominator }.clamp(least, most);
    let start = g * t + beyond;
    (start <= i128::from(S)).then_some((g, start))
}

#[test]
fn grants_of_buckets_are_those_of_the_contract() {
    let mut random = Random::new(2);
    let (mut dated, mut refused) = (0, 0);
    for _ in 0..200_000 {
        let (t, burst) = (random.log_uniform(100, 10 * S), random.log_uniform(1, 1_000_000));
        let rule =
            Rule::from(TokenBucket::new(Rate::new(1, Duration::from_nanos(t)).unwrap(), burst).unwrap());
        let (mut key, now) = (State::default(), at(random.below(1000 * S)));
        let spent = random.below(burst + burst / 2 + 2).min(2 * burst);
        rule.spend_in_full(&mut key, spent, now);
        let later = now.after(Nanos::new(random.below(t)));
        let ahead = i128::from(rule.status(&key, later).reset_after.get());
        let cost = if random.chance(1, 2) { 0 } else { random.log_uniform(1, burst + 1).min(burst) };
        let draw = Draw {
            sync: Nanos::new(random.log_uniform(10 * MS, 5 * S)),
            demand: random.log_uniform(1, 10_000_000),
            ..Draw::of_cost(cost)
        };
        let grant = rule.grant(&mut key, &draw, later);
        match by_the_contract(burst.into(), t.into(), ahead, &draw) {
            Some((units, start)) => {
                let got = (i128::from(grant.units), i128::from(grant.start.get()), grant.retry);
                assert_eq!(got, (units, start, None), "{rule:?} {ahead} ahead, {draw:?}");
                dated += u32::from(start > 0);
            }
            None => {
                assert_eq!((grant.start, grant.units == 0 || grant.units == cost), (Nanos::ZERO, true));
                refused += u32::from(grant.retry.is_some());
            }
        }
        let charged = ahead + i128::from(grant.units) * i128::from(t);
        assert_eq!(i128::from(rule.status(&key, later).reset_after.get()), charged, "{rule:?} {draw:?}");
    }
    assert!(dated > 10_000 && refused > 1000, "{dated} dated, {refused} refused");
}

/// LE-1: nodes that spend every unit as soon as they may, and single requests beside them, never exceed the burst and what has come since.
#[test]
fn units_that_may_be_spent_never_exceed_the_rule_in_total() {
    for (rule, rates) in [
        (bucket(1000, 1000), vec![(1000_u128, 1000_u128)]),
        (bucket(7, 16), vec![(7, 16)]),
        (credits(), vec![(100, 500), (1000, 200)]),
    ] {
        let mut random = Random::new(3);
        let (mut key, mut now) = (State::default(), 0_u64);
        let mut usable: Vec<(u64, u64)> = Vec::new(); // from when on, units
        let (mut first, mut granted) = (None, 0);
        for _ in 0..5000 {
            now += random.log_uniform(1, 20 * MS);
            let units = if random.chance(1, 3) {
                let cost = 1 + random.below(3);
                let passes = rule.decide(&mut key, PermitId(0), cost, at(now)).is_allowed();
                usable.push((now, if passes { cost } else { 0 }));
                u64::from(passes)
            } else {
                let draw = draw(100, random.log_uniform(1, 50_000), random.below(3));
                let grant = rule.grant(&mut key, &draw, at(now));
                usable.push((now + grant.start.get(), grant.units));
                granted += grant.units;
                grant.units
            };
            if units > 0 {
                first = first.or(Some(now));
            }
        }
        usable.sort_unstable();
        let mut total = 0_u128;
        for (when, units) in usable {
            total += u128::from(units);
            let passed = u128::from(when.saturating_sub(first.unwrap_or(0)));
            for &(rate, burst) in &rates {
                let most = burst + (passed * rate).div_ceil(u128::from(S));
                assert!(total <= most, "{total} of {most} at {when}: {rule:?}");
            }
        }
        assert!(granted > 0);
    }
}

/// LE-2w: whoever draws, a window gives no more than its limit, and a grant ends with the window it was charged in.
#[test]
fn grants_of_windows_stay_within_the_limit_and_end_with_the_window() {
    let modes = [Mode::Interpolate, Mode::Strict, Mode::Lenient];
    let counters = modes.map(|mode| (counter(1000, 4 * S, 4, mode), S));
    for (rule, part) in [(window(1000, S), S), (window(50, 60 * S), 60 * S)].into_iter().chain(counters) {
        let mut random = Random::new(4);
        let (mut key, mut now) = (State::default(), 0_u64);
        for _ in 0..20_000 {
            now += random.log_uniform(1, part / 10);
            let free = rule.status(&key, at(now)).remaining;
            let draw = draw(100, random.log_uniform(1, 50_000), random.below(4));
            let grant = rule.grant(&mut key, &draw, at(now));
            assert!(grant.units <= free && grant.start == Nanos::ZERO, "{grant:?} of {free}: {rule:?}");
            assert!(grant.units >= draw.cost || grant.retry.is_some(), "{grant:?}");
            assert_eq!(rule.status(&key, at(now)).remaining, free - grant.units, "{rule:?}");
            if grant.units > 0 {
                assert_eq!(grant.end.unwrap().get(), part - now % part, "{rule:?} at {now}");
            } else {
                assert_eq!(
                    rule.test(&key, draw.cost.max(1), at(now)).is_allowed(),
                    draw.cost == 0 && free > 0
                );
            }
        }
    }
}

/// LE-6: a store that forgot writes gives no more than it would have, once it has seen the latest mark.
#[test]
fn a_mark_restores_what_a_store_has_forgotten() {
    let mut random = Random::new(5);
    let rules = [
        bucket(1000, 1000),
        bucket(3, 16),
        credits(),
        window(1000, S),
        Rule::from(FixedWindow::new(100, Duration::from_secs(1), Align::First).unwrap()),
        counter(1000, 4 * S, 4, Mode::Strict),
    ];
    for rule in rules {
        let (mut key, mut now) = (State::default(), 0_u64);
        let mut forgotten = key.clone();
        for _ in 0..10_000 {
            now += random.log_uniform(1, 10 * MS);
            if random.chance(1, 10) {
                forgotten = key.clone();
            }
            let mark = rule.grant(&mut key, &draw(100, random.log_uniform(1, 5000), 0), at(now)).mark;
            let (mut restored, presented) =
                (forgotten.clone(), Draw { mark: Some(mark), ..Draw::of_cost(0) });
            let _ = rule.grant(&mut restored, &presented, at(now));
            let [known, found] = [&key, &restored].map(|state| rule.status(state, at(now)).remaining);
            let is_counter = matches!(rule, Rule::SlidingCounter(_));
            // A counter's mark is that of its newest sub-window.
            assert!(found <= known || is_counter, "{found} of {known}: {rule:?} at {now}");
            // Presented to a store that has forgotten nothing, it changes nothing.
            let mut same = key.clone();
            let _ = rule.grant(&mut same, &presented, at(now));
            assert_eq!(rule.status(&same, at(now)), rule.status(&key, at(now)), "{rule:?} at {now}");
        }
    }
}

#[test]
fn units_that_were_spent_without_the_store_are_charged_first() {
    let (rule, now) = (bucket(1000, 1000), at(0));
    let mut key = State::default();
    let grant = rule.grant(&mut key, &Draw { owed: 600, ..draw(100, 5000, 0) }, now);
    assert_eq!((grant.units, rule.status(&key, now).remaining), (150, 250));
}

#[test]
fn terms_name_the_rules_that_can_be_leased() {
    let sync = Nanos::new(100 * MS);
    let terms = |rule: Rule| rule.lease_terms(sync).map(|terms| (terms.most_held(), terms.most_excess(3)));
    let rate = Rate::per_second(1000).unwrap();
    assert_eq!(terms(bucket(1000, 1000)), Ok((500, 500)));
    assert_eq!(terms(bucket(1000, 100)), Ok((50, 150)));
    assert_eq!(terms(bucket(1000, 15)), Err(NoLease::Burst { found: 15, least: 16 }));
    assert_eq!(terms(credits()), Ok((100, 50)));
    assert_eq!(terms(window(1000, S)), Ok((500, 0)));
    let least = Nanos::new(500 * MS);
    assert_eq!(terms(window(9, 499 * MS)), Err(NoLease::Window { found: Nanos::new(499 * MS), least }));
    assert_eq!(terms(counter(9, 2 * S, 4, Mode::Strict)), Ok((4, 0)));
    let found = Nanos::new(400 * MS);
    assert_eq!(terms(counter(9, 2 * S, 5, Mode::Strict)), Err(NoLease::Window { found, least }));
    let counting = FixedWindow::new(9, Duration::from_secs(9), Align::Epoch).unwrap().counting_denied();
    assert_eq!(terms(counting.into()), Err(NoLease::CountsDenied));
    let log = SlidingLog::new(9, Duration::from_secs(1)).unwrap();
    assert_eq!(terms(log.into()), Err(NoLease::Algorithm(AlgorithmKind::SlidingLog)));
    assert_eq!(
        terms(LeakyBucket::new(rate, 100).unwrap().into()),
        Err(NoLease::Algorithm(AlgorithmKind::LeakyBucket))
    );
    assert_eq!(
        terms(Concurrency::new(100, None).unwrap().into()),
        Err(NoLease::Algorithm(AlgorithmKind::Concurrency))
    );
    let waits = MaxWait::new(TokenBucket::new(rate, 100).unwrap(), Duration::from_secs(1), 10).unwrap();
    assert_eq!(terms(waits.into()), Err(NoLease::MaxWait));
}

mod simulation;

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
        let result = simulation::simulate(rule, rate, &demands, 30);
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
    let result = simulation::simulate(bucket(1000, 1000), 1000, &demands, 30);
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
        let result = simulation::simulate(rule, 1_000_000, &[demand; 4], 60);
        let most = 1000 * (windows + 1); // the last window has just begun
        assert!(result.admitted * 100 >= 1000 * windows * 99 && result.admitted <= most, "{result:?}");
        assert!(result.decided >= per_call * result.calls, "{result:?}");
    }
}

fn lease() -> (Rule, Lease) {
    let rule = bucket(1000, 1000);
    (rule, Lease::new(rule.lease_terms(Nanos::new(100 * MS)).unwrap()))
}

/// A lease whose node has had many requests, all of them at `now`.
fn busy(lease: &mut Lease, now: u64) {
    for _ in 0..200 {
        let _ = lease.take(1, at(now));
    }
}

fn next_draw(lease: &mut Lease, now: u64) -> (DrawId, Draw) {
    match lease.next_step(at(now)) {
        Some(Step::Draw { id, draw }) => (id, draw),
        step => panic!("{step:?} is no draw"),
    }
}

fn granted(units: u64, start_ms: u64) -> Grant {
    let mark = Mark::Bucket(crate::Tat::default());
    Grant { units, start: Nanos::new(start_ms * MS), end: None, retry: None, mark }
}

#[test]
fn rare_requests_are_decided_by_the_store() {
    let (_, mut lease) = lease();
    for second in 0..100 {
        assert_eq!(lease.take(1, at(second * S)), Take::Exact);
        assert_eq!(lease.next_step(at(second * S)), None);
    }
}

#[test]
fn a_grant_is_spent_from_its_start_until_its_life_ends() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert_eq!(lease.next_step(at(0)), None); // one draw at a time
    assert!(lease.granted(id, &granted(50, 80), at(7), at(2 * MS)));
    // From the receipt and the start on: late, never early.
    assert_eq!(lease.take(1, at(81 * MS)), Take::Denied(Nanos::new(MS)));
    assert!(matches!(lease.take(1, at(82 * MS)), Take::Taken(_)));
    // Until the life ends, counted from when the draw was sent: early, never late.
    let mut other = lease.clone();
    assert!(matches!(lease.take(1, at(580 * MS - 1)), Take::Taken(_)));
    assert!(!matches!(other.take(1, at(580 * MS)), Take::Taken(_)));
}

#[test]
fn an_answer_counts_once_and_not_after_its_life() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.granted(id, &granted(50, 0), at(0), at(MS)));
    assert!(!lease.granted(id, &granted(50, 0), at(0), at(MS)));
    assert_eq!(lease.units(), 50);
    let (_, mut lease) = self::lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(!lease.granted(id, &granted(50, 0), at(0), at(500 * MS)));
    assert_eq!(lease.units(), 0);
}

#[test]
fn an_answer_that_was_given_up_still_counts_while_it_lives() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    lease.lost(id);
    let (second, _) = {
        busy(&mut lease, MS);
        next_draw(&mut lease, MS)
    };
    assert!(lease.granted(id, &granted(50, 0), at(0), at(2 * MS)));
    assert!(lease.granted(second, &granted(30, 0), at(0), at(3 * MS)));
    assert_eq!(lease.units(), 80);
}

#[test]
fn units_go_back_into_the_grant_they_came_from() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.granted(id, &granted(50, 0), at(0), at(MS)));
    let Take::Taken(grant) = lease.take(20, at(MS)) else { panic!("not taken") };
    assert_eq!((lease.put_back(grant, 15), lease.units()), (15, 45));
    assert_eq!((lease.put_back(grant, 15), lease.units()), (5, 50)); // no more than it had
    let Take::Taken(grant) = lease.take(20, at(MS)) else { panic!("not taken") };
    lease.change_terms(bucket(10, 100).lease_terms(Nanos::new(100 * MS)).unwrap());
    assert_eq!((lease.put_back(grant, 20), lease.units()), (0, 0)); // the grant is gone
}

#[test]
fn grants_and_answers_of_other_numbers_are_dropped() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    lease.change_terms(bucket(10, 100).lease_terms(Nanos::new(100 * MS)).unwrap());
    assert!(!lease.granted(id, &granted(50, 0), at(0), at(MS)));
    assert_eq!(lease.units(), 0);
}

/// LE-4 and LE-6.
#[test]
fn another_primary_gets_the_mark_once_and_no_returns() {
    let (rule, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, draw) = next_draw(&mut lease, 0);
    assert_eq!(draw.mark, None);
    let grant = rule.grant(&mut State::default(), &draw, at(0));
    assert!(lease.granted(id, &grant, at(0), at(MS)));
    lease.change_primary();
    busy(&mut lease, 2 * MS);
    while matches!(lease.take(1, at(2 * MS)), Take::Taken(_)) {}
    let (id, draw) = next_draw(&mut lease, 2 * MS);
    assert_eq!(draw.mark, Some(grant.mark));
    assert!(lease.granted(id, &granted(9, 0), at(0), at(3 * MS)));
    while matches!(lease.take(1, at(3 * MS)), Take::Taken(_)) {}
    let (id, draw) = next_draw(&mut lease, 3 * MS);
    assert_eq!(draw.mark, None);
    lease.change_primary();
    assert!(!lease.granted(id, &granted(9, 0), at(0), at(4 * MS))); // of the old primary
    lease.close();
    assert_eq!(lease.next_step(at(5 * MS)), None);
}

#[test]
fn units_of_another_primary_are_spent_but_not_returned() {
    for is_dated in [false, true] {
        let (_, mut lease) = lease();
        busy(&mut lease, 0);
        let (id, _) = next_draw(&mut lease, 0);
        assert!(lease.granted(id, &granted(50, 80 * u64::from(is_dated)), at(0), at(MS)));
        lease.change_primary();
        assert!(matches!(lease.take(1, at(81 * MS)), Take::Taken(_)));
        let mut closed = lease.clone();
        closed.close();
        assert_eq!((closed.next_step(at(82 * MS)), closed.units()), (None, 0));
        assert!(!matches!(lease.next_step(at(499 * MS)), Some(Step::Return { .. })));
    }
}

#[test]
fn a_closed_lease_returns_what_is_left_once() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.granted(id, &granted(50, 0), at(77), at(MS)));
    let _ = lease.take(20, at(MS));
    lease.close();
    assert_eq!(lease.next_step(at(MS)), Some(Step::Return { units: 30, charged: at(77) }));
    assert_eq!((lease.next_step(at(MS)), lease.units()), (None, 0));
    assert_eq!(lease.take(1, at(MS)), Take::Exact);
}

#[test]
fn dated_units_that_nobody_needs_are_returned_before_their_life_ends() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.granted(id, &granted(50, 80), at(77), at(MS)));
    assert!(!matches!(lease.clone().next_step(at(497 * MS)), Some(Step::Return { .. })));
    let step = lease.next_step(at(498 * MS)); // two round trips before the life ends
    assert_eq!(step, Some(Step::Return { units: 50, charged: at(77) }));
}

#[test]
fn a_store_that_has_nothing_is_not_asked_again_before_it_has() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    let nothing = Grant { retry: Some(Retry::After(Nanos::new(40 * MS))), ..granted(0, 0) };
    assert!(!lease.granted(id, &nothing, at(0), at(MS)));
    assert_eq!(lease.take(1, at(11 * MS)), Take::Denied(Nanos::new(30 * MS)));
    assert_eq!(lease.next_step(at(11 * MS)), None);
    assert_eq!(lease.take(1, at(41 * MS)), Take::Wait);
    assert_eq!(next_draw(&mut lease, 41 * MS).1.cost, 1);
}

#[test]
fn units_that_were_owed_are_charged_by_one_answered_draw() {
    let (_, mut lease) = lease();
    lease.owe(30);
    busy(&mut lease, 0);
    let (id, draw) = next_draw(&mut lease, 0);
    lease.lost(id);
    busy(&mut lease, MS);
    let (id, again) = next_draw(&mut lease, MS);
    assert_eq!((draw.owed, again.owed), (30, 30)); // the first may not have reached the store
    assert!(lease.granted(id, &granted(1, 0), at(0), at(2 * MS)));
    busy(&mut lease, 2 * MS);
    assert_eq!(next_draw(&mut lease, 2 * MS).1.owed, 0);
}

/// Otherwise such a request would wait for a draw that is never sent.
#[test]
fn a_cost_that_no_grant_can_serve_is_decided_by_the_store() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.granted(id, &granted(10, 50), at(0), at(MS)));
    assert_eq!(lease.take(1, at(2 * MS)), Take::Denied(Nanos::new(49 * MS)));
    assert_eq!(lease.take(11, at(2 * MS)), Take::Exact);
    // The other units can be spent, and leave a place for a draw of this cost.
    assert_eq!(lease.take(11, at(51 * MS)), Take::Wait);
    assert_eq!(next_draw(&mut lease, 51 * MS).1.cost, 11);
}

/// Whatever happens to draws and answers, a request that waits has a draw in flight or a draw to send.
#[test]
fn random_histories_leave_no_request_waiting_and_spend_only_what_was_charged() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let rule = *random.pick(&[bucket(1000, 1000), bucket(100, 16), window(100, S), credits()]);
        let terms = rule.lease_terms(Nanos::new(100 * MS)).unwrap();
        let (mut lease, mut store, mut now) = (Lease::new(terms), State::default(), 0);
        let (mut granted_units, mut spent, mut taken) = (0_u64, 0_u64, Vec::new());
        let mut on_the_way: Vec<(DrawId, Grant, Timestamp)> = Vec::new();
        for _ in 0..300 {
            now += random.log_uniform(1, 20 * MS);
            match random.below(12) {
                0..6 => {
                    let cost = if random.chance(1, 8) { 1 + random.below(40) } else { 1 };
                    match lease.take(cost, at(now)) {
                        Take::Taken(grant) => {
                            spent += cost;
                            taken.push((grant, cost));
                        }
                        Take::Wait => {
                            while let Some(step) = lease.next_step(at(now)) {
                                let Step::Draw { id, draw } = step else { continue };
                                assert!(draw.cost >= cost, "seed {seed}: {draw:?}");
                                on_the_way.push((id, rule.grant(&mut store, &draw, at(now)), at(now)));
                            }
                            assert!(lease.has_draw_in_flight(), "seed {seed}: nobody answers this request");
                        }
                        Take::Denied(_) | Take::Exact => {}
                    }
                }
                6 | 7 if !on_the_way.is_empty() => {
                    let place = random.below(on_the_way.len() as u64) as usize;
                    let (id, grant, charged) = on_the_way[place];
                    if random.chance(3, 4) {
                        on_the_way.swap_remove(place); // otherwise it arrives a second time
                    }
                    if lease.granted(id, &grant, charged, at(now)) {
                        granted_units += grant.units;
                    }
                }
                8 if !on_the_way.is_empty() => lease.lost(random.pick(&on_the_way).0),
                9 if !taken.is_empty() => {
                    let place = random.below(taken.len() as u64) as usize;
                    let (grant, cost) = taken.swap_remove(place);
                    spent -= lease.put_back(grant, cost);
                }
                10 if random.chance(1, 20) => lease.change_primary(),
                _ => {
                    if let Some(Step::Draw { id, draw }) = lease.next_step(at(now)) {
                        on_the_way.push((id, rule.grant(&mut store, &draw, at(now)), at(now)));
                    }
                }
            }
            assert!(spent + lease.units() <= granted_units, "seed {seed}: {spent} of {granted_units}");
            assert!(lease.units() <= terms.most_held().max(40 * 2), "seed {seed}: {} units", lease.units());
        }
    }
}
