//! Real Redis servers that a test starts, breaks and mends: one alone, a cluster, or one watched by sentinels.
//!
//! Each has ports and a directory of its own. All of it is gone when it is dropped, also when the test has panicked.

mod client;
mod cluster;
mod reply;
mod sentinels;
mod server;
mod shifted_clock;
mod slot;
mod witness;

pub use client::RedisClient;
pub use cluster::{Migration, RedisCluster};
pub use reply::Reply;
pub use sentinels::{SentinelSecrets, Sentinels};
pub use server::RedisServer;
pub use slot::slot_of;
pub use witness::{Witness, has_held};
