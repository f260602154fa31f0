//! The times at which the first request of each line has to be woken, and the one timer for all of them.
//!
//! Locks are taken in this order: all lines, one line, the alarms.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tollgate_core::Timestamp;

use super::Shared;
use super::line::Line;
use crate::sync::{AtomicU64, Mutex, Ordering};

/// The time and the key of an alarm.
pub(super) type Alarm = (Timestamp, u64);

/// The alarms of all lines. A line has at most one. An alarm may ring too early: then it is set again.
#[derive(Debug)]
pub(super) struct Schedule {
    alarms: Mutex<Alarms>,
    next: AtomicU64, // the time of the first alarm, to read without the lock
}

#[derive(Debug, Default)]
struct Alarms {
    lines: BTreeMap<Alarm, Arc<Mutex<Line>>>,
    runner: Option<Running>,
    runners: u64, // so far
}

/// The future of [`DelayQueue::run_with`](super::DelayQueue::run_with).
#[derive(Debug)]
struct Running {
    number: u64,
    waker: Arc<Waker>,   // shared, because a waker must not be cloned under a lock
    wakes_at: Timestamp, // without being woken
}

/// Wakers that the caller wakes without a lock, because they may run any code.
#[derive(Debug, Default)]
#[must_use = "the wakers have to be woken"]
pub(super) struct Wakers {
    pub(super) request: Option<Waker>,
    pub(super) runner: Option<Arc<Waker>>,
}

impl Wakers {
    pub(super) fn wake(self) {
        self.request.into_iter().for_each(Waker::wake);
        self.runner.iter().for_each(|runner| runner.wake_by_ref());
    }
}

impl Default for Schedule {
    fn default() -> Self {
        Self { alarms: Mutex::default(), next: AtomicU64::new(u64::MAX) }
    }
}

impl Schedule {
    /// Whether a future wakes the first request of each line, so that this request needs no timer.
    ///
    /// If the caller has the lock of a line, then the end of that future wakes the first request of this line after the caller has
    /// released the lock.
    pub(super) fn is_run(&self) -> bool {
        self.alarms.lock().runner.is_some()
    }

    /// Sets the alarm of a line to `at`, if it is later than that or not set. Returns the waker of the runner, if the
    /// runner would wake too late for it.
    pub(super) fn set_alarm(
        &self,
        line: &mut Line,
        shared_line: &Arc<Mutex<Line>>,
        key: u64,
        at: Timestamp,
    ) -> Option<Arc<Waker>> {
        if line.alarm.is_some_and(|alarm| alarm <= at) {
            return None;
        }
        let before = line.alarm.replace(at);
        self.change(|alarms| {
            if let Some(before) = before {
                alarms.lines.remove(&(before, key));
            }
            alarms.lines.insert((at, key), Arc::clone(shared_line));
            let runner = alarms.runner.as_mut().filter(|runner| at < runner.wakes_at)?;
            runner.wakes_at = at;
            Some(Arc::clone(&runner.waker))
        })
    }

    /// Another request is the first of a line, or the line is empty.
    pub(super) fn follow_first(
        &self,
        line: &mut Line,
        shared_line: &Arc<Mutex<Line>>,
        key: u64,
        now: Timestamp,
    ) -> Wakers {
        match line.first_turn() {
            Some(at) if at > now && self.is_run() => {
                Wakers { request: None, runner: self.set_alarm(line, shared_line, key, at) }
            }
            first => {
                self.clear_alarm(line, key);
                // It goes now, or sets its timer.
                Wakers { request: first.and_then(|_| line.take_first_waker()), runner: None }
            }
        }
    }

    fn clear_alarm(&self, line: &mut Line, key: u64) {
        if let Some(at) = line.alarm.take() {
            self.change(|alarms| alarms.lines.remove(&(at, key)));
        }
    }

    /// Removes the first alarm, if its time has come.
    pub(super) fn take_due(&self, now: Timestamp) -> Option<(Alarm, Arc<Mutex<Line>>)> {
        // Reading an old time is harmless: the request has a timer, or the runner has.
        if self.next.load(Ordering::Relaxed) > now.as_nanos() {
            return None;
        }
        self.change(|alarms| {
            let first = alarms.lines.first_entry().filter(|first| first.key().0 <= now)?;
            Some(first.remove_entry())
        })
    }

    /// Looks at a line whose alarm was removed because its time has come.
    pub(super) fn ring(&self, (at, key): Alarm, shared_line: &Arc<Mutex<Line>>, now: Timestamp) -> Wakers {
        let mut line = shared_line.lock();
        if line.alarm == Some(at) {
            line.alarm = None;
        }
        let Some(first) = line.first_turn() else { return Wakers::default() };
        if first > now {
            return Wakers { request: None, runner: self.set_alarm(&mut line, shared_line, key, first) };
        }
        let request = line.take_first_waker();
        // Set now, so that the first request does not have to wake the runner when it leaves. If the second turn has come, too, then
        // the first request wakes the second.
        let second = line.second_turn().filter(|second| *second > now && self.is_run());
        let runner = second.and_then(|second| self.set_alarm(&mut line, shared_line, key, second));
        Wakers { request, runner }
    }

    fn change<T>(&self, change: impl FnOnce(&mut Alarms) -> T) -> T {
        let mut alarms = self.alarms.lock();
        let changed = change(&mut alarms);
        let next = alarms.lines.first_key_value().map_or(u64::MAX, |((at, _), _)| at.as_nanos());
        self.next.store(next, Ordering::Relaxed);
        changed
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.alarms.lock().lines.is_empty()
    }
}

/// Wakes the first request of each line when its turn has come.
pub(super) struct Runner {
    shared: Arc<Shared>,
    number: Option<u64>, // once it has been polled
    timer_at: Timestamp, // when the timer ends
}

impl Runner {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, number: None, timer_at: Timestamp::from_nanos(0) }
    }

    /// Ready if another runner has taken over.
    pub(super) fn poll<S: Future<Output = ()>>(
        &mut self,
        context: &mut Context<'_>,
        mut timer: Pin<&mut Option<S>>,
        sleep: &mut impl FnMut(Duration) -> S,
    ) -> Poll<()> {
        loop {
            if timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(context).is_ready()) {
                timer.set(None);
            }
            self.shared.wake_due(self.shared.clock.now());
            let Some(next) = self.register(context.waker()) else { return Poll::Ready(()) };
            let now = self.shared.clock.now();
            if next <= now {
                continue;
            }
            if timer.is_none() || self.timer_at != next {
                timer.set((next < NEVER).then(|| sleep(next.since(now).into())));
                self.timer_at = next;
            }
            let Some(ends) = timer.as_mut().as_pin_mut() else { return Poll::Pending };
            ready!(ends.poll(context));
            timer.set(None); // its clock may be ahead of ours
        }
    }

    /// Returns the time of the first alarm. If an earlier alarm is set later on, this future is woken. None if
    /// another runner has taken over.
    fn register(&mut self, waker: &Waker) -> Option<Timestamp> {
        let waker = Arc::new(waker.clone());
        let mut alarms = self.shared.schedule.alarms.lock();
        let wakes_at = alarms.lines.first_key_value().map_or(NEVER, |((at, _), _)| *at);
        let number = match self.number {
            None => {
                alarms.runners += 1;
                *self.number.insert(alarms.runners)
            }
            Some(number) if alarms.runner.as_ref().is_some_and(|runner| runner.number == number) => number,
            Some(_) => return None,
        };
        let before = alarms.runner.replace(Running { number, waker, wakes_at });
        drop(alarms);
        // Another runner ends when it is polled.
        before
            .into_iter()
            .filter(|before| before.number != number)
            .for_each(|before| before.waker.wake_by_ref());
        Some(wakes_at)
    }
}

const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);

impl Drop for Runner {
    /// Wakes the first request of each line, which then sets its timer.
    fn drop(&mut self) {
        let mut alarms = self.shared.schedule.alarms.lock();
        let is_running = alarms.runner.as_ref().is_some_and(|runner| Some(runner.number) == self.number);
        let runner = if is_running { alarms.runner.take() } else { return };
        drop(alarms);
        drop(runner);
        let lines: Vec<_> = self.shared.lines.lock().values().map(Arc::clone).collect();
        for line in lines {
            let waker = line.lock().take_first_waker();
            waker.into_iter().for_each(Waker::wake);
        }
    }
}
