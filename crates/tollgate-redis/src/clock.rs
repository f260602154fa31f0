//! A clock for engines with leases.

use tollgate::{Clock, Nanos};

/// A clock that counts the time in which the machine was suspended, where the system has one (`CLOCK_BOOTTIME` of Linux).
///
/// An engine with leases should have it. By the clock of [`Clock::new`], a machine that wakes up after an hour takes its grants for
/// fresh: spans of time may then exceed the limit by more than the bound. The total never does.
///
/// ```
/// use tollgate_redis::clock_with_suspended_time;
///
/// let clock = clock_with_suspended_time();
/// let earlier = clock.now();
/// assert!(clock.now() >= earlier);
/// ```
pub fn clock_with_suspended_time() -> Clock {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        Clock::from_fn(boot_time)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        Clock::new()
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn boot_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    Nanos::new(seconds.unwrap_or(0) * 1_000_000_000 + nanos.unwrap_or(0))
}
