//! What one node does.

use super::*;

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
    Grant { units, start: Nanos::new(start_ms * MS), end: None, retry: None, mark, status: Status::default() }
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
    assert!(lease.accept_grant(id, &granted(50, 80), at(7), at(2 * MS)));
    // From the receipt and the start on: late, never early.
    assert_eq!(lease.take(1, at(81 * MS)), Take::Denied(Nanos::new(MS)));
    assert!(matches!(lease.take(1, at(82 * MS)), Take::Taken(_)));
    // Until the life ends, counted from when the draw was sent: early, never late.
    let mut other = lease.clone();
    assert!(matches!(lease.take(1, at(580 * MS - 1)), Take::Taken(_)));
    assert!(!matches!(other.take(1, at(580 * MS)), Take::Taken(_)));
}

#[test]
fn units_too_few_for_a_grant_are_drawn_for_requests_alone() {
    // A grant has at least 5 units, and the next unit comes after a second.
    let rule = bucket(1, 21);
    let mut lease = Lease::new(rule.lease_terms(Nanos::new(100 * MS)).unwrap());
    let mut store = State::default();
    rule.spend(&mut store, PermitId(0), 19, at(0));
    busy(&mut lease, 0);
    let mut answer = |lease: &mut Lease| {
        let (id, draw) = next_draw(lease, 0);
        let grant = rule.grant(&mut store, &draw, at(0));
        lease.accept_grant(id, &grant, at(0), at(0));
        (draw.cost, grant.units)
    };
    assert_eq!(answer(&mut lease), (1, 1));
    assert!(matches!(lease.take(1, at(0)), Take::Taken(_)));
    assert_eq!(answer(&mut lease), (0, 0), "it draws ahead, and gets nothing");
    assert_eq!(lease.next_step(at(0)), None, "it does not draw ahead again at once");
    assert_eq!(lease.take(1, at(0)), Take::Wait);
    assert_eq!(answer(&mut lease), (1, 1));
    assert!(matches!(lease.take(1, at(0)), Take::Taken(_)));
    assert_eq!(lease.next_step(at(100 * MS - 1)), None);
    let Some(Step::Draw { draw: Draw { cost: 0, .. }, .. }) = lease.next_step(at(100 * MS)) else {
        panic!("it draws ahead again");
    };
}

#[test]
fn a_request_that_came_before_the_answer_spends_units_that_come_at_once() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(50, 0), at(0), at(2 * MS)));
    assert!(matches!(lease.take(1, at(2 * MS - 1)), Take::Taken(_)));
}

#[test]
fn an_answer_counts_once_and_not_after_its_life() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(50, 0), at(0), at(MS)));
    assert!(!lease.accept_grant(id, &granted(50, 0), at(0), at(MS)));
    assert_eq!(lease.units(), 50);
    let (_, mut lease) = self::lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(!lease.accept_grant(id, &granted(50, 0), at(0), at(500 * MS)));
    assert_eq!(lease.units(), 0);
}

#[test]
fn an_answer_that_was_given_up_still_counts_while_it_lives() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    lease.give_up_draw(id);
    let (second, _) = {
        busy(&mut lease, MS);
        next_draw(&mut lease, MS)
    };
    assert!(lease.accept_grant(id, &granted(50, 0), at(0), at(2 * MS)));
    assert!(lease.accept_grant(second, &granted(30, 0), at(0), at(3 * MS)));
    assert_eq!(lease.units(), 80);
}

/// LE-2: a node holds no more than two grants, in hand and on the way.
#[test]
fn a_draw_that_was_given_up_keeps_its_place_while_its_grant_lives() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(1, 0), at(0), at(MS)));
    let (id, _) = next_draw(&mut lease, MS);
    lease.give_up_draw(id);
    assert_eq!(lease.next_step(at(250 * MS)), None, "one grant in hand, and one on the way");
    let mut spent = lease.clone();
    assert!(matches!(spent.take(1, at(250 * MS)), Take::Taken(_)));
    next_draw(&mut spent, 250 * MS);
    let mut unsent = lease.clone();
    assert!(lease.accept_grant(id, &granted(1, 0), at(0), at(251 * MS)));
    assert_eq!(lease.units(), 2);
    // From the end of its life on, the draw cannot be answered.
    busy(&mut unsent, 501 * MS);
    let (id, _) = next_draw(&mut unsent, 501 * MS);
    unsent.cancel_draw(id);
    next_draw(&mut unsent, 501 * MS);
}

#[test]
fn units_go_back_into_the_grant_they_came_from() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(50, 0), at(0), at(MS)));
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
    assert!(!lease.accept_grant(id, &granted(50, 0), at(0), at(MS)));
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
    assert!(lease.accept_grant(id, &grant, at(0), at(MS)));
    lease.change_primary();
    busy(&mut lease, 2 * MS);
    while matches!(lease.take(1, at(2 * MS)), Take::Taken(_)) {}
    let (id, draw) = next_draw(&mut lease, 2 * MS);
    assert_eq!(draw.mark, Some(grant.mark));
    assert!(lease.accept_grant(id, &granted(9, 0), at(0), at(3 * MS)));
    while matches!(lease.take(1, at(3 * MS)), Take::Taken(_)) {}
    let (id, draw) = next_draw(&mut lease, 3 * MS);
    assert_eq!(draw.mark, None);
    lease.change_primary();
    assert!(!lease.accept_grant(id, &granted(9, 0), at(0), at(4 * MS))); // of the old primary
    lease.close();
    assert_eq!(lease.next_step(at(5 * MS)), None);
}

#[test]
fn units_of_another_primary_are_spent_but_not_returned() {
    for is_dated in [false, true] {
        let (_, mut lease) = lease();
        busy(&mut lease, 0);
        let (id, _) = next_draw(&mut lease, 0);
        assert!(lease.accept_grant(id, &granted(50, 80 * u64::from(is_dated)), at(0), at(MS)));
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
    assert!(lease.accept_grant(id, &granted(50, 0), at(77), at(MS)));
    let _ = lease.take(20, at(MS));
    lease.close();
    assert_eq!(lease.next_step(at(MS)), Some(Step::Return { id: GrantId(1), units: 30, charged: at(77) }));
    assert_eq!((lease.next_step(at(MS)), lease.units()), (None, 0));
    assert_eq!(lease.take(1, at(MS)), Take::Exact);
}

#[test]
fn dated_units_that_nobody_needs_are_returned_before_their_life_ends() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(50, 80), at(77), at(MS)));
    // The life of 500 ms begins with the date, 80 ms after the draw.
    assert!(!matches!(lease.clone().next_step(at(577 * MS)), Some(Step::Return { .. })));
    let step = lease.next_step(at(578 * MS)); // two round trips before the life ends
    assert_eq!(step, Some(Step::Return { id: GrantId(1), units: 50, charged: at(77 + 80 * MS) }));
}

#[test]
fn units_with_a_late_date_are_spent_and_not_returned_before() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(50, 900), at(0), at(MS)));
    assert!(!matches!(lease.next_step(at(900 * MS)), Some(Step::Return { .. })));
    assert!(matches!(lease.take(50, at(901 * MS)), Take::Taken(_)));
}

#[test]
fn a_grant_whose_date_comes_after_its_life_promises_no_wait() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(50, 80), at(0), at(510 * MS)), "it comes after half a second");
    assert!(!matches!(lease.take(1, at(510 * MS)), Take::Denied(_)));
    let step = lease.next_step(at(510 * MS));
    assert_eq!(step, Some(Step::Return { id: GrantId(1), units: 50, charged: at(80 * MS) }));
}

#[test]
fn a_store_that_has_nothing_is_not_asked_again_before_it_has() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    let nothing = Grant { retry: Some(Retry::After(Nanos::new(40 * MS))), ..granted(0, 0) };
    assert!(!lease.accept_grant(id, &nothing, at(0), at(MS)));
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
    lease.give_up_draw(id);
    busy(&mut lease, MS);
    let (id, again) = next_draw(&mut lease, MS);
    assert_eq!((draw.owed, again.owed), (30, 30)); // the first may not have reached the store
    assert!(lease.accept_grant(id, &granted(1, 0), at(0), at(2 * MS)));
    busy(&mut lease, 2 * MS);
    assert_eq!(next_draw(&mut lease, 2 * MS).1.owed, 0);
}

/// Otherwise such a request would wait for a draw that is never sent.
#[test]
fn a_cost_that_no_grant_can_serve_is_decided_by_the_store() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(10, 50), at(0), at(MS)));
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
                    if lease.accept_grant(id, &grant, charged, at(now)) {
                        granted_units += grant.units;
                    }
                }
                8 if !on_the_way.is_empty() => lease.give_up_draw(random.pick(&on_the_way).0),
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

#[test]
fn a_single_draw_asks_for_one_cost_and_returns_what_is_put_back() {
    let (_, mut lease) = lease();
    assert_eq!(lease.take(3, at(0)), Take::Exact);
    let Some(Step::Draw { id, draw }) = lease.draw_single(3, at(0)) else { panic!("no draw") };
    assert_eq!((draw.cost, draw.demand), (3, 0));
    assert_eq!(lease.draw_single(3, at(0)), None, "one draw is in flight at most");
    assert!(lease.accept_grant(id, &granted(3, 0), at(77), at(MS)));
    let Take::Taken(grant) = lease.take_again(3, at(MS)) else { panic!("it was drawn for this request") };
    assert_eq!(lease.put_back(grant, 3), 3);
    assert!(!lease.is_idle(at(MS)));
    assert_eq!(lease.next_return(), Some(at(498 * MS)), "two round trips before the life ends");
    assert_eq!(lease.next_step(at(497 * MS)), None);
    let step = lease.next_step(at(498 * MS));
    assert_eq!(step, Some(Step::Return { id: grant, units: 3, charged: at(77) }));
    assert!(lease.is_idle(at(498 * MS)));
}

#[test]
fn single_draws_return_the_smaller_grant_if_there_is_no_place() {
    let (_, mut lease) = lease();
    for (draw, cost) in [(1, 2), (2, 5)] {
        let Some(Step::Draw { id, .. }) = lease.draw_single(cost, at(0)) else { panic!("no draw {draw}") };
        assert!(lease.accept_grant(id, &granted(cost, 0), at(0), at(MS)));
    }
    let returned = lease.draw_single(9, at(MS));
    assert_eq!(returned, Some(Step::Return { id: GrantId(1), units: 2, charged: at(0) }));
    assert!(matches!(lease.draw_single(9, at(MS)), Some(Step::Draw { .. })));
}

#[test]
fn units_that_are_not_spent_in_time_are_counted_once() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(50, 0), at(0), at(MS)));
    assert!(matches!(lease.take(20, at(MS)), Take::Taken(_)));
    assert_eq!((lease.units_now(at(499 * MS)), lease.take_lapsed()), (30, 0));
    assert_eq!(lease.units_now(at(500 * MS)), 0);
    assert!(!matches!(lease.take(1, at(500 * MS)), Take::Taken(_)));
    assert_eq!((lease.take_lapsed(), lease.take_lapsed()), (30, 0));
    let (id, _) = next_draw(&mut lease, 500 * MS);
    assert!(!lease.accept_grant(id, &granted(7, 0), at(0), at(1001 * MS)), "it comes after its life");
    assert_eq!(lease.take_lapsed(), 7);
}

#[test]
fn a_lease_with_demand_draws_at_its_first_request() {
    let terms = *lease().1.terms();
    let mut lease = Lease::with_demand(terms, 5000, at(0));
    assert_eq!(lease.take(1, at(0)), Take::Wait);
    let (_, draw) = next_draw(&mut lease, 0);
    assert_eq!(draw.cost, 1);
    assert!((4800..=5000).contains(&draw.demand), "{}", draw.demand);
}

#[test]
fn a_key_that_nobody_asks_for_is_drawn_no_more() {
    let (_, mut lease) = lease();
    for n in 0..10 {
        let _ = lease.take(500, at(n * MS));
    }
    let (id, _) = next_draw(&mut lease, 10 * MS);
    lease.cancel_draw(id);
    assert!(matches!(lease.clone().next_step(at(900 * MS)), Some(Step::Draw { .. })));
    let mut silent = lease.clone();
    assert_eq!(silent.next_step(at(2 * S)), None);
    assert!(silent.is_idle(at(2 * S)));
    // The next request still knows how much was asked for.
    assert_eq!(lease.take(500, at(2 * S)), Take::Wait);
}

#[test]
fn grants_end_without_a_request() {
    let (_, mut lease) = lease();
    busy(&mut lease, 0);
    let (id, _) = next_draw(&mut lease, 0);
    assert!(lease.accept_grant(id, &granted(50, 0), at(0), at(MS)));
    let _ = lease.next_step(at(600 * MS));
    assert_eq!((lease.units(), lease.take_lapsed()), (0, 50));
}
