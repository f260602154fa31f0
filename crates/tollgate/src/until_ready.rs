//! Waiting for a limit to allow.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tollgate_core::{Decision, Nanos, Outcome, Retry, Status, Timestamp};

use crate::Clock;
use crate::line::{Lines, Place};

/// Why waiting for a limit is of no use.
///
/// ```
/// # futures_lite::future::block_on(async {
/// use tollgate::{Limiter, NotReady, Rate, TokenBucket};
///
/// let limiter = Limiter::new(TokenBucket::new(Rate::per_second(5)?, 10)?);
/// assert_eq!(limiter.until_n_ready(11).await, Err(NotReady::Never));
/// # Ok::<(), tollgate::RuleError>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotReady {
    /// The cost is more than the limit can ever hold.
    Never,
    /// As many wait as may.
    TooManyWaiting,
}

impl std::fmt::Display for NotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Never => {
                "the cost is more than the limit can ever hold; lower it, or raise the burst or limit"
            }
            Self::TooManyWaiting => "as many wait as may; come back later",
        })
    }
}

impl std::error::Error for NotReady {}

/// A request that would be allowed after a delay, as one that is denied for so long: whoever waits in line has
/// no need of a second queue, and takes nothing from it that could not be left.
pub(crate) const fn at_once(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Allow { delay } if !delay.is_zero() => Outcome::Deny { retry: Retry::After(delay) },
        outcome => outcome,
    }
}

/// How long to wait where nobody knows how long, at first and at most: for a table that is full of keys in use. (Who
/// waits for a permit is called when one is given back.)
const LOOK_AGAIN: Nanos = Nanos::new(10_000_000);
const LOOK_AGAIN_AT_MOST: Nanos = Nanos::new(1_000_000_000);

/// Waits in the line of `key` until `check` allows, and tells how the key stands then. `check` charges what it allows, and nothing that would have to
/// be held back.
///
/// Whoever stops waiting has been charged nothing: the last thing done is the charge.
pub(crate) async fn until_ready(
    lines: &Lines,
    clock: &Clock,
    key: u64,
    check: impl Fn(Timestamp) -> Decision,
) -> Result<Status, NotReady> {
    if lines.is_empty(key) {
        let decision = check(clock.now());
        match decision.outcome {
            Outcome::Allow { .. } => return Ok(decision.status),
            Outcome::Deny { retry: Retry::Never } => return Err(NotReady::Never),
            Outcome::Deny { .. } => {}
        }
    }
    let place = lines.join(key).ok_or(NotReady::TooManyWaiting)?;
    place.first().await;
    let mut look_again = LOOK_AGAIN;
    loop {
        let now = clock.now();
        let decision = check(now);
        match decision.outcome {
            Outcome::Allow { .. } => return Ok(decision.status),
            Outcome::Deny { retry: Retry::Never } => return Err(NotReady::Never),
            Outcome::Deny { retry: Retry::After(wait) } => called_or(&place, clock, now.after(wait)).await,
            Outcome::Deny { retry: Retry::Unknown } => {
                called_or(&place, clock, now.after(look_again)).await;
                look_again = Nanos::new(look_again.get() * 2).min(LOOK_AGAIN_AT_MOST);
            }
        }
    }
}

/// Waits until it is called, or until `time`. Others get a turn in any case, also at the end of all time, after which
/// no other comes.
async fn called_or(place: &Place<'_>, clock: &Clock, time: Timestamp) {
    let mut sleep = pin!(clock.sleep_until(time));
    let mut is_over = clock.now() >= time;
    poll_fn(|context| {
        if std::mem::take(&mut is_over) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        match place.poll_called(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => sleep.as_mut().poll(context),
        }
    })
    .await;
}

#[cfg(test)]
mod tests;
