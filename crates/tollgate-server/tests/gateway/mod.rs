//! The gateway, as clients and applications see it: the real binary between real sockets.

mod adaptive;
mod application;
mod attack;
pub(crate) mod backend;
mod client_addresses;
mod conversations;
mod driver_location;
mod fairness;
mod hanging_up;
mod http2;
pub(crate) mod load;
mod paths_random;
mod proxying;
mod random_messages;
mod rates;
mod readings;
mod reloads;
pub(crate) mod running;
mod slow_clients;
mod smuggling;
mod smuggling_random;
mod soak;
mod strict_application;
mod upgrades;
