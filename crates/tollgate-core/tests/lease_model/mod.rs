//! Leases under every order of events: two nodes, a store, and the network between them.
//!
//! A model checker visits every state that these can reach within some bounds, and looks in each of them for a broken promise of
//! section 11 of `docs/vectors.md`. The lease, the rule and the grants are those of the crate. The model adds what a program adds: the
//! network, the clocks, and the guard that keeps a return from counting twice.
//!
//! The burst is 3, and a unit comes every 100 ms. A grant lives for 150 ms. Requests come at any time. A message arrives at once, unless a fault delays it or loses it. Not modelled: units that were
//! spent while the store gave no answer (LE-5), windows, and store clocks that step.

mod ledger;
mod model;
mod node;
mod store;

use stateright::{Checker as _, HasDiscoveries, Model as _};
use tollgate_testkit::is_long;

use self::model::{Bounds, Faults, TwoNodes};

const NONE: Faults = Faults {
    in_all: 0,
    delays: 0,
    repetitions: 0,
    crashes: 0,
    pauses: 0,
    failovers: 0,
    resets: 0,
    changes: 0,
    closes: 0,
    put_backs: 0,
};

/// One draw per node, and no faults, for as long as two units come.
const QUICK: Bounds =
    Bounds { draws: [1, 1], end: 4, step: 2, costs: [&[1], &[1]], faults: NONE, spends_all: false };

/// Visits every state within the bounds. Returns how many there are.
fn explore(bounds: Bounds) -> usize {
    let model = TwoNodes(bounds);
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{states} states, the last after {} events: {bounds:?}", checker.max_depth());
    for (promise, path) in checker.discoveries() {
        println!("{promise}: {:#?}", path.into_actions());
    }
    checker.assert_properties();
    assert!(checker.is_done(), "not every state was visited");
    states
}

/// Three draws each, and any fault at any time.
#[test]
fn no_fault_breaks_a_promise() {
    let faults = Faults {
        in_all: 1,
        delays: 1,
        repetitions: 1,
        crashes: 1,
        pauses: 1,
        failovers: 1,
        resets: 1,
        changes: 1,
        closes: 1,
        put_backs: 0,
    };
    if is_long() {
        let states = explore(Bounds { draws: [3, 3], faults, ..QUICK });
        assert!(states >= 1_000_000, "{states} states");
    } else {
        explore(Bounds { draws: [2, 1], faults, ..QUICK });
    }
}

/// The clock of a node does not see the time in which the machine is suspended. Then LE-2 is longer by that time, and LE-1 holds.
#[test]
fn two_faults_break_no_promise() {
    let faults = Faults { in_all: 2, crashes: 1, pauses: 2, resets: 1, changes: 2, delays: 2, ..NONE };
    let draws = if is_long() { [2, 2] } else { [1, 1] };
    explore(Bounds { draws, faults, ..QUICK });
}

#[test]
fn late_answers_extend_no_life() {
    let (draws, repetitions) = if is_long() { ([2, 2], 1) } else { ([1, 2], 0) };
    let faults = Faults { in_all: 1, delays: 1, repetitions, ..NONE };
    explore(Bounds { draws, end: 6, costs: [&[3], &[1]], faults, ..QUICK });
}

#[test]
fn late_draws_are_spent_from_their_start_on() {
    let draws = if is_long() { [2, 1] } else { [1, 1] };
    let faults = Faults { in_all: 2, delays: 1, repetitions: 1, ..NONE };
    explore(Bounds { draws, end: 3, step: 1, costs: [&[1, 3], &[1, 3]], faults, ..QUICK });
}

#[test]
fn a_node_has_two_grants_in_hand_and_on_the_way() {
    let draws = if is_long() { [3, 1] } else { [3, 0] };
    let faults = Faults { in_all: 2, delays: 2, ..NONE };
    explore(Bounds { draws, end: 3, step: 1, faults, ..QUICK });
}

#[test]
fn returns_count_once_and_at_their_own_primary() {
    let draws = if is_long() { [2, 2] } else { [1, 2] };
    let faults = Faults { in_all: 2, failovers: 1, closes: 1, repetitions: 1, ..NONE };
    explore(Bounds { draws, costs: [&[3], &[3]], faults, ..QUICK });
}

#[test]
fn units_are_put_back_where_they_came_from() {
    let draws = if is_long() { [3, 2] } else { [2, 1] };
    let faults = Faults { in_all: 2, put_backs: 1, closes: 1, ..NONE };
    explore(Bounds { draws, faults, ..QUICK });
}

#[test]
fn some_order_of_events_spends_everything() {
    let draws = if is_long() { [3, 3] } else { [2, 2] };
    explore(Bounds { draws, step: 1, spends_all: true, ..QUICK });
}
