//! RESP, the protocol of Redis: `CL.THROTTLE` as redis-cell has it, and `TOLLGATE.CHECK` by the policy.
//!
//! A request goes one way: `connection` reads bytes, `frame` finds requests in them, `session` has them answered by
//! `commands`, and all answers to one read go out in one write. What a shared store has to be asked of is answered `later`,
//! in the same order. Only `connection` and `server` know of streams.

mod check;
mod commands;
mod connection;
mod frame;
mod hello;
mod hints;
mod later;
mod password;
mod pending;
mod reply;
mod server;
mod session;
mod throttle;
mod transaction;
mod ttl;

pub(crate) use self::password::Password;
pub(crate) use self::server::Resp;
