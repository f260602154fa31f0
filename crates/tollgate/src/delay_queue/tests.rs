use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicBool;
use std::task::{Wake, Waker};

use tollgate_core::{LeakyBucket, MaxWait, Rate, Rule, TokenBucket};

use super::*;
use crate::KeyedLimiter;

/// Ten requests per second, of which `queue` may be in the bucket.
fn leaky(queue: u64) -> Rule {
    LeakyBucket::new(Rate::per_second(10).unwrap(), queue).unwrap().into()
}

struct Setup {
    clock: Clock,
    limiter: KeyedLimiter,
    queue: DelayQueue,
    run: RefCell<Option<Run>>, // one timer for all lines, if there is
    polls: Cell<usize>,        // of requests
}

/// The future of [`DelayQueue::run_with`].
struct Run {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Woken>,
}

impl Run {
    fn new(queue: &DelayQueue, clock: &Clock) -> Self {
        let clock = clock.clone();
        let sleep = move |span| clock.sleep_until(clock.now().after(Nanos::saturating_from(span)));
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        Self { future: Box::pin(queue.run_with(sleep)), woken }
    }

    /// Polls it if it has been woken. Whether it has ended.
    fn has_ended(&mut self) -> bool {
        let was_woken = self.woken.0.swap(false, std::sync::atomic::Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self.woken));
        was_woken && self.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }
}

impl Setup {
    fn new(rule: Rule) -> Self {
        let clock = Clock::manual();
        let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
        let queue = DelayQueue::new(clock.clone());
        Self { queue, clock, limiter, run: RefCell::default(), polls: Cell::default() }
    }

    /// Has one timer for all lines.
    fn run(self) -> Self {
        *self.run.borrow_mut() = Some(Run::new(&self.queue, &self.clock));
        self
    }

    /// Polls the future of the one timer, if it has been woken.
    fn poll_run(&self) {
        if let Some(run) = &mut *self.run.borrow_mut() {
            assert!(!run.has_ended());
        }
    }

    /// A request that comes now. None where it is denied.
    fn request(&self) -> Option<Client> {
        let (now, request) = (self.clock.now(), self.limiter.ask("index"));
        let decision = request.check_at(now);
        let wait = || self.queue.wait(Some(request.turn()), decision.outcome.delay(), now);
        decision.is_allowed().then(|| Client { wait: wait(), woken: Arc::new(Woken(AtomicBool::new(true))) })
    }

    fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }
}

/// A client that polls its future when it has been woken, and at no other time.
struct Client {
    wait: Wait,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Client {
    fn is_ready(&mut self) -> bool {
        let was_woken = self.woken.0.swap(false, std::sync::atomic::Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self.woken));
        was_woken && Pin::new(&mut self.wait).poll(&mut Context::from_waker(&waker)).is_ready()
    }
}

/// The milliseconds at which `count` requests go that come together. Those of `leaving` leave after 1 ms.
fn times(setup: &Setup, count: usize, leaving: &[usize]) -> Vec<u64> {
    let mut clients: Vec<Option<Client>> = (0..count).map(|_| setup.request()).collect();
    let mut gone = Vec::new();
    for ms in 0..2000 {
        // The last is polled first: the order of polls is not the order of turns.
        let mut progress = true;
        while std::mem::take(&mut progress) {
            setup.poll_run();
            for (number, slot) in clients.iter_mut().enumerate().rev() {
                let is_woken = |client: &Client| client.woken.0.load(std::sync::atomic::Ordering::Relaxed);
                setup.polls.update(|polls| polls + usize::from(slot.as_ref().is_some_and(is_woken)));
                if slot.as_mut().is_some_and(Client::is_ready) {
                    *slot = None;
                    gone.push((number, ms));
                    progress = true;
                }
            }
        }
        setup.advance(1);
        if ms == 0 {
            leaving.iter().for_each(|number| clients[*number] = None);
        }
    }
    assert_eq!(setup.queue.waiting(), 0);
    assert!(setup.queue.shared.lines.lock().is_empty() && setup.queue.shared.schedule.is_empty());
    assert!(gone.is_sorted(), "requests go in the order in which they came: {gone:?}");
    gone.into_iter().map(|(_, ms)| ms).collect()
}

/// Has the requests woken by their own timers, and by one timer for all.
fn both_ways(rule: Rule) -> [Setup; 2] {
    [Setup::new(rule), Setup::new(rule).run()]
}

#[test]
fn requests_go_at_the_rate_of_the_limit() {
    for setup in both_ways(leaky(9)) {
        assert_eq!(times(&setup, 5, &[]), [0, 100, 200, 300, 400]);
    }
}

#[test]
fn requests_behind_one_that_leaves_go_sooner() {
    for setup in both_ways(leaky(9)) {
        assert_eq!(times(&setup, 5, &[1, 3]), [0, 100, 200]);
        assert_eq!(setup.limiter.remaining("index"), 9);
    }
}

#[test]
fn requests_of_a_bucket_with_max_wait_go_sooner_too() {
    let bucket = TokenBucket::new(Rate::per_second(10).unwrap(), 1).unwrap();
    let rule = MaxWait::new(bucket, Duration::from_secs(1), 10).unwrap();
    for setup in both_ways(rule.into()) {
        assert_eq!(times(&setup, 5, &[2]), [0, 100, 200, 300]);
    }
}

/// Any requests of ten that come together may leave after 1 ms, the first in line included.
#[test]
fn one_timer_for_all_lines_changes_no_turn() {
    for leaving in 0..1 << 9 {
        let leaving: Vec<usize> = (1..10).filter(|number| leaving >> (number - 1) & 1 == 1).collect();
        let [own, all] = both_ways(leaky(10)).map(|setup| times(&setup, 10, &leaving));
        assert_eq!(own, all, "{leaving:?} leave");
        assert_eq!(all.len(), 10 - leaving.len());
    }
}

/// Each is polled when it comes, and when its turn has come. With timers of its own, it is also polled when it becomes the first.
#[test]
fn with_one_timer_for_all_lines_a_request_that_goes_wakes_no_other() {
    let polls = both_ways(leaky(10)).map(|setup| {
        assert_eq!(times(&setup, 10, &[]).len(), 10);
        setup.polls.get()
    });
    assert_eq!(polls, [1 + 2 + 8 * 3, 1 + 9 * 2]);
}

/// The second turn comes while the first request has not been polled.
#[test]
fn requests_go_in_order_if_the_first_is_polled_late() {
    let setup = Setup::new(leaky(9)).run();
    let mut clients: Vec<Client> = (0..4).filter_map(|_| setup.request()).collect();
    let mut ready = |numbers: &[usize]| -> Vec<bool> {
        setup.poll_run();
        numbers.iter().map(|number| clients[*number].is_ready()).collect()
    };
    assert_eq!(ready(&[0, 1, 2, 3]), [true, false, false, false]);
    setup.advance(100);
    setup.poll_run();
    setup.advance(110);
    assert_eq!(ready(&[3, 2]), [false, false]);
    // The line makes up for 25 ms of the 110 ms: the others go later by 85 ms.
    assert_eq!(ready(&[1, 2, 3]), [true, false, false]);
    setup.advance(74);
    assert_eq!(ready(&[2, 3]), [false, false]);
    setup.advance(1);
    assert_eq!(ready(&[2, 3]), [true, false]);
    setup.advance(100);
    assert_eq!(ready(&[3]), [true]);
}

#[test]
fn requests_have_their_own_timers_after_the_timer_for_all_is_dropped() {
    let setup = Setup::new(leaky(9)).run();
    let mut clients: Vec<Client> = (0..3).filter_map(|_| setup.request()).collect();
    setup.poll_run();
    clients.iter_mut().for_each(|client| _ = client.is_ready());
    *setup.run.borrow_mut() = None;
    assert!(!clients[1].is_ready() && !clients[2].is_ready());
    for number in [1, 2] {
        setup.advance(100);
        assert!(clients[number].is_ready());
        assert!(!clients.iter_mut().any(Client::is_ready));
    }
}

#[test]
fn a_second_timer_for_all_lines_ends_the_first() {
    let setup = Setup::new(leaky(9)).run();
    setup.poll_run();
    let mut clients: Vec<Client> = (0..2).filter_map(|_| setup.request()).collect();
    clients.iter_mut().for_each(|client| _ = client.is_ready());
    let mut second = Run::new(&setup.queue, &setup.clock);
    assert!(!second.has_ended());
    assert!(setup.run.take().unwrap().has_ended());
    setup.advance(100);
    assert!(!second.has_ended());
    assert!(clients[1].is_ready());
}

#[test]
fn a_request_goes_at_once_when_all_others_have_left() {
    let setup = Setup::new(leaky(9));
    let mut clients: Vec<Client> = (0..9).filter_map(|_| setup.request()).collect();
    let ready: Vec<bool> = clients.iter_mut().map(Client::is_ready).collect();
    assert_eq!(ready.iter().filter(|is_ready| **is_ready).count(), 1);
    assert_eq!(setup.queue.waiting(), 8);
    setup.advance(100); // the turn that the first request has used is over
    drop(clients);
    assert_eq!(setup.queue.waiting(), 0);
    assert!(setup.request().unwrap().is_ready());
}

#[test]
fn a_future_that_was_never_polled_gives_its_turn_up() {
    let setup = Setup::new(leaky(3));
    let clients: Vec<Client> = (0..3).filter_map(|_| setup.request()).collect();
    assert_eq!((clients.len(), setup.limiter.remaining("index")), (3, 0));
    drop(clients);
    // The first has no delay: its turn has come, and cannot be given up.
    assert_eq!(setup.limiter.remaining("index"), 2);
}

/// Ten requests, one per 100 ms. The machine stalls for most of a second.
#[test]
fn a_queue_that_has_stalled_stays_within_its_bound() {
    both_ways(leaky(10)).iter().for_each(stall);
}

fn stall(setup: &Setup) {
    setup.poll_run();
    let mut clients: Vec<Client> = (0..20).filter_map(|_| setup.request()).collect();
    assert_eq!(clients.len(), 10);
    let ready: Vec<bool> = clients.iter_mut().map(Client::is_ready).collect();
    assert_eq!(ready.iter().position(|is_ready| *is_ready), Some(0));
    setup.poll_run();
    setup.advance(850); // the turns of eight requests have come
    setup.poll_run();
    assert!(clients[1].is_ready());
    // The other eight still wait, so that there is room for one or two and not for nine.
    let more: Vec<Client> = (0..20).filter_map(|_| setup.request()).collect();
    assert!((1..=2).contains(&more.len()), "{}", more.len());
    assert!(setup.queue.waiting() <= 10, "{:?}", setup.queue);
}

#[test]
fn wake_due_wakes_the_first_request_when_its_turn_has_come() {
    let setup = Setup::new(leaky(9));
    let mut clients: Vec<Client> = (0..3).filter_map(|_| setup.request()).collect();
    clients.iter_mut().for_each(|client| _ = client.is_ready());
    let woken = |clients: &[Client]| -> Vec<bool> {
        clients.iter().map(|client| client.woken.0.load(std::sync::atomic::Ordering::Relaxed)).collect()
    };
    let turn = setup.clock.now().after(Nanos::new(100_000_000));
    setup.queue.wake_due(Timestamp::from_nanos(turn.as_nanos() - 1));
    assert_eq!(woken(&clients), [false; 3]);
    setup.queue.wake_due(turn);
    assert_eq!(woken(&clients), [false, true, false]);
    // By the clock, its turn has not come. It waits on, and can be woken again.
    assert!(!clients[1].is_ready());
    setup.queue.wake_due(turn);
    assert_eq!(woken(&clients), [false, true, false]);
}

#[test]
fn wake_due_wakes_the_task_that_polled_last() {
    let setup = Setup::new(leaky(9));
    let mut clients: Vec<Client> = (0..2).filter_map(|_| setup.request()).collect();
    assert!(!clients[1].is_ready());
    clients[1].woken = Arc::new(Woken(AtomicBool::new(true)));
    assert!(!clients[1].is_ready());
    setup.queue.wake_due(setup.clock.now().after(Nanos::new(100_000_000)));
    assert!(clients[1].woken.0.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn a_request_without_a_turn_waits_for_its_delay_from_now() {
    let clock = Clock::manual();
    let queue = DelayQueue::new(clock.clone());
    let decided_at = clock.now();
    clock.advance(Duration::from_millis(30)); // the store took this long to answer
    let mut wait = queue.wait(None, Nanos::new(100_000_000), decided_at);
    let is_ready = |wait: &mut Wait| Pin::new(wait).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert!(!is_ready(&mut wait));
    assert_eq!(queue.waiting(), 1);
    clock.advance(Duration::from_nanos(99_999_999));
    assert!(!is_ready(&mut wait));
    clock.advance(Duration::from_nanos(1));
    assert!(is_ready(&mut wait) && is_ready(&mut wait), "a wait that has ended stays so");
    assert_eq!(queue.waiting(), 0);
    drop(wait);
    assert_eq!(queue.waiting(), 0);
}

#[test]
fn a_timer_that_ends_too_early_is_set_again() {
    let setup = Setup::new(leaky(9));
    assert!(setup.request().unwrap().is_ready());
    let (now, request) = (setup.clock.now(), setup.limiter.ask("index"));
    let (delay, mut spans) = (request.check_at(now).outcome.delay(), Vec::new());
    let wait = setup.queue.wait_with(Some(request.turn()), delay, now, |span| {
        spans.push(span.as_millis());
        setup.advance(60);
        std::future::ready(())
    });
    futures_lite::future::block_on(wait);
    assert_eq!(spans, [100, 40]);
}

/// A thousand requests on real threads, of which every third leaves.
#[test]
fn threads_lose_no_request() {
    for is_run in [false, true] {
        lose_no_request(is_run);
    }
}

fn lose_no_request(is_run: bool) {
    let clock = Clock::new();
    let rule = LeakyBucket::new(Rate::per_second(10_000).unwrap(), 2000).unwrap();
    let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
    let queue = DelayQueue::new(clock.clone());
    let run = || {
        let sleep = |span| clock.sleep_until(clock.now().after(Nanos::saturating_from(span)));
        queue.run_with(sleep)
    };
    let has_ended = std::sync::atomic::AtomicBool::new(false);
    let end = || async {
        while !has_ended.load(std::sync::atomic::Ordering::Relaxed) {
            clock.sleep_until(clock.now().after(Nanos::new(1_000_000))).await;
        }
    };
    std::thread::scope(|scope| {
        if is_run {
            scope.spawn(|| futures_lite::future::block_on(futures_lite::future::or(run(), end())));
        }
        let requests = [0, 1, 2, 3].map(|thread| {
            let (clock, limiter, queue) = (&clock, &limiter, &queue);
            scope.spawn(move || {
                let requests = (0..250).map(|number| {
                    let (now, request) = (clock.now(), limiter.ask(&(number % 3)));
                    queue.wait(Some(request.turn()), request.check_at(now).outcome.delay(), now)
                });
                for (number, wait) in requests.collect::<Vec<_>>().into_iter().enumerate() {
                    if (number + thread) % 3 > 0 {
                        futures_lite::future::block_on(wait);
                    }
                }
            })
        });
        requests.into_iter().for_each(|thread| thread.join().unwrap());
        has_ended.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(queue.waiting(), 0);
    assert!(queue.shared.lines.lock().is_empty() && queue.shared.schedule.is_empty());
}
