//! What Tollgate is tested with: oracles, random traces, a fake clock, the suite every store must
//! pass, the suite of asks for the policy engine, real Redis servers, the faults of networks
//! between them, and mistakes that are planted in a copy of the workspace.
//!
//! Nothing here depends on another crate of Tollgate. An oracle that shared code with what it
//! judges would share its mistakes, so everything speaks in plain integers: nanoseconds, costs,
//! counts.

pub mod allocations;
pub mod answer;
pub mod asks;
mod callgrind;
pub mod clock;
pub mod conformance;
pub mod directory;
pub mod fault_proxy;
pub mod http;
pub mod lossy;
pub mod mistakes;
pub mod oracle;
pub mod ports;
pub mod process;
pub mod random;
pub mod real_time;
pub mod redis;
pub mod stall_watch;
pub mod test_run;
pub mod trace;

pub use allocations::Counting;
pub use answer::{Answer, Retry, Verdict};
pub use callgrind::instructions;
pub use clock::FakeClock;
pub use directory::Directory;
pub use fault_proxy::FaultProxy;
pub use http::Http;
pub use lossy::Lossy;
pub use ports::free_port;
pub use process::{Process, address_in};
pub use random::Random;
pub use redis::{RedisClient, RedisCluster, RedisServer, Reply, Sentinels, Witness, has_held};
pub use stall_watch::{StallWatch, Stalls, waited_for_a_core};
pub use test_run::{effort, is_long, packages, program, skip};
pub use trace::{Step, Trace, rates};

/// The exact fraction the adaptive oracles and the fair queue compute with, so that a test needs no
/// dependency of its own to name it.
pub use num_rational::BigRational;
