//! Those who wait, in many orders of what may happen at once, tried by shuttle: see `sync.rs`. A wake-up that is
//! lost leaves somebody waiting for ever, which shuttle reports as a deadlock.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use shuttle::future::{block_on, spawn};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, MaxSteps, Runner};
use tollgate_core::adaptive::{Aimd, Bounds};
use tollgate_core::{Concurrency, LeakyBucket, Nanos, Rate, TokenBucket};

use crate::{AdaptiveLimiter, Clock, DelayQueue, FairSemaphore, KeyedLimiter, Limiter};

const SECOND: Nanos = Nanos::new(1_000_000_000);

/// Few who wait, in many orders; and as many as are promised, in some. A short run tries fewer orders than `./test --long`.
fn check(model: impl Fn(usize) + Copy + Send + Sync + 'static) {
    let (orders, orders_of_many) = if tollgate_testkit::is_long() { (3000, 3) } else { (300, 1) };
    for (n, orders) in [(4, orders), (1000, orders_of_many)] {
        let mut config = Config::new();
        config.max_steps = MaxSteps::FailAfter(20_000_000);
        Runner::new(RandomScheduler::new(orders), config).run(move || model(n));
    }
}

/// The future's output, unless it is dropped before: half of them are, after having been asked a few times.
async fn or_dropped<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut patience = thread_rng().gen_bool(0.5).then(|| thread_rng().gen_range(1..4));
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        match &mut patience {
            None => {}
            Some(0) => return Poll::Ready(None),
            Some(left) => {
                *left -= 1;
                context.waker().wake_by_ref();
            }
        }
        Poll::Pending
    })
    .await
}

/// Runs `n` of a task at once, and waits for all of them.
fn run<F: Future<Output = ()> + Send + 'static>(n: usize, task: impl Fn() -> F) {
    let tasks: Vec<_> = (0..n).map(|_| spawn(task())).collect();
    tasks.into_iter().for_each(|task| block_on(task).unwrap());
}

#[test]
fn dropping_those_who_wait_for_a_rate_loses_no_wake_up() {
    check(|n| {
        let rule = TokenBucket::new(Rate::per_second(1).unwrap(), 1).unwrap();
        let (limiter, served) = (Limiter::with_clock(rule, Clock::manual()), Arc::new(AtomicUsize::new(0)));
        // The time goes on until everybody has been served or dropped.
        let (clock, ended) = (limiter.clock().clone(), Arc::new(AtomicUsize::new(0)));
        let time = shuttle::thread::spawn({
            let (clock, ended) = (clock.clone(), Arc::clone(&ended));
            move || {
                while ended.load(Ordering::Relaxed) < n {
                    shuttle::thread::yield_now();
                    clock.advance(SECOND);
                }
            }
        });
        run(n, || {
            let (limiter, served, ended) = (limiter.clone(), Arc::clone(&served), Arc::clone(&ended));
            async move {
                if or_dropped(limiter.until_ready()).await.is_some() {
                    served.fetch_add(1, Ordering::Relaxed);
                }
                ended.fetch_add(1, Ordering::Relaxed);
            }
        });
        time.join().unwrap();
        assert_eq!(limiter.waiting(), 0);
        // Nobody was served without a token, and nobody was charged who was not served.
        let seconds = usize::try_from(clock.now().as_nanos() / SECOND.get()).unwrap();
        assert!(served.load(Ordering::Relaxed) <= 1 + seconds);
        clock.advance(SECOND);
        assert_eq!(limiter.peek().reset_after, Nanos::ZERO);
    });
}

#[test]
fn dropping_those_who_wait_for_a_permit_leaves_no_place_taken() {
    check(|n| {
        let limiter = Limiter::with_clock(Concurrency::new(2, None).unwrap(), Clock::manual());
        run(n, || {
            let limiter = limiter.clone();
            async move {
                let permit = or_dropped(limiter.until_acquired()).await;
                shuttle::future::yield_now().await;
                drop(permit);
            }
        });
        assert_eq!((limiter.waiting(), limiter.remaining()), (0, 2));
    });
}

#[test]
fn dropping_those_who_wait_for_a_slot_leaves_no_slot_taken() {
    check(|n| {
        let semaphore = FairSemaphore::builder(2).clock(Clock::manual()).build();
        run(n, || {
            let semaphore = semaphore.clone();
            async move {
                let tenant = thread_rng().gen_range(0..3);
                let slot = or_dropped(semaphore.acquire(&tenant, 1)).await;
                shuttle::future::yield_now().await;
                assert!(semaphore.slots_in_use() <= 2);
                drop(slot);
            }
        });
        assert_eq!((semaphore.waiting(), semaphore.slots_in_use()), (0, 0));
    });
}

#[test]
fn a_limit_that_moves_strands_nobody() {
    check(|n| {
        let aimd = Aimd::new(2, Bounds::new(1, 3).unwrap(), 500, std::time::Duration::from_secs(1)).unwrap();
        let limiter: AdaptiveLimiter = FairSemaphore::builder(0).clock(Clock::manual()).build_adaptive(aimd);
        run(n, || {
            let limiter = limiter.clone();
            async move {
                let Some(flight) = or_dropped(limiter.acquire("a", 1)).await else { return };
                let flight = flight.unwrap();
                shuttle::future::yield_now().await;
                match thread_rng().gen_range(0..3) {
                    0 => flight.success(),
                    1 => flight.dropped(),
                    _ => flight.ignore(),
                }
            }
        });
        assert_eq!((limiter.semaphore().waiting(), limiter.semaphore().slots_in_use()), (0, 0));
    });
}

#[test]
fn dropping_delayed_requests_loses_no_wake_up() {
    check(|n| drop_delayed_requests(n, false));
}

/// One future wakes the requests, and is dropped and started again at random times.
#[test]
fn dropping_delayed_requests_loses_no_wake_up_with_one_timer_for_all() {
    check(|n| drop_delayed_requests(n, true));
}

fn drop_delayed_requests(n: usize, is_run: bool) {
    let rule = LeakyBucket::new(Rate::per_second(1).unwrap(), n as u64).unwrap();
    let clock = Clock::manual();
    let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
    let (queue, ended) = (DelayQueue::new(clock.clone()), Arc::new(AtomicUsize::new(0)));
    let served = Arc::new(AtomicUsize::new(0));
    // The time goes on until all requests have been served or dropped.
    let time = shuttle::thread::spawn({
        let (clock, queue, ended) = (clock.clone(), queue.clone(), Arc::clone(&ended));
        move || {
            while ended.load(Ordering::Relaxed) < n {
                shuttle::thread::yield_now();
                clock.advance(SECOND);
                if !is_run {
                    queue.wake_due(clock.now());
                }
            }
        }
    });
    let run_queue = {
        let (clock, queue) = (clock.clone(), queue.clone());
        move || {
            let clock = clock.clone();
            queue.run_with(move |span| clock.sleep_until(clock.now().after(Nanos::saturating_from(span))))
        }
    };
    let has_ended = Arc::new(AtomicBool::new(false));
    let runner = is_run.then(|| {
        let (run_queue, ended, has_ended) = (run_queue.clone(), Arc::clone(&ended), Arc::clone(&has_ended));
        spawn(async move {
            while ended.load(Ordering::Relaxed) < n {
                or_dropped(run_queue()).await;
            }
            has_ended.store(true, Ordering::Relaxed);
        })
    });
    run(n, || {
        let (clock, limiter, queue) = (clock.clone(), limiter.clone(), queue.clone());
        let (served, ended) = (Arc::clone(&served), Arc::clone(&ended));
        async move {
            let (now, request) = (clock.now(), limiter.ask("index"));
            let delay = request.check_at(now).outcome.delay();
            if or_dropped(queue.wait(Some(request.turn()), delay, now)).await.is_some() {
                served.fetch_add(1, Ordering::Relaxed);
            }
            ended.fetch_add(1, Ordering::Relaxed);
        }
    });
    time.join().unwrap();
    if let Some(runner) = runner {
        // Another future takes over, and so ends the first; as often as the task begins one.
        while !has_ended.load(Ordering::Relaxed) {
            let mut another = pin!(run_queue());
            block_on(poll_fn(|context| Poll::Ready(another.as_mut().poll(context)))).is_pending();
            shuttle::thread::yield_now();
        }
        block_on(runner).unwrap();
    }
    assert_eq!(queue.waiting(), 0);
    assert!(served.load(Ordering::Relaxed) > 0);
    // A line that has stalled goes on later. After that, the limit is fully refilled.
    clock.advance(Nanos::new(SECOND.get() * n as u64));
    assert_eq!(limiter.remaining("index"), n as u64);
}

/// Shards are locked in an order that differs from plan to plan. One that waits out of order gives up, and begins again in order.
#[test]
fn plans_that_lock_busy_shards_last_do_not_wait_for_each_other_for_ever() {
    check(|n| {
        let n = n.min(16);
        let rule = TokenBucket::new(Rate::per_second(1).unwrap(), 1000).unwrap();
        let clock = Clock::manual();
        // Two shards are enough to wait for each other.
        let limiter = KeyedLimiter::builder(rule).clock(clock).max_keys(512).build();
        let keys: Vec<u64> = (0..4).collect();
        keys.iter().for_each(|key| _ = limiter.check(key));
        let marker = shuttle::thread::spawn({
            let limiter = limiter.clone();
            move || (0..4).for_each(|_| limiter.mark_busy_at_random(|| thread_rng().gen_bool(0.5)))
        });
        let plans: Vec<_> = (0..n)
            .map(|_| {
                let (limiter, mut keys) = (limiter.clone(), keys.clone());
                shuttle::thread::spawn(move || {
                    keys.rotate_left(thread_rng().gen_range(0..4));
                    let asks: [_; 4] = std::array::from_fn(|i| limiter.ask(&keys[i]));
                    assert!(KeyedLimiter::check_all(asks).0.is_allowed());
                })
            })
            .collect();
        plans.into_iter().for_each(|plan| plan.join().unwrap());
        marker.join().unwrap();
        let charged = 1 + n as u64;
        assert!((0..4_u64).all(|key| limiter.remaining(&key) == 1000 - charged));
    });
}
