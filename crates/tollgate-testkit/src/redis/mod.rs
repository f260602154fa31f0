//! Real Redis servers that a test starts, breaks and mends: one alone, or a cluster.
//!
//! Each has ports and a directory of its own. All of it is gone when it is dropped, also when the test has panicked.

mod client;
mod cluster;
mod reply;
mod server;
mod slot;

pub use client::RedisClient;
pub use cluster::{Migration, RedisCluster};
pub use reply::Reply;
pub use server::RedisServer;
pub use slot::slot_of;
