//! The gateway, as clients and applications see it: the real binary between real sockets.
#![allow(clippy::unwrap_used)]

mod application;
mod backend;
mod conversations;
mod hanging_up;
mod http2;
mod proxying;
mod rates;
mod readings;
mod reloads;
mod running;
#[path = "../service/mod.rs"]
mod service;
#[path = "../site/mod.rs"]
mod site;
mod smuggling;
mod upgrades;
