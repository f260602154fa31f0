use super::FixedWindow;
use crate::oracle::expected::{MS, S, allow, deny, never, wait};

const NOON: u64 = 12 * 3600 * S;

#[test]
fn fw_1_twice_the_limit_around_the_edge() {
    let mut window = FixedWindow::aligned(10, 60 * S);
    for second in 50..60 {
        assert_eq!(window.ask(NOON + second * S, 1), allow(59 - second, (60 - second) * S));
    }
    assert_eq!(window.ask(NOON + 59_500 * MS, 1), deny(500 * MS, 0, 500 * MS));
    for second in 60..70 {
        assert!(window.ask(NOON + second * S, 1).allowed);
    }
    assert_eq!(wait(window.ask(NOON + 69 * S, 1)), 51 * S);
}

#[test]
fn fw_2_double_within_two_seconds() {
    let mut window = FixedWindow::aligned(99, 60 * S);
    let admitted = |window: &mut FixedWindow, now| (0..200).filter(|_| window.ask(now, 1).allowed).count();
    assert_eq!(admitted(&mut window, NOON + 59 * S), 99);
    assert_eq!(admitted(&mut window, NOON + 60 * S), 99);
}

#[test]
fn fw_3_costs_and_denial() {
    let mut window = FixedWindow::aligned(10, 60 * S);
    assert_eq!(window.ask(0, 8), allow(2, 60 * S));
    assert_eq!(window.ask(0, 3), deny(60 * S, 2, 60 * S));
    assert_eq!(window.ask(0, 2), allow(0, 60 * S));
    assert_eq!(window.ask(0, 11), never(0, 60 * S));
}

#[test]
fn fw_4_denials_are_not_counted() {
    let mut window = FixedWindow::aligned(3, 60 * S);
    assert!(window.ask(0, 3).allowed);
    for _ in 0..7 {
        assert_eq!(window.ask(0, 1), deny(60 * S, 0, 60 * S));
    }
    assert_eq!(window.ask(60 * S, 0), allow(3, 0));
}

#[test]
fn fw_5_clock_back_into_the_previous_window() {
    let mut window = FixedWindow::aligned(3, 60 * S);
    assert!(window.ask(6060 * S, 2).allowed);
    assert_eq!(window.ask(6059 * S, 1), allow(0, 61 * S));
    assert_eq!(window.ask(6059 * S, 1), deny(61 * S, 0, 61 * S));
    assert_eq!(window.ask(6119 * S, 1), deny(S, 0, S));
}

#[test]
fn a_peek_opens_no_window() {
    let mut aligned = FixedWindow::aligned(3, 60 * S);
    assert_eq!(aligned.ask(90 * S, 0), allow(3, 0));
    assert_eq!(aligned.ask(30 * S, 1), allow(2, 30 * S));
    let mut anchored = FixedWindow::anchored(3, 60 * S);
    assert_eq!(anchored.ask(90 * S, 0), allow(3, 0));
    assert_eq!(anchored.ask(30 * S, 1), allow(2, 60 * S));
}

#[test]
fn an_anchored_window_opens_with_its_first_request() {
    let mut window = FixedWindow::anchored(2, 60 * S);
    assert_eq!(window.ask(7 * S, 1), allow(1, 60 * S));
    assert_eq!(window.ask(50 * S, 1), allow(0, 17 * S));
    assert_eq!(window.ask(50 * S, 1), deny(17 * S, 0, 17 * S));
    assert_eq!(window.ask(5 * S, 1), deny(62 * S, 0, 62 * S));
    assert_eq!(wait(window.ask(67 * S - 1, 1)), 1);
    assert_eq!(window.ask(100 * S, 1), allow(1, 60 * S));
}

#[test]
fn a_refund_is_for_a_charge_of_the_open_window() {
    let mut window = FixedWindow::aligned(10, 60 * S);
    assert_eq!(window.ask(59 * S, 4), allow(6, S));
    assert_eq!(window.refund(60 * S, 4, 59 * S), 0);
    assert_eq!(window.ask(60 * S, 7), allow(3, 60 * S));
    assert_eq!(window.refund(61 * S, 4, 60 * S - 1), 0);
    assert_eq!(window.refund(61 * S, 4, 120 * S), 0);
    assert_eq!(window.refund(61 * S, 4, 60 * S), 4);
    assert_eq!(window.ask(61 * S, 0), allow(7, 59 * S));
    assert_eq!(window.refund(119 * S, 5, 119 * S), 3);
    assert_eq!(window.ask(119 * S, 0), allow(10, 0));
}

#[test]
fn an_anchored_window_with_nothing_left_in_it_opens_anew() {
    let mut window = FixedWindow::anchored(2, 60 * S);
    assert_eq!(window.ask(7 * S, 1), allow(1, 60 * S));
    assert_eq!(window.refund(8 * S, 1, 7 * S), 1);
    assert_eq!(window.ask(50 * S, 1), allow(1, 60 * S));
}
