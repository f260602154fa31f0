//! A wrong table, engine or fallback is caught.
//!
//! Mistakes are planted in a copy of the workspace, one at a time, and the named test of the suite of asks must then fail. A short run
//! plants the first mistake of each list, `./test --long` all of them.

mod engine;
mod table;

use std::path::Path;

use engine::ENGINE;
use table::TABLE;
use tollgate_testkit::is_long;
use tollgate_testkit::mistakes::{self, Mistake, Program};

const POLICY: Program =
    Program { package: "tollgate-policy", target: &["--test", "integration"], modules: &["asks"] };

fn are_caught(list: &[Mistake]) {
    let step = if is_long() { 1 } else { list.len() };
    mistakes::are_caught(Path::new(env!("CARGO_TARGET_TMPDIR")), &POLICY, list, step);
}

#[test]
fn planted_mistakes_of_the_table_are_caught() {
    are_caught(TABLE);
}

#[test]
fn planted_mistakes_of_the_engine_are_caught() {
    are_caught(ENGINE);
}

#[test]
fn the_lists_fit_the_code() {
    for list in [TABLE, ENGINE] {
        mistakes::fit_the_code(list);
        assert!(list.len() >= 12);
    }
}
