//! A wrong core is caught.
//!
//! Each classic mistake of the field is planted in a copy of this crate, one at a time, and the test that guards against it must
//! then fail. A short run plants every twelfth mistake, and none of leases, because their model takes long to compile. `./test --long`
//! plants all of them.

mod lease_list;
mod list;

use std::path::Path;

use lease_list::LEASE_MISTAKES;
use list::MISTAKES;
use tollgate_testkit::is_long;
use tollgate_testkit::mistakes::{self, Program};

const CORE: Program = Program { package: "tollgate-core", target: &["--lib"], modules: &[] };

const LEASE_MODEL: Program =
    Program { package: "tollgate-core", target: &["--test", "integration"], modules: &["lease_model"] };

#[test]
fn planted_mistakes_are_caught() {
    let step = if is_long() { 1 } else { 12 };
    mistakes::are_caught(Path::new(env!("CARGO_TARGET_TMPDIR")), &CORE, MISTAKES, step);
}

#[test]
fn planted_mistakes_of_leases_are_found_by_the_model() {
    if is_long() {
        mistakes::are_caught(Path::new(env!("CARGO_TARGET_TMPDIR")), &LEASE_MODEL, LEASE_MISTAKES, 1);
    }
}

#[test]
fn the_list_fits_the_code() {
    mistakes::fit_the_code(MISTAKES);
    mistakes::fit_the_code(LEASE_MISTAKES);
    assert!(MISTAKES.len() >= 12);
}
