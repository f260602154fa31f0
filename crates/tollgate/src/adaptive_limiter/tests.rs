use std::time::Duration;

use futures_lite::future::{block_on, poll_once};
use tollgate_core::Nanos;
use tollgate_core::adaptive::{Aimd, Bounds, Gradient2, Vegas};

use super::*;
use crate::Clock;

const MS: u64 = 1_000_000;

fn aimd(initial: u64) -> Aimd {
    Aimd::new(initial, Bounds::new(1, 100).unwrap(), 900, Duration::from_secs(5)).unwrap()
}

fn limiter(controller: impl Controller + Send + 'static) -> AdaptiveLimiter {
    FairSemaphore::builder(0).clock(Clock::manual()).build_adaptive(controller)
}

/// Takes as many places as there are.
fn fill(limiter: &AdaptiveLimiter) -> Vec<Flight> {
    std::iter::from_fn(|| limiter.try_acquire("a", 1)).collect()
}

#[test]
fn the_limit_is_the_number_of_places() {
    let limiter = limiter(aimd(10));
    let mut flights = fill(&limiter);
    assert_eq!(flights.len(), 10);
    // A drop takes a tenth: nobody is let in before the places beyond have been given back.
    flights.pop().unwrap().dropped();
    assert_eq!((limiter.limit(), limiter.semaphore().slots_in_use()), (9, 9));
    assert!(limiter.try_acquire("a", 1).is_none());
    // What is ignored, said or not, is not learnt from.
    flights.pop().unwrap().ignore();
    drop(flights.pop());
    assert_eq!((limiter.limit(), limiter.semaphore().slots_in_use()), (9, 7));
    // A success makes one place more, while at least half are in use.
    flights.pop().unwrap().success();
    assert_eq!(limiter.limit(), 10);
    flights.truncate(2);
    flights.pop().unwrap().success();
    assert_eq!(limiter.limit(), 10);
}

#[test]
fn those_who_wait_get_the_places_that_are_made() {
    block_on(async {
        let limiter = limiter(aimd(1));
        let flight = limiter.acquire("a", 1).await.unwrap();
        let mut first = Box::pin(limiter.acquire("a", 1));
        let mut second = Box::pin(limiter.acquire("b", 1));
        assert!(poll_once(&mut first).await.is_none());
        assert!(poll_once(&mut second).await.is_none());
        flight.success(); // one place given back, and one more
        let flights = (poll_once(&mut first).await, poll_once(&mut second).await);
        assert_eq!(limiter.semaphore().slots_in_use(), 2);
        drop(flights);
    });
}

#[test]
fn latency_that_grows_with_the_load_holds_the_limit_down() {
    let bounds = Bounds::new(1, 200).unwrap();
    let controllers: [Box<dyn Controller + Send>; 2] =
        [Box::new(Vegas::new(20, bounds, 1)), Box::new(Gradient2::new(20, bounds))];
    for controller in controllers {
        let limiter = limiter(Boxed(controller));
        // Thirty at a time take ten milliseconds; beyond that they queue.
        for _ in 0..3000 {
            let flights = fill(&limiter);
            let took = 10 * MS * (flights.len() as u64).max(30) / 30;
            limiter.semaphore().clock().advance(Nanos::new(took));
            flights.into_iter().for_each(Flight::success);
        }
        let limit = limiter.limit();
        assert!((25..=80).contains(&limit), "{limit}");
    }
}

/// One of several controllers.
struct Boxed(Box<dyn Controller + Send>);

impl Controller for Boxed {
    fn observe(&mut self, sample: Sample) {
        self.0.observe(sample);
    }

    fn limit(&self) -> u64 {
        self.0.limit()
    }
}
