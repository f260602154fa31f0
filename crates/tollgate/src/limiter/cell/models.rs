//! Every order in which threads may reach the cell, tried by loom: see `sync.rs`.

use loom::sync::Arc;
use loom::thread;
use tollgate_core::{Rate, TokenBucket};

use super::*;

const NOW: Timestamp = Timestamp::from_nanos(5);

fn cell(burst: u64) -> Arc<Cell> {
    Arc::new(Cell::new(bucket(burst)))
}

fn bucket(burst: u64) -> Rule {
    TokenBucket::new(Rate::per_second(1).unwrap(), burst).unwrap().into()
}

/// How many of `requests` pass.
fn admitted(cell: &Cell, requests: usize) -> usize {
    (0..requests).filter(|_| cell.check(1, None, NOW).is_allowed()).count()
}

#[test]
fn threads_admit_the_burst_and_no_more() {
    loom::model(|| {
        let cell = cell(3);
        let other = thread::spawn({
            let cell = Arc::clone(&cell);
            move || admitted(&cell, 2)
        });
        assert_eq!(admitted(&cell, 2) + other.join().unwrap(), 3);
    });
}

#[test]
fn no_charge_is_lost_or_doubled_while_the_numbers_change() {
    loom::model(|| {
        let cell = cell(3);
        assert_eq!(admitted(&cell, 1), 1);
        let asking = thread::spawn({
            let cell = Arc::clone(&cell);
            move || admitted(&cell, 1)
        });
        let changing = thread::spawn({
            let cell = Arc::clone(&cell);
            move || cell.set_rule(bucket(4), NOW)
        });
        assert_eq!(admitted(&cell, 1), 1);
        changing.join().unwrap();
        assert_eq!(asking.join().unwrap(), 1);
        // All three tokens were spent, and a burst of 4 is no fresh one.
        assert_eq!(cell.edit(|rule, state| rule.status(state, NOW).remaining), 0);
    });
}

#[test]
fn two_changes_at_once_leave_one_state() {
    loom::model(|| {
        let cell = cell(2);
        assert_eq!(admitted(&cell, 2), 2);
        let other = thread::spawn({
            let cell = Arc::clone(&cell);
            move || cell.set_rule(bucket(3), NOW)
        });
        cell.set_rule(bucket(4), NOW);
        other.join().unwrap();
        assert_eq!(admitted(&cell, 1), 0);
    });
}

#[test]
fn a_reset_beside_a_charge_leaves_one_of_the_two() {
    loom::model(|| {
        let cell = cell(2);
        assert_eq!(admitted(&cell, 2), 2);
        let other = thread::spawn({
            let cell = Arc::clone(&cell);
            move || admitted(&cell, 1)
        });
        cell.edit(|_, state| *state = State::Unused);
        let passed = other.join().unwrap() as u64;
        let left = cell.edit(|rule, state| rule.status(state, NOW).remaining);
        assert_eq!(left, 2 - passed);
    });
}
