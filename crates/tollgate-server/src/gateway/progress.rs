//! How fast a client moves bytes while it is the client that is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_policy::MinRate;

use super::h1::Timer;
use crate::connections::Activity;

/// How far a client is from being too slow in one direction.
///
/// A client has an allowance of time, `grace` at first. Waiting for it uses the allowance up, and every byte that it moves gives
/// `1 / rate` back. A client that keeps the rate on average is never too slow. There is no cap on the allowance: the kernel of a
/// client may take megabytes at once, for which the client then needs its time. The clock runs from [`waits`](Self::waits) to [`moved`](Self::moved): it stands still while the application is silent, or does not take
/// what the client has sent.
///
/// Streams of one connection share its speed, and a client chooses which of them moves. What moves on any of them counts for all: up to
/// [`FULL_RATE`] of them need the rate once, more of them need a part of it each.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    min_rate: Option<MinRate>,
    bytes: u64,
    allowance: Duration, // at `since`
    since: Option<Instant>,
    shared: Option<(Arc<SharedBytes>, u64)>, // and as much of it is in the allowance
}

/// The bytes that the streams of one connection have moved in one direction.
#[derive(Debug)]
pub(super) struct SharedBytes {
    bytes: AtomicU64,
    activity: Arc<Activity>, // which counts the streams
}

/// As many streams of one connection have the whole rate to share.
const FULL_RATE: u64 = 16;

impl SharedBytes {
    pub(super) fn new(activity: &Arc<Activity>) -> Arc<Self> {
        Arc::new(Self { bytes: AtomicU64::new(0), activity: Arc::clone(activity) })
    }
}

impl Progress {
    pub(super) const fn new(min_rate: Option<MinRate>) -> Self {
        let allowance = match min_rate {
            Some(MinRate { grace, .. }) => grace,
            None => Duration::ZERO,
        };
        Self { min_rate, bytes: 0, allowance, since: None, shared: None }
    }

    /// The progress of one of several streams.
    pub(super) fn of_stream(min_rate: Option<MinRate>, shared: &Arc<SharedBytes>) -> Self {
        let so_far = shared.bytes.load(Ordering::Relaxed);
        Self { shared: Some((Arc::clone(shared), so_far)), ..Self::new(min_rate) }
    }

    /// The client is waited for from now on.
    pub(super) fn waits(&mut self) {
        if self.min_rate.is_some() && self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    /// The client has moved these bytes. The clock stops.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        // Most requests and answers are moved at once: their client is never waited for, and no clock is read.
        if self.min_rate.is_none() {
            return;
        }
        match &self.shared {
            Some((shared, _)) => _ = shared.bytes.fetch_add(bytes as u64, Ordering::Relaxed),
            None => self.earn(bytes as u64),
        }
        self.earn_shared();
        if let Some(since) = self.since.take() {
            self.allowance = self.allowance.saturating_sub(since.elapsed());
        }
    }

    fn earn(&mut self, bytes: u64) {
        let Some(MinRate { bytes_per_second, .. }) = self.min_rate else { return };
        let earned = Duration::from_micros(bytes.saturating_mul(1_000_000) / bytes_per_second);
        self.allowance = self.allowance.saturating_add(earned);
    }

    /// Adds what all streams of the connection have moved since the last time.
    fn earn_shared(&mut self) {
        let Some((shared, counted)) = &mut self.shared else { return };
        let moved = shared.bytes.load(Ordering::Relaxed);
        let bytes = moved - std::mem::replace(counted, moved);
        let streams = u64::from(shared.activity.in_flight()).max(FULL_RATE);
        self.earn(bytes * FULL_RATE / streams);
    }

    /// Stops measuring the client.
    pub(super) fn release(&mut self) {
        self.min_rate = None;
        self.since = None;
    }

    /// How many bytes the client has moved.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the client will be too slow, unless it moves something before.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        self.earn_shared();
        self.since?.checked_add(self.allowance)
    }

    pub(super) fn is_too_slow(&mut self) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= Instant::now())
    }
}

/// Watches a client that reads an answer.
#[derive(Debug)]
pub(super) struct ReadWatch {
    progress: Progress,
    timer: Option<Timer>, // made when the client is first waited for: most never are
}

impl ReadWatch {
    pub(super) const fn new(progress: Progress) -> Self {
        Self { progress, timer: None }
    }

    pub(super) fn moved(&mut self, bytes: usize) {
        self.progress.moved(bytes);
    }

    /// Bytes wait for the client. Ready when it is too slow.
    pub(super) fn poll_too_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.progress.waits();
        loop {
            let Some(deadline) = self.progress.deadline() else { return Poll::Pending };
            let timer = self.timer.get_or_insert_with(|| Timer::until(deadline));
            timer.set_until(deadline);
            ready!(timer.poll(context));
            // Other streams may have moved something meanwhile.
            if self.progress.is_too_slow() {
                return Poll::Ready(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: MinRate = MinRate { grace: Duration::from_secs(10), bytes_per_second: 1024 };

    async fn sleep(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_moves_nothing_has_the_grace() {
        let mut progress = Progress::new(Some(KIB));
        assert_eq!(progress.deadline(), None);
        progress.waits();
        sleep(9).await;
        progress.waits(); // the clock runs on
        assert!(!progress.is_too_slow());
        sleep(1).await;
        assert!(progress.is_too_slow());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_keeps_the_rate_is_never_too_slow() {
        let mut progress = Progress::new(Some(KIB));
        for _ in 0..1000 {
            progress.waits();
            sleep(9).await;
            assert!(!progress.is_too_slow());
            progress.moved(9 * 1024);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_whose_kernel_takes_much_at_once_has_the_time_to_read_it() {
        let mut progress = Progress::new(Some(KIB));
        progress.moved(100 << 10);
        progress.waits();
        sleep(109).await;
        assert!(!progress.is_too_slow());
        sleep(1).await;
        assert!(progress.is_too_slow());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_at_half_the_rate_has_nearly_twice_the_grace() {
        let mut progress = Progress::new(Some(KIB));
        for second in 1..=19 {
            progress.waits();
            sleep(1).await;
            assert_eq!(progress.is_too_slow(), second == 19, "after {second} s");
            progress.moved(512);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_byte_before_each_deadline_does_not_put_it_off() {
        let mut progress = Progress::new(Some(KIB));
        for _ in 0..9 {
            progress.waits();
            sleep(1).await;
            progress.moved(1);
        }
        progress.waits();
        sleep(2).await;
        assert!(progress.is_too_slow());
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_waits_for_the_client_does_not_count() {
        let mut progress = Progress::new(Some(KIB));
        for _ in 0..1000 {
            progress.waits();
            progress.moved(1);
            sleep(60).await;
        }
        progress.waits();
        sleep(9).await;
        assert!(!progress.is_too_slow());
    }

    /// Streams of one connection, and what counts them.
    fn streams(count: usize) -> (Vec<Progress>, Vec<crate::connections::InFlight>) {
        let connections = Arc::new(crate::connections::Connections::new(None, None));
        let guard = connections.try_admit([192, 0, 2, 1].into(), false).unwrap();
        let shared = SharedBytes::new(&guard.activity);
        let in_flight = (0..count).map(|_| guard.activity.begin()).collect();
        ((0..count).map(|_| Progress::of_stream(Some(KIB), &shared)).collect(), in_flight)
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_wait_while_another_moves_are_not_too_slow() {
        for (count, rate, is_too_slow) in
            [(16, 1024, false), (16, 500, true), (64, 4 * 1024, false), (64, 2 * 1024, true)]
        {
            let (mut streams, _in_flight) = streams(count);
            streams.iter_mut().for_each(Progress::waits);
            for _ in 0..60 {
                sleep(1).await;
                streams[0].moved(rate);
                streams[0].waits();
            }
            assert_eq!(streams[1].is_too_slow(), is_too_slow, "{count} streams at {rate}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn streams_that_move_nothing_have_the_grace() {
        let (mut streams, _in_flight) = streams(3);
        streams.iter_mut().for_each(Progress::waits);
        sleep(10).await;
        assert!(streams.iter_mut().all(Progress::is_too_slow));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nobody_is_too_slow() {
        let mut off = Progress::new(None);
        off.waits();
        let mut released = Progress::new(Some(KIB));
        released.waits();
        released.release();
        sleep(1_000_000).await;
        assert!(!off.is_too_slow() && !released.is_too_slow());
    }
}
