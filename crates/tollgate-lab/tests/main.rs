//! Logs, replays and advice. One program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod advise;
mod cluster;
mod logs;
mod replay;

#[global_allocator]
static ALLOCATOR: tollgate_testkit::Counting = tollgate_testkit::Counting;
