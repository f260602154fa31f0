//! Somebody who asks the same server all the time, and knows when it was not to be reached.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::RedisClient;
use crate::real_time::{pause, timed};

#[cfg(test)]
mod tests;

/// A thread with the plainest client, which pings a server every two milliseconds.
///
/// Machines of others stand still at times, longer than a deadline. A test that promises how much passes while
/// nothing fails asks the witness whether nothing did: what a bare ping had to wait for was not the fault of the
/// code under test.
#[derive(Debug)]
pub struct Witness {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Witness {
    /// Begins to ping.
    ///
    /// # Panics
    ///
    /// When nobody listens.
    #[must_use]
    pub fn start(address: SocketAddr) -> Self {
        const EVERY: Duration = Duration::from_millis(2);
        let mut client = RedisClient::connect(address).expect("a server that listens");
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                let mut longest = Duration::ZERO;
                while !is_over.load(Ordering::Relaxed) {
                    // With the pause, which is the longer for a machine that stands still during it.
                    let (took, ()) = timed(|| {
                        client.command(&["PING"]);
                        pause(EVERY);
                    });
                    longest = longest.max(took);
                }
                longest
            }
        });
        Self { is_over, thread }
    }

    /// The longest that it had to wait.
    ///
    /// # Panics
    ///
    /// When a ping was not answered at all.
    #[must_use]
    pub fn stop(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("every ping answered")
    }
}

/// Whether a run that must hold with nothing wrong has held. If it has not, and the witness saw why (even a ping had to wait
/// for half of the deadline that the code under test has), it proves nothing, and is to be made again.
///
/// # Panics
///
/// When it has not, and nothing stood still.
#[must_use]
pub fn has_held(faults: &[String], stood_still: Duration, deadline: Duration) -> bool {
    if faults.is_empty() {
        return true;
    }
    let faults = faults.join("\n");
    // Less than a deadline for the witness may have been more for somebody else.
    assert!(stood_still >= deadline / 2, "a ping took {stood_still:.1?} at most, but\n{faults}");
    println!("once more, since even a ping took {stood_still:.1?}\n{faults}");
    false
}
