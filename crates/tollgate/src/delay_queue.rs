//! A queue for requests that a limit has allowed with a delay.

mod line;

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tollgate_core::{Nanos, Timestamp};

use self::line::{Line, Removed};
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};
use crate::{Clock, Sleep, Turn};

/// A queue for requests that a limit has allowed with a delay: a [`LeakyBucket`](crate::LeakyBucket), or a rule with
/// [`MaxWait`](crate::MaxWait).
///
/// The requests of each key wait in one line and go in the order in which they came. A request whose future is dropped gives its
/// turn up. All requests behind it then go sooner, and the limit has room for another request.
///
/// ```
/// # futures_lite::future::block_on(async {
/// use std::time::Duration;
/// use tollgate::{Clock, DelayQueue, KeyedLimiter, LeakyBucket, Rate};
///
/// let clock = Clock::manual();
/// let rule = LeakyBucket::new(Rate::per_second(10)?, 9)?;
/// let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
/// let queue = DelayQueue::new(clock.clone());
///
/// let allow = || {
///     let (now, request) = (clock.now(), limiter.ask("index"));
///     queue.wait(Some(request.turn()), request.check_at(now).outcome.delay(), now)
/// };
/// let (first, second, third) = (allow(), allow(), allow());
/// first.await; // without a delay
/// assert_eq!(queue.waiting(), 2);
///
/// drop(second); // its client has left: the third request goes after 100 ms in place of 200 ms
/// clock.advance(Duration::from_millis(100));
/// third.await;
/// assert_eq!(queue.waiting(), 0);
/// # Ok::<(), tollgate::RuleError>(()) }).unwrap();
/// ```
///
/// # Time
///
/// The queue works on any runtime or none, by the clock of the limiter. Only the first request of each line has a timer. Timers
/// can be late on a busy machine. A program that calls [`wake_due`](Self::wake_due) whenever it decides a request starts delayed
/// requests on time under load, too.
///
/// If the machine stalls, the turns of many requests have come at once. Then the line makes up for 25 ms, and all other requests
/// go later by the rest. So the work behind the limit is not flooded.
///
/// # Memory
///
/// The queue keeps one entry per request that waits, and nothing for a key without such a request. The limits bound the number
/// of requests: [`LeakyBucket`](crate::LeakyBucket) by its `queue`, [`MaxWait`](crate::MaxWait) by its `max_waiting`.
///
/// Use one queue per limiter. Clones share everything.
#[derive(Clone)]
pub struct DelayQueue {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Clock,
    lines: Mutex<BTreeMap<u64, Arc<Mutex<Line>>>>, // by the hash of the key; none is empty
    alarms: Mutex<BTreeMap<(Timestamp, u64), Waker>>, // of the first request of each line, by its turn and key
    next_alarm: AtomicU64,                            // the time of the first alarm, to read without the lock
    waiting: AtomicUsize,
}

impl DelayQueue {
    /// An empty queue. `clock` is the clock of the limiter.
    ///
    /// ```
    /// use tollgate::{DelayQueue, KeyedLimiter, LeakyBucket, Rate};
    ///
    /// let limiter = KeyedLimiter::new(LeakyBucket::new(Rate::per_second(10)?, 9)?);
    /// let queue = DelayQueue::new(limiter.clock().clone());
    /// assert_eq!(queue.waiting(), 0);
    /// # Ok::<(), tollgate::RuleError>(())
    /// ```
    pub fn new(clock: Clock) -> Self {
        let shared = Shared {
            clock,
            lines: Mutex::default(),
            alarms: Mutex::default(),
            next_alarm: AtomicU64::new(u64::MAX),
            waiting: AtomicUsize::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Waits for the turn of a request that was allowed at `decided_at` with `delay`. The wait ends after the delay, or sooner if
    /// requests in front of it leave. The request is in line from this call on. Dropping the future gives its turn up.
    ///
    /// Without a `turn`, the future waits for `delay` from now on. This is for a limit whose state other processes share: nobody
    /// can move their requests forward. A request without a delay does not wait.
    ///
    /// Poll the future or drop it: the requests behind it wait for that. [`DelayQueue`] has an example.
    pub fn wait(&self, turn: Option<Turn>, delay: Nanos, decided_at: Timestamp) -> Wait {
        Wait { waiter: self.enter(turn, delay, decided_at), sleep: None }
    }

    /// [`wait`](Self::wait) with timers of the caller, such as those of a runtime. `sleep` makes a timer that ends after a time.
    ///
    /// A timer may end too early or too late. The clock of the queue decides whether the turn has come.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{Clock, DelayQueue, KeyedLimiter, LeakyBucket, Nanos, Rate};
    ///
    /// let limiter = KeyedLimiter::new(LeakyBucket::new(Rate::per_second(1000)?, 9)?);
    /// let (queue, timers) = (DelayQueue::new(limiter.clock().clone()), Clock::new());
    /// for _ in 0..3 {
    ///     let (now, request) = (limiter.clock().now(), limiter.ask("index"));
    ///     let delay = request.check_at(now).outcome.delay();
    ///     // In a program that uses tokio, this is `tokio::time::sleep`.
    ///     let sleep = |span| timers.sleep_until(timers.now().after(Nanos::saturating_from(span)));
    ///     queue.wait_with(Some(request.turn()), delay, now, sleep).await;
    ///     assert!(limiter.clock().now() >= now.after(delay));
    /// }
    /// # Ok::<(), tollgate::RuleError>(()) }).unwrap();
    /// ```
    pub fn wait_with<S: Future<Output = ()>, F: FnMut(Duration) -> S>(
        &self,
        turn: Option<Turn>,
        delay: Nanos,
        decided_at: Timestamp,
        mut sleep: F,
    ) -> impl Future<Output = ()> + use<S, F> {
        let mut waiter = self.enter(turn, delay, decided_at);
        async move {
            let mut timer = pin!(None);
            poll_fn(|context| waiter.poll(context, timer.as_mut(), |_, span, _| sleep(span.into()))).await;
        }
    }

    /// Wakes all requests whose turn has come at `now`, a time of the queue's clock.
    ///
    /// A timer is only looked at when a runtime has nothing else to do. In a burst of thousands of requests that is milliseconds
    /// later. So call this whenever a request is decided. It takes no lock if no turn has come.
    ///
    /// ```
    /// use tollgate::{Clock, DelayQueue};
    ///
    /// let queue = DelayQueue::new(Clock::new());
    /// queue.wake_due(queue.clock().now());
    /// ```
    pub fn wake_due(&self, now: Timestamp) {
        for _ in 0..self.waiting() {
            let Some(waker) = self.shared.take_alarm(now) else { return };
            waker.wake();
        }
    }

    /// The number of requests that wait.
    ///
    /// ```
    /// use tollgate::{Clock, DelayQueue, Nanos};
    ///
    /// let queue = DelayQueue::new(Clock::manual());
    /// let wait = queue.wait(None, Nanos::new(1_000_000), queue.clock().now());
    /// assert_eq!(queue.waiting(), 1);
    /// drop(wait);
    /// assert_eq!(queue.waiting(), 0);
    /// ```
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
    }

    /// The clock that turns go by.
    ///
    /// ```
    /// use tollgate::{Clock, DelayQueue, Timestamp};
    ///
    /// assert_eq!(DelayQueue::new(Clock::manual()).clock().now(), Timestamp::from_nanos(0));
    /// ```
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    fn enter(&self, turn: Option<Turn>, delay: Nanos, decided_at: Timestamp) -> Waiter {
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        let place = match turn {
            Some(turn) if !delay.is_zero() => self.shared.enter_line(turn, decided_at.after(delay)),
            _ => Place::Alone(self.shared.clock.now().after(delay)),
        };
        Waiter { shared: Arc::clone(&self.shared), place, is_done: false }
    }
}

impl fmt::Debug for DelayQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

/// A future that is ready when the turn of a request has come: [`DelayQueue::wait`]. Dropping it gives the turn up.
#[must_use = "futures do nothing unless awaited"]
pub struct Wait {
    waiter: Waiter,
    sleep: Option<Sleep>,
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { waiter, sleep } = &mut *self;
        waiter.poll(context, Pin::new(sleep), |clock, _, at| clock.sleep_until(at))
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("is_done", &self.waiter.is_done).finish_non_exhaustive()
    }
}

impl Shared {
    fn enter_line(&self, turn: Turn, at: Timestamp) -> Place {
        let key = turn.key_hash();
        let mut lines = self.lines.lock();
        let line = Arc::clone(lines.entry(key).or_default());
        let id = line.lock().push(at);
        drop(lines);
        Place::InLine(Entry { line, id, key, turn, alarm: None })
    }

    fn remove_if_empty(&self, key: u64) {
        let mut lines = self.lines.lock();
        if lines.get(&key).is_some_and(|line| line.lock().is_empty()) {
            lines.remove(&key);
        }
    }

    fn set_alarm(&self, at: Timestamp, key: u64, waker: Waker) {
        let before = self.change_alarms(|alarms| alarms.insert((at, key), waker));
        drop(before);
    }

    fn clear_alarm(&self, at: Timestamp, key: u64) {
        let waker = self.change_alarms(|alarms| alarms.remove(&(at, key)));
        drop(waker);
    }

    /// The first alarm, if its time has come.
    fn take_alarm(&self, now: Timestamp) -> Option<Waker> {
        // Reading an old time is harmless: the request still has its timer.
        if self.next_alarm.load(Ordering::Relaxed) > now.as_nanos() {
            return None;
        }
        self.change_alarms(|alarms| {
            let first = alarms.first_entry().filter(|first| first.key().0 <= now)?;
            Some(first.remove())
        })
    }

    /// Wakers belong to the caller and may run any code. So `change` returns those that it removes, to be dropped without the lock.
    fn change_alarms(
        &self,
        change: impl FnOnce(&mut BTreeMap<(Timestamp, u64), Waker>) -> Option<Waker>,
    ) -> Option<Waker> {
        let mut alarms = self.alarms.lock();
        let waker = change(&mut alarms);
        let next = alarms.first_key_value().map_or(u64::MAX, |((at, _), _)| at.as_nanos());
        self.next_alarm.store(next, Ordering::Relaxed);
        waker
    }
}

/// A request that waits.
struct Waiter {
    shared: Arc<Shared>,
    place: Place,
    is_done: bool,
}

enum Place {
    /// It waits until a time, and for no other request.
    Alone(Timestamp),
    InLine(Entry),
}

/// The place of a request in the line of its key.
struct Entry {
    line: Arc<Mutex<Line>>,
    id: u64,
    key: u64,
    turn: Turn,
    alarm: Option<Timestamp>, // the time of its alarm, which only the first has
}

impl Waiter {
    /// Ready when its turn has come. `sleep` makes a timer by the clock, of a span from now on that ends at a time.
    fn poll<S: Future<Output = ()>>(
        &mut self,
        context: &mut Context<'_>,
        mut timer: Pin<&mut Option<S>>,
        mut sleep: impl FnMut(&Clock, Nanos, Timestamp) -> S,
    ) -> Poll<()> {
        let Self { shared, place, is_done } = self;
        if *is_done {
            return Poll::Ready(());
        }
        loop {
            let at = match place {
                Place::Alone(at) => *at,
                Place::InLine(entry) => ready!(entry.poll_first(context)),
            };
            let now = shared.clock.now();
            if now >= at {
                *is_done = true;
                shared.waiting.fetch_sub(1, Ordering::Relaxed);
                timer.set(None);
                if let Place::InLine(entry) = place {
                    entry.finish(shared, now);
                }
                return Poll::Ready(());
            }
            if let Place::InLine(entry) = place {
                entry.set_alarm(shared, at, context.waker());
            }
            if timer.is_none() {
                timer.set(Some(sleep(&shared.clock, at.since(now), at)));
            }
            if let Some(timer) = timer.as_mut().as_pin_mut() {
                ready!(timer.poll(context));
            }
            timer.set(None); // its clock may be ahead of ours
        }
    }
}

impl Entry {
    /// Ready with its turn when it is the first in line. Its turn does not change from then on.
    fn poll_first(&self, context: &Context<'_>) -> Poll<Timestamp> {
        let waker = context.waker().clone();
        let mut line = self.line.lock();
        if let Some(at) = line.turn_of(self.id) {
            return Poll::Ready(at);
        }
        let before = line.set_waker(self.id, waker);
        drop(line);
        drop(before);
        Poll::Pending
    }

    fn set_alarm(&mut self, shared: &Shared, at: Timestamp, waker: &Waker) {
        self.alarm = Some(at);
        shared.set_alarm(at, self.key, waker.clone());
    }

    fn clear_alarm(&mut self, shared: &Shared) {
        if let Some(at) = self.alarm.take() {
            shared.clear_alarm(at, self.key);
        }
    }

    /// Leaves the line when its turn has come.
    fn finish(&mut self, shared: &Shared, now: Timestamp) {
        self.leave(shared, |line, turn| {
            let by = line.postpone(now);
            if !by.is_zero() {
                // Otherwise the limit would give the turns of requests that still wait to new requests.
                turn.postpone_at(by, line.last_at(), now);
            }
            Nanos::ZERO
        });
    }

    /// Leaves the line before its turn.
    fn give_up(&mut self, shared: &Shared) {
        self.leave(shared, |_, turn| turn.withdraw_at(shared.clock.now()));
    }

    /// `sooner` changes the limit, and returns by how much the requests behind go sooner. It runs under the lock of the line, so
    /// that a request that enters meanwhile comes behind all that have been moved.
    fn leave(&mut self, shared: &Shared, sooner: impl FnOnce(&mut Line, &Turn) -> Nanos) {
        self.clear_alarm(shared);
        let Removed { own, next } = {
            let mut line = self.line.lock();
            let sooner = sooner(&mut line, &self.turn);
            line.remove(self.id, sooner)
        };
        next.into_iter().for_each(Waker::wake);
        drop(own);
        shared.remove_if_empty(self.key);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Place::InLine(entry) = &mut self.place {
            entry.give_up(&self.shared);
        }
    }
}

#[cfg(test)]
mod tests;
