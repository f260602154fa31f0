use std::cell::RefCell;

use futures_lite::future::{block_on, poll_once};
use tollgate_core::Nanos;
use tollgate_testkit::Random;

use super::*;

async fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_once(future).await
}

#[test]
fn tenants_share_by_weight_and_cost() {
    block_on(async {
        let semaphore = FairSemaphore::new(4);
        let served = RefCell::new([0_u64; 3]);
        let (weights, costs) = ([1, 2, 8], [1, 2, 1]);
        // Everybody always has ten waiting; of the slots in use one ends after the other.
        let wait = |tenant: usize| {
            let (semaphore, served) = (&semaphore, &served);
            Box::pin(async move {
                let weight = Weight::new(weights[tenant]).unwrap();
                let request = semaphore.ask(&tenant).weight(weight).cost(costs[tenant]);
                let slot = request.acquire().await.unwrap();
                served.borrow_mut()[tenant] += costs[tenant];
                (tenant, slot)
            })
        };
        let mut waiting: Vec<_> = (0..30).map(|i| wait(i % 3)).collect();
        let mut slots = std::collections::VecDeque::new();
        for _ in 0..5000 {
            let mut still_waiting = Vec::new();
            for mut future in waiting {
                match poll(&mut future).await {
                    Some((tenant, slot)) => {
                        slots.push_back(slot);
                        still_waiting.push(wait(tenant));
                    }
                    None => still_waiting.push(future),
                }
            }
            waiting = still_waiting;
            assert!(semaphore.slots_in_use() == 4, "no slot is free while somebody waits");
            slots.pop_front();
        }
        let served = *served.borrow();
        let unit = served.iter().sum::<u64>() as f64 / 11.0;
        for (served, weight) in served.into_iter().zip(weights) {
            let share = served as f64 / unit;
            assert!((share - f64::from(weight)).abs() < 0.05 * f64::from(weight), "{share} of {weight}");
        }
    });
}

#[test]
fn whoever_leaves_takes_nothing_along() {
    block_on(async {
        let (semaphore, mut random) = (FairSemaphore::new(3), Random::new(1));
        let mut slots: Vec<_> = (0..3).map(|i| semaphore.try_acquire(&i, 1).unwrap()).collect();
        for _ in 0..200 {
            let mut waiting: Vec<_> =
                (0..30).map(|i| Box::pin(semaphore.ask(&(i % 7)).cost(1 + i).acquire())).collect();
            for future in &mut waiting {
                assert!(poll(future).await.is_none());
            }
            assert_eq!(semaphore.waiting(), 30);
            // Slots come free: some are given to those who leave before they look.
            slots.truncate(random.below(3) as usize);
            while waiting.len() > 20 {
                drop(waiting.swap_remove(random.below(waiting.len() as u64) as usize));
            }
            for mut future in waiting {
                slots.extend(poll(&mut future).await.map(Result::unwrap));
            }
            assert_eq!(semaphore.waiting(), 0);
            assert_eq!(slots.len(), semaphore.slots_in_use());
            assert_eq!(slots.len(), 3);
        }
        slots.clear();
        assert_eq!(semaphore.slots_in_use(), 0);
    });
}

#[test]
fn deadlines_and_bounds_are_kept() {
    block_on(async {
        let clock = Clock::manual();
        let semaphore =
            FairSemaphore::builder(1).clock(clock.clone()).max_waiting(2).max_waiting_each(1).build();
        let slot = semaphore.acquire("a", 1).await.unwrap();
        let deadline = clock.now().after(Nanos::new(10));
        let mut late = Box::pin(semaphore.ask("a").deadline(deadline).acquire());
        assert!(poll(&mut late).await.is_none());
        assert_eq!(semaphore.acquire("a", 1).await.unwrap_err(), NoSlot::TooManyOfTenant);
        let mut patient = Box::pin(semaphore.acquire("b", 1));
        assert!(poll(&mut patient).await.is_none());
        assert_eq!(semaphore.acquire("c", 1).await.unwrap_err(), NoSlot::TooManyWaiting);
        clock.advance(Nanos::new(10));
        assert!(poll(&mut late).await.is_none()); // at the deadline it is still worth starting
        clock.advance(Nanos::new(1));
        assert_eq!(poll(&mut late).await.unwrap().unwrap_err(), NoSlot::Expired);
        assert_eq!(semaphore.waiting(), 1);
        drop(slot);
        assert!(poll(&mut patient).await.unwrap().is_ok());
        // A deadline that has passed is found when the turn comes, too.
        let slot = semaphore.acquire("a", 1).await.unwrap();
        let mut late = Box::pin(semaphore.ask("a").deadline(clock.now()).acquire());
        assert!(poll(&mut late).await.is_none());
        clock.advance(Nanos::new(1));
        drop(slot);
        assert_eq!(poll(&mut late).await.unwrap().unwrap_err(), NoSlot::Expired);
    });
}

#[test]
fn where_nobody_may_wait_nobody_does() {
    block_on(async {
        let semaphore = FairSemaphore::builder(1).max_waiting_each(0).build();
        let slot = semaphore.acquire("a", 0).await.unwrap();
        assert_eq!(semaphore.acquire("b", 1).await.unwrap_err(), NoSlot::TooManyOfTenant);
        drop(slot);
        let semaphore = FairSemaphore::builder(1).max_waiting(0).build();
        let slot = semaphore.acquire("a", 0).await.unwrap();
        assert_eq!(semaphore.acquire("b", 1).await.unwrap_err(), NoSlot::TooManyWaiting);
        slot.finish(u64::MAX);
        assert!(semaphore.acquire("b", u64::MAX).await.is_ok());
    });
}

#[test]
fn more_slots_wake_those_who_wait() {
    block_on(async {
        let semaphore = FairSemaphore::new(0);
        let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(semaphore.acquire("a", 1))).collect();
        for future in &mut waiting {
            assert!(poll(future).await.is_none());
        }
        semaphore.set_slots(2);
        let mut slots = Vec::new();
        for future in &mut waiting {
            slots.extend(poll(future).await);
        }
        assert_eq!(slots.len(), 2);
        // Fewer slots than are in use: nobody is served until enough have been given back.
        semaphore.set_slots(1);
        slots.pop();
        assert_eq!((semaphore.slots_in_use(), semaphore.waiting()), (1, 3));
        assert!(semaphore.try_acquire("b", 1).is_none());
        slots.pop();
        assert_eq!((semaphore.slots_in_use(), semaphore.waiting()), (1, 2));
    });
}
