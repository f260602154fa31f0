//! A wrong core is caught.
//!
//! Each classic mistake of the field is planted in a copy of this crate, one at a time, and the test that guards against it must
//! then fail. A short run plants every twelfth mistake, `./test --long` all of them.

mod list;

use std::path::Path;

use list::MISTAKES;
use tollgate_testkit::is_long;
use tollgate_testkit::mistakes::{self, Program};

const CORE: Program = Program { package: "tollgate-core", target: &["--lib"], modules: &[] };

#[test]
fn planted_mistakes_are_caught() {
    let step = if is_long() { 1 } else { 12 };
    mistakes::are_caught(Path::new(env!("CARGO_TARGET_TMPDIR")), &CORE, MISTAKES, step);
}

#[test]
fn the_list_fits_the_code() {
    mistakes::fit_the_code(MISTAKES);
    assert!(MISTAKES.len() >= 12);
}
