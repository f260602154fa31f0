//! A queue for requests that a limit has allowed with a delay.

mod line;
mod schedule;

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tollgate_core::{Nanos, Timestamp};

use self::line::{Line, Removed};
use self::schedule::{Runner, Schedule, Wakers};
use crate::sync::{AtomicUsize, Mutex, Ordering};
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
/// The queue works on any runtime or none, by the clock of the limiter. Only the first request of each line has a timer. A program
/// that polls [`run_with`](Self::run_with) has one timer for all lines, which takes less processor time.
///
/// Timers can be late on a busy machine. A program that calls [`wake_due`](Self::wake_due) whenever it decides a request starts
/// delayed requests on time under load, too.
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
    schedule: Schedule,
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
            schedule: Schedule::default(),
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
        self.shared.wake_due(now);
    }

    /// Wakes each request when its turn has come, with one timer for all lines. `sleep` makes a timer that ends after a time.
    ///
    /// While this future is polled, requests in a line have no timers of their own. A request that goes then does not wake the
    /// request behind it, which saves one wake per request. When the future is dropped, requests have timers of their own again.
    /// The future ends only if `run_with` is called again and polled: then that future takes over.
    ///
    /// ```
    /// # futures_lite::future::block_on(async {
    /// use tollgate::{Clock, DelayQueue, KeyedLimiter, LeakyBucket, Nanos, Rate};
    ///
    /// let limiter = KeyedLimiter::new(LeakyBucket::new(Rate::per_second(1000)?, 9)?);
    /// let (queue, timers) = (DelayQueue::new(limiter.clock().clone()), Clock::new());
    /// // In a program that uses tokio: `tokio::spawn(queue.run_with(tokio::time::sleep))`.
    /// let sleep = |span| timers.sleep_until(timers.now().after(Nanos::saturating_from(span)));
    /// let run = queue.run_with(sleep);
    ///
    /// let requests = async {
    ///     for _ in 0..3 {
    ///         let (now, request) = (limiter.clock().now(), limiter.ask("index"));
    ///         let delay = request.check_at(now).outcome.delay();
    ///         queue.wait(Some(request.turn()), delay, now).await;
    ///         assert!(limiter.clock().now() >= now.after(delay));
    ///     }
    /// };
    /// futures_lite::future::or(run, requests).await;
    /// # Ok::<(), tollgate::RuleError>(()) }).unwrap();
    /// ```
    pub fn run_with<S: Future<Output = ()>, F: FnMut(Duration) -> S>(
        &self,
        mut sleep: F,
    ) -> impl Future<Output = ()> + use<S, F> {
        let mut runner = Runner::new(Arc::clone(&self.shared));
        async move {
            let mut timer = pin!(None);
            poll_fn(|context| runner.poll(context, timer.as_mut(), &mut sleep)).await;
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
        Place::InLine(Entry { line, id, key, turn })
    }

    fn remove_if_empty(&self, key: u64) {
        let mut lines = self.lines.lock();
        if lines.get(&key).is_some_and(|line| line.lock().is_empty()) {
            lines.remove(&key);
        }
    }

    fn wake_due(&self, now: Timestamp) {
        // Every step wakes a request, or moves an alarm behind `now`.
        for _ in 0..=self.waiting.load(Ordering::Relaxed) {
            let Some((alarm, line)) = self.schedule.take_due(now) else { return };
            self.schedule.ring(alarm, &line, now).wake();
        }
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
                Place::InLine(entry) => match ready!(entry.poll_first(shared, context)) {
                    First::At(at) => at,
                    First::WillBeWoken => {
                        timer.set(None);
                        return Poll::Pending;
                    }
                },
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

/// The first request of a line.
enum First {
    /// It goes at this time, which does not change. Before that time, it needs a timer.
    At(Timestamp),
    /// Its time has not come, and the future of [`DelayQueue::run_with`] wakes it then.
    WillBeWoken,
}

impl Entry {
    /// Ready if it is the first in line.
    fn poll_first(&self, shared: &Shared, context: &Context<'_>) -> Poll<First> {
        let waker = context.waker().clone();
        let mut line = self.line.lock();
        let turn = line.turn_of(self.id);
        if let Some(at) = turn.filter(|at| *at <= shared.clock.now()) {
            return Poll::Ready(First::At(at));
        }
        let before = line.set_waker(self.id, waker);
        let (first, runner) = match turn {
            None => (Poll::Pending, None),
            Some(at) => {
                let runner = shared.schedule.set_alarm(&mut line, &self.line, self.key, at);
                let is_run = shared.schedule.is_run();
                (Poll::Ready(if is_run { First::WillBeWoken } else { First::At(at) }), runner)
            }
        };
        drop(line);
        drop(before);
        Wakers { request: None, runner }.wake();
        first
    }

    /// Leaves the line when its turn has come.
    fn finish(&self, shared: &Shared, now: Timestamp) {
        self.leave(shared, now, |line, turn| {
            let by = line.postpone(now);
            if !by.is_zero() {
                // Otherwise the limit would give the turns of requests that still wait to new requests.
                turn.postpone_at(by, line.last_at(), now);
            }
            Nanos::ZERO
        });
    }

    /// Leaves the line before its turn.
    fn give_up(&self, shared: &Shared) {
        let now = shared.clock.now();
        self.leave(shared, now, |_, turn| turn.withdraw_at(now));
    }

    /// `sooner` changes the limit, and returns by how much the requests behind go sooner. It runs under the lock of the line, so
    /// that a request that enters meanwhile comes behind all that have been moved.
    fn leave(&self, shared: &Shared, now: Timestamp, sooner: impl FnOnce(&mut Line, &Turn) -> Nanos) {
        let mut line = self.line.lock();
        let sooner = sooner(&mut line, &self.turn);
        let Removed { own, was_first } = line.remove(self.id, sooner);
        let next = match was_first {
            true => shared.schedule.follow_first(&mut line, &self.line, self.key, now),
            false => Wakers::default(),
        };
        let is_empty = line.is_empty();
        drop(line);
        drop(own);
        next.wake();
        if is_empty {
            shared.remove_if_empty(self.key);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Place::InLine(entry) = &self.place {
            entry.give_up(&self.shared);
        }
    }
}

#[cfg(test)]
mod tests;
