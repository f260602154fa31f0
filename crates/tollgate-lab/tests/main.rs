//! Logs and replays. One program, so that it is linked once.
#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

mod logs;
mod replay;
