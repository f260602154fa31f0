//! How fast a client moves bytes while it is the client that is waited for.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tollgate_policy::MinRate;

use super::h1::Timer;

/// How far a client is from being too slow in one direction.
///
/// A client has an allowance of time, `grace` at first. Waiting for it uses the allowance up, and every byte that it moves gives
/// `1 / rate` back. A client that keeps the rate on average is never too slow. There is no cap on the allowance: the kernel of a
/// client may take megabytes at once, for which the client then needs its time. The clock runs from [`waits`](Self::waits) to [`moved`](Self::moved): it stands still while the application is silent, or does not take
/// what the client has sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    min_rate: Option<MinRate>,
    bytes: u64,
    allowance: Duration, // at `since`
    since: Option<Instant>,
}

impl Progress {
    pub(super) const fn new(min_rate: Option<MinRate>) -> Self {
        let allowance = match min_rate {
            Some(MinRate { grace, .. }) => grace,
            None => Duration::ZERO,
        };
        Self { min_rate, bytes: 0, allowance, since: None }
    }

    /// The client is waited for from now on.
    pub(super) fn waits(&mut self) {
        if self.min_rate.is_some() && self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    /// The client has moved so many bytes, and is not waited for any more.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes as u64);
        // Most requests and answers are moved at once: their client is never waited for, and no clock is read.
        let Some(MinRate { bytes_per_second, .. }) = self.min_rate else { return };
        if let Some(since) = self.since.take() {
            self.allowance = self.allowance.saturating_sub(since.elapsed());
        }
        let earned = Duration::from_micros(bytes as u64 * 1_000_000 / bytes_per_second);
        self.allowance = self.allowance.saturating_add(earned);
    }

    /// Stops measuring the client.
    pub(super) const fn release(&mut self) {
        self.min_rate = None;
        self.since = None;
    }

    /// How many bytes the client has moved.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// When the client will be too slow, unless it moves something before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.since?.checked_add(self.allowance)
    }

    pub(super) fn is_too_slow(&self) -> bool {
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
    pub(super) const fn new(min_rate: Option<MinRate>) -> Self {
        Self { progress: Progress::new(min_rate), timer: None }
    }

    pub(super) fn moved(&mut self, bytes: usize) {
        self.progress.moved(bytes);
    }

    /// Bytes wait for the client. Ready when it is too slow.
    pub(super) fn poll_too_slow(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.progress.waits();
        let Some(deadline) = self.progress.deadline() else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Timer::until(deadline));
        timer.set_until(deadline);
        timer.poll(context)
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
