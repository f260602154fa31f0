//! The formulas of the theoretical arrival time (TAT), in exact fractions, against the two bucket
//! oracles.
//!
//! The oracles hold tokens and a backlog; that both say the same, also when the clock steps back,
//! is what makes either believable.

use super::{LeakyQueue, TokenBucket};
use crate::answer::{Answer, Retry};
use crate::random::Random;
use crate::trace::{Trace, rates};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{ToPrimitive, Zero};

/// The state of docs/vectors.md, token bucket and leaky bucket, with T = `period / tokens` and b = `burst`.
struct Formula {
    interval: BigRational,
    burst: u64,
    tat: BigRational,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Admits into debt, as far as it is paid back within this time.
    Bucket { max_wait: u64 },
    /// Holds every request until what came before it is done, if that is within this time.
    Queue { deadline: u64 },
    /// The same for everybody, so that what would be later does not remain.
    QueueWithin { max_wait: u64 },
}

impl Formula {
    fn new(kind: Kind, tokens: u64, period: u64, burst: u64) -> Self {
        let interval = BigRational::new(BigInt::from(period), BigInt::from(tokens));
        Self { interval, burst, tat: BigRational::zero(), kind }
    }

    fn ask(&mut self, now: u64, cost: u64) -> Answer {
        let now = whole(now);
        let tolerance = whole(self.burst) * &self.interval;
        let from = self.tat.clone().max(now.clone());
        let new = &from + whole(cost) * &self.interval;
        let (delay, wait) = match self.kind {
            Kind::Bucket { max_wait } => {
                let delay = &new - &tolerance - &now;
                (delay.clone(), delay - whole(max_wait))
            }
            Kind::Queue { deadline } | Kind::QueueWithin { max_wait: deadline } => {
                let delay = &from - &now;
                (delay.clone(), (delay - whole(deadline)).max(&new - &tolerance - &now))
            }
        };
        let decision = if cost == 0 {
            Ok(0)
        } else if cost > self.burst {
            Err(Retry::Never)
        } else if wait > BigRational::zero() {
            Err(Retry::After(rounded_up(&wait)))
        } else {
            self.tat = new;
            Ok(rounded_up(&delay))
        };
        let ahead = (&self.tat - now).max(BigRational::zero());
        let mut remaining = ((tolerance - &ahead) / &self.interval).floor();
        if let Kind::QueueWithin { max_wait } = self.kind {
            remaining = remaining.min(((whole(max_wait) - &ahead) / &self.interval).floor() + whole(1));
        }
        Answer::new(decision, rounded_up(&remaining), rounded_up(&ahead))
    }
}

fn whole(number: u64) -> BigRational {
    BigRational::from_integer(BigInt::from(number))
}

fn rounded_up(number: &BigRational) -> u64 {
    number.clone().max(BigRational::zero()).ceil().to_integer().to_u64().unwrap_or(u64::MAX)
}

fn agree(mut oracle: impl FnMut(u64, u64) -> Answer, mut formula: Formula, mut trace: Trace) {
    for number in 0..1000 {
        let step = trace.next().expect("a trace never ends");
        let (found, expected) = (oracle(step.now, step.cost), formula.ask(step.now, step.cost));
        assert_eq!(found, expected, "step {number}: {step:?}, {:?}", formula.kind);
        if let Some(Retry::After(wait)) = found.retry {
            trace.hint(wait);
        }
    }
}

#[test]
fn tokens_and_arrival_times_decide_alike() {
    for (seed, (tokens, period)) in (0..60).zip(rates(1)) {
        let mut random = Random::new(seed);
        let burst = random.log_uniform(1, 1000);
        let max_wait = random.log_uniform(1, 20 * period / tokens + 1);
        let trace = || Trace::new(seed, period / tokens, burst);
        let formula = |kind| Formula::new(kind, tokens, period, burst);

        let mut bucket = TokenBucket::new(tokens, period, burst);
        agree(|now, cost| bucket.ask(now, cost), formula(Kind::Bucket { max_wait: 0 }), trace());
        let mut waits = TokenBucket::new(tokens, period, burst).with_max_wait(max_wait, u64::MAX);
        agree(|now, cost| waits.ask(now, cost), formula(Kind::Bucket { max_wait }), trace());

        let mut queue = LeakyQueue::new(tokens, period, burst);
        agree(|now, cost| queue.ask(now, cost), formula(Kind::Queue { deadline: u64::MAX }), trace());
        let (mut queue, deadline) = (LeakyQueue::new(tokens, period, burst), max_wait);
        let within = |now, cost| queue.ask_within(now, cost, deadline);
        agree(within, formula(Kind::Queue { deadline }), trace());
        let mut waits = LeakyQueue::new(tokens, period, burst).with_max_wait(max_wait, u64::MAX);
        agree(|now, cost| waits.ask(now, cost), formula(Kind::QueueWithin { max_wait }), trace());
    }
}
