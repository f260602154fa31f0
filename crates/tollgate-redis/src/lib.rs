//! The Redis store of Tollgate: limits that many processes share.
//!
//! [`link`] is how a script gets to the right server and back, or fails in time. What the scripts decide is not its
//! affair.

pub mod link;
