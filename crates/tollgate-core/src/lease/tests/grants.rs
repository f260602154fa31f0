//! What the store gives.

use super::*;

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

/// The contract as it is written, for an interval of `t` nanoseconds. Returns the units and the start.
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
    // g = R * (H - D) * w / (w + R * H), with R = 1 / t: `R * H` and `-R * D` in whole units, rounded down.
    let kept = h / t;
    let (numerator, denominator) = ((kept + free).max(0) * w, w + kept);
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

/// LE-2w: a window gives no more than its limit, and a grant ends with the window in which it was charged.
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
