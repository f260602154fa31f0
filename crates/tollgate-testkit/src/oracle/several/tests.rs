use super::Several;
use crate::answer::{Answer, Retry};
use crate::oracle::expected::{MS, S, deny};
use crate::oracle::{FixedWindow, LeakyQueue, TokenBucket};

#[test]
fn ml_1_a_refusal_spends_nothing_at_the_others() {
    let (mut user, mut tenant) = (TokenBucket::new(1, S, 1), TokenBucket::new(10, S, 10));
    let mut ask = || Several::decide(&mut [&mut user, &mut tenant], 0, &[1, 1]);
    assert!(ask().allowed);
    for _ in 0..4 {
        let verdict = ask();
        assert_eq!((verdict.allowed, verdict.retry, verdict.reported), (false, Some(Retry::After(S)), 0));
        assert_eq!(verdict.answers[1].remaining, 9);
        assert!(verdict.answers[1].allowed);
    }
}

#[test]
fn ml_2_the_longest_retry_is_the_answer() {
    let mut limits = [(200 * MS), (3 * S), S].map(|period| TokenBucket::new(1, period, 1));
    let [one, two, three] = &mut limits;
    let mut ask = || Several::decide(&mut [one, two, three], 0, &[1, 1, 1]);
    assert!(ask().allowed);
    let verdict = ask();
    assert_eq!((verdict.retry, verdict.reported), (Some(Retry::After(3 * S)), 1));
}

#[test]
fn ml_3_never_charges_nobody() {
    let (mut small, mut large) = (TokenBucket::new(1, S, 5), TokenBucket::new(1, S, 50));
    let verdict = Several::decide(&mut [&mut large, &mut small], 0, &[6, 6]);
    assert_eq!((verdict.allowed, verdict.retry, verdict.reported), (false, Some(Retry::Never), 1));
    assert_eq!((large.ask(0, 0).remaining, small.ask(0, 0).remaining), (50, 5));
}

#[test]
fn never_goes_before_unknown_and_unknown_before_a_wait() {
    let unknown = Answer::new(Err(Retry::Unknown), 0, 0);
    let never = Answer::new(Err(Retry::Never), 5, 0);
    let verdict = Several::summary(vec![deny(9 * S, 0, 0), unknown]);
    assert_eq!((verdict.retry, verdict.reported), (Some(Retry::Unknown), 1));
    let verdict = Several::summary(vec![never, unknown, deny(9 * S, 0, 0)]);
    assert_eq!((verdict.retry, verdict.reported, verdict.remaining), (Some(Retry::Never), 0, 0));
}

#[test]
fn ties_go_to_the_smallest_remaining_then_the_longest_reset_then_the_first() {
    let reported = |answers: &[Answer]| Several::summary(answers.to_vec()).reported;
    assert_eq!(reported(&[deny(5, 2, 9), deny(5, 1, 5), deny(4, 0, 99)]), 1);
    assert_eq!(reported(&[deny(5, 1, 5), deny(5, 1, 9), deny(5, 1, 9)]), 1);
    let admitted = |remaining, reset| Answer::new(Ok(0), remaining, reset);
    assert_eq!(reported(&[admitted(3, 9), admitted(2, 1), admitted(2, 4), admitted(2, 4)]), 2);
}

#[test]
fn the_largest_delay_is_the_delay() {
    let (mut slow, mut fast) = (LeakyQueue::new(1, S, 5), LeakyQueue::new(10, S, 5));
    let mut window = FixedWindow::aligned(3, S);
    let mut ask = || Several::decide(&mut [&mut fast, &mut slow, &mut window], 0, &[1, 1, 1]);
    assert_eq!([ask().delay, ask().delay, ask().delay], [0, S, 2 * S]);
    assert_eq!((ask().allowed, ask().delay), (false, 0));
}
