//! HTTP requests and answers as a Tollgate policy sees and makes them.
//!
//! What the gateway, forward-auth and services in Rust have in common: the attributes of a request ([`Seen`]), and what a
//! client is told of the decision ([`headers`], [`denial`]).
#![forbid(unsafe_code)]

mod seen;
mod told;

pub use self::seen::{Attributes, Headers, Seen};
pub use self::told::{denial, headers};
