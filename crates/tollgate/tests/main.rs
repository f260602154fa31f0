//! The library as its users call it. One program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod bounded;
mod conformance;
mod many_tiers;
mod threads;
