//! Requests that are held until their turn, in the order in which they came.
//!
//! A limit that lets a request in tells it when to go. Whoever leaves before gives its place up, and all behind it go sooner; so
//! they wait in a line, in which only the first has a timer.
//!
//! A timer of the runtime rings when a worker has nothing else to do, and whom it wakes comes behind all who are ready to run:
//! in a burst of thousands of requests, that is milliseconds later. So whoever asks for a decision also looks whether a turn has
//! come ([`Holding::wake_due`]); a task that is woken by another runs next.
//!
//! Should the machine stand still all the same, many turns have come at once. What is behind the limit is not to be flooded for that:
//! a little is made good for ([`SLACK`]), and by the rest all go later.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tollgate::{Clock, Nanos, Timestamp, Turn};

/// By how much of a delay those who wait catch up: in no second does that make more than a fortieth more than the limit says.
const SLACK: Nanos = Nanos::new(25_000_000);

/// Those who are held, by the key of the limit that holds them.
#[derive(Debug)]
pub(crate) struct Holding {
    lines: Mutex<HashMap<u64, Arc<Mutex<Line>>>>,
    due: Mutex<BTreeMap<(Timestamp, u64), Waker>>, // the first of each line, by its turn and its line
    next_due: AtomicU64,                           // nanoseconds; the first of these, or the end of time
}

impl Default for Holding {
    fn default() -> Self {
        Self { lines: Mutex::default(), due: Mutex::default(), next_due: AtomicU64::new(u64::MAX) }
    }
}

impl Holding {
    /// Waits until a turn comes: after `delay` from `now`, or sooner if others leave. Dropping it gives the place up. Without
    /// a place of which that is known, it is the delay alone.
    pub(crate) async fn until(&self, turn: Option<Turn>, delay: Nanos, now: Timestamp, clock: &Clock) {
        let Some(turn) = turn else { return tokio::time::sleep(delay.into()).await };
        let mut place = self.enter(turn, now.after(delay), clock);
        let mut sleep = pin!(tokio::time::sleep(Duration::ZERO));
        std::future::poll_fn(|context| place.poll(context, sleep.as_mut())).await;
    }

    /// Wakes those whose turn has come.
    pub(crate) fn wake_due(&self, now: Timestamp) {
        if self.next_due.load(Ordering::Relaxed) > now.as_nanos() {
            return;
        }
        let mut woken: SmallVec<[Waker; 4]> = SmallVec::new();
        self.change_due(|due| {
            while let Some(first) = due.first_entry().filter(|first| first.key().0 <= now) {
                woken.push(first.remove());
            }
        });
        woken.into_iter().for_each(Waker::wake);
    }

    fn change_due(&self, change: impl FnOnce(&mut BTreeMap<(Timestamp, u64), Waker>)) {
        let mut due = self.due.lock();
        change(&mut due);
        let next = due.first_key_value().map_or(u64::MAX, |((at, _), _)| at.as_nanos());
        self.next_due.store(next, Ordering::Relaxed);
    }

    /// How many are held.
    pub(crate) fn waiting(&self) -> usize {
        let lines: Vec<Arc<Mutex<Line>>> = self.lines.lock().values().cloned().collect();
        lines.iter().map(|line| line.lock().waiting.len()).sum()
    }

    fn enter<'h>(&'h self, turn: Turn, at: Timestamp, clock: &'h Clock) -> Place<'h> {
        let key = turn.key_hash();
        let mut lines = self.lines.lock();
        let line = Arc::clone(lines.entry(key).or_default());
        let number = line.lock().enter(at);
        Place { holding: self, line, key, number, turn, clock, armed: None, has_gone: false }
    }

    /// Forgets a line in which nobody waits.
    fn forget(&self, key: u64) {
        let mut lines = self.lines.lock();
        if lines.get(&key).is_some_and(|line| line.lock().waiting.is_empty()) {
            lines.remove(&key);
        }
    }
}

/// Who waits for the same, and when each goes.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiter>,
    first_at: Timestamp, // when the first goes
    last_at: Timestamp,  // when the last does
    numbers: u64,        // given so far
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    after: Nanos, // the one before it; of the first, without meaning
    waker: Option<Waker>,
}

impl Line {
    /// Puts somebody at the end, who goes at a time, or with the one before if that is later.
    fn enter(&mut self, at: Timestamp) -> u64 {
        let number = self.numbers;
        self.numbers += 1;
        if self.waiting.is_empty() {
            (self.first_at, self.last_at) = (at, at);
        }
        let at = at.max(self.last_at);
        self.waiting.push_back(Waiter { number, after: at.since(self.last_at), waker: None });
        self.last_at = at;
        number
    }

    /// By how much the first is too late: all go later by that.
    fn slip(&mut self, now: Timestamp) -> Nanos {
        let slips = Nanos::new(now.since(self.first_at).get().saturating_sub(SLACK.get()));
        self.first_at = self.first_at.after(slips);
        self.last_at = self.last_at.after(slips);
        slips
    }

    /// Notes whom to wake when somebody is the first.
    fn wake_later(&mut self, number: u64, waker: &Waker) {
        if let Ok(place) = self.waiting.binary_search_by_key(&number, |waiter| waiter.number) {
            self.waiting[place].waker = Some(waker.clone());
        }
    }

    /// Takes somebody out. Those behind go sooner by as much as is said, but not before the one who left would have gone. The
    /// first of those who are left, if that is another than before, has to be woken.
    fn leave(&mut self, number: u64, sooner: Nanos) -> Option<Waker> {
        let place = self.waiting.binary_search_by_key(&number, |waiter| waiter.number).ok()?;
        let left = self.waiting.remove(place)?;
        let Some(next) = self.waiting.get_mut(place) else {
            // Nobody is behind. Of the only one, `after` says nothing.
            let before = if place == 0 { Nanos::ZERO } else { left.after };
            self.last_at = Timestamp::from_nanos(self.last_at.as_nanos() - before.get());
            return None;
        };
        let sooner = sooner.min(next.after);
        let rest = Nanos::new(next.after.get() - sooner.get());
        self.last_at = Timestamp::from_nanos(self.last_at.as_nanos() - sooner.get());
        if place > 0 {
            next.after = Nanos::new(left.after.get() + rest.get());
            return None;
        }
        self.first_at = self.first_at.after(rest);
        next.after = Nanos::ZERO;
        next.waker.take()
    }
}

/// A place in a line, given up when it is dropped before its turn.
struct Place<'h> {
    holding: &'h Holding,
    line: Arc<Mutex<Line>>,
    key: u64,
    number: u64,
    turn: Turn,
    clock: &'h Clock,
    armed: Option<Timestamp>, // the moment that it is woken at, while it is the first
    has_gone: bool,
}

impl Place<'_> {
    fn poll(&mut self, context: &mut Context<'_>, mut sleep: Pin<&mut tokio::time::Sleep>) -> Poll<()> {
        loop {
            let at = {
                let mut line = self.line.lock();
                let line = &mut *line;
                match line.waiting.front_mut() {
                    Some(first) if first.number == self.number => line.first_at,
                    _ => {
                        line.wake_later(self.number, context.waker());
                        return Poll::Pending;
                    }
                }
            };
            let now = self.clock.now();
            if now >= at {
                self.go(now);
                return Poll::Ready(());
            }
            if self.armed != Some(at) {
                self.disarm();
                self.armed = Some(at);
                let waker = context.waker().clone();
                self.holding.change_due(|due| _ = due.insert((at, self.key), waker));
                sleep.as_mut().reset(tokio::time::Instant::now() + at.since(now).into());
            }
            std::task::ready!(sleep.as_mut().poll(context));
            self.disarm(); // by another clock than ours: it may be a little too soon
        }
    }

    /// Is no longer woken at a moment.
    fn disarm(&mut self) {
        if let Some(at) = self.armed.take() {
            self.holding.change_due(|due| _ = due.remove(&(at, self.key)));
        }
    }

    /// Its turn has come, and the next one's is the next to come.
    fn go(&mut self, now: Timestamp) {
        self.has_gone = true;
        self.disarm();
        let next = {
            let mut line = self.line.lock();
            let slips = line.slip(now);
            if !slips.is_zero() {
                // Or the limit would take the places of those who wait for free ones.
                self.turn.postpone_at(slips, line.last_at, now);
            }
            line.leave(self.number, Nanos::ZERO)
        };
        next.into_iter().for_each(Waker::wake);
        self.holding.forget(self.key);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.has_gone {
            return;
        }
        self.disarm();
        let next = {
            let mut line = self.line.lock();
            // Under the lock, so that whoever enters meanwhile comes behind all who have been moved.
            let sooner = self.turn.withdraw_at(self.clock.now());
            line.leave(self.number, sooner)
        };
        next.into_iter().for_each(Waker::wake);
        self.holding.forget(self.key);
    }
}

#[cfg(test)]
mod tests;
