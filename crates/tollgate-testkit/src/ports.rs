//! Ports for servers that are told where to listen, and must be found there again after a restart.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// How far a Redis node's cluster bus is from its port.
const BUS: u16 = 10_000;

/// Neither these nor their buses are among the ports that the system hands out by itself (32768 and more on Linux), so
/// that no connection of anybody's takes one while its server is being restarted.
const FIRST: u16 = 11_000;
const COUNT: u16 = 10_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A loopback port on which nobody listens, nor on the one 10000 above it, which a node of a Redis cluster takes as
/// well. It is given out once.
///
/// Another program may still be faster to take it: whoever starts a server there tries again with another.
///
/// # Panics
///
/// When all are taken.
pub fn free_port() -> u16 {
    // Test programs that run at the same time begin at different places.
    let begin = (process::id().wrapping_mul(2_654_435_761) >> 16) % u32::from(COUNT);
    for _ in 0..COUNT {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let offset = u16::try_from((begin + step) % u32::from(COUNT)).expect("it is less than COUNT");
        let port = FIRST + offset;
        if is_free(port) && is_free(port + BUS) {
            return port;
        }
    }
    panic!("none of the ports from {FIRST} to {} is free", FIRST + (COUNT - 1));
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
