use std::cell::RefCell;
use std::time::Duration;

use futures_lite::future::{block_on, poll_once};
use tollgate_core::{Concurrency, LeakyBucket, MaxWait, Rate, TokenBucket};
use tollgate_testkit::Random;

use super::*;
use crate::{KeyedLimiter, Limiter};

const SECOND: Nanos = Nanos::new(1_000_000_000);

fn bucket(per_second: u64, burst: u64) -> TokenBucket {
    TokenBucket::new(Rate::per_second(per_second).unwrap(), burst).unwrap()
}

fn limiter() -> Limiter {
    Limiter::with_clock(bucket(1, 1), Clock::manual())
}

/// Asks a future how it stands.
async fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_once(future).await
}

#[test]
fn those_who_wait_are_served_in_the_order_they_came() {
    block_on(async {
        let limiter = KeyedLimiter::builder(bucket(1, 1)).clock(Clock::manual()).build();
        let served = RefCell::new(vec![Vec::new(); 3]);
        let wait = |i: usize| {
            let (limiter, served) = (&limiter, &served);
            Box::pin(async move {
                limiter.ask(&(i % 3)).until_ready().await.unwrap();
                served.borrow_mut()[i % 3].push(i);
            })
        };
        let mut waiting: Vec<_> = (0..60).map(wait).collect();
        for second in 1..=20_usize {
            let mut still_waiting = Vec::new();
            for mut future in waiting {
                if poll(&mut future).await.is_none() {
                    still_waiting.push(future);
                }
            }
            waiting = still_waiting;
            // From now on asked from the last to the first and back, which is no way to the front.
            waiting.reverse();
            let expected = |key| (0..second).map(|n| 3 * n + key).collect::<Vec<usize>>();
            assert_eq!(*served.borrow(), [expected(0), expected(1), expected(2)]);
            limiter.clock().advance(SECOND);
        }
        assert!(waiting.is_empty());
    });
}

#[test]
fn a_newcomer_goes_to_the_end_of_the_line() {
    block_on(async {
        let limiter = limiter();
        limiter.until_ready().await.unwrap();
        let mut first = Box::pin(limiter.until_ready());
        let mut second = Box::pin(limiter.until_ready());
        assert!(poll(&mut first).await.is_none());
        assert!(poll(&mut second).await.is_none());
        limiter.clock().advance(SECOND);
        // There is a token, but it is the first one's.
        let mut third = Box::pin(limiter.until_ready());
        assert!(poll(&mut third).await.is_none());
        assert!(poll(&mut second).await.is_none());
        assert!(poll(&mut first).await.is_some());
        assert!(poll(&mut third).await.is_none());
        limiter.clock().advance(SECOND);
        assert!(poll(&mut third).await.is_none());
        assert!(poll(&mut second).await.is_some());
        // Whoever does not wait takes what is there.
        limiter.clock().advance(SECOND);
        assert!(limiter.check().is_allowed());
        assert!(poll(&mut third).await.is_none());
        limiter.clock().advance(SECOND);
        assert_eq!(poll(&mut third).await.unwrap().unwrap().remaining, 0);
    });
}

#[test]
fn whoever_stops_waiting_has_been_charged_nothing() {
    block_on(async {
        let (limiter, mut random) = (limiter(), Random::new(2));
        assert!(limiter.check().is_allowed());
        let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(limiter.until_ready())).collect();
        for future in &mut waiting {
            assert!(poll(future).await.is_none());
        }
        // Of those that have not been dropped, in any order, each is served when its second comes.
        for left in (0..20).rev() {
            while waiting.len() > left + 1 && random.below(40) != 0 {
                drop(waiting.swap_remove(random.below(waiting.len() as u64) as usize));
            }
            limiter.clock().advance(SECOND);
            let mut served = 0;
            let mut still_waiting = Vec::new();
            for mut future in waiting {
                match poll(&mut future).await {
                    Some(result) => served += usize::from(result.is_ok()),
                    None => still_waiting.push(future),
                }
            }
            waiting = still_waiting;
            assert_eq!(served, 1, "with {left} to come");
        }
        waiting.clear();
        assert_eq!(limiter.waiting(), 0);
        limiter.clock().advance(SECOND);
        assert_eq!(limiter.peek().reset_after, Nanos::ZERO);
    });
}

#[test]
fn what_gets_better_otherwise_than_by_time_is_noticed() {
    block_on(async {
        let limiter = limiter();
        let charged = limiter.clock().now();
        let betters: [(&str, &dyn Fn()); 3] = [
            ("reset", &|| limiter.reset()),
            ("refund", &|| assert_eq!(limiter.refund(1, charged), 1)),
            ("rule", &|| limiter.set_rule(Concurrency::new(5, None).unwrap())),
        ];
        for (what, better) in betters {
            limiter.set_rule(bucket(1, 1));
            limiter.reset();
            assert!(limiter.check().is_allowed());
            let mut waiting = Box::pin(limiter.until_ready());
            assert!(poll(&mut waiting).await.is_none());
            better();
            assert!(poll(&mut waiting).await.is_some(), "{what}");
        }
    });
}

#[test]
fn a_permit_that_is_given_back_goes_to_who_waits() {
    block_on(async {
        let limiter =
            KeyedLimiter::builder(Concurrency::new(1, None).unwrap()).clock(Clock::manual()).build();
        let held = limiter.ask("a").until_acquired().await.unwrap();
        let mut first = Box::pin(limiter.ask("a").until_acquired());
        let mut second = Box::pin(limiter.ask("a").until_acquired());
        assert!(poll(&mut first).await.is_none());
        assert!(poll(&mut second).await.is_none());
        assert!(limiter.ask("b").until_acquired().await.is_ok()); // somebody else's line
        drop(held);
        assert!(poll(&mut second).await.is_none());
        let held = poll(&mut first).await.unwrap().unwrap();
        drop(held);
        drop(poll(&mut second).await.unwrap().unwrap());
        assert_eq!(limiter.remaining("a"), 1);
        let too_many = limiter.ask("a").cost(2).until_acquired().await;
        assert_eq!(too_many.unwrap_err(), NotReady::Never);
    });
}

#[test]
fn a_rule_that_holds_back_is_waited_for_without_taking_a_place_in_it() {
    let queue = LeakyBucket::new(Rate::per_second(1).unwrap(), 5).unwrap();
    let patient = MaxWait::new(bucket(1, 1), Duration::from_secs(5), 5).unwrap();
    for limiter in
        [Limiter::with_clock(queue, Clock::manual()), Limiter::with_clock(patient, Clock::manual())]
    {
        block_on(async {
            limiter.until_ready().await.unwrap();
            let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(limiter.until_ready())).collect();
            for future in &mut waiting {
                assert!(poll(future).await.is_none());
            }
            let taken = limiter.peek();
            waiting.clear();
            assert_eq!(limiter.peek(), taken);
            limiter.clock().advance(SECOND);
            assert_eq!(limiter.until_ready().await.unwrap().reset_after, SECOND);
        });
    }
}

#[test]
fn as_many_wait_as_may() {
    block_on(async {
        let limiter = &KeyedLimiter::builder(bucket(1, 1)).clock(Clock::manual()).max_waiting(2).build();
        for key in 0..3 {
            limiter.until_ready(&key).await.unwrap();
        }
        let mut waiting: Vec<_> =
            (0..2).map(|key| Box::pin(async move { limiter.until_ready(&key).await })).collect();
        for future in &mut waiting {
            assert!(poll(future).await.is_none());
        }
        assert_eq!(limiter.until_ready(&2).await, Err(NotReady::TooManyWaiting));
        waiting.pop();
        assert!(poll(&mut Box::pin(limiter.until_ready(&2))).await.is_none());
    });
}

#[test]
fn on_a_real_clock_nobody_is_early() {
    let limiter = Limiter::new(bucket(200, 1));
    let start = limiter.clock().now();
    block_on(async {
        limiter.until_ready().await.unwrap();
        for n in 1..=5 {
            limiter.until_ready().await.unwrap();
            assert!(limiter.clock().now().since(start) >= Nanos::new(n * 5_000_000));
        }
    });
}

/// No later time comes, and still whoever waits lets others have their turn.
#[test]
fn at_the_end_of_time_a_wait_lets_go() {
    block_on(async {
        let limiter = limiter();
        limiter.clock().advance(Duration::MAX);
        limiter.clock().advance(SECOND);
        assert_eq!(limiter.clock().now(), Timestamp::from_nanos(u64::MAX));
        assert!(limiter.check().is_allowed());
        let mut waiting = Box::pin(limiter.until_ready());
        for _ in 0..3 {
            assert!(poll(&mut waiting).await.is_none());
        }
    });
}

/// Where nobody knows how long, the table is looked at again, more and more seldom.
#[test]
fn a_full_table_is_looked_at_again() {
    block_on(async {
        let builder = KeyedLimiter::builder(bucket(1, 1)).clock(Clock::manual()).max_keys(1);
        let limiter = builder.when_full(crate::WhenFull::Deny).build();
        assert!(limiter.check("taken").is_allowed());
        let mut waiting = Box::pin(limiter.until_ready("newcomer"));
        assert!(poll(&mut waiting).await.is_none());
        let before = limiter.stats().refused;
        for _ in 0..900 {
            limiter.clock().advance(Duration::from_millis(1));
            assert!(poll(&mut waiting).await.is_none());
        }
        // After 10, 30, 70, 150, 310 and 630 ms.
        assert_eq!(limiter.stats().refused - before, 6);
        limiter.clock().advance(SECOND);
        assert!(poll(&mut waiting).await.is_some());
    });
}
