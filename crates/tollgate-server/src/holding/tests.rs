use std::time::Duration;

use tollgate::{KeyedLimiter, LeakyBucket, Rate, TokenBucket};

use super::*;

fn ms(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

/// When each of those in line goes.
fn times(line: &Line) -> Vec<u64> {
    let mut at = line.first_at;
    let mut times = Vec::new();
    for (place, waiter) in line.waiting.iter().enumerate() {
        if place > 0 {
            at = at.after(waiter.after);
        }
        times.push(at.as_nanos() / 1_000_000);
    }
    assert!(times.last().is_none_or(|last| *last == line.last_at.as_nanos() / 1_000_000), "{line:?}");
    times
}

#[test]
fn whoever_leaves_moves_those_behind_forward_and_nobody_else() {
    let sooner = Nanos::new(10_000_000);
    for (leaves, expected) in [(0, [10, 20, 30]), (1, [10, 20, 30]), (2, [10, 20, 30]), (3, [10, 20, 30])] {
        let mut line = Line::default();
        let numbers = [10, 20, 30, 40].map(|at| line.enter(ms(at)));
        line.leave(numbers[leaves], sooner);
        assert_eq!(times(&line), expected, "after {leaves} has left");
    }
    let mut line = Line::default();
    let numbers = [10, 20, 30].map(|at| line.enter(ms(at)));
    line.leave(numbers[0], Nanos::ZERO);
    assert_eq!(times(&line), [20, 30], "one that goes takes nothing with it");
    line.leave(numbers[1], sooner);
    line.leave(numbers[2], sooner);
    assert_eq!(times(&line), [0; 0]);
    line.enter(ms(5));
    assert_eq!(times(&line), [5]);
}

/// Any order of coming and leaving, against a list of times.
#[test]
fn the_line_is_a_list_of_times() {
    let mut random = tollgate_testkit::Random::new(7);
    for _ in 0..200 {
        let (mut line, mut model): (Line, Vec<(u64, u64)>) = (Line::default(), Vec::new());
        for _ in 0..100 {
            if random.below(3) > 0 || model.is_empty() {
                let at = model.last().map_or(random.below(20), |(_, at)| at + random.below(20));
                model.push((line.enter(Timestamp::from_nanos(at)), at));
            } else {
                let place = random.below(model.len() as u64) as usize;
                let (number, left_at) = model.remove(place);
                let sooner = random.below(30);
                // Not before the one who left would have gone.
                let room = model.get(place).map_or(0, |(_, at)| at - left_at);
                let first_moves = sooner.min(room);
                model[place..].iter_mut().for_each(|(_, at)| *at -= first_moves);
                line.leave(number, Nanos::new(sooner));
            }
            let mut at = line.first_at;
            let mut times = Vec::new();
            for (place, waiter) in line.waiting.iter().enumerate() {
                at = if place > 0 { at.after(waiter.after) } else { at };
                times.push((waiter.number, at.as_nanos()));
            }
            assert_eq!(times, model);
        }
    }
}

/// A limiter, and the moments at which requests that come together go, those of `leaving` having left after 1 ms.
async fn go(rule: impl Into<tollgate::Rule>, count: usize, leaving: &[usize]) -> (Vec<u64>, KeyedLimiter) {
    let clock = Clock::manual();
    let limiter = KeyedLimiter::builder(rule.into()).clock(clock.clone()).build();
    let holding = Arc::new(Holding::default());
    let went = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..count {
        let now = clock.now();
        let request = limiter.ask("index");
        let delay = request.check_at(now).outcome.delay();
        let (holding, clock, went, turn) =
            (Arc::clone(&holding), clock.clone(), Arc::clone(&went), request.turn());
        tasks.push(tokio::spawn(async move {
            if !delay.is_zero() {
                holding.until(Some(turn), delay, now, &clock).await;
            }
            went.lock().push((number, clock.now().as_nanos() / 1_000_000));
        }));
    }
    for step in 0..2000 {
        if step == 1 {
            leaving.iter().for_each(|number| tasks[*number].abort());
        }
        clock.advance(Duration::from_millis(1));
        tokio::time::advance(Duration::from_millis(1)).await;
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(holding.waiting(), 0);
    let went = went.lock().clone();
    assert!(went.is_sorted(), "they go in the order in which they came: {went:?}");
    (went.into_iter().map(|(_, at)| at).collect(), limiter)
}

#[tokio::test(start_paused = true)]
async fn a_queue_lets_one_go_at_a_time_and_closes_up_when_some_leave() {
    let queue = || LeakyBucket::new(Rate::per_second(10).unwrap(), 9).unwrap();
    let (all, _) = go(queue(), 5, &[]).await;
    assert_eq!(all, [1, 100, 200, 300, 400]);
    let (rest, limiter) = go(queue(), 5, &[1, 3]).await;
    assert_eq!(rest, [1, 100, 200]);
    assert_eq!(limiter.remaining("index"), 9);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_with_a_wait_does_so_too() {
    let bucket = TokenBucket::new(Rate::per_second(10).unwrap(), 1).unwrap();
    let rule = tollgate::MaxWait::new(bucket, Duration::from_secs(1), 10).unwrap();
    let (rest, _) = go(rule, 5, &[2]).await;
    assert_eq!(rest, [1, 100, 200, 300]);
}

#[tokio::test(start_paused = true)]
async fn when_all_leave_the_next_goes_at_once() {
    let clock = Clock::manual();
    let rule = LeakyBucket::new(Rate::per_second(10).unwrap(), 9).unwrap();
    let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
    let holding = Holding::default();
    let ask = || limiter.ask("index").check_at(clock.now()).outcome.delay();
    assert!(ask().is_zero());
    let held: Vec<_> = (0..8)
        .map(|_| (ask(), limiter.ask("index").turn()))
        .map(|(delay, turn)| Box::pin(holding.until(Some(turn), delay, clock.now(), &clock)))
        .collect();
    let mut held: Vec<_> = held;
    for wait in &mut held {
        let mut context = Context::from_waker(Waker::noop());
        assert!(wait.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(holding.waiting(), 8);
    clock.advance(Duration::from_millis(100)); // the one that went has left its place behind
    drop(held);
    assert_eq!(holding.waiting(), 0);
    assert!(ask().is_zero());
}

/// The moments at which a line lets go of one a millisecond that nobody has looked at until half a second has passed.
#[test]
fn after_a_delay_only_a_little_is_made_good_for() {
    let mut line = Line::default();
    let numbers: Vec<u64> = (0..1000).map(|place| line.enter(ms(place))).collect();
    let (mut now, mut went) = (ms(500), Vec::new());
    for number in numbers {
        now = now.max(line.first_at);
        line.slip(now);
        line.leave(number, Nanos::ZERO);
        went.push(now.as_nanos() / 1_000_000);
    }
    assert_eq!(went[..26], [500; 26], "25 ms are made good for");
    assert_eq!(went[26..30], [501, 502, 503, 504]);
    assert_eq!(went[998..], [1473, 1474]);
}

/// A queue of ten, one each 100 ms, that stands still for most of a second: it holds ten all the same.
#[tokio::test(start_paused = true)]
async fn a_queue_that_stood_still_is_no_longer_than_it_may_be() {
    let clock = Clock::manual();
    let rule = LeakyBucket::new(Rate::per_second(10).unwrap(), 10).unwrap();
    let limiter = KeyedLimiter::builder(rule).clock(clock.clone()).build();
    let holding = Holding::default();
    let mut context = Context::from_waker(Waker::noop());
    let mut held = Vec::new();
    let come = |held: &mut Vec<Pin<Box<_>>>| {
        let now = clock.now();
        let decision = limiter.ask("index").check_at(now);
        let delay = decision.outcome.delay();
        if decision.is_allowed() && !delay.is_zero() {
            held.push(Box::pin(holding.until(Some(limiter.ask("index").turn()), delay, now, &clock)));
        }
        decision.is_allowed()
    };
    assert_eq!((0..20).filter(|_| come(&mut held)).count(), 10);
    held.iter_mut().for_each(|wait| assert!(wait.as_mut().poll(&mut context).is_pending()));
    clock.advance(Duration::from_millis(850)); // eight should have gone
    assert!(held[0].as_mut().poll(&mut context).is_ready());
    // The other eight still wait, so that there is room for one or two, and not for nine.
    let more = (0..20).filter(|_| come(&mut held)).count();
    assert!((1..=2).contains(&more), "{more}");
    assert!(holding.waiting() <= 10, "{}", holding.waiting());
}
