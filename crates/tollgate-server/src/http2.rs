//! What every HTTP/2 connection needs besides its streams: pings, and an end when it is idle.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::Connection;
use h2::{Ping, PingPong};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::connections::Activity;

/// How often a client is asked whether it is still there. One that has not answered by the next time is gone.
const PING: Duration = Duration::from_secs(30);

/// The idle time is measured in this many steps, so that no request reads a clock. A connection is closed after 1 to 1.5 times the idle
/// time.
const STEPS: u32 = 4;

/// How long a client has to close a connection without a stream, after GOAWAY.
const GOING_AWAY: Duration = Duration::from_millis(100);

/// Waits for the next tick. Never ends without an interval.
async fn tick(interval: &mut Option<Interval>) {
    match interval {
        Some(interval) => _ = interval.tick().await,
        None => std::future::pending().await,
    }
}

/// Watches over one connection.
#[derive(Debug)]
pub(crate) struct Upkeep {
    ping_pong: Option<PingPong>,
    is_pinged: bool,
    ping: Interval,
    step: Interval,
    idle_steps: u32,
    begun: u32,             // requests at the last step
    ends: Option<Interval>, // after GOAWAY, when to look whether the connection can be dropped
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpkeepAction {
    /// No stream was open for the idle time: send GOAWAY.
    GoAway,
    /// The client does not answer: drop the connection.
    Drop,
}

impl Upkeep {
    pub(crate) fn new<S>(connection: &mut Connection<S, Bytes>, idle: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let every = |time: Duration| {
            let mut interval = interval_at(Instant::now() + time, time);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        };
        Self {
            ping_pong: connection.ping_pong(),
            is_pinged: false,
            ping: every(PING),
            step: every((idle / STEPS).max(Duration::from_millis(1))),
            idle_steps: 0,
            begun: 0,
            ends: None,
        }
    }

    /// GOAWAY has been sent. The connection is dropped as soon as it has no stream, and not when its client says so: h2 waits for the
    /// answer to a ping, which may not come.
    pub(crate) fn going_away(&mut self) {
        self.ends = Some(interval_at(Instant::now() + GOING_AWAY, GOING_AWAY));
    }

    /// Waits until something is to be done.
    pub(crate) async fn due(&mut self, activity: &Activity) -> UpkeepAction {
        loop {
            tokio::select! {
                _ = self.ping.tick() => {
                    if !self.ping().await {
                        return UpkeepAction::Drop;
                    }
                }
                () = tick(&mut self.ends) => {
                    if activity.is_idle() {
                        return UpkeepAction::Drop;
                    }
                }
                _ = self.step.tick() => {
                    if self.is_idle(activity) {
                        return UpkeepAction::GoAway;
                    }
                }
            }
        }
    }

    /// Whether no stream was open at this step and the steps before it.
    fn is_idle(&mut self, activity: &Activity) -> bool {
        let begun = activity.begun();
        if activity.is_idle() && begun == self.begun {
            self.idle_steps += 1;
        } else {
            (self.idle_steps, self.begun) = (0, begun);
        }
        self.idle_steps > STEPS // the first step may have begun just before
    }

    /// Asks whether the client is there. False where it has not answered the last time.
    async fn ping(&mut self) -> bool {
        let Some(ping_pong) = &mut self.ping_pong else { return true };
        if self.is_pinged {
            let answered = poll_fn(|context| Poll::Ready(ping_pong.poll_pong(context))).await;
            if !matches!(answered, Poll::Ready(Ok(_))) {
                return false;
            }
        }
        self.is_pinged = ping_pong.send_ping(Ping::opaque()).is_ok();
        self.is_pinged
    }
}
