//! Asks that are decided together, in memory.

use tollgate_testkit::asks::{
    BackEnd, known_differences_are_still_there, promises, random_calls_equal_the_model,
};
use tollgate_testkit::effort;

pub(crate) mod adapter;
mod fallback;

#[test]
fn random_calls_in_memory_equal_the_model() {
    for seed in 0..effort() {
        random_calls_equal_the_model(BackEnd::Memory, &mut adapter::in_memory, seed, 200);
    }
}

#[test]
fn the_engine_in_memory_keeps_every_promise_about_asks() {
    promises::are_kept(&mut adapter::in_memory);
}

#[test]
fn known_differences_in_memory_are_still_there() {
    known_differences_are_still_there(BackEnd::Memory, &mut adapter::in_memory, 2000);
}
