//! HTTP/1.1, on both sides of the gateway.
//!
//! By hand, where everything else here is hyper's: a request that states the length of its body twice must be refused, and hyper
//! leaves one of the statements out before anybody sees it (`docs/design.md`).

mod body;
mod framing;
mod head;
mod io;
mod kind;
mod server;

pub(super) use self::body::{Decoded, Decoder, Encoder};
pub(super) use self::framing::Framing;
pub(super) use self::head::{HeadReader, Lines, MOST_HEADERS, Malformed, ResponseHead, TOO_LARGE};
pub(super) use self::io::{Io, Timer};
pub(super) use self::kind::{Kind, reads_as};
#[cfg(test)]
pub(super) use self::server::upgrade;
pub(super) use self::server::{is_host, one_host, serve};
