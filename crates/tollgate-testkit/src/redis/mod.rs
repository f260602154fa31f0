//! Real Redis servers that a test starts, breaks and mends.
//!
//! Each has ports and a directory of its own. All of it is gone when it is dropped, also when the test has panicked.

mod client;
mod reply;
mod server;

pub use client::RedisClient;
pub use reply::Reply;
pub use server::RedisServer;
