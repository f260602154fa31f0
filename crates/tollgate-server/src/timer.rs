//! The timer of delayed requests.
//!
//! The timers of tokio are exact to a millisecond or two, and each wakes a thread twice. A timer of the kernel is exact, and arming it
//! is one system call. Most of the processor time of a delayed request is for waking a thread, so at high rates several requests go
//! together: see "Delayed requests" in docs/design.md.

use std::time::Duration;

/// Makes futures that end after a time. Only the last that was made counts.
#[cfg(target_os = "linux")]
pub(crate) fn delay_timer() -> impl FnMut(Duration) -> linux::Sleep + Send + use<> {
    let timer = linux::Timer::new();
    move |span| timer.sleep(span.max(SHORTEST))
}

/// Makes futures that end after a time.
#[cfg(not(target_os = "linux"))]
pub(crate) fn delay_timer() -> impl FnMut(Duration) -> tokio::time::Sleep + Send + use<> {
    tokio::time::sleep
}

/// The shortest time that the timer is set to. Requests that come due before it ends go together when it ends, or
/// when the service decides another request (`DelayQueue::wake_due`).
#[cfg(target_os = "linux")]
const SHORTEST: Duration = Duration::from_millis(4);

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
