//! What holds on any trace, and which mistakes are caught. One program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod algorithm_names;
mod lease_model;
mod mistakes;
mod programs;
mod random;
mod vectors;
