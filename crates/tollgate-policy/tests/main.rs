//! Policies as they are read, served and changed. One program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod allocations;
mod asks;
mod blocked;
mod envoy;
mod envoy_counting;
mod envoy_differential;
mod envoy_files;
mod leases;
mod many_limits;
mod mistakes;
mod one_place;
mod reload;
mod store_gone;
