use std::sync::atomic::AtomicBool;
use std::task::Wake;

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
}

impl Setup {
    fn new(rule: Rule) -> Self {
        let clock = Clock::manual();
        let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
        Self { queue: DelayQueue::new(clock.clone()), clock, limiter }
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
            for (number, slot) in clients.iter_mut().enumerate().rev() {
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
    assert!(setup.queue.shared.lines.lock().is_empty() && setup.queue.shared.alarms.lock().is_empty());
    assert!(gone.is_sorted(), "requests go in the order in which they came: {gone:?}");
    gone.into_iter().map(|(_, ms)| ms).collect()
}

#[test]
fn requests_go_at_the_rate_of_the_limit() {
    assert_eq!(times(&Setup::new(leaky(9)), 5, &[]), [0, 100, 200, 300, 400]);
}

#[test]
fn requests_behind_one_that_leaves_go_sooner() {
    let setup = Setup::new(leaky(9));
    assert_eq!(times(&setup, 5, &[1, 3]), [0, 100, 200]);
    assert_eq!(setup.limiter.remaining("index"), 9);
}

#[test]
fn requests_of_a_bucket_with_max_wait_go_sooner_too() {
    let bucket = TokenBucket::new(Rate::per_second(10).unwrap(), 1).unwrap();
    let rule = MaxWait::new(bucket, Duration::from_secs(1), 10).unwrap();
    assert_eq!(times(&Setup::new(rule.into()), 5, &[2]), [0, 100, 200, 300]);
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
    let setup = Setup::new(leaky(10));
    let mut clients: Vec<Client> = (0..20).filter_map(|_| setup.request()).collect();
    assert_eq!(clients.len(), 10);
    let ready: Vec<bool> = clients.iter_mut().map(Client::is_ready).collect();
    assert_eq!(ready.iter().position(|is_ready| *is_ready), Some(0));
    setup.advance(850); // the turns of eight requests have come
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
    let clock = Clock::new();
    let rule = LeakyBucket::new(Rate::per_second(10_000).unwrap(), 2000).unwrap();
    let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
    let queue = DelayQueue::new(clock.clone());
    std::thread::scope(|scope| {
        for thread in 0..4 {
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
            });
        }
    });
    assert_eq!(queue.waiting(), 0);
    assert!(queue.shared.lines.lock().is_empty() && queue.shared.alarms.lock().is_empty());
}
