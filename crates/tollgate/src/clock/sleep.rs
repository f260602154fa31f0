//! Waiting for a time.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_timer::Delay;
use tollgate_core::Timestamp;

use super::{Clock, Hand, Source};
use crate::sync::Mutex;

/// A future that is ready when a clock tells a time: [`Clock::sleep_until`]. Dropped, it leaves nothing behind.
///
/// ```
/// # futures_lite::future::block_on(async {
/// use tollgate::{Clock, Timestamp};
///
/// Clock::manual().sleep_until(Timestamp::from_nanos(0)).await; // which it is already
/// # });
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    clock: Clock,
    until: Timestamp,
    alarm: Alarm,
}

/// What wakes the sleeper.
enum Alarm {
    None,
    Timer(Delay),
    Hand(Arc<Hand>, u64), // as which of its sleepers
}

impl Sleep {
    pub(super) const fn new(clock: Clock, until: Timestamp) -> Self {
        Self { clock, until, alarm: Alarm::None }
    }
}

const LONGEST: Duration = Duration::from_secs(3600);

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { clock, until, alarm } = &mut *self;
        loop {
            match alarm {
                Alarm::None => {
                    let now = clock.now();
                    if now >= *until {
                        return Poll::Ready(());
                    }
                    *alarm = match &clock.0 {
                        // The timer's own clock may be a little ahead of this one, and cannot tell all times
                        // that this one can: when it is over, this one is looked at again.
                        Source::Counter { .. } | Source::Function { .. } => {
                            Alarm::Timer(Delay::new(Duration::from(until.since(now)).min(LONGEST)))
                        }
                        Source::Hand(hand) => Alarm::Hand(Arc::clone(hand), hand.sleepers.next_id()),
                    };
                }
                Alarm::Timer(delay) => match Pin::new(delay).poll(context) {
                    Poll::Ready(()) => *alarm = Alarm::None,
                    Poll::Pending => return Poll::Pending,
                },
                Alarm::Hand(hand, id) => return hand.sleepers.poll(clock, *until, *id, context),
            }
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Alarm::Hand(hand, id) = &self.alarm {
            hand.sleepers.forget(self.until, *id);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("until", &self.until).finish_non_exhaustive()
    }
}

/// Those who wait for a manual clock to be moved, by time and number.
#[derive(Debug, Default)]
pub(super) struct Sleepers(Mutex<Asleep>);

#[derive(Debug, Default)]
struct Asleep {
    wakers: BTreeMap<(Timestamp, u64), Waker>,
    ids: u64, // given so far
}

impl Sleepers {
    fn next_id(&self) -> u64 {
        let mut asleep = self.0.lock();
        asleep.ids += 1;
        asleep.ids
    }

    /// Under the lock the time is either seen here, or moved after the waker is there to be found.
    fn poll(&self, clock: &Clock, until: Timestamp, id: u64, context: &Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let mut asleep = self.0.lock();
        if clock.now() >= until {
            return Poll::Ready(());
        }
        let before = asleep.wakers.insert((until, id), waker);
        drop(asleep);
        drop(before); // the caller's, which may do anything: not under the lock
        Poll::Pending
    }

    fn forget(&self, until: Timestamp, id: u64) {
        let waker = self.0.lock().wakers.remove(&(until, id));
        drop(waker);
    }

    /// Wakes all whose time has come.
    pub(super) fn wake(&self, now: Timestamp) {
        let woken = {
            let mut asleep = self.0.lock();
            let later = asleep.wakers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut asleep.wakers, later)
        };
        woken.into_values().for_each(Waker::wake);
    }
}
