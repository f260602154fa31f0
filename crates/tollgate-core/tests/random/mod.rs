//! Random steps by the million: every algorithm against its oracle, and what must hold on any trace.
//!
//! Every test names its seed and step when it fails. `TOLLGATE_LONG=1` (`./test --long`) makes ten times
//! as many steps.

mod adaptive;
mod bounds;
mod buckets;
mod clock_back;
mod compare;
mod concurrency;
mod conversion;
mod fair_queue;
mod in_full;
mod plain;
mod promises;
mod refunds;
mod rules;
mod store;
mod windows;
