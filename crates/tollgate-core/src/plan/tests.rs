#![allow(clippy::unwrap_used)]

use super::*;
use crate::table::*;
use crate::{Concurrency, FixedWindow, Nanos, PermitId, Retry, Rule, State, TokenBucket};

/// Rules side by side, each with a state of its own and a cost.
type Limits = Vec<(Rule, State, u64)>;

fn fresh<const N: usize>(rules: [Rule; N]) -> Limits {
    rules.map(|rule| (rule, State::default(), 1)).into()
}

fn decide(limits: &mut Limits, now: u64) -> (Verdict, Vec<Decision>) {
    let mut decisions = vec![Decision::default(); limits.len()];
    let permit = PermitId(0);
    let mut plan: Vec<Charge<'_>> =
        limits.iter_mut().map(|(rule, state, cost)| Charge { rule, state, cost: *cost, permit }).collect();
    (decide_all(&mut plan[..], at(now), &mut decisions), decisions)
}

fn bucket(rate: u64, burst: u64) -> Rule {
    Rule::TokenBucket(TokenBucket::new(per_second(rate), burst).unwrap())
}

#[test]
fn ml_1_a_denial_charges_nobody() {
    let mut limits = fresh([bucket(1, 1), bucket(10, 10)]);
    let (verdict, _) = decide(&mut limits, 0);
    assert_eq!((verdict.outcome, verdict.remaining, verdict.reported), (ALLOW, Some(0), Some(0)));
    for _ in 0..4 {
        let before = limits.clone();
        let (verdict, decisions) = decide(&mut limits, 0);
        assert_eq!((verdict.outcome, verdict.remaining, verdict.reported), (deny(S), Some(0), Some(0)));
        assert_eq!(decisions[1].status.remaining, 9);
        assert!(decisions[1].is_allowed());
        assert_eq!(limits, before);
    }
}

#[test]
fn ml_2_the_longest_wait_is_the_answer() {
    let window = |window| FixedWindow::new(1, span(window), crate::Align::First).unwrap();
    let mut limits = fresh([200 * MS, 3 * S, S].map(|wait| Rule::FixedWindow(window(wait))));
    assert!(decide(&mut limits, 0).0.is_allowed());
    let (verdict, decisions) = decide(&mut limits, 0);
    assert_eq!((verdict.outcome, verdict.reported), (deny(3 * S), Some(1)));
    assert_eq!(
        decisions.iter().map(|d| d.outcome).collect::<Vec<_>>(),
        [deny(200 * MS), deny(3 * S), deny(S)]
    );
}

#[test]
fn ml_3_never_outweighs_all() {
    let mut limits = fresh([bucket(1, 10), bucket(1, 2), bucket(1, 10)]);
    for limit in &mut limits {
        limit.2 = 3;
    }
    let (verdict, decisions) = decide(&mut limits, 0);
    assert_eq!((verdict.outcome, verdict.reported), (NEVER, Some(1)));
    assert_eq!(decisions.iter().map(|d| d.status.remaining).collect::<Vec<_>>(), [10, 2, 10]);
    assert!(limits.iter().all(|(_, state, _)| *state == State::Unused));
}

#[test]
fn unknown_outweighs_a_known_wait_and_never_outweighs_unknown() {
    let slots = Rule::Concurrency(Concurrency::new(1, None).unwrap());
    let mut limits = fresh([bucket(1, 1), slots]);
    assert!(decide(&mut limits, 0).0.is_allowed());
    let (verdict, _) = decide(&mut limits, 0);
    assert_eq!((verdict.outcome, verdict.reported), (Outcome::Deny { retry: Retry::Unknown }, Some(1)));
    limits[0].2 = 2;
    let (verdict, _) = decide(&mut limits, 0);
    assert_eq!((verdict.outcome, verdict.reported), (NEVER, Some(0)));
}

#[test]
fn the_reported_limit_is_the_tightest() {
    // (remaining, reset in s) of each limit when all allow
    for (statuses, reported) in
        [(vec![(5, 1), (3, 1), (4, 9)], 1), (vec![(3, 1), (3, 2), (3, 2)], 1), (vec![(3, 1), (3, 1)], 0)]
    {
        let decisions: Vec<_> = statuses
            .iter()
            .map(|&(remaining, reset)| Decision {
                outcome: ALLOW,
                status: Status { remaining, reset_after: Nanos::new(reset * S) },
            })
            .collect();
        let verdict = Verdict::of(decisions.into_iter().map(|decision| (Group::All, decision)));
        assert_eq!(verdict.reported, Some(reported), "{statuses:?}");
    }
}

#[test]
fn the_least_that_remains_is_what_still_passes_the_plan() {
    let queue = crate::LeakyBucket::new(per_second(10), 9).unwrap();
    let mut limits = fresh([bucket(1, 5), crate::MaxWait::new(queue, span(S), 1).unwrap().into()]);
    for (outcome, remaining) in [(ALLOW, 1), (allow_after(100 * MS), 0), (deny(100 * MS), 0)] {
        let (verdict, _) = decide(&mut limits, 0);
        assert_eq!(
            (verdict.outcome, verdict.remaining, verdict.reported),
            (outcome, Some(remaining), Some(1))
        );
    }
}

#[test]
fn a_plan_of_no_limits_allows() {
    let (verdict, _) = decide(&mut fresh([]), 0);
    assert_eq!(verdict, Verdict { outcome: ALLOW, remaining: None, reported: None });
}

#[test]
fn the_delay_is_the_longest() {
    let queue = |rate| Rule::LeakyBucket(crate::LeakyBucket::new(per_second(rate), 10).unwrap());
    let mut limits = fresh([queue(10), queue(2), queue(5)]);
    assert_eq!(decide(&mut limits, 0).0.outcome, ALLOW);
    assert_eq!(decide(&mut limits, 0).0.outcome, allow_after(500 * MS));
}

/// Limits with an action and a group each.
struct Asks<'a>(Vec<Charge<'a>>, &'a [(Action, Group)]);

impl Plan for Asks<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn test(&self, i: usize, now: Timestamp) -> Outcome {
        match self.action(i) {
            Action::Refund => ALLOW,
            _ => self.0.as_slice().test(i, now),
        }
    }

    fn spend(&mut self, i: usize, now: Timestamp) {
        let Charge { rule, state, cost, .. } = &mut self.0[i];
        match self.1[i].0 {
            Action::Refund => _ = rule.refund(state, *cost, now, now),
            Action::ChargeInFull => rule.spend_in_full(state, *cost, now),
            Action::Charge | Action::Hold | Action::Peek => self.0.as_mut_slice().spend(i, now),
        }
    }

    fn status(&self, i: usize, now: Timestamp) -> Status {
        self.0.as_slice().status(i, now)
    }

    fn counts_denied(&self, i: usize) -> bool {
        self.0.as_slice().counts_denied(i)
    }

    fn action(&self, i: usize) -> Action {
        self.1[i].0
    }

    fn group(&self, i: usize) -> Group {
        self.1[i].1
    }
}

fn decide_asks(limits: &mut Limits, asks: &[(Action, Group)]) -> (Verdict, Vec<u64>) {
    let mut decisions = vec![Decision::default(); limits.len()];
    let permit = PermitId(0);
    let charges =
        limits.iter_mut().map(|(rule, state, cost)| Charge { rule, state, cost: *cost, permit }).collect();
    let verdict = decide_all(&mut Asks(charges, asks), at(0), &mut decisions);
    (verdict, decisions.iter().map(|decision| decision.status.remaining).collect())
}

fn decide_one_of(limits: &mut Limits, one_of: &[bool]) -> (Verdict, Vec<u64>) {
    let group = |is_one_of: &bool| if *is_one_of { Group::AnyOf } else { Group::All };
    let asks: Vec<_> = one_of.iter().map(|is_one_of| (Action::Charge, group(is_one_of))).collect();
    decide_asks(limits, &asks)
}

#[test]
fn an_independent_limit_has_no_say_and_is_charged_by_itself() {
    let asks = [(Action::Charge, Group::All), (Action::Charge, Group::Independent)];
    let mut limits = fresh([bucket(1, 2), bucket(1, 1)]);
    let verdicts: Vec<_> = (0..3).map(|_| decide_asks(&mut limits, &asks)).collect();
    let told: Vec<_> =
        verdicts.iter().map(|(verdict, left)| (verdict.outcome, verdict.reported, left)).collect();
    let expected =
        [(ALLOW, Some(0), vec![1, 0]), (ALLOW, Some(0), vec![0, 0]), (deny(S), Some(0), vec![0, 0])];
    assert_eq!(told, expected.each_ref().map(|(outcome, reported, left)| (*outcome, *reported, left)));
    // The live limit denies, and the independent one counts by itself.
    let mut limits = fresh([bucket(1, 1), bucket(1, 9)]);
    let left: Vec<_> = (0..3).map(|_| decide_asks(&mut limits, &asks).1).collect();
    assert_eq!(left, [[0, 8], [0, 7], [0, 6]]);
}

#[test]
fn a_request_with_independent_limits_only_passes() {
    let mut limits = fresh([bucket(1, 1)]);
    for remaining in [0, 0] {
        let (verdict, left) = decide_asks(&mut limits, &[(Action::Charge, Group::Independent)]);
        assert_eq!((verdict.outcome, verdict.remaining, verdict.reported), (ALLOW, None, None));
        assert_eq!(left, [remaining]);
    }
}

/// A second limit denies the request or allows it. What remains of ten after two were charged, and the action with cost 1.
#[test]
fn actions_are_done_as_the_request_passes_or_not() {
    for (action, group, if_allowed, if_denied) in [
        (Action::Charge, Group::All, 7, 8),
        (Action::Charge, Group::AnyOf, 7, 8),
        (Action::Charge, Group::Independent, 7, 7),
        (Action::ChargeInFull, Group::All, 7, 7),
        (Action::ChargeInFull, Group::Independent, 7, 7),
        (Action::Hold, Group::All, 7, 8),
        (Action::Hold, Group::Independent, 7, 8),
        (Action::Refund, Group::All, 9, 8),
        (Action::Refund, Group::Independent, 9, 8),
        (Action::Peek, Group::All, 8, 8),
        (Action::Peek, Group::Independent, 8, 8),
    ] {
        for (burst, remaining) in [(2, if_allowed), (1, if_denied)] {
            let mut limits = fresh([bucket(1, 10), bucket(1, burst)]);
            let charge = [(Action::Charge, Group::All); 2];
            limits[0].2 = 2;
            let _ = decide_asks(&mut limits, &charge);
            limits[0].2 = 1;
            let (verdict, left) = decide_asks(&mut limits, &[(action, group), (Action::Charge, Group::All)]);
            assert_eq!(verdict.is_allowed(), burst == 2);
            assert_eq!(left[0], remaining, "{action:?} of {group:?}, allowed: {}", burst == 2);
        }
    }
}

#[test]
fn a_peek_that_does_not_fit_denies() {
    let mut limits = fresh([bucket(1, 1), bucket(1, 9)]);
    limits[0].2 = 2;
    let (verdict, left) =
        decide_asks(&mut limits, &[(Action::Peek, Group::All), (Action::Charge, Group::All)]);
    assert_eq!((verdict.outcome, left), (NEVER, vec![1, 9]));
}

#[test]
fn one_of_several_is_enough_and_only_those_that_pass_are_charged() {
    let one_of = [false, true, true];
    let mut limits = fresh([bucket(1, 9), bucket(1, 1), bucket(2, 2)]);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (verdict, remaining) = decide_one_of(&mut limits, &one_of);
        seen.push((verdict.outcome, verdict.reported, remaining));
    }
    let expected = [
        (ALLOW, Some(1), vec![8, 0, 1]),
        (ALLOW, Some(2), vec![7, 0, 0]), // the first of the two is empty, and the other is charged
        (deny(S / 2), Some(2), vec![7, 0, 0]), // both are: the shorter wait is enough
    ];
    assert_eq!(seen, expected);
}

#[test]
fn those_that_must_pass_outweigh_one_of_several() {
    let mut limits = fresh([bucket(1, 1), bucket(9, 9), bucket(1, 1)]);
    let _ = decide_one_of(&mut limits, &[false, true, true]);
    let (verdict, remaining) = decide_one_of(&mut limits, &[false, true, true]);
    assert_eq!((verdict.outcome, verdict.reported), (deny(S), Some(0)));
    assert_eq!(remaining, [0, 8, 0], "nobody is charged");
}

#[test]
fn a_limit_that_counts_denied_requests_counts_those_that_another_denies() {
    let window = FixedWindow::new(10, span(S), crate::Align::Epoch).unwrap();
    let mut limits = fresh([bucket(1, 1), Rule::from(window.counting_denied()), Rule::from(window)]);
    let remaining: Vec<_> = (0..3)
        .map(|_| decide(&mut limits, 0).1.iter().map(|d| d.status.remaining).collect::<Vec<_>>())
        .collect();
    assert_eq!(remaining, [[0, 9, 9], [0, 8, 9], [0, 7, 9]]);
}
