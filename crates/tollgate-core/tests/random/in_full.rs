//! Charges in full, which may go beyond the limit, beside slow models of each kind.

use std::time::Duration;

use tollgate_core::{
    Algorithm, Align, BurstCredits, FixedWindow, Holds, LeakyBucket, MaxWait, Mode, Nanos, Outcome, Rate,
    SlidingCounter, SlidingLog, Timestamp, TokenBucket,
};
use tollgate_testkit::Random;

const STEPS: usize = 20_000;

/// What is known of a key by its definition: whether a cost fits, and whether it is above its limit.
trait Model {
    fn used(&self, now: u64) -> u64;
    fn spend_in_full(&mut self, cost: u64, now: u64);
}

/// Steps in time order: costs of 0, small ones, and some above the limit.
fn steps(random: &mut Random, scale: u64, limit: u64) -> impl Iterator<Item = (u64, u64)> + use<'_> {
    let mut now = random.below(1 << 40);
    (0..STEPS).map(move |_| {
        if random.chance(2, 3) {
            now += random.log_uniform(1, scale.max(2));
        }
        let cost = match random.below(8) {
            0 | 1 => 0,
            2 => limit + random.between(1, 2 * limit),
            3 => random.between(1, limit),
            _ => random.between(1, limit.div_ceil(10)),
        };
        (now, cost)
    })
}

/// The rule allows what fits, denies cost 0 exactly while the key is above its limit, and its wait is exact: a tick
/// before it is still denied, then it is allowed.
fn compare<A: Algorithm>(rule: &A, model: &mut impl Model, steps: impl Iterator<Item = (u64, u64)>) {
    let mut state = A::State::default();
    let at = Timestamp::from_nanos;
    for (step, (now, cost)) in steps.enumerate() {
        let used = model.used(now);
        let fits = used.saturating_add(cost) <= rule.capacity();
        let outcome = rule.test_in_full(&state, cost, at(now));
        assert_eq!(
            outcome.is_allowed(),
            fits,
            "step {step}: cost {cost} with {used} of {} used",
            rule.capacity()
        );
        if let Some(wait) = outcome.retry_after() {
            let then = now + wait.get();
            assert!(
                !rule.test_in_full(&state, cost, at(then - 1)).is_allowed(),
                "step {step}: {wait:?} is too long"
            );
            assert!(
                rule.test_in_full(&state, cost, at(then)).is_allowed(),
                "step {step}: {wait:?} is too short"
            );
        }
        rule.spend_in_full(&mut state, cost, at(now));
        model.spend_in_full(cost, now);
        let remaining = rule.capacity().saturating_sub(model.used(now));
        assert_eq!(rule.status(&state, at(now)).remaining, remaining, "step {step}");
    }
}

/// Units that are spent and not refilled yet, in parts of a token of which each nanosecond refills `rate`.
struct Tokens {
    spent: u128,
    at: u64,
    rate: u128,
    token: u128, // parts of one token
    burst: u64,
}

impl Tokens {
    fn spent(&self, now: u64) -> u128 {
        self.spent.saturating_sub(u128::from(now - self.at) * self.rate)
    }
}

impl Model for Tokens {
    fn used(&self, now: u64) -> u64 {
        u64::try_from(self.spent(now).div_ceil(self.token)).unwrap()
    }

    fn spend_in_full(&mut self, cost: u64, now: u64) {
        let most = 2 * u128::from(self.burst) * self.token; // one burst is owed at most
        self.spent = (self.spent(now) + u128::from(cost) * self.token).min(most);
        self.at = now;
    }
}

fn buckets(random: &mut Random) -> (Rate, u64, Tokens) {
    let (tokens, period) = (random.between(1, 60), random.log_uniform(1000, 10_000_000_000));
    let burst = random.log_uniform(1, 1000);
    let model = Tokens { spent: 0, at: 0, rate: tokens.into(), token: period.into(), burst };
    (Rate::new(tokens, Duration::from_nanos(period)).unwrap(), burst, model)
}

#[test]
fn buckets_owe_one_burst_at_most() {
    for seed in 0..20 {
        let random = &mut Random::new(seed);
        let (rate, burst, mut tokens) = buckets(random);
        let scale = rate.period().as_nanos() as u64 * burst / rate.tokens() / 4;
        compare(&TokenBucket::new(rate, burst).unwrap(), &mut tokens, steps(random, scale, burst));
        let (rate, burst, mut queue) = buckets(random);
        let scale = rate.period().as_nanos() as u64 * burst / rate.tokens() / 4;
        compare(&LeakyBucket::new(rate, burst).unwrap(), &mut queue, steps(random, scale, burst));
    }
}

/// Everything that was charged, and when.
struct Charges {
    charges: Vec<(u64, u64)>,
    window: u64,
    most: u64,
    counts: fn(&Self, charged: u64, now: u64) -> bool,
}

impl Model for Charges {
    fn used(&self, now: u64) -> u64 {
        let counted = self.charges.iter().filter(|(charged, _)| (self.counts)(self, *charged, now));
        counted.map(|(_, cost)| cost).sum()
    }

    fn spend_in_full(&mut self, cost: u64, now: u64) {
        let counted = |(charged, _): &(u64, u64)| (self.counts)(self, *charged, now);
        let counted: Vec<_> = self.charges.iter().copied().filter(counted).collect();
        self.charges = counted;
        let room = self.most.saturating_sub(self.used(now));
        self.charges.push((now, cost.min(room)));
    }
}

#[test]
fn windows_count_everything_until_they_end() {
    for seed in 0..20 {
        let random = &mut Random::new(seed);
        let (limit, window) = (random.log_uniform(1, 1000), random.log_uniform(1000, 10_000_000_000));
        let rule = FixedWindow::new(limit, Duration::from_nanos(window), Align::Epoch).unwrap();
        let counts = |model: &Charges, charged: u64, now: u64| charged / model.window == now / model.window;
        let mut model = Charges { charges: Vec::new(), window, most: u64::MAX, counts };
        compare(&rule, &mut model, steps(random, window, limit));
    }
}

#[test]
fn logs_hold_one_limit_beyond_their_limit() {
    for seed in 0..10 {
        let random = &mut Random::new(seed);
        let (limit, window) = (random.log_uniform(1, 100), random.log_uniform(1000, 10_000_000_000));
        let rule = SlidingLog::new(limit, Duration::from_nanos(window)).unwrap();
        let counts = |model: &Charges, charged: u64, now: u64| now - charged < model.window;
        let mut model = Charges { charges: Vec::new(), window, most: 2 * limit, counts };
        compare(&rule, &mut model, steps(random, window / 4, limit));
    }
}

#[test]
fn strict_and_lenient_counters_count_everything() {
    for seed in 0..10 {
        for mode in [Mode::Strict, Mode::Lenient] {
            let random = &mut Random::new(seed);
            let buckets = random.between(1, 8);
            let (limit, window) =
                (random.log_uniform(1, 1000), buckets * random.log_uniform(1000, 1_000_000_000));
            let rule =
                SlidingCounter::new(limit, Duration::from_nanos(window), buckets as u32, mode).unwrap();
            // `length` is the length of one sub-window. `counted` is the number of sub-windows that count.
            struct SubWindows {
                charges: Vec<(u64, u64)>,
                length: u64,
                counted: u64,
            }
            impl Model for SubWindows {
                fn used(&self, now: u64) -> u64 {
                    let age = |charged: u64| now / self.length - charged / self.length;
                    self.charges
                        .iter()
                        .filter(|(charged, _)| age(*charged) < self.counted)
                        .map(|(_, cost)| cost)
                        .sum()
                }
                fn spend_in_full(&mut self, cost: u64, now: u64) {
                    let (length, counted) = (self.length, self.counted);
                    self.charges.retain(|(charged, _)| now / length - charged / length < counted);
                    self.charges.push((now, cost));
                }
            }
            let counted = if mode == Mode::Strict { buckets + 1 } else { buckets };
            let mut model = SubWindows { charges: Vec::new(), length: window / buckets, counted };
            compare(&rule, &mut model, steps(random, window / 2, limit));
        }
    }
}

/// A bucket whose requests may wait is above its limit when nobody could wait any more.
#[test]
fn a_debt_within_the_longest_wait_is_not_above_the_limit() {
    let bucket = TokenBucket::new(Rate::per_second(1).unwrap(), 10).unwrap();
    let rule = MaxWait::new(bucket, Duration::from_secs(3), 100).unwrap();
    let (mut state, now) = (Default::default(), Timestamp::from_nanos(0));
    rule.spend_in_full(&mut state, 13, now);
    assert_eq!(rule.test_in_full(&state, 0, now), Outcome::ALLOW);
    rule.spend_in_full(&mut state, 2, now);
    assert_eq!(rule.test_in_full(&state, 0, now).retry_after(), Some(Nanos::new(2_000_000_000)));
    assert!(bucket.turns(&state.schedule(), now, 9).is_empty());
}

#[test]
fn both_buckets_of_burst_credits_are_charged_in_full() {
    let (rate, peak) = (Rate::per_second(1).unwrap(), Rate::per_second(10).unwrap());
    let rule = BurstCredits::with_peak_burst(rate, peak, 100, 10).unwrap();
    let (mut state, at) = (Default::default(), |s: u64| Timestamp::from_nanos(s * 1_000_000_000));
    rule.spend_in_full(&mut state, 50, at(0));
    // The peak owes a burst, which takes a second; the credits have 50 left.
    assert_eq!(rule.test_in_full(&state, 0, at(0)).retry_after(), Some(Nanos::new(1_000_000_000)));
    assert_eq!(rule.status(&state, at(2)).remaining, 10);
    rule.spend_in_full(&mut state, 1000, at(2));
    assert_eq!(rule.test_in_full(&state, 0, at(2)).retry_after(), Some(Nanos::new(100_000_000_000)));
}

/// The largest buckets and counts there are: nothing overflows.
#[test]
fn nothing_overflows() {
    let now = Timestamp::from_nanos(u64::MAX / 2);
    let large = TokenBucket::new(Rate::new(1, Duration::from_secs(1 << 30)).unwrap(), 4).unwrap();
    let mut tat = Default::default();
    (0..3).for_each(|_| large.spend_in_full(&mut tat, u64::MAX, now));
    assert!(!large.test_in_full(&tat, 0, now).is_allowed());
    let counter = SlidingCounter::new(1 << 62, Duration::from_secs(60), 4, Mode::Interpolate).unwrap();
    let mut counts = Default::default();
    (0..3).for_each(|_| counter.spend_in_full(&mut counts, u64::MAX, now));
    assert!(counter.test_in_full(&counts, 0, now).is_allowed()); // the counts end at the largest limit
    assert!(!counter.test_in_full(&counts, 1, now).is_allowed());
    let window = FixedWindow::new(1, Duration::from_secs(60), Align::First).unwrap();
    let mut used = Default::default();
    (0..3).for_each(|_| window.spend_in_full(&mut used, u64::MAX, now));
    assert!(!window.test_in_full(&used, 0, now).is_allowed());
}
