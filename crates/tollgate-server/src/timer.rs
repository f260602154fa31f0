//! The timer of delayed requests.
//!
//! The timers of tokio are exact to a millisecond or two, and each wakes a thread twice. A timer of the kernel is
//! exact, and arming it is one system call. Most of the processor time of a delayed request is for waking threads. So
//! at high rates several requests go together: see "Delayed requests" in docs/design.md.

use std::time::Duration;

/// Makes futures that end when the next delayed requests go. Each call gets the time until the next turn. Only the
/// last future counts.
#[cfg(target_os = "linux")]
pub(crate) fn delay_timer() -> impl FnMut(Duration) -> linux::Sleep + Send + use<> {
    let timer = linux::Timer::new();
    move |until_turn| timer.sleep(until_group(until_turn))
}

/// Makes futures that end after a time.
#[cfg(not(target_os = "linux"))]
pub(crate) fn delay_timer() -> impl FnMut(Duration) -> tokio::time::Sleep + Send + use<> {
    tokio::time::sleep
}

/// The longest time by which the timer makes a request late.
#[cfg(any(target_os = "linux", test))]
const MOST_LATE: Duration = Duration::from_millis(4);

/// The time until a group of requests goes. `until_turn` is the time until the turn of its first request.
///
/// If this turn is less than [`MOST_LATE`] away, the timer waits that much longer, so that requests with close turns
/// go together. A later turn gets its own wake-up at the exact time. The server also wakes requests whose turn has
/// come when it decides another request (`DelayQueue::wake_due`).
#[cfg(any(target_os = "linux", test))]
fn until_group(until_turn: Duration) -> Duration {
    if until_turn < MOST_LATE { until_turn + MOST_LATE } else { until_turn }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::future::Future;
    use std::os::fd::OwnedFd;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use futures_util::future::Either;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A timer of the kernel. None if the process has no file descriptor left: then the timers of tokio are used.
    pub(super) struct Timer(Option<Arc<AsyncFd<OwnedFd>>>);

    impl Timer {
        pub(super) fn new() -> Self {
            let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(std::io::Error::from);
            #[expect(
                deprecated,
                reason = "the successor is unsafe because types can close their descriptor early, which `OwnedFd` does not"
            )]
            let timer = timer.and_then(|timer| AsyncFd::with_interest(timer, Interest::READABLE));
            if let Err(error) = &timer {
                tracing::warn!(%error, "no timer of the kernel: delayed requests go a millisecond later");
            }
            Self(timer.ok().map(Arc::new))
        }

        /// Ends after a time. It may end too early if the timer was armed before. The delay queue allows that.
        pub(super) fn sleep(&self, span: Duration) -> Sleep {
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let span_of_kernel = Timespec {
                tv_sec: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: span.subsec_nanos().into(),
            };
            let armed = self.0.as_ref().filter(|timer| {
                let time = Itimerspec { it_interval: zero, it_value: span_of_kernel };
                timerfd_settime(timer.get_ref(), TimerfdTimerFlags::empty(), &time).is_ok()
            });
            Sleep(match armed {
                Some(timer) => Either::Left(Arc::clone(timer)),
                None => Either::Right(Box::pin(tokio::time::sleep(span))),
            })
        }
    }

    pub(crate) struct Sleep(Either<Arc<AsyncFd<OwnedFd>>, Pin<Box<tokio::time::Sleep>>>);

    impl Future for Sleep {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            match &mut self.0 {
                Either::Left(timer) => {
                    // An error means that the runtime ends, and this future with it.
                    let Ok(mut expired) = ready!(timer.poll_read_ready(context)) else {
                        return Poll::Pending;
                    };
                    expired.clear_ready(); // arming the timer again resets what could be read
                    Poll::Ready(())
                }
                Either::Right(sleep) => sleep.as_mut().poll(context),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of requests in each group, and the longest time by which `until_group` made a request late. Turns
    /// are `gap` apart. The last group may be smaller and is left out. `delay` is the time by which the timer itself
    /// ends late.
    fn groups(gap: Duration, delay: Duration) -> (Vec<usize>, Duration) {
        const TURNS: u32 = 1000;
        let (mut now, mut first, mut groups, mut most_late) = (Duration::ZERO, 1, Vec::new(), Duration::ZERO);
        while first <= TURNS {
            now += until_group((gap * first).saturating_sub(now)) + delay;
            most_late = most_late.max(now - gap * first);
            groups.push((first..=TURNS).take_while(|turn| gap * *turn <= now).count());
            first += groups[groups.len() - 1] as u32;
        }
        groups.pop();
        (groups, most_late - delay)
    }

    #[test]
    fn close_turns_go_in_groups_and_at_most_4_ms_late() {
        for (micros, size) in [(3000, 2), (2000, 3), (1000, 5), (500, 9), (100, 41)] {
            for delay in [0, 60] {
                let (found, late) = groups(Duration::from_micros(micros), Duration::from_micros(delay));
                let at = format!("every {micros} us, timer {delay} us late: {found:?}");
                assert!(found.iter().all(|found| *found == size), "{at}");
                assert_eq!(late, MOST_LATE, "{at}");
            }
        }
    }

    #[test]
    fn distant_turns_go_alone_and_in_time() {
        for micros in [4100, 5000, 10_000] {
            let (found, late) = groups(Duration::from_micros(micros), Duration::from_micros(60));
            assert!(found.iter().all(|found| *found == 1), "every {micros} us: {found:?}");
            assert_eq!(late, Duration::ZERO, "every {micros} us");
        }
    }
}
