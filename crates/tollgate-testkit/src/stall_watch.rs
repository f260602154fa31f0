//! How the machine stalls while a test runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::real_time::{pause, timed};

const NAP: Duration = Duration::from_millis(1);

/// A thread that sleeps for a millisecond at a time, and measures by how much it oversleeps: two milliseconds or more are a stall.
///
/// A test that promises something about real time adds this measurement to what it allows. The promise is then asserted
/// on every machine. The less the machine stalls, the stricter the assertion.
#[derive(Debug)]
pub struct StallWatch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Stalls>,
}

/// How the machine has stalled.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// The longest time that a thread which was ready to run had to wait.
    pub worst: Duration,
    /// All such times together.
    pub total: Duration,
    /// How long the machine was watched.
    pub watched: Duration,
}

impl StallWatch {
    /// Starts to measure.
    #[must_use]
    pub fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut stalls = Stalls::default();
            while !ended.load(Ordering::Relaxed) {
                let (took, ()) = timed(|| pause(NAP));
                stalls.add(took);
            }
            stalls
        });
        Self { is_over, thread }
    }

    /// Ends the measurement.
    ///
    /// # Panics
    ///
    /// Does not: the measuring thread cannot panic.
    #[must_use]
    pub fn stop(self) -> Stalls {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread does not panic")
    }
}

impl Stalls {
    /// Counts a sleep of a millisecond.
    fn add(&mut self, took: Duration) {
        /// A sleep that ends earlier is late by no more than timers and other threads usually make it.
        const STALL: Duration = Duration::from_millis(3);
        let oversleep = if took < STALL { Duration::ZERO } else { took - NAP };
        self.worst = self.worst.max(oversleep);
        self.total += oversleep;
        self.watched += took;
    }

    /// The part of the time for which a thread was ready and could not run, from 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.total.as_micros() as f64 / self.watched.as_micros().max(1) as f64
    }
}

/// How long the threads of a process have been ready to run and waited for a core, all together, since each of them began. Zero on a
/// system that does not count it.
///
/// # Panics
///
/// When the process is gone.
#[must_use]
pub fn waited_for_a_core(process: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let waited = |thread: std::fs::DirEntry| {
        // Nanoseconds on a core, nanoseconds that it waited for one, how often it got one. A thread may have ended meanwhile.
        let times = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        times.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    Duration::from_nanos(threads.flatten().filter_map(waited).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_the_time_that_was_watched() {
        let ms = Duration::from_millis;
        let stalls = Stalls { worst: ms(20), total: ms(30), watched: ms(120) };
        assert!((stalls.share() - 0.25).abs() < 1e-9);
        assert!(Stalls::default().share() == 0.0);
    }

    #[test]
    fn two_milliseconds_of_oversleep_are_a_stall() {
        let (us, mut stalls) = (Duration::from_micros, Stalls::default());
        [1000, 1200, 2999, 3000, 6500].into_iter().for_each(|took| stalls.add(us(took)));
        assert_eq!((stalls.worst, stalls.total, stalls.watched), (us(5500), us(7500), us(14_699)));
    }

    #[test]
    fn threads_that_compete_for_a_core_wait_for_it() {
        if !std::fs::exists("/proc/self/schedstat").is_ok_and(|exists| exists) {
            return crate::skip("the system does not count how long threads wait for a core");
        }
        let count = 4 * thread::available_parallelism().map_or(1, usize::from);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop()
                    }
                });
            }
            let waited = || waited_for_a_core(std::process::id());
            let wait = (0..1000).any(|_| {
                pause(Duration::from_millis(5));
                waited() >= Duration::from_millis(1)
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(wait, "{:?}", waited());
        });
    }

    #[test]
    fn a_watch_measures_until_it_is_stopped() {
        let watch = StallWatch::start();
        pause(Duration::from_millis(30));
        assert!(watch.stop().watched >= Duration::from_millis(1));
    }
}
