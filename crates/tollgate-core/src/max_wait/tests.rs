#![allow(clippy::unwrap_used)]

use super::*;
use crate::table::*;
use crate::{LeakyBucket, Rate, TokenBucket};

#[test]
fn a_request_waits_for_a_token_that_comes_in_time() {
    let bucket = TokenBucket::new(per_second(10), 2).unwrap();
    let rule = MaxWait::new(bucket, span(250 * MS), 100).unwrap();
    replay(
        &rule,
        &[
            (0, 2, ALLOW, 0, 200 * MS),
            (0, 1, allow_after(100 * MS), 0, 300 * MS),
            (0, 1, allow_after(200 * MS), 0, 400 * MS),
            (0, 1, deny(50 * MS), 0, 400 * MS),
            (0, 3, NEVER, 0, ANY),
            (0, 0, ALLOW, 0, ANY),
            (50 * MS, 1, allow_after(250 * MS), 0, 450 * MS),
            (500 * MS, 1, ALLOW, 1, 100 * MS),
        ],
    );
}

#[test]
fn no_more_wait_than_may_whatever_they_cost() {
    let bucket = TokenBucket::new(per_second(10), 10).unwrap();
    let rule = MaxWait::new(bucket, span(10 * S), 2).unwrap();
    let mut state = replay(
        &rule,
        &[
            (0, 10, ALLOW, 0, S),
            (0, 5, allow_after(500 * MS), 0, 1500 * MS),
            (0, 1, allow_after(600 * MS), 0, 1600 * MS),
            (0, 1, deny(500 * MS), 0, ANY),
            (499_999_999, 1, deny(1), 0, ANY),
            (500 * MS, 1, allow_after(200 * MS), 0, ANY),
            (500 * MS, 1, deny(100 * MS), 0, ANY),
            // A clock that steps back finds them waiting again.
            (400 * MS, 1, deny(200 * MS), 0, ANY),
        ],
    );
    // Once nobody waits, a token is there.
    replay_on(&rule, &mut state, &[(800 * MS, 1, ALLOW, 0, ANY)]);
}

#[test]
fn a_leaky_bucket_refuses_what_would_wait_too_long() {
    let bucket = LeakyBucket::new(per_second(1), 50).unwrap();
    let rule = MaxWait::new(bucket, span(10 * S), 100).unwrap();
    let mut state = Waiting::default();
    for i in 0..=10 {
        replay_on(&rule, &mut state, &[(0, 1, allow_after(i * S), 10 - i, ANY)]);
    }
    replay_on(&rule, &mut state, &[(0, 1, deny(S), 0, 11 * S)]);

    let crowded = MaxWait::new(bucket, span(10 * S), 3).unwrap();
    let rows =
        [(0, 1, ALLOW, ANY, ANY), (0, 1, allow_after(S), ANY, ANY), (0, 1, allow_after(2 * S), ANY, ANY)];
    let mut state = replay(&crowded, &rows);
    replay_on(&crowded, &mut state, &[(0, 1, allow_after(3 * S), ANY, ANY), (0, 1, deny(S), ANY, ANY)]);
}

#[test]
fn what_remains_of_a_queue_is_what_still_passes() {
    let queue = LeakyBucket::new(per_second(10), 9).unwrap();
    // (max_wait, max_waiting, what remains of a new key); a turn each 100 ms
    for (max_wait, max_waiting, remaining) in [
        (S, 1, 2),
        (S, 5, 6),
        (S, 100, 9),
        (250 * MS, 100, 3),
        (200 * MS, 100, 3),
        (200 * MS - 1, 100, 2),
        (1, 100, 1),
    ] {
        let rule = MaxWait::new(queue, span(max_wait), max_waiting).unwrap();
        let mut state = Waiting::default();
        for left in (0..remaining).rev() {
            let delay = 100 * MS * (remaining - 1 - left);
            replay_on(&rule, &mut state, &[(0, 1, allow_after(delay), left, ANY)]);
        }
        assert!(!rule.test(&state, 1, at(0)).is_allowed(), "{rule:?}");
    }
}

#[test]
fn one_request_waits_in_one_place_whatever_it_costs() {
    let queue = LeakyBucket::new(per_second(10), 9).unwrap();
    let rows = [
        (0, 4, ALLOW, 2, 400 * MS),
        (0, 3, allow_after(400 * MS), 1, 700 * MS),
        (0, 1, allow_after(700 * MS), 0, 800 * MS),
        (400 * MS, 0, ALLOW, 1, ANY), // the first has its turn
        (700 * MS, 0, ALLOW, 2, ANY),
        (800 * MS, 0, ALLOW, 3, 0),   // the next goes at once
        (300 * MS, 0, ALLOW, 0, ANY), // a clock that steps back finds two waiting again
    ];
    replay(&MaxWait::new(queue, span(S), 2).unwrap(), &rows);
}

#[test]
fn no_tokens_remain_while_anybody_waits() {
    let bucket = TokenBucket::new(Rate::new(3, span(S)).unwrap(), 5).unwrap();
    let rule = MaxWait::new(bucket, span(S), 2).unwrap();
    let rows = [
        (0, 4, ALLOW, 1, ANY), // though three would pass, two of them to wait
        (0, 2, allow_after(333_333_334), 0, ANY),
        (0, 1, allow_after(666_666_667), 0, ANY),
        (0, 1, deny(333_333_334), 0, ANY),
        (666_666_666, 0, ALLOW, 0, ANY),
        (666_666_667, 0, ALLOW, 0, ANY), // nobody waits, and a token is on its way
        (S, 0, ALLOW, 1, ANY),
        (500 * MS, 0, ALLOW, 0, ANY),
    ];
    replay(&rule, &rows);
}

#[test]
fn a_caller_may_be_less_patient() {
    let bucket = TokenBucket::new(per_second(10), 1).unwrap();
    let rule = MaxWait::new(bucket, span(S), 100).unwrap();
    let state = replay(&rule, &[(0, 1, ALLOW, 0, ANY)]);
    assert_eq!(rule.test_within(&state, 1, at(0), Nanos::new(99 * MS)), deny(MS));
    assert_eq!(rule.test_within(&state, 1, at(0), Nanos::new(100 * MS)), allow_after(100 * MS));
    assert_eq!(rule.test_within(&state, 1, at(0), Nanos::new(u64::MAX)), allow_after(100 * MS));
}

#[test]
fn nonsense_is_refused() {
    let bucket = TokenBucket::new(per_second(10), 1).unwrap();
    assert_eq!(MaxWait::new(bucket, Duration::ZERO, 1), Err(RuleError::ZeroSpan { what: "max_wait" }));
    assert_eq!(MaxWait::new(bucket, span(1), 0), Err(RuleError::ZeroWaiting));
    assert!(matches!(MaxWait::new(bucket, Duration::MAX, 1), Err(RuleError::TooLong { .. })));
}

#[test]
fn those_who_wait_keep_their_time_when_numbers_change() {
    let slow = MaxWait::new(TokenBucket::new(per_second(10), 1).unwrap(), span(S), 100).unwrap();
    let mut state = Waiting::default();
    for i in 0..=4 {
        replay_on(&slow, &mut state, &[(0, 1, allow_after(i * 100 * MS), 0, ANY)]);
    }
    // Four still wait, which is more than may from now on; whoever is next leaves after the last of them.
    let fast = MaxWait::new(TokenBucket::new(per_second(100), 1).unwrap(), span(S), 2).unwrap();
    fast.convert(&slow, &mut state, at(0));
    assert_eq!(state.releases.len(), 2);
    replay_on(&fast, &mut state, &[(0, 1, deny(300 * MS), 0, ANY)]);
    replay_on(&fast, &mut state, &[(300 * MS, 1, allow_after(110 * MS), 0, ANY)]);
}

#[test]
fn numbers_changed_there_and_back_owe_no_more() {
    let rule = |rate| MaxWait::new(TokenBucket::new(per_second(rate), 5).unwrap(), span(S), 100).unwrap();
    let (fast, slow) = (rule(100), rule(1));
    let mut state = Waiting::default();
    for i in 0..15 {
        let delay = 10 * MS * u64::saturating_sub(i, 4);
        replay_on(&fast, &mut state, &[(0, 1, allow_after(delay), ANY, ANY)]);
    }
    for _ in 0..5 {
        slow.convert(&fast, &mut state, at(0));
        assert_eq!(slow.status(&state, at(0)).reset_after, span(6 * S)); // as much as the slow one lets wait
        fast.convert(&slow, &mut state, at(0));
        // The next may go 10 ms after the last of those who wait, who leaves at 100 ms.
        replay_on(&fast, &mut state.clone(), &[(0, 1, allow_after(110 * MS), 0, ANY)]);
    }
}

#[test]
fn nobody_waits_for_a_key_that_was_unused_when_numbers_changed() {
    fn check<B: Holds + Copy>(bucket: B) {
        let rule = |max_waiting| MaxWait::new(bucket, span(S), max_waiting).unwrap();
        let mut state = replay(&rule(1), &[(0, 1, ALLOW, ANY, ANY), (0, 1, allow_after(100 * MS), ANY, ANY)]);
        rule(2).convert(&rule(1), &mut state, at(S));
        assert_eq!(state, Waiting::default());
        // Otherwise a clock that steps back would find a place to wait in taken, though nobody is charged.
        rule(1).convert(&rule(2), &mut state, at(S));
        replay_on(&rule(1), &mut state, &[(50 * MS, 1, ALLOW, ANY, ANY)]);
    }
    check(TokenBucket::new(per_second(10), 1).unwrap());
    check(LeakyBucket::new(per_second(10), 9).unwrap());
}

#[test]
fn a_refund_moves_nobody_who_waits() {
    let rule = MaxWait::new(TokenBucket::new(per_second(5), 2).unwrap(), span(400 * MS), 1).unwrap();
    let mut state = replay(&rule, &[(0, 2, ALLOW, 0, 400 * MS), (0, 1, allow_after(200 * MS), 0, 600 * MS)]);
    let before = state.clone();
    assert_eq!(rule.refund(&mut state, 2, at(0), at(200 * MS - 1)), 0);
    assert_eq!(state, before);
    assert_eq!(rule.refund(&mut state, 1, at(0), at(200 * MS)), 1);
    replay_on(&rule, &mut state, &[(200 * MS, 1, ALLOW, 0, 400 * MS)]);
    // Whoever waited has left: a clock that steps back does not find it waiting.
    replay_on(&rule, &mut state, &[(100 * MS, 1, allow_after(300 * MS), 0, 700 * MS)]);
}

#[test]
fn a_refund_of_everything_leaves_an_unused_key() {
    let rule = MaxWait::new(TokenBucket::new(per_second(5), 2).unwrap(), span(400 * MS), 1).unwrap();
    let mut state = replay(&rule, &[(0, 2, ALLOW, 0, ANY), (0, 1, allow_after(200 * MS), 0, ANY)]);
    assert_eq!(rule.refund(&mut state, 2, at(0), at(300 * MS)), 2); // one and a half were missing
    assert_eq!(state, Waiting::default());

    let queue = MaxWait::new(LeakyBucket::new(per_second(5), 2).unwrap(), span(400 * MS), 1).unwrap();
    let mut state = replay(&queue, &[(0, 2, ALLOW, 0, ANY)]);
    assert_eq!(queue.refund(&mut state, 2, at(0), at(0)), 0);
    replay_on(&queue, &mut state, &[(0, 1, deny(200 * MS), 0, 400 * MS)]);
}
