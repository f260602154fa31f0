//! The store on real Redis servers. One program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod asks;
mod conformance;
mod faults;
mod leases;
mod link;
mod mistakes;
mod same_as_core;
mod store;
