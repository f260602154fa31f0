//! Token bucket, leaky bucket, waiting and burst credits against their oracles.

use std::time::Duration;

use tollgate_core::{
    Algorithm, BurstCredits, Decision, Holds, LeakyBucket, MaxWait, Nanos, Outcome, Rate, Tat, Timestamp,
    TokenBucket,
};
use tollgate_testkit::oracle::{self, LeakyQueue};
use tollgate_testkit::{Random, Trace, answer, rates};

use super::compare::{RUNS, STEPS, compare};
use super::plain::answer;

const YEAR: u64 = 365 * 86_400 * 1_000_000_000;

/// A rate, and the same as the core keeps it: tokens per nanoseconds, exact up to 64 pieces a nanosecond and
/// rounded up to 1/64 ns beyond. Computed here anew.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) rate: Rate,
    pub(crate) tokens: u64,
    pub(crate) period: u64,
    /// How far apart times may be before the state's word wraps.
    pub(crate) horizon: u64,
}

pub(crate) fn kept(tokens: u64, period: u64) -> Kept {
    let divisor = gcd(tokens, period);
    let rate = Rate::new(tokens, Duration::from_nanos(period)).unwrap();
    let (tokens, period) = (tokens / divisor, period / divisor);
    let horizon = if tokens == 1 { 1 << 62 } else { 4 * YEAR };
    if tokens <= 64 {
        return Kept { rate, tokens, period, horizon };
    }
    let ticks = (u128::from(period) * 64).div_ceil(tokens.into());
    Kept { rate, tokens: 64, period: ticks.try_into().unwrap(), horizon }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The `seed`th rate, a capacity that its state can hold, and the time scale of both.
pub(crate) fn numbers(seed: u64) -> (Kept, u64, Random) {
    let mut random = Random::new(seed);
    let (tokens, period) = rates(seed).nth(1).unwrap();
    let kept = kept(tokens, period);
    let most = (1 << 62) / kept.period;
    let largest = if random.chance(1, 2) { 20 } else { 1_000_000 };
    (kept, random.log_uniform(1, most.min(largest)), random)
}

fn trace(seed: u64, kept: &Kept, capacity: u64) -> Trace {
    Trace::new(seed, kept.period / kept.tokens, capacity).longest_idle(kept.horizon.min(10 * YEAR))
}

#[test]
fn token_bucket_equals_its_oracle() {
    compare(RUNS, |seed| {
        let (kept, burst, _) = numbers(seed);
        let rule = TokenBucket::new(kept.rate, burst).unwrap();
        let oracle = oracle::TokenBucket::new(kept.tokens, kept.period, burst);
        (rule, oracle, trace(seed, &kept, burst), kept.horizon)
    });
}

#[test]
fn token_bucket_that_keeps_its_arrival_time_equals_its_oracle() {
    let mut random = Random::new(1);
    let mut changes = 0;
    for seed in 0..RUNS * tollgate_testkit::effort() {
        // Three sets of numbers, of which any request may bring any; as far as all of them can reach.
        let all: Vec<_> = (0..3).map(|i| numbers(3 * seed + i)).collect();
        let all: Vec<(Kept, u64)> = all
            .into_iter()
            .map(|(kept, burst, _)| (kept, burst.min((YEAR * kept.tokens / kept.period).max(1))))
            .collect();
        let rule = |place: usize| {
            let (kept, burst) = all[place];
            TokenBucket::new(kept.rate, burst).unwrap().keeping_arrival_time()
        };
        let (first, burst) = &all[0];
        let mut oracle = oracle::TokenBucket::new(first.tokens, first.period, *burst);
        let (mut state, mut current) = (Tat::default(), 0);
        for step in trace(seed, first, *burst).take(STEPS).take_while(|step| step.now < YEAR) {
            let now = Timestamp::from_nanos(step.now);
            let next = random.between(0, 2) as usize;
            if next != current {
                rule(next).convert(&rule(current), &mut state, now);
                let (kept, burst) = all[next];
                oracle.change_keeping_time(step.now, kept.tokens, kept.period, burst);
                (current, changes) = (next, changes + 1);
            }
            let decision = answer(rule(current).decide(&mut state, step.cost, now));
            assert_eq!(
                decision,
                oracle.ask(step.now, step.cost),
                "seed {seed}: {step:?}, {:?}",
                all[current]
            );
        }
    }
    assert!(changes > 100_000, "{changes}");
}

#[test]
fn leaky_bucket_equals_its_oracle() {
    compare(RUNS, |seed| {
        let (kept, capacity, _) = numbers(seed);
        let rule = LeakyBucket::new(kept.rate, capacity).unwrap();
        let oracle = LeakyQueue::new(kept.tokens, kept.period, capacity);
        (rule, oracle, trace(seed, &kept, capacity), kept.horizon)
    });
}

#[test]
fn leaky_bucket_with_deadlines_equals_its_oracle() {
    let steps = RUNS * STEPS as u64 * tollgate_testkit::effort();
    let mut made = 0;
    for seed in 0.. {
        if made >= steps {
            return;
        }
        let (kept, capacity, mut random) = numbers(seed);
        let rule = LeakyBucket::new(kept.rate, capacity).unwrap();
        let mut oracle = LeakyQueue::new(kept.tokens, kept.period, capacity);
        let mut trace = trace(seed, &kept, capacity);
        let mut state = Tat::default();
        for i in 0..STEPS {
            let step = trace.next().unwrap();
            if step.now > kept.horizon {
                break;
            }
            made += 1;
            let now = Timestamp::from_nanos(step.now);
            let deadline = random.log_uniform(0, (kept.period / kept.tokens).saturating_mul(2 * capacity));
            let outcome = rule.test_within(&state, step.cost, now, Nanos::new(deadline));
            if outcome.is_allowed() {
                rule.spend(&mut state, step.cost, now);
            }
            let decision = answer(Decision { outcome, status: rule.status(&state, now) });
            let expected = oracle.ask_within(step.now, step.cost, deadline);
            assert_eq!(decision, expected, "seed {seed}, step {i}: {step:?} within {deadline} on {rule:?}");
            if let Some(answer::Retry::After(wait)) = expected.retry {
                trace.hint(wait);
            }
        }
    }
}

/// A wait of a few intervals, and few enough places that both bounds are met.
fn patience(kept: &Kept, random: &mut Random) -> (u64, u32) {
    let longest = (kept.period / kept.tokens).saturating_mul(8).clamp(1, YEAR);
    (random.log_uniform(1, longest), random.between(1, 6) as u32)
}

#[test]
fn token_bucket_with_max_wait_equals_its_oracle() {
    compare(RUNS, |seed| {
        let (kept, burst, mut random) = numbers(seed);
        let (max_wait, max_waiting) = patience(&kept, &mut random);
        let burst = burst.min(((1 << 62) - max_wait * kept.tokens) / kept.period).max(1);
        let bucket = TokenBucket::new(kept.rate, burst).unwrap();
        let rule = MaxWait::new(bucket, Duration::from_nanos(max_wait), max_waiting).unwrap();
        let oracle = oracle::TokenBucket::new(kept.tokens, kept.period, burst);
        let oracle = oracle.with_max_wait(max_wait, max_waiting.into());
        (rule, oracle, trace(seed, &kept, burst), kept.horizon)
    });
}

#[test]
fn leaky_bucket_with_max_wait_equals_its_oracle() {
    compare(RUNS, |seed| {
        let (kept, capacity, mut random) = numbers(seed);
        let (max_wait, max_waiting) = patience(&kept, &mut random);
        let bucket = LeakyBucket::new(kept.rate, capacity).unwrap();
        let rule = MaxWait::new(bucket, Duration::from_nanos(max_wait), max_waiting).unwrap();
        let oracle = LeakyQueue::new(kept.tokens, kept.period, capacity);
        let oracle = oracle.with_max_wait(max_wait, max_waiting.into());
        (rule, oracle, trace(seed, &kept, capacity), kept.horizon)
    });
}

#[test]
fn burst_credits_equal_their_oracle() {
    compare(RUNS, |seed| {
        let (tokens, period) = rates(seed).find(|(tokens, period)| *tokens < period / 12).unwrap();
        let mut random = Random::new(seed);
        let (base, peak) = (kept(tokens, period), kept(tokens * random.between(2, 12), period));
        let most = (1 << 62) / base.period.max(peak.period);
        let credits = random.log_uniform(1, most.min(100_000));
        let peak_burst = random.log_uniform(1, most.min(2000));
        let rule = BurstCredits::with_peak_burst(base.rate, peak.rate, credits, peak_burst).unwrap();
        let oracle = oracle::BurstCredits::new(
            base.tokens,
            base.period,
            credits,
            peak.tokens,
            peak.period,
            peak_burst,
        );
        let horizon = base.horizon.min(peak.horizon);
        let trace = Trace::new(seed, base.period / base.tokens, credits.min(peak_burst));
        (rule, oracle, trace.longest_idle(horizon.min(10 * YEAR)), horizon)
    });
}

#[test]
fn credits_that_last_are_as_many_as_the_oracle_says() {
    let (mut random, mut all) = (Random::new(1), rates(1).zip(rates(2)));
    let mut made = 0;
    for _ in 0..RUNS * 100 * tollgate_testkit::effort() {
        let ((tokens, period), (peak_tokens, peak_period)) = all.next().unwrap();
        let burst_for = random.log_uniform(1, 10_000 * period.max(peak_period).min(YEAR / 1000));
        let rate = |tokens, period| Rate::new(tokens, Duration::from_nanos(period)).unwrap();
        let (base, peak) = (rate(tokens, period), rate(peak_tokens, peak_period));
        let expected =
            oracle::BurstCredits::ceiling_for((tokens, period), (peak_tokens, peak_period), burst_for);
        let lasting = BurstCredits::lasting(base, peak, Duration::from_nanos(burst_for));
        let Ok(credits) = u64::try_from(expected) else {
            assert!(lasting.is_err(), "{base} and {peak} for {burst_for}");
            continue;
        };
        assert_eq!(lasting, BurstCredits::new(base, peak, credits), "{base} and {peak} for {burst_for}");
        made += u64::from(lasting.is_ok());
    }
    assert!(made > RUNS * 10, "{made}");
}

#[test]
fn a_rate_the_word_cannot_hold_is_late_and_never_early() {
    // Against the rate that was asked for: whoever is admitted would have been there too, and nobody
    // waits more than 1/64 ns longer for each token spent so far.
    let is_awkward = |&(tokens, period): &(u64, u64)| tokens / gcd(tokens, period) > 64;
    let mut admitted = 0;
    for seed in 0..RUNS {
        let (tokens, period) = rates(seed).find(is_awkward).unwrap();
        let rate = Rate::new(tokens, Duration::from_nanos(period)).unwrap();
        let burst = 1 + seed % 50;
        let rule = TokenBucket::new(rate, burst).unwrap();
        let mut exact = oracle::TokenBucket::new(tokens, period, burst);
        let mut state = Tat::default();
        let (mut spent, mut latest) = (0, 0);
        for mut step in Trace::new(seed, period / tokens, burst).longest_idle(YEAR / 100).take(STEPS) {
            // Backwards, the slower line is the flatter one; that is not what is asked here.
            latest = step.now.max(latest);
            step.now = latest;
            let now = Timestamp::from_nanos(step.now);
            match rule.decide(&mut state, step.cost, now).outcome {
                Outcome::Allow { .. } => {
                    spent += step.cost;
                    admitted += 1;
                    assert!(exact.ask(step.now, step.cost).allowed, "seed {seed}: early at {step:?}");
                }
                Outcome::Deny { retry } if step.cost <= burst => {
                    let tollgate_core::Retry::After(wait) = retry else { panic!("{retry:?}") };
                    let due = match exact.would(step.now, step.cost).retry {
                        Some(answer::Retry::After(due)) => due,
                        _ => 0,
                    };
                    let late = (spent + burst).div_ceil(64) + 1;
                    let wait = wait.get();
                    assert!((due..=due + late).contains(&wait), "seed {seed}: {wait} for {due} at {step:?}");
                }
                Outcome::Deny { .. } => {}
            }
        }
    }
    assert!(admitted > 100_000);
}
