//! Real time, for tests of real servers: measured and waited for, never assumed.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// How often [`within`] looks.
pub const STEP: Duration = Duration::from_millis(10);

/// How long something takes, and what comes of it.
#[expect(clippy::disallowed_methods, reason = "servers run by a real clock")]
pub fn timed<T>(what: impl FnOnce() -> T) -> (Duration, T) {
    let begin = Instant::now();
    let result = what();
    (begin.elapsed(), result)
}

/// The present moment.
#[expect(clippy::disallowed_methods, reason = "servers run by a real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whole seconds of Unix time.
///
/// # Panics
///
/// When the clock of the machine is before 1970.
#[expect(clippy::disallowed_methods, reason = "servers run by a real clock")]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970").as_secs()
}

/// Lets real time pass, for promises that are about it.
#[expect(clippy::disallowed_methods, reason = "servers run by a real clock")]
pub fn pause(span: Duration) {
    sleep(span);
}

/// Asks until there is something, or `limit` has passed. It asks at least once.
pub fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let end = now() + limit;
    loop {
        let found = ask();
        if found.is_some() || now() >= end {
            return found;
        }
        pause(STEP);
    }
}

/// Asks until there is something, for at most half a minute: far longer than anything takes on a machine that has
/// other things to do as well.
///
/// # Panics
///
/// When there is nothing by then.
pub fn eventually<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    const LIMIT: Duration = Duration::from_secs(30);
    within(LIMIT, ask).unwrap_or_else(|| panic!("it is still not so after {LIMIT:?}: {what}"))
}
