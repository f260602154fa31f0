//! The gateway, as clients and applications see it: the real binary between real sockets.

mod adaptive;
mod application;
mod backend;
mod conversations;
mod driver_location;
mod fairness;
mod hanging_up;
mod http2;
mod load;
mod proxying;
mod rates;
mod readings;
mod reloads;
mod running;
mod smuggling;
mod soak;
mod upgrades;
