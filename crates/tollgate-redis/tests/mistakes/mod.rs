//! A wrong store is caught.
//!
//! Mistakes are planted in a copy of the workspace, one at a time, and the named test must then fail. `./test --long` plants all of
//! them, a short run none: to compile the copy takes a minute.

mod leases;
mod list;

use std::path::Path;

use leases::LEASES;
use list::REDIS;
use tollgate_testkit::is_long;
use tollgate_testkit::mistakes::{self, Mistake, Program};

const STORE: Program = Program {
    package: "tollgate-redis",
    target: &["--test", "integration"],
    modules: &["asks", "leases", "same_as_core", "store"],
};

fn are_caught(list: &[Mistake]) {
    if is_long() {
        mistakes::are_caught(Path::new(env!("CARGO_TARGET_TMPDIR")), &STORE, list, 1);
    }
}

#[test]
fn planted_mistakes_of_the_store_are_caught() {
    are_caught(REDIS);
}

#[test]
fn planted_mistakes_of_leases_are_caught() {
    are_caught(LEASES);
}

#[test]
fn the_lists_fit_the_code() {
    for list in [REDIS, LEASES] {
        mistakes::fit_the_code(list);
        assert!(list.len() >= 12);
    }
}
