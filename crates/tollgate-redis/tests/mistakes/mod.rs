//! A wrong store is caught.
//!
//! Mistakes are planted in a copy of the workspace, one at a time, and the named test must then fail. `./test --long` plants all of
//! them, a short run none: to compile the copy takes a minute.

mod list;

use std::path::Path;

use list::REDIS;
use tollgate_testkit::is_long;
use tollgate_testkit::mistakes::{self, Program};

const STORE: Program =
    Program { package: "tollgate-redis", target: &["--test", "integration"], modules: &["asks", "store"] };

#[test]
fn planted_mistakes_of_the_store_are_caught() {
    if is_long() {
        mistakes::are_caught(Path::new(env!("CARGO_TARGET_TMPDIR")), &STORE, REDIS, 1);
    }
}

#[test]
fn the_list_fits_the_code() {
    mistakes::fit_the_code(REDIS);
    assert!(REDIS.len() >= 12);
}
