//! What holds for every rate oracle on random traces: the oracles are tested too.

use super::{
    BurstCredits, CounterMode, FixedWindow, LeakyQueue, Oracle, SlidingCounter, SlidingLog, TokenBucket,
};
use crate::answer::{Answer, Retry};
use crate::random::Random;
use crate::trace::{Trace, rates};

/// An oracle under a name, with the time scale and the capacity to make a trace from.
struct Subject {
    name: String,
    oracle: Box<dyn Oracle>,
    scale: u64,
    capacity: u64,
}

/// One of each kind with random numbers.
fn subjects(seed: u64) -> Vec<Subject> {
    let mut random = Random::new(seed);
    let (tokens, period) = rates(random.bits()).next().expect("rates never end");
    let capacity = random.log_uniform(1, 1000);
    let window = random.log_uniform(1, 3_600_000_000_000);
    let buckets = u32::try_from(random.log_uniform(1, 60)).expect("at most 60");
    let interval = period / tokens;
    let counter = |mode| Box::new(SlidingCounter::new(capacity, window, buckets, mode));
    let bucket = TokenBucket::new(tokens, period, capacity);
    let queue = LeakyQueue::new(tokens, period, capacity);
    let (max_wait, max_waiting) = (random.log_uniform(1, interval * 20 + 1), random.below(20));
    let credits = BurstCredits::new(tokens, period, capacity * 5, tokens * 3, period, capacity);
    let all: Vec<(&str, Box<dyn Oracle>, u64)> = vec![
        ("token bucket", Box::new(bucket.clone()), interval),
        ("token bucket that waits", Box::new(bucket.with_max_wait(max_wait, max_waiting)), interval),
        ("leaky queue", Box::new(queue.clone()), interval),
        ("leaky queue that waits", Box::new(queue.with_max_wait(max_wait, max_waiting)), interval),
        ("fixed window", Box::new(FixedWindow::aligned(capacity, window)), window),
        ("anchored window", Box::new(FixedWindow::anchored(capacity, window)), window),
        ("sliding log", Box::new(SlidingLog::new(capacity, window)), window / 10),
        ("sliding counter, interpolate", counter(CounterMode::Interpolate), window / u64::from(buckets)),
        ("sliding counter, strict", counter(CounterMode::Strict), window / u64::from(buckets)),
        ("sliding counter, lenient", counter(CounterMode::Lenient), window / u64::from(buckets)),
        ("burst credits", Box::new(credits), interval),
    ];
    let named = all.into_iter().map(|(name, oracle, scale)| Subject {
        name: format!("{name}, seed {seed}"),
        oracle,
        scale,
        capacity,
    });
    named.collect()
}

#[test]
fn random_traces_keep_the_common_rules() {
    for seed in 0..60 {
        for Subject { name, mut oracle, scale, capacity } in subjects(seed) {
            let mut trace = Trace::new(seed, scale, capacity);
            let (mut allowed, mut denied) = (0, 0);
            for _ in 0..1000 {
                let step = trace.next().expect("a trace never ends");
                let (now, cost) = (step.now, step.cost);
                let before = oracle.would(now, 0);
                let expected = oracle.would(now, cost);
                let answer = oracle.ask(now, cost);
                let told = format!("{name}: {step:?} gives {answer:?} after {before:?}");
                let decision = |answer: Answer| (answer.allowed, answer.delay, answer.retry);
                assert_eq!(decision(answer), decision(expected), "{told}");
                match answer.retry {
                    None => allowed += 1,
                    Some(Retry::After(wait)) => {
                        assert!(cost <= capacity && wait > 0, "{told}");
                        assert_eq!(
                            (answer.remaining, answer.reset),
                            (before.remaining, before.reset),
                            "{told}"
                        );
                        if let Some(then) = now.checked_add(wait) {
                            let early = oracle.would(then - 1, cost);
                            assert_eq!(early.retry, Some(Retry::After(1)), "{told}");
                            assert!(oracle.would(then, cost).allowed, "{told}");
                        }
                        denied += 1;
                        trace.hint(wait);
                    }
                    Some(Retry::Never) => assert!(cost > capacity, "{told}"),
                    Some(Retry::Unknown) => panic!("{told}"),
                }
                if cost == 0 {
                    assert_eq!((answer, answer.allowed, answer.delay), (before, true, 0), "{told}");
                }
                let full = oracle.would(now.saturating_add(answer.reset), 0);
                assert_eq!(full.reset, 0, "{told}");
                if answer.reset > 0 {
                    assert_eq!(oracle.would(now + (answer.reset - 1), 0).reset, 1, "{told}");
                }
            }
            assert!(allowed > 50 && denied > 20, "{name}: {allowed} allowed, {denied} denied");
        }
    }
}
