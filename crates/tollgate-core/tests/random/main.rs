//! Random steps by the million: every algorithm against its oracle, and what must hold on any trace.
//!
//! Every test names its seed and step when it fails. `TOLLGATE_LONG=1` (`./test --long`) makes ten times
//! as many steps.
#![allow(clippy::unwrap_used)]

mod adaptive;
mod bounds;
mod buckets;
mod clock_back;
mod compare;
mod concurrency;
mod conversion;
mod fair_queue;
mod plain;
mod promises;
mod refunds;
mod rules;
mod store;
mod windows;

/// How many times more steps than usual are asked for.
fn effort() -> u64 {
    if std::env::var_os("TOLLGATE_LONG").is_some() { 10 } else { 1 }
}
